//! Compaction of a session on request, and its undo.

use homard_command::{Command, OWNER};
use homard_proto::{EntryId, SessionKey, message::User};
use homard_store::branch::{self, CompactionInfo};

use super::{HubSessions, Inbound, InboundSender, SubmitError, SubmitOutcome};
use crate::{
    Cursor, Subscriber,
    event::{Outcome, RunEvent, StoredEvent},
    lane::mutations::{ChangeError, Mutation},
    tape::TapeState,
};

/// Result of a compaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompactionResult {
    /// Transcript entry of the compaction; `None` if nothing was done.
    pub entry: Option<EntryId>,
    /// Estimated context tokens before and after.
    pub tokens: Option<(u64, u64)>,
    /// Name of the compaction strategy.
    pub strategy: Option<&'static str>,
    /// Text for the user.
    pub text: String,
}

impl HubSessions<'_> {
    /// Compacts a session, with attention to `focus`. An active run is stopped first.
    pub async fn compact(self, key: &SessionKey, focus: Option<String>) -> Result<CompactionResult, ChangeError> {
        if self.get(key).await?.is_none() {
            return Err(ChangeError::NoSession);
        }
        let text = ["/compact", focus.as_deref().unwrap_or_default()].join(" ");
        let (run, message) = (self.hub.0.ambient.run_id(), User::text(text.trim(), self.hub.0.ambient.now_ms()));
        let plain = Inbound::plain(run, InboundSender::new(OWNER, "sessions.compact"), key.clone(), message);
        let inbound = Inbound { command: Some(Command::Compact(focus)), is_literal: false, ..plain };
        let tape = match self.hub.submit(inbound).await.map(|accepted| accepted.outcome) {
            Ok(SubmitOutcome::New(tape) | SubmitOutcome::InFlight(tape)) => tape,
            Ok(SubmitOutcome::Finished(_)) => return Err(ChangeError::Changed),
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
        let state = Subscriber::new(tape.clone()).end().await;
        let mut result = CompactionResult { entry: None, tokens: None, strategy: None, text: String::new() };
        for event in tape.read(&mut Cursor::default()) {
            if let RunEvent::Stored(StoredEvent::Compacted { entry, before, after, strategy, .. }) = event.kind {
                result = CompactionResult {
                    entry: Some(entry),
                    tokens: Some((before, after)),
                    strategy: Some(strategy),
                    ..result
                };
            }
        }
        match state {
            TapeState::Ended(end) => match &end.outcome {
                Outcome::Done => result.text = end.replies.first().map(|reply| reply.text.clone()).unwrap_or_default(),
                outcome @ (Outcome::Aborted(_) | Outcome::Failed(_)) => {
                    return Err(ChangeError::Refused(
                        outcome.error().unwrap_or("the compaction was stopped").to_owned(),
                    ));
                }
            },
            TapeState::Broken(why) => return Err(ChangeError::Refused(why)),
            TapeState::Rejected | TapeState::Queued | TapeState::Running => return Err(ChangeError::Stopping),
        }
        Ok(result)
    }

    /// Returns the compactions of a session, oldest first.
    pub async fn compactions(self, key: &SessionKey) -> Result<Vec<CompactionInfo>, ChangeError> {
        let session = self.hub.0.store.load(key).await?.ok_or(ChangeError::NoSession)?;
        Ok(branch::compactions(&session.entries))
    }

    /// Undoes a compaction (the last one if `id` is `None`): what it had summarized is part of the context again.
    /// Returns its entry id.
    pub async fn undo_compaction(self, key: &SessionKey, id: Option<EntryId>) -> Result<EntryId, ChangeError> {
        loop {
            match self.change(key, |reply| Mutation::Undo(id.clone(), reply)).await {
                Err(ChangeError::Busy) => self.await_idle(key).await,
                result => return result,
            }
        }
    }
}
