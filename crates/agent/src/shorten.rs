//! Making a session's conversation short: reads it from disk, asks a model to sum it up, and says which line is to be
//! written. Nothing is written here, so whatever breaks it off, the conversation is as it was.

use std::{sync::Arc, time::Duration};

use futures_util::StreamExt;
use homard_compact::{
    Compaction, History, Line, Settings, Task,
    compaction::{Outcome, Step},
    escalate::{self, GaveUp, Ladder},
    measure::measure,
    plan::Nothing,
    summary::{Ask, Previous, Refused},
};
use homard_model::{ErrorKind, Event, Model, Request, tokens};
use homard_proto::{
    EntryId,
    message::{Message, StopReason, Usage, User},
    transcript::{Entry, Kind},
};
use homard_store::branch::{self, View};
use serde_json::{Value, json};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// How long a model may take for one part of a summary.
const PATIENCE: Duration = Duration::from_secs(120);

/// How long all of it may take. After that no model is asked any more.
const MOST: Duration = Duration::from_secs(300);

/// What is to be made short, and for whom.
pub(crate) struct Work<'a> {
    /// The transcript.
    pub(crate) entries: &'a [Entry],
    /// How.
    pub(crate) settings: &'a Settings,
    /// The window of the model that goes on.
    pub(crate) window: u64,
    /// What it is told besides the conversation, in tokens.
    pub(crate) overhead: u64,
    /// Who sums up.
    pub(crate) model: Arc<dyn Model>,
    /// What the user asked to pay attention to.
    pub(crate) focus: Option<String>,
    /// The ways that were taken before.
    pub(crate) ladder: Ladder,
    /// Fires when it is to be broken off.
    pub(crate) cancel: CancellationToken,
}

/// A conversation that was made short.
#[derive(Debug)]
pub(crate) struct Short {
    /// What came of it.
    pub(crate) outcome: Box<Outcome>,
    /// The first line that is kept; none if nothing is.
    pub(crate) first_kept: Option<EntryId>,
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
    /// It was broken off.
    #[error("it was stopped")]
    Stopped,
}

/// Makes a conversation short.
pub(crate) async fn shorten(work: Work<'_>) -> Result<Short, NotShort> {
    let view = branch::view(work.entries);
    let lines = lines(&view);
    let previous =
        view.summary.as_ref().map(|summary| Previous { text: summary.text.clone(), details: summary.details.clone() });
    let kept = view.summary.as_ref().map(|_| view.kept);
    let summed_up = view.summary.as_ref().map_or(0, |summary| tokens::of_message(&summary.message));
    let mut scale = measure(&History { lines: &lines, kept }, work.overhead + summed_up).scale;
    if work.ladder.is_recovery() {
        scale = scale.after_overflow();
    }
    let ids: Vec<_> = lines.iter().map(|line| line.entry.clone()).collect();
    let task = Task {
        lines,
        kept,
        previous,
        limits: work.settings.limits(work.window, work.overhead, scale),
        focus: work.focus,
        summary_window: work.model.spec().context_window,
        mode: work.settings.mode,
    };
    let mut compaction = Compaction::new(task, work.ladder);
    let (deadline, mut usage) = (tokio::time::Instant::now() + MOST, Usage::default());
    loop {
        match compaction.step() {
            Step::Ask(question) => {
                let left = deadline.saturating_duration_since(tokio::time::Instant::now()).min(PATIENCE);
                let asked = ask(&*work.model, question, &mut usage);
                let said = tokio::select! {
                    biased;
                    () = work.cancel.cancelled() => return Err(NotShort::Stopped),
                    said = timeout(left, asked) => said.unwrap_or(Err(Refused::Failed)),
                };
                compaction.answer(said.as_deref().map_err(|refused| *refused));
            }
            Step::Done(outcome) => {
                let first_kept = ids.get(outcome.kept).cloned();
                return Ok(Short { outcome, first_kept, ladder: compaction.ladder(), usage });
            }
            Step::Nothing(nothing) => return Err(NotShort::Nothing(nothing)),
            Step::GaveUp(why) => return Err(NotShort::GaveUp(why)),
        }
    }
}

impl Short {
    /// The line that is to be written, under this name.
    pub(crate) fn line(&self, id: &EntryId) -> Kind {
        let Outcome { summary, details, way, before, after, .. } = &*self.outcome;
        let mut details = details.clone();
        if let Value::Object(details) = &mut details {
            details.insert("way".to_owned(), json!(way.map_or("results", |way| way.as_str())));
            details.insert("tokensAfter".to_owned(), json!(after));
        }
        Kind::compaction(summary, self.first_kept.as_ref().unwrap_or(id), *before, details)
    }
}

/// What a model is told of a transcript, and how many of those messages are older than the last compaction: what they say
/// of how long the conversation was is no longer true.
pub(crate) fn history(entries: &[Entry]) -> (Vec<Arc<Message>>, usize) {
    let view = branch::view(entries);
    let old = view.kept + usize::from(view.summary.is_some());
    let told: Vec<_> = lines(&view).into_iter().map(|line| line.message).collect();
    (view.summary.into_iter().map(|summary| summary.message).chain(told).collect(), old)
}

/// The lines of a view. Results that a compaction kept are shown as short as it said.
fn lines(view: &View) -> Vec<Line> {
    let most = view.summary.as_ref().and_then(|summary| escalate::kept_chars(&summary.details));
    let shown = |place: usize, message: &Arc<Message>| {
        let most = most.filter(|_| place < view.kept)?;
        escalate::shorten(message, most).map(Arc::new)
    };
    let line = |(place, (id, message)): (usize, &(EntryId, Arc<Message>))| {
        Line::new(id.clone(), shown(place, message).unwrap_or_else(|| message.clone()))
    };
    view.lines.iter().enumerate().map(line).collect()
}

/// Asks for a part of a summary.
async fn ask(model: &dyn Model, ask: Ask, usage: &mut Usage) -> Result<String, Refused> {
    let request = Request {
        system: ask.system.into(),
        messages: vec![Arc::new(Message::User(User::text(ask.user, 0)))],
        max_output: Some(ask.max_tokens),
        ..Request::default()
    };
    let mut stream = model.stream(request);
    let mut said = String::new();
    while let Some(event) = stream.next().await {
        match event {
            Event::Text(delta) => said.push_str(&delta),
            Event::Thinking(_) | Event::Call(_) | Event::Seal(_) | Event::Alive => {}
            Event::Done(done) if done.stop == StopReason::Error => return Err(Refused::Failed),
            Event::Done(done) => {
                *usage += &done.usage;
                return Ok(said);
            }
            Event::Failed(error) if error.kind == ErrorKind::Overflow => return Err(Refused::Overflow),
            Event::Failed(_) => return Err(Refused::Failed),
        }
    }
    Err(Refused::Failed)
}
