//! Making a session's conversation short: asks a model to sum it up, and says which line is to be written. Nothing is written here, so whatever breaks it off, the conversation is as it was.

use std::{sync::Arc, time::Duration};

use futures_util::StreamExt;
use homard_compact::{
    Compaction, History, Limits, Line, Settings, Task,
    compaction::{Outcome, Step},
    escalate::{GaveUp, Ladder},
    measure::measure,
    plan::Nothing,
    summary::{Ask, Previous, Refused, Way},
};
use homard_model::{ErrorKind, Event, Model, Request, tokens};
use homard_proto::{
    EntryId, RunId,
    message::{Message, StopReason, Usage, User},
    transcript::Kind,
};
use homard_store::{
    branch::{self, Compacted, Summary},
    timeline::TruncatedInput,
};
use serde_json::{Value, json};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::{
    conversation::{Conversation, TOKENS_AFTER},
    event::RunEvent,
    purse::Payer,
};

/// How long a model may take for one part of a summary.
const PATIENCE: Duration = Duration::from_secs(120);

/// How long all of it may take. After that no model is asked any more.
const MOST: Duration = Duration::from_secs(300);

/// What is to be made short, and for whom.
pub(crate) struct Work<'a> {
    /// What is told.
    pub(crate) conversation: &'a Conversation,
    /// How many tokens that takes, as well as it is known.
    pub(crate) tokens: u64,
    /// How.
    pub(crate) settings: &'a Settings,
    /// The window of the model that goes on.
    pub(crate) window: u64,
    /// What it is told besides the conversation, in tokens.
    pub(crate) overhead: u64,
    /// Who sums up: when one fails, the next one is asked.
    pub(crate) models: Vec<Arc<dyn Model>>,
    /// What the user asked to pay attention to.
    pub(crate) focus: Option<String>,
    /// The ways that were taken before.
    pub(crate) ladder: Ladder,
    /// Fires when it is to be broken off.
    pub(crate) cancel: CancellationToken,
    /// What pays for it.
    pub(crate) payer: Payer,
}

/// A conversation that was made short.
#[derive(Debug)]
pub(crate) struct Short {
    /// What came of it.
    pub(crate) outcome: Box<Outcome>,
    /// The first line that is kept; none if nothing is.
    first_kept: Option<EntryId>,
    /// How many tokens there were before, and how many there are now.
    pub(crate) tokens: (u64, u64),
    /// The ways that were taken by now.
    pub(crate) ladder: Ladder,
    /// What the model took that summed up.
    pub(crate) usage: Usage,
}

/// Why a conversation was not made short.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotShort {
    /// There is nothing to do.
    #[error("{0}")]
    Nothing(Nothing),
    /// It cannot be done.
    #[error("{0}")]
    GaveUp(GaveUp),
    /// It would cut a message that is not to be cut.
    #[error("the message does not fit")]
    TooLong(TruncatedInput),
    /// It was broken off.
    #[error("it was stopped")]
    Stopped,
}

/// What the conversation may take of a model's window, when so much is told besides.
pub(crate) fn limits(
    conversation: &Conversation,
    settings: &Settings,
    (window, overhead): (u64, u64),
    ladder: Ladder,
) -> Limits {
    let (lines, kept, summary) = (conversation.lines(), conversation.kept(), conversation.summary());
    let summed_up = summary.map_or(0, |summary| tokens::of_message(&summary.message));
    let mut scale = measure(&History { lines: &lines, kept }, overhead + summed_up).scale;
    if ladder.is_recovery() {
        scale = scale.after_overflow();
    }
    settings.limits(window, overhead, scale)
}

/// Whether a compaction that is asked for would find nothing to do. Asks no model.
pub(crate) fn has_nothing_to_do(
    conversation: &Conversation,
    settings: &Settings,
    (window, overhead): (u64, u64),
) -> bool {
    let (lines, kept, previous) = shown(conversation);
    let limits = limits(conversation, settings, (window, overhead), Ladder::default());
    let task = Task { lines, kept, previous, limits, focus: None, summary_windows: vec![window], mode: settings.mode };
    matches!(Compaction::new(task, Ladder::default()).step(), Step::Nothing(_))
}

