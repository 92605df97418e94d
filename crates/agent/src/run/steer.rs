//! Steering: a run absorbs messages that arrive while it is active at safe points, one at a time. Messages that it does
//! not absorb stay with its lane.

use std::sync::Arc;

use homard_proto::{
    message::{Message, STEERED_INTO, User},
    transcript::{Entry, Kind},
};
use homard_runtime::ambient::iso;
use homard_store::{Input, Rec};
use tokio::sync::oneshot;

use super::{RunError, RunScope};
use crate::{
    event::{QueueEvent, StoredEvent},
    hooks,
    lane::LaneJob,
    tape::Tape,
};

/// What the lane hands to the run.
#[derive(Debug)]
pub(crate) enum Steered {
    /// A message to absorb, and the tape of its own run.
    Message(User, Arc<Tape>),
    /// Text of a message that also gets a turn of its own.
    Copy(String),
}

/// Adds the next offered message to the run's transcript. Returns true if there was one.
pub(super) async fn take_offer(scope: &mut RunScope) -> Result<bool, RunError> {
    if !scope.io.has_offer() {
        return Ok(false);
    }
    let (reply, offer) = oneshot::channel();
    scope.io.hub.post(scope.io.tape.key(), LaneJob::Offer(reply));
    // A dropped sender means that the message is no longer queued.
    let Ok(steered) = offer.await else { return Ok(false) };
    let at = scope.io.now();
    let (mut message, absorbed_tape) = match steered {
        Steered::Message(message, absorbed_tape) => (message, Some(absorbed_tape)),
        Steered::Copy(text) => (User::text(text, at), None),
    };
    let run = scope.io.tape.run().clone();
    message.extra.insert(STEERED_INTO.to_owned(), run.as_str().into());
    let message =
        Arc::new(hooks::before_write(&scope.hooks.registered, &scope.hooks.context, Message::User(message)).await);
    let kind = Kind::message((*message).clone());
    let entry = Entry { kind, id: scope.io.hub.ambient.entry_id(), parent_id: None, timestamp: iso(at) };
    let entry_id = entry.id.clone();
    let absorbs = absorbed_tape.iter().map(|absorbed_tape| absorbed_tape.run().clone()).collect();
    let (key, session) = (scope.io.tape.key().clone(), scope.io.session.clone());
    let input = Input { run: run.clone(), key, session, absorbs, entries: vec![entry] };
    scope.io.record(StoredEvent::Input(message.clone()), Rec::Input(input));
    scope.context.history.push(entry_id, message);
    if let Some(absorbed_tape) = absorbed_tape {
        scope.io.barrier().await?;
        absorbed_tape.emit(scope.io.now(), QueueEvent::Absorbed { by: run });
    }
    Ok(true)
}
