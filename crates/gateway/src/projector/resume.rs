//! Reconnecting clients: sends the events they missed of runs and subscribes them to the rest.
//!
//! The request is answered in the projector's task, so that no event between the response and the live stream is lost
//! or duplicated. Events sent on this connection before the response are included in it.

use std::sync::Arc;

use homard_agent::Tape;
use homard_proto::{ErrorShape, RunId, SessionKey, frame::Response};
use serde_json::{Value, json};

use super::{Detail, past::Over, teller::Teller};
use crate::client::Client;

/// A request to resume runs.
#[derive(Debug)]
pub(crate) struct Resume {
    pub(crate) client: Arc<Client>,
    pub(crate) request: String,
    pub(crate) missed: Missed,
}

/// The runs a client wants to resume and the position it has reached.
#[derive(Debug)]
pub(crate) struct Missed {
    /// The session, and the key as it was requested.
    pub(crate) key: SessionKey,
    pub(crate) asked: String,
    pub(crate) runs: Vec<(RunId, Known)>,
    /// Sequence number of the last event the client saw.
    pub(crate) after: u64,
    /// Level of detail of tool events; `None` for no tool events.
    pub(crate) detail: Option<Detail>,
}

/// State of a run as known outside the projector.
#[derive(Debug)]
pub(crate) enum Known {
    /// The run is queued or active.
    Alive(Arc<Tape>),
    /// The run has finished with this result.
    Over(Value),
    /// The run is unknown.
    Nothing,
}

impl Teller {
    /// Answers the request with a snapshot of each run.
    pub(super) fn resume(&mut self, Resume { client, request, missed }: Resume) {
        let mut runs = Vec::new();
        for (run, known) in &missed.runs {
            match self.snapshot(run, known, &client, &missed) {
                Ok(snapshot) => runs.push(snapshot),
                Err(error) => return client.outbox.respond(&Response::error(request, error)),
            }
        }
        client.outbox.respond(&Response::ok(&request, json!({"sessionKey": missed.asked, "runs": runs})));
    }

    fn snapshot(&mut self, run: &RunId, known: &Known, client: &Client, missed: &Missed) -> Result<Value, ErrorShape> {
        if let Known::Alive(tape) = known
            && let Some(snapshot) = self.alive(tape, client, missed)
        {
            return Ok(snapshot);
        }
        match (self.past.find(run), known) {
            (Some(over), _) => over.snapshot(missed),
            (None, Known::Over(stored)) => Ok(stored.clone()),
            (None, Known::Alive(_) | Known::Nothing) => Err(ErrorShape::invalid(format!(
                "unknown run {run}: it was not sent to this gateway, or long ago; chat.history shows what was said"
            ))),
        }
    }

    /// Builds the snapshot of a run in progress and subscribes the client to its tool events as requested.
    fn alive(&mut self, tape: &Arc<Tape>, client: &Client, missed: &Missed) -> Option<Value> {
        let story = self.story(tape);
        let telling = story.telling.as_ref()?;
        let seq = telling.seq();
        let mut snapshot = json!({
            "runId": tape.run(), "sessionKey": tape.key(), "state": if seq == 0 { "queued" } else { "running" },
            "seq": seq, "events": story.log.after(missed.after, missed.detail),
        });
        if missed.detail.is_some() {
            snapshot["tools"] = story.log.open_tools().into();
        }
        if let Some(said) = telling.so_far() {
            snapshot["message"] = said;
        }
        // The next delta continues from what other clients received, not from this snapshot, so this client needs the
        // full text.
        story.behind.insert(client.id);
        self.unwatch(tape.run(), client.id);
        if let Some(detail) = missed.detail {
            self.watch(tape.run().clone(), client.id, detail);
        }
        Some(snapshot)
    }
}

impl Over {
    fn snapshot(&self, missed: &Missed) -> Result<Value, ErrorShape> {
        if self.last.session_key != missed.key.as_str() {
            return Err(ErrorShape::invalid("runId does not match sessionKey"));
        }
        let mut snapshot = json!({
            "runId": self.run, "sessionKey": missed.key, "state": "ended", "seq": self.seq,
            "events": self.log.after(missed.after, missed.detail), "last": self.last,
        });
        if missed.detail.is_some() {
            snapshot["tools"] = json!([]);
        }
        if let Some(said) = &self.last.message {
            snapshot["message"] = said.clone();
        }
        Ok(snapshot)
    }
}
