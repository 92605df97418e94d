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
    event::StoredEvent,
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
    history: &SessionHistory,
    settings: &Settings,
    window: u64,
    overhead: u64,
    ladder: Ladder,
) -> CompactionLimits {
    let (lines, kept, summary) = (history.lines(), history.kept(), history.summary());
    let summary_tokens = summary.map_or(0, |summary| tokens::of_message(&summary.message));
    let mut scale = measure(&History { lines: &lines, kept }, overhead + summary_tokens).scale;
    if ladder.is_recovery() {
        scale = scale.after_overflow();
    }
    settings.limits(window, overhead, scale)
}

/// True if a requested compaction would have nothing to do. Makes no model request.
pub(crate) fn has_nothing_to_do(history: &SessionHistory, settings: &Settings, window: u64, overhead: u64) -> bool {
    let (lines, kept, previous) = compaction_input(history);
    let limits = limits(history, settings, window, overhead, Ladder::default());
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
fn compaction_input(history: &SessionHistory) -> (Vec<HistoryLine>, Option<usize>, Option<PreviousCompaction>) {
    let summary = history.summary();
    let previous =
        summary.map(|summary| PreviousCompaction { text: summary.text.clone(), details: summary.details.clone() });
    (history.lines(), history.kept(), previous)
}

/// Compacts a history.
pub(crate) async fn compact_history(task: CompactionTask<'_>) -> Result<CompactionOutcome, CompactionError> {
    let (lines, kept, previous) = compaction_input(task.history);
    let limits = limits(task.history, task.settings, task.window, task.overhead, task.ladder);
    let ids: Vec<_> = lines.iter().map(|line| line.entry.clone()).collect();
    let input = CompactionInput {
        lines,
        kept,
        previous,
        limits,
        focus: task.focus,
        summary_windows: task.models.iter().map(|model| model.spec().context_window).collect(),
        mode: task.settings.mode,
    };
    let mut compaction = Compaction::new(input, task.ladder);
    let (deadline, mut usage) = (tokio::time::Instant::now() + TOTAL_TIMEOUT, Usage::default());
    loop {
        match compaction.step() {
            CompactionStep::Ask(request) => {
                let time_left = deadline.saturating_duration_since(tokio::time::Instant::now()).min(REQUEST_TIMEOUT);
                // There is a model as long as a request is pending.
                let Some(model) = task.models.get(compaction.model_index()) else {
                    compaction.answer(Err(SummaryFailure::Failed));
                    continue;
                };
                let answer_future = request_summary_part(&**model, request, &task.budget, &mut usage);
                let answer = tokio::select! {
                    biased;
                    () = task.cancel.cancelled() => return Err(CompactionError::Stopped),
                    answer = timeout(time_left, answer_future) => answer.unwrap_or(Err(SummaryFailure::Failed)),
                };
                compaction.answer(answer.as_deref().map_err(|failure| *failure));
            }
            CompactionStep::Done(outcome) => {
                let first_kept = ids.get(outcome.kept).cloned();
                let tokens = calibrated(&outcome, task.tokens);
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
    pub(crate) fn apply(&self, history: &SessionHistory, id: &EntryId, run: &RunId) -> (SessionHistory, Kind) {
        let FinishedCompaction { summary, details, kept, .. } = &*self.outcome;
        let mut details = details.clone();
        if let Value::Object(details) = &mut details {
            details.insert("way".to_owned(), json!(self.strategy()));
            details.insert(TOKENS_AFTER.to_owned(), json!(self.tokens.1));
            details.insert(RUN.to_owned(), json!(run));
        }
        let before = self.tokens.0;
        let entry = Kind::compaction(summary, self.first_kept.as_ref().unwrap_or(id), before, details.clone());
        let summary = Summary::new(summary.clone(), details, id.clone(), Some(before));
        (history.compacted(summary, *kept), entry)
    }
}

/// Returns the last compaction of a history, if this run made it.
pub(crate) fn compaction_of_run(run: &RunId, history: &SessionHistory) -> Option<CompactionInfo> {
    let Summary { details, entry: id, tokens_before: before, .. } = history.summary()?;
    let number = |name: &str| details.get(name).and_then(Value::as_u64);
    let string = |name: &str| details.get(name).and_then(Value::as_str).map(str::to_owned);
    (string(RUN).as_deref() == Some(run.as_str())).then(|| CompactionInfo {
        id: id.clone(),
        at: String::new(),
        summary: String::new(),
        tokens_before: *before,
        tokens_after: number(TOKENS_AFTER),
        strategy: string("way"),
        truncated: branch::truncated(details),
        is_undone: false,
    })
}

/// Builds the event of a compaction. `next` says what follows it.
pub(crate) fn compacted_event(compaction: CompactionInfo, next: AfterCompaction) -> StoredEvent {
    // The names by which a transcript stores the method; without a summary only tool results were truncated.
    let strategies = SummaryMethod::ALL.map(SummaryMethod::as_str);
    StoredEvent::Compacted {
        entry: compaction.id,
        before: compaction.tokens_before.unwrap_or(0),
        after: compaction.tokens_after.unwrap_or(0),
        strategy: strategies
            .into_iter()
            .find(|strategy| compaction.strategy.as_deref() == Some(strategy))
            .unwrap_or(RESULTS),
        continues: next != AfterCompaction::Nothing,
        input: compaction.truncated.filter(|_| next == AfterCompaction::FirstAnswer),
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
async fn request_summary_part(
    model: &dyn Model,
    summary_request: SummaryRequest,
    budget: &RunBudget,
    usage: &mut Usage,
) -> Result<String, SummaryFailure> {
    let prompt = tokens::estimate(&summary_request.system) + tokens::estimate(&summary_request.user);
    let mut request = Request {
        system: summary_request.system.into(),
        messages: vec![Arc::new(Message::User(User::text(summary_request.user, 0)))],
        max_output: Some(summary_request.max_tokens),
        ..Request::default()
    };
    // If the budget is used up, the caller falls back to strategies that need no model.
    let Ok(reservation) = budget.reserve(model.spec(), prompt, &mut request).await else {
        return Err(SummaryFailure::Failed);
    };
    let mut stream = model.stream(request);
    let mut summary = String::new();
    while let Some(event) = stream.next().await {
        match event {
            ModelEvent::Text(delta) => summary.push_str(&delta),
            ModelEvent::Thinking(_)
            | ModelEvent::Call(_)
            | ModelEvent::Signature(_)
            | ModelEvent::Heartbeat
            | ModelEvent::NoResponse(_) => {}
            ModelEvent::Done(done) if done.stop == StopReason::Error => return Err(SummaryFailure::Failed),
            ModelEvent::Done(done) => {
                *usage += &done.usage;
                reservation.settle(&done.usage);
                return Ok(summary);
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
    fn the_tokens_after_are_calibrated_by_the_providers_count() {
        let calibrate = |before, after, counted| {
            let (summary, details, method) = (String::new(), Value::Null, None);
            calibrated(
                &FinishedCompaction { summary, details, method, kept: 0, strategies: Vec::new(), before, after },
                counted,
            )
        };
        assert_eq!(calibrate(10_000, 4_000, 10_000), (10_000, 4_000));
        assert_eq!(calibrate(10_000, 4_000, 15_000), (15_000, 6_000));
        assert_eq!(calibrate(10_000, 4_000, 8_000), (8_000, 3_200));
        // A count this far off covers other content than the estimate.
        assert_eq!(calibrate(10_000, 4_000, 100), (2_500, 1_000));
        assert_eq!(calibrate(10_000, 4_000, 90_000), (90_000, 16_000));
        assert_eq!(calibrate(900, 400, 600), (600, 400));
    }
}
