//! One run on its way to clients, and who waits for its end.

use std::{
    collections::HashSet,
    sync::{Arc, Weak},
};

use homard_agent::{
    Cursor, Tape,
    tape::State,
    wire::{Reported, Telling},
};
use homard_proto::{ErrorShape, SessionId, event::Chat, frame::Response};
use serde_json::json;

use super::{log::Log, teller::Beat};
use crate::{client::Client, metrics::Watch};

/// One run on its way to clients.
#[derive(Debug)]
pub(super) struct Story {
    /// Not held: whoever can still ask about the run holds it, and when nobody does the story is forgotten.
    pub(super) tape: Weak<Tape>,
    pub(super) cursor: Cursor,
    /// The transcript that it writes, once that is known.
    pub(super) session: Option<SessionId>,
    /// What has to be remembered to count it.
    pub(super) watch: Watch,
    /// `None` when the story is over.
    pub(super) telling: Option<Telling>,
    /// Whose words are being told.
    pub(super) message: Option<u32>,
    /// Whether its words were told a moment ago, for each beat.
    pub(super) paced: [bool; Beat::ALL.len()],
    /// What was told.
    pub(super) log: Log,
    /// The last that its conversation heard.
    pub(super) last: Option<Chat>,
    /// How many clients had come when its words were told last, for each beat: later ones have not heard all deltas.
    pub(super) heard: [u64; Beat::ALL.len()],
    /// Others that have not heard all deltas, because they were slow or came back.
    pub(super) behind: HashSet<u64>,
    pub(super) waiters: Vec<Waiter>,
}

impl Story {
    pub(super) fn new(tape: &Arc<Tape>, came: u64) -> Self {
        Self {
            tape: Arc::downgrade(tape),
            cursor: Cursor::default(),
            session: None,
            watch: Watch::new(tape),
            telling: Some(Telling::new(tape)),
            message: None,
            paced: [false; Beat::ALL.len()],
            log: Log::default(),
            last: None,
            heard: [came; Beat::ALL.len()],
            behind: HashSet::new(),
            waiters: Vec::new(),
        }
    }
}

/// Somebody who waits for a run's end.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) client: Arc<Client>,
    pub(super) request: String,
}

impl Waiter {
    /// The last answer, once the run's story is over.
    pub(super) fn answer(&self, tape: &Tape) {
        let failed = |why: String| {
            let payload = json!({"runId": tape.run(), "status": "error", "summary": why});
            (payload, Some(ErrorShape::unavailable(why)))
        };
        let (payload, error) = match tape.state() {
            State::Ended(end) => Reported::of(tape.run(), tape.key(), &end).response(self.client.generation),
            State::Broken(why) => failed(why),
            // A row without an end, and nobody at work on it.
            State::Refused => failed("the run was interrupted; send the message again under a new id".to_owned()),
            // Not over: then somebody else's news will end it.
            State::Queued | State::Running => return,
        };
        let ok = error.is_none();
        self.client.outbox.respond(&Response { id: self.request.as_str().into(), ok, payload: Some(payload), error });
    }
}
