//! Making a session's conversation short, and undoing it.

use homard_proto::{EntryId, SessionKey, message::User};
use homard_store::branch::{self, Compacted};

use super::{Disposition, Hub, Inbound, SubmitError};
use crate::{
    Cursor, Follower,
    command::{Command, OWNER},
    event::{Outcome, RunEvent},
    lane::chores::{ChangeError, Chore},
    tape::State,
};

/// What came of making a conversation short.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompactReport {
    /// The line that says so in the transcript; `None` if nothing was done.
    pub entry: Option<EntryId>,
    /// How many tokens it took before, about, and how many it takes now.
    pub tokens: Option<(u64, u64)>,
    /// How it was done, in a word.
    pub way: Option<&'static str>,
    /// What is said about it.
    pub words: String,
}

impl Hub {
    /// Makes a session's conversation short, with attention to `focus`. A run at work is stopped before.
    pub async fn compact(&self, key: &SessionKey, focus: Option<String>) -> Result<CompactReport, ChangeError> {
        if !self.0.store.list().await?.iter().any(|(known, _)| known == key) {
            return Err(ChangeError::NoSession);
        }
        let text = ["/compact", focus.as_deref().unwrap_or_default()].join(" ");
        let (run, message) = (self.0.ambient.run_id(), User::text(text.trim(), self.0.ambient.now_ms()));
        let plain = Inbound::plain(run, (OWNER, "sessions.compact"), key.clone(), message);
        let inbound = Inbound { command: Some(Command::Compact(focus)), is_literal: false, ..plain };
        let tape = match self.submit(inbound).await.map(|accepted| accepted.disposition) {
            Ok(Disposition::New(tape) | Disposition::InFlight(tape)) => tape,
            Ok(Disposition::Finished(_)) => return Err(ChangeError::Changed),
            Err(SubmitError::Stopping) => return Err(ChangeError::Stopping),
            Err(SubmitError::Store(error)) => return Err(error.into()),
            Err(
                error @ (SubmitError::Conflict(_)
                | SubmitError::Blocked
                | SubmitError::SessionChanged
                | SubmitError::Overloaded
                | SubmitError::Held(_)),
            ) => return Err(ChangeError::Refused(error.to_string())),
        };
        let state = Follower::new(tape.clone()).end().await;
        let mut report = CompactReport { entry: None, tokens: None, way: None, words: String::new() };
        for event in tape.read(&mut Cursor::default()) {
            if let RunEvent::Compacted { entry, before, after, way, .. } = event.kind {
                report = CompactReport { entry: Some(entry), tokens: Some((before, after)), way: Some(way), ..report };
            }
        }
        match state {
            State::Ended(end) => match &end.outcome {
                Outcome::Done => report.words = end.replies.first().map(|reply| reply.text.clone()).unwrap_or_default(),
                outcome @ (Outcome::Aborted(_) | Outcome::Failed(_)) => {
                    return Err(ChangeError::Refused(outcome.error().unwrap_or("it was stopped").to_owned()));
                }
            },
            State::Broken(why) => return Err(ChangeError::Refused(why)),
            State::Refused | State::Queued | State::Running => return Err(ChangeError::Stopping),
        }
        Ok(report)
    }

    /// The compactions of a session, oldest first.
    pub async fn compactions(&self, key: &SessionKey) -> Result<Vec<Compacted>, ChangeError> {
        let session = self.0.store.load(key).await?.ok_or(ChangeError::NoSession)?;
        Ok(branch::compactions(&session.entries))
    }

    /// Makes a compaction void, the last one if none is named: everything that it summed up is told again. Returns which.
    pub async fn undo_compaction(&self, key: &SessionKey, id: Option<EntryId>) -> Result<EntryId, ChangeError> {
        loop {
            match self.change(key, |tell| Chore::Undo(id.clone(), tell)).await {
                Err(ChangeError::Busy) => self.await_rest(key).await,
                undone => return undone,
            }
        }
    }
}
