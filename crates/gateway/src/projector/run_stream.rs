//! The state of one run's event stream, and the requests that wait for its end.

use std::{
    collections::HashSet,
    sync::{Arc, Weak},
};

use homard_agent::{
    Cursor, Tape,
    tape::TapeState,
    wire::{RunProjection, RunReport},
};
use homard_proto::{ErrorShape, SessionId, event::ChatEvent, frame::Response};
use serde_json::json;

use super::{fanout::ThrottledOutput, log::RunEventLog};
use crate::{client::Client, metrics::RunProgress};

/// State of one run's event stream.
#[derive(Debug)]
pub(super) struct RunStream {
    /// Weak: the tape is owned by those who can still query the run. When none is left, the stream is removed.
    pub(super) tape: Weak<Tape>,
    pub(super) cursor: Cursor,
    /// Transcript that the run writes to, once known.
    pub(super) session: Option<SessionId>,
    /// State for the run metrics.
    pub(super) metrics: RunProgress,
    /// `None` when the stream has ended.
    pub(super) projection: Option<RunProjection>,
    /// Index of the message whose text is being streamed.
    pub(super) message: Option<u32>,
    /// For each kind of throttled output: true if text was published within its interval.
    pub(super) throttled: [bool; ThrottledOutput::ALL.len()],
    /// Published events.
    pub(super) log: RunEventLog,
    /// Final `chat` event.
    pub(super) last: Option<ChatEvent>,
    /// For each kind of throttled output: number of clients registered so far when text was last published. Clients with a later number
    /// have not received all deltas.
    pub(super) clients_at_publish: [u64; ThrottledOutput::ALL.len()],
    /// Other clients that have not received all deltas, because they were slow or reconnected.
    pub(super) lagging: HashSet<u64>,
    pub(super) waiters: Vec<EndWaiter>,
}

impl RunStream {
    pub(super) fn new(tape: &Arc<Tape>, registered: u64) -> Self {
        Self {
            tape: Arc::downgrade(tape),
            cursor: Cursor::default(),
            session: None,
            metrics: RunProgress::new(tape),
            projection: Some(RunProjection::new(tape.run(), tape.key())),
            message: None,
            throttled: [false; ThrottledOutput::ALL.len()],
            log: RunEventLog::default(),
            last: None,
            clients_at_publish: [registered; ThrottledOutput::ALL.len()],
            lagging: HashSet::new(),
            waiters: Vec::new(),
        }
    }
}

/// A request that waits for a run's end.
#[derive(Debug)]
pub(super) struct EndWaiter {
    pub(super) client: Arc<Client>,
    pub(super) request: String,
}

impl EndWaiter {
    /// Sends the final response, if the run has ended.
    pub(super) fn respond(&self, tape: &Tape) {
        let failed = |why: String| {
            let payload = json!({"runId": tape.run(), "status": "error", "summary": why});
            (payload, Some(ErrorShape::unavailable(why)))
        };
        let (payload, error) = match tape.state() {
            TapeState::Ended(end) => RunReport::of(tape.run(), tape.key(), &end).response(self.client.generation),
            TapeState::Broken(why) => failed(why),
            // The record has no end, and no process works on the run.
            TapeState::Rejected => failed("the run was interrupted; send the message again under a new id".to_owned()),
            // Not ended: a later event will trigger the response.
            TapeState::Queued | TapeState::Running => return,
        };
        let ok = error.is_none();
        self.client.send_queue.respond(&Response {
            id: self.request.as_str().into(),
            ok,
            payload: Some(payload),
            error,
        });
    }
}