/// What a model is shown of a conversation: its lines, how many the last compaction kept, and what that wrote.
fn shown(conversation: &Conversation) -> (Vec<Line>, Option<usize>, Option<Previous>) {
    let summary = conversation.summary();
    let previous = summary.map(|summary| Previous { text: summary.text.clone(), details: summary.details.clone() });
    (conversation.lines(), conversation.kept(), previous)
}

/// Makes a conversation short.
pub(crate) async fn shorten(work: Work<'_>) -> Result<Short, NotShort> {
    let (lines, kept, previous) = shown(work.conversation);
    let limits = limits(work.conversation, work.settings, (work.window, work.overhead), work.ladder);
    let ids: Vec<_> = lines.iter().map(|line| line.entry.clone()).collect();
    let task = Task {
        lines,
        kept,
        previous,
        limits,
        focus: work.focus,
        summary_windows: work.models.iter().map(|model| model.spec().context_window).collect(),
        mode: work.settings.mode,
    };
    let mut compaction = Compaction::new(task, work.ladder);
    let (deadline, mut usage) = (tokio::time::Instant::now() + MOST, Usage::default());
    loop {
        match compaction.step() {
            Step::Ask(question) => {
                let left = deadline.saturating_duration_since(tokio::time::Instant::now()).min(PATIENCE);
                // There is one as long as anything is asked.
                let Some(model) = work.models.get(compaction.asked()) else {
                    compaction.answer(Err(Refused::Failed));
                    continue;
                };
                let asked = ask(&**model, question, (&work.payer, &mut usage));
                let said = tokio::select! {
                    biased;
                    () = work.cancel.cancelled() => return Err(NotShort::Stopped),
                    said = timeout(left, asked) => said.unwrap_or(Err(Refused::Failed)),
                };
                compaction.answer(said.as_deref().map_err(|refused| *refused));
            }
            Step::Done(outcome) => {
                let first_kept = ids.get(outcome.kept).cloned();
                let tokens = calibrated(&outcome, work.tokens);
                return Ok(Short { outcome, first_kept, tokens, ladder: compaction.ladder(), usage });
            }
            Step::Nothing(nothing) => return Err(NotShort::Nothing(nothing)),
            Step::GaveUp(why) => return Err(NotShort::GaveUp(why)),
        }
    }
}

/// The least estimate that a number is compared with; below it the ratio says nothing.
const COMPARABLE: u64 = 1_000;

/// How many tokens there were, if so many were counted, and how many are left: estimates are as far from the truth after
/// as before. What is far below an estimate was counted by somebody who cannot count.
fn calibrated(outcome: &Outcome, counted: u64) -> (u64, u64) {
    let &Outcome { before, after, .. } = outcome;
    if before < COMPARABLE {
        return (counted, after);
    }
    let counted = counted.max(before / 4);
    let scaled = u128::from(after) * u128::from(counted.min(before.saturating_mul(4))) / u128::from(before);
    (counted, u64::try_from(scaled).unwrap_or(u64::MAX))
}

impl Short {
    /// How much of the newest message was kept, if that was not all.
    pub(crate) fn truncated(&self) -> Option<TruncatedInput> {
        branch::truncated(&self.outcome.details)
    }

    /// How it was done, in a word.
    pub(crate) fn way(&self) -> &'static str {
        self.outcome.way.map_or(RESULTS, Way::as_str)
    }

    /// What is told from now on, and the line that says so, under this name. It names the run that wrote it.
    pub(crate) fn apply(&self, told: &Conversation, id: &EntryId, run: &RunId) -> (Conversation, Kind) {
        let Outcome { summary, details, kept, .. } = &*self.outcome;
        let mut details = details.clone();
        if let Value::Object(details) = &mut details {
            details.insert("way".to_owned(), json!(self.way()));
            details.insert(TOKENS_AFTER.to_owned(), json!(self.tokens.1));
            details.insert(RUN.to_owned(), json!(run));
        }
        let before = self.tokens.0;
        let line = Kind::compaction(summary, self.first_kept.as_ref().unwrap_or(id), before, details.clone());
        let summary = Summary::new(summary.clone(), details, (id.clone(), Some(before)));
        (told.compacted(summary, *kept), line)
    }
}

