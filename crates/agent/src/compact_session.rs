//! Compaction of a session's history: asks a model for a summary and builds the transcript entry. Writes nothing
//! itself.

use std::{sync::Arc, time::Duration};

use futures_util::StreamExt;
use homard_compact::{
    Compaction, CompactionInput, CompactionLimits, History, HistoryLine, Settings,
    compaction::{CompactionStep, FinishedCompaction},
    escalate::{CompactionFailure, Ladder},
    measure::measure,
    plan::NothingToCompact,
    summary::{PreviousCompaction, SummaryFailure, SummaryMethod, SummaryRequest},
};
use homard_model::{ErrorKind, Model, ModelEvent, Request, tokens};
use homard_proto::{
    EntryId, RunId,
    message::{Message, StopReason, Usage, User},
    transcript::Kind,
};
use homard_store::{
    branch::{self, CompactionInfo, Summary},
    timeline::TruncatedInput,
};
use serde_json::{Value, json};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::{
    budget::RunBudget,
    event::RunEvent,
    history::{SessionHistory, TOKENS_AFTER},
};

/// Time limit for one part of a summary.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(120);

/// Time limit for the whole compaction. After that no model is asked any more.
const TOTAL_TIMEOUT: Duration = Duration::from_secs(300);

/// Parameters of a compaction.
pub(crate) struct CompactionTask<'a> {
    /// The history.
    pub(crate) history: &'a SessionHistory,
    /// Its number of tokens, as exact as known.
    pub(crate) tokens: u64,
    /// Compaction settings.
    pub(crate) settings: &'a Settings,
    /// Context window of the model that continues.
    pub(crate) window: u64,
    /// Tokens of its request besides the history.
    pub(crate) overhead: u64,
    /// Models for the summary: if one fails, the next one is asked.
    pub(crate) models: Vec<Arc<dyn Model>>,
    /// What the user asked to pay attention to.
    pub(crate) focus: Option<String>,
    /// Strategies already used.
    pub(crate) ladder: Ladder,
    /// Cancels the compaction.
    pub(crate) cancel: CancellationToken,
    /// Budget of the run.
    pub(crate) budget: RunBudget,
}

/// A compacted history.
#[derive(Debug)]
pub(crate) struct CompactionOutcome {
    /// Result of the compaction.
    pub(crate) outcome: Box<FinishedCompaction>,
    /// First entry that is kept; `None` if none is.
    first_kept: Option<EntryId>,
    /// Tokens before and after.
    pub(crate) tokens: (u64, u64),
    /// Strategies used so far.
    pub(crate) ladder: Ladder,
    /// Token usage of the summary requests.
    pub(crate) usage: Usage,
}

/// Why a history was not compacted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CompactionError {
    /// There is nothing to compact.
    #[error("{0}")]
    Nothing(NothingToCompact),
    /// It cannot be compacted.
    #[error("{0}")]
    GaveUp(CompactionFailure),
    /// It would truncate a message that must not be truncated.
    #[error("the message does not fit into the context window")]
    TooLong(TruncatedInput),
    /// It was cancelled.
    #[error("the compaction was stopped")]
    Stopped,
}

/// Returns how much of a model's window the history may use, given the overhead of the request.
pub(crate) fn limits(
    conversation: &SessionHistory,
    settings: &Settings,
    (window, overhead): (u64, u64),
    ladder: Ladder,
) -> CompactionLimits {
    let (lines, kept, summary) = (conversation.lines(), conversation.kept(), conversation.summary());
    let summed_up = summary.map_or(0, |summary| tokens::of_message(&summary.message));
    let mut scale = measure(&History { lines: &lines, kept }, overhead + summed_up).scale;
    if ladder.is_recovery() {
        scale = scale.after_overflow();
    }
    settings.limits(window, overhead, scale)
}

/// True if a requested compaction would have nothing to do. Makes no model request.
pub(crate) fn has_nothing_to_do(
    conversation: &SessionHistory,
    settings: &Settings,
    (window, overhead): (u64, u64),
) -> bool {
    let (lines, kept, previous) = compaction_input(conversation);
    let limits = limits(conversation, settings, (window, overhead), Ladder::default());
    let task = CompactionInput {
        lines,
        kept,
        previous,
        limits,
        focus: None,
        summary_windows: vec![window],
        mode: settings.mode,
    };
    matches!(Compaction::new(task, Ladder::default()).step(), CompactionStep::Nothing(_))
}

