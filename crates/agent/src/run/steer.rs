//! Messages that came for the run while it is at work. It takes them in where it is safe, one at a time; what it does not
//! take in stays with its lane.

use std::sync::{Arc, atomic::Ordering};

use homard_proto::{
    message::{Message, User},
    transcript::{Entry, Kind},
};
use homard_store::{Input, Rec, recovery::STEERED_INTO};
use tokio::sync::oneshot;

use super::{RunError, RunScope};
use crate::{ambient::iso, event::RunEvent, hooks, lane::Job, tape::Tape};

/// What the lane hands over.
#[derive(Debug)]
pub(crate) enum Handed {
    /// A message that becomes a part of the run, and the tape of the run that it asked for.
    Message(User, Arc<Tape>),
    /// The words of a message that gets a turn of its own as well.
    Copy(String),
}

impl RunScope {
    /// Whether a message came for the run.
    pub(super) fn has_offer(&self) -> bool {
        self.offers.load(Ordering::Acquire)
    }

    /// Takes the next message that came for the run into its transcript; returns whether there was one.
    pub(super) async fn take_offer(&mut self) -> Result<bool, RunError> {
        if !self.has_offer() {
            return Ok(false);
        }
        let (tell, told) = oneshot::channel();
        self.hub.post(self.tape.key(), Job::Offer(tell));
        // Silence means that the message is not there any more.
        let Ok(handed) = told.await else { return Ok(false) };
        let at = self.hub.ambient.now_ms();
        let (mut message, guest) = match handed {
            Handed::Message(message, guest) => (message, Some(guest)),
            Handed::Copy(text) => (User::text(text, at), None),
        };
        let run = self.tape.run().clone();
        message.extra.insert(STEERED_INTO.to_owned(), run.as_str().into());
        let message = Arc::new(hooks::write(&self.hooks, &self.place, Message::User(message)).await);
        let kind = Kind::message((*message).clone());
        let entry = Entry { kind, id: self.hub.ambient.entry_id(), parent_id: None, timestamp: iso(at) };
        let line = entry.id.clone();
        let absorbs = guest.iter().map(|guest| guest.run().clone()).collect();
        let (key, session) = (self.tape.key().clone(), self.session.clone());
        let input = Input { run: run.clone(), key, session, absorbs, entries: vec![entry] };
        self.record(RunEvent::Input(message.clone()), vec![Rec::Input(input)]);
        self.history.push(line, message);
        if let Some(guest) = guest {
            self.barrier().await?;
            guest.pass(self.hub.ambient.now_ms(), RunEvent::Absorbed { by: run });
        }
        Ok(true)
    }
}
