//! Clients that come back: what they missed of runs, and the rest as it happens.
//!
//! It is answered where everything is told, so that between the answer and the next event there is neither a hole nor
//! anything twice. What the client heard on this connection before the answer is a part of the answer.

use std::sync::Arc;

use homard_agent::Tape;
use homard_proto::{ErrorShape, RunId, SessionKey, frame::Response};
use serde_json::{Value, json};

use super::{Detail, past::Over, teller::Teller};
use crate::client::Client;

/// Somebody comes back to runs.
#[derive(Debug)]
pub(crate) struct Resume {
    pub(crate) client: Arc<Client>,
    pub(crate) request: String,
    pub(crate) missed: Missed,
}

/// What somebody asks for who comes back.
#[derive(Debug)]
pub(crate) struct Missed {
    /// The session, and the key as it was asked for.
    pub(crate) key: SessionKey,
    pub(crate) asked: String,
    /// The runs.
    pub(crate) runs: Vec<(RunId, Known)>,
    /// The number of the last event that was heard.
    pub(crate) after: u64,
    /// How much is told of tools.
    pub(crate) detail: Option<Detail>,
}

/// What is known of a run outside the projector.
#[derive(Debug)]
pub(crate) enum Known {
    /// It is alive.
    Alive(Arc<Tape>),
    /// It is over, and this is what came of it.
    Over(Value),
    /// Nobody knows it.
    Nothing,
}

impl Teller {
    /// Tells a client what it missed.
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

    /// How a run gets on. From here on the client is told of its tools as far as it wants to.
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
        // The deltas that it hears next go with those that others heard, not with this.
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