/// The last compaction of a conversation, if this run made it.
pub(crate) fn made_by(run: &RunId, told: &Conversation) -> Option<Compacted> {
    let Summary { details, line: (id, before), .. } = told.summary()?;
    let number = |name: &str| details.get(name).and_then(Value::as_u64);
    let word = |name: &str| details.get(name).and_then(Value::as_str).map(str::to_owned);
    (word(RUN).as_deref() == Some(run.as_str())).then(|| Compacted {
        id: id.clone(),
        at: String::new(),
        summary: String::new(),
        tokens_before: *before,
        tokens_after: number(TOKENS_AFTER),
        way: word("way"),
        truncated: branch::truncated(details),
        is_undone: false,
    })
}

/// That a compaction was made, as the run that made it tells it. `next` says what follows it.
pub(crate) fn told(made: Compacted, next: Next) -> RunEvent {
    let ways = Way::ALL.map(Way::as_str);
    RunEvent::Compacted {
        entry: made.id,
        before: made.tokens_before.unwrap_or(0),
        after: made.tokens_after.unwrap_or(0),
        way: ways.into_iter().find(|way| made.way.as_deref() == Some(way)).unwrap_or(RESULTS),
        goes_on: next != Next::Nothing,
        input: made.truncated.filter(|_| next == Next::FirstAnswer),
    }
}

/// What follows a compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// The first answer to the newest message: what the compaction cut of that, no model has read.
    FirstAnswer,
    /// Another answer.
    Answer,
    /// Nothing: somebody asked for it.
    Nothing,
}

/// The word for a compaction that only shows less of results.
const RESULTS: &str = "results";

/// What names the run in the details of a compaction.
const RUN: &str = "runId";

/// Asks for a part of a summary.
async fn ask(model: &dyn Model, ask: Ask, (payer, usage): (&Payer, &mut Usage)) -> Result<String, Refused> {
    let prompt = tokens::estimate(&ask.system) + tokens::estimate(&ask.user);
    let mut request = Request {
        system: ask.system.into(),
        messages: vec![Arc::new(Message::User(User::text(ask.user, 0)))],
        max_output: Some(ask.max_tokens),
        ..Request::default()
    };
    // There are ways without a model.
    let Ok(hold) = payer.reserve(model.spec(), prompt, &mut request).await else { return Err(Refused::Failed) };
    let mut stream = model.stream(request);
    let mut said = String::new();
    while let Some(event) = stream.next().await {
        match event {
            Event::Text(delta) => said.push_str(&delta),
            Event::Thinking(_) | Event::Call(_) | Event::Seal(_) | Event::Alive => {}
            Event::Done(done) if done.stop == StopReason::Error => return Err(Refused::Failed),
            Event::Done(done) => {
                *usage += &done.usage;
                hold.settle(&done.usage);
                return Ok(said);
            }
            Event::Failed(error) if error.kind == ErrorKind::Overflow => return Err(Refused::Overflow),
            Event::Failed(_) => return Err(Refused::Failed),
        }
    }
    Err(Refused::Failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_told_in_the_tokens_of_whoever_counted() {
        let told = |before, after, counted| {
            let (summary, details, way) = (String::new(), Value::Null, None);
            calibrated(&Outcome { summary, details, way, kept: 0, rungs: Vec::new(), before, after }, counted)
        };
        assert_eq!(told(10_000, 4_000, 10_000), (10_000, 4_000));
        assert_eq!(told(10_000, 4_000, 15_000), (15_000, 6_000));
        assert_eq!(told(10_000, 4_000, 8_000), (8_000, 3_200));
        // Whoever counts so has not seen it, or has seen more than we know of.
        assert_eq!(told(10_000, 4_000, 100), (2_500, 1_000));
        assert_eq!(told(10_000, 4_000, 90_000), (90_000, 16_000));
        assert_eq!(told(900, 400, 600), (600, 400));
    }
}