/// Returns the entries, how many of them the last compaction kept, and its summary.
fn compaction_input(conversation: &SessionHistory) -> (Vec<HistoryLine>, Option<usize>, Option<PreviousCompaction>) {
    let summary = conversation.summary();
    let previous =
        summary.map(|summary| PreviousCompaction { text: summary.text.clone(), details: summary.details.clone() });
    (conversation.lines(), conversation.kept(), previous)
}

/// Compacts a history.
pub(crate) async fn compact_history(work: CompactionTask<'_>) -> Result<CompactionOutcome, CompactionError> {
    let (lines, kept, previous) = compaction_input(work.history);
    let limits = limits(work.history, work.settings, (work.window, work.overhead), work.ladder);
    let ids: Vec<_> = lines.iter().map(|line| line.entry.clone()).collect();
    let task = CompactionInput {
        lines,
        kept,
        previous,
        limits,
        focus: work.focus,
        summary_windows: work.models.iter().map(|model| model.spec().context_window).collect(),
        mode: work.settings.mode,
    };
    let mut compaction = Compaction::new(task, work.ladder);
    let (deadline, mut usage) = (tokio::time::Instant::now() + TOTAL_TIMEOUT, Usage::default());
    loop {
        match compaction.step() {
            CompactionStep::Ask(question) => {
                let left = deadline.saturating_duration_since(tokio::time::Instant::now()).min(REQUEST_TIMEOUT);
                // There is a model as long as a request is pending.
                let Some(model) = work.models.get(compaction.model_index()) else {
                    compaction.answer(Err(SummaryFailure::Failed));
                    continue;
                };
                let asked = ask(&**model, question, (&work.budget, &mut usage));
                let said = tokio::select! {
                    biased;
                    () = work.cancel.cancelled() => return Err(CompactionError::Stopped),
                    said = timeout(left, asked) => said.unwrap_or(Err(SummaryFailure::Failed)),
                };
                compaction.answer(said.as_deref().map_err(|refused| *refused));
            }
            CompactionStep::Done(outcome) => {
                let first_kept = ids.get(outcome.kept).cloned();
                let tokens = calibrated(&outcome, work.tokens);
                return Ok(CompactionOutcome { outcome, first_kept, tokens, ladder: compaction.ladder(), usage });
            }
            CompactionStep::Nothing(nothing) => return Err(CompactionError::Nothing(nothing)),
            CompactionStep::GaveUp(why) => return Err(CompactionError::GaveUp(why)),
        }
    }
}

/// Minimum estimate for a comparison; below it the ratio is meaningless.
const MIN_COMPARABLE: u64 = 1_000;

/// Returns the tokens before and after, calibrated by a provider's count: the estimate after is assumed to be off by
/// the same factor as the estimate before. A count far below the estimate is not trusted.
fn calibrated(outcome: &FinishedCompaction, counted: u64) -> (u64, u64) {
    let &FinishedCompaction { before, after, .. } = outcome;
    if before < MIN_COMPARABLE {
        return (counted, after);
    }
    let counted = counted.max(before / 4);
    let scaled = u128::from(after) * u128::from(counted.min(before.saturating_mul(4))) / u128::from(before);
    (counted, u64::try_from(scaled).unwrap_or(u64::MAX))
}

impl CompactionOutcome {
    /// Returns how much of the newest message was kept, if it was truncated.
    pub(crate) fn truncated(&self) -> Option<TruncatedInput> {
        branch::truncated(&self.outcome.details)
    }

    /// Returns the name of the compaction strategy.
    pub(crate) fn strategy(&self) -> &'static str {
        self.outcome.method.map_or(RESULTS, SummaryMethod::as_str)
    }

    /// Returns the compacted history and the transcript entry with this id. The entry names the run that made it.
    pub(crate) fn apply(&self, told: &SessionHistory, id: &EntryId, run: &RunId) -> (SessionHistory, Kind) {
        let FinishedCompaction { summary, details, kept, .. } = &*self.outcome;
        let mut details = details.clone();
        if let Value::Object(details) = &mut details {
            details.insert("way".to_owned(), json!(self.strategy()));
            details.insert(TOKENS_AFTER.to_owned(), json!(self.tokens.1));
            details.insert(RUN.to_owned(), json!(run));
        }
        let before = self.tokens.0;
        let line = Kind::compaction(summary, self.first_kept.as_ref().unwrap_or(id), before, details.clone());
        let summary = Summary::new(summary.clone(), details, (id.clone(), Some(before)));
        (told.compacted(summary, *kept), line)
    }
}

