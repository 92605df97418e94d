//! The state of one run's event stream, and the requests that wait for its end.

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

/// State of one run's event stream.
#[derive(Debug)]
pub(super) struct Story {
    /// Weak: the tape is owned by those who can still query the run. When none is left, the stream is removed.
    pub(super) tape: Weak<Tape>,
    pub(super) cursor: Cursor,
    /// Transcript that the run writes to, once known.
    pub(super) session: Option<SessionId>,
    /// State for the run metrics.
    pub(super) watch: Watch,
    /// `None` when the stream has ended.
    pub(super) telling: Option<Telling>,
    /// Index of the message whose text is being streamed.
    pub(super) message: Option<u32>,
    /// For each beat: true if text was published within its interval.
    pub(super) paced: [bool; Beat::ALL.len()],
    /// Published events.
    pub(super) log: Log,
    /// Final `chat` event.
    pub(super) last: Option<Chat>,
    /// For each beat: number of clients registered so far when text was last published. Clients with a later number
    /// have not received all deltas.
    pub(super) heard: [u64; Beat::ALL.len()],
    /// Other clients that have not received all deltas, because they were slow or reconnected.
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

/// A request that waits for a run's end.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) client: Arc<Client>,
    pub(super) request: String,
}

impl Waiter {
    /// Sends the final response, if the run has ended.
    pub(super) fn answer(&self, tape: &Tape) {
        let failed = |why: String| {
            let payload = json!({"runId": tape.run(), "status": "error", "summary": why});
            (payload, Some(ErrorShape::unavailable(why)))
        };
        let (payload, error) = match tape.state() {
            State::Ended(end) => Reported::of(tape.run(), tape.key(), &end).response(self.client.generation),
            State::Broken(why) => failed(why),
            // The record has no end, and no process works on the run.
            State::Refused => failed("the run was interrupted; send the message again under a new id".to_owned()),
            // Not ended: a later event will trigger the response.
            State::Queued | State::Running => return,
        };
        let ok = error.is_none();
        self.client.outbox.respond(&Response { id: self.request.as_str().into(), ok, payload: Some(payload), error });
    }
}