/// Returns the last compaction of a history, if this run made it.
pub(crate) fn compaction_of_run(run: &RunId, told: &SessionHistory) -> Option<CompactionInfo> {
    let Summary { details, entry: (id, before), .. } = told.summary()?;
    let number = |name: &str| details.get(name).and_then(Value::as_u64);
    let word = |name: &str| details.get(name).and_then(Value::as_str).map(str::to_owned);
    (word(RUN).as_deref() == Some(run.as_str())).then(|| CompactionInfo {
        id: id.clone(),
        at: String::new(),
        summary: String::new(),
        tokens_before: *before,
        tokens_after: number(TOKENS_AFTER),
        strategy: word("way"),
        truncated: branch::truncated(details),
        is_undone: false,
    })
}

/// Builds the event of a compaction. `next` says what follows it.
pub(crate) fn compacted_event(made: CompactionInfo, next: AfterCompaction) -> RunEvent {
    let ways = SummaryMethod::ALL.map(SummaryMethod::as_str);
    RunEvent::Compacted {
        entry: made.id,
        before: made.tokens_before.unwrap_or(0),
        after: made.tokens_after.unwrap_or(0),
        way: ways.into_iter().find(|way| made.strategy.as_deref() == Some(way)).unwrap_or(RESULTS),
        goes_on: next != AfterCompaction::Nothing,
        input: made.truncated.filter(|_| next == AfterCompaction::FirstAnswer),
    }
}

/// What follows a compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AfterCompaction {
    /// The first answer to the newest message: no model has read what the compaction truncated of it.
    FirstAnswer,
    /// Another answer.
    Answer,
    /// Nothing: the compaction was requested.
    Nothing,
}

/// Name of a compaction that only shortens tool results.
const RESULTS: &str = "results";

/// Field of a compaction's details with the run id.
const RUN: &str = "runId";

/// Requests a part of a summary.
async fn ask(
    model: &dyn Model,
    ask: SummaryRequest,
    (payer, usage): (&RunBudget, &mut Usage),
) -> Result<String, SummaryFailure> {
    let prompt = tokens::estimate(&ask.system) + tokens::estimate(&ask.user);
    let mut request = Request {
        system: ask.system.into(),
        messages: vec![Arc::new(Message::User(User::text(ask.user, 0)))],
        max_output: Some(ask.max_tokens),
        ..Request::default()
    };
    // Without budget, strategies without a model remain.
    let Ok(hold) = payer.reserve(model.spec(), prompt, &mut request).await else { return Err(SummaryFailure::Failed) };
    let mut stream = model.stream(request);
    let mut said = String::new();
    while let Some(event) = stream.next().await {
        match event {
            ModelEvent::Text(delta) => said.push_str(&delta),
            ModelEvent::Thinking(_) | ModelEvent::Call(_) | ModelEvent::Signature(_) | ModelEvent::Heartbeat => {}
            ModelEvent::Done(done) if done.stop == StopReason::Error => return Err(SummaryFailure::Failed),
            ModelEvent::Done(done) => {
                *usage += &done.usage;
                hold.settle(&done.usage);
                return Ok(said);
            }
            ModelEvent::Failed(error) if error.kind == ErrorKind::Overflow => return Err(SummaryFailure::Overflow),
            ModelEvent::Failed(_) => return Err(SummaryFailure::Failed),
        }
    }
    Err(SummaryFailure::Failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_told_in_the_tokens_of_whoever_counted() {
        let told = |before, after, counted| {
            let (summary, details, way) = (String::new(), Value::Null, None);
            calibrated(
                &FinishedCompaction { summary, details, method: way, kept: 0, strategies: Vec::new(), before, after },
                counted,
            )
        };
        assert_eq!(told(10_000, 4_000, 10_000), (10_000, 4_000));
        assert_eq!(told(10_000, 4_000, 15_000), (15_000, 6_000));
        assert_eq!(told(10_000, 4_000, 8_000), (8_000, 3_200));
        // A count this far off covers other content than the estimate.
        assert_eq!(told(10_000, 4_000, 100), (2_500, 1_000));
        assert_eq!(told(10_000, 4_000, 90_000), (90_000, 16_000));
        assert_eq!(told(900, 400, 600), (600, 400));
    }
}
