//! Reconnecting clients: sends the events they missed of runs and subscribes them to the rest.
//!
//! The request is answered in the projector's task, so that no event between the response and the live stream is lost
//! or duplicated. Events sent on this connection before the response are included in it.

use std::sync::Arc;

use homard_agent::Tape;
use homard_proto::{ErrorShape, RunId, SessionKey, frame::Response};
use serde_json::{Value, json};

use super::{ToolDetail, fanout::Fanout, finished::FinishedRun};
use crate::client::Client;

/// A request to resume runs.
#[derive(Debug)]
pub(crate) struct ResumeRequest {
    pub(crate) client: Arc<Client>,
    pub(crate) request: String,
    pub(crate) position: ResumePosition,
}

/// The runs a client wants to resume and the position it has reached.
#[derive(Debug)]
pub(crate) struct ResumePosition {
    /// The session, and the key as it was requested.
    pub(crate) key: SessionKey,
    pub(crate) requested_key: String,
    pub(crate) runs: Vec<(RunId, KnownRun)>,
    /// Sequence number of the last event the client saw.
    pub(crate) after: u64,
    /// Level of detail of tool events; `None` for no tool events.
    pub(crate) detail: Option<ToolDetail>,
}

/// State of a run as known outside the projector.
#[derive(Debug)]
pub(crate) enum KnownRun {
    /// The run is queued or active.
    Active(Arc<Tape>),
    /// The run has finished with this result.
    Finished(Value),
    /// The run is unknown.
    Unknown,
}

impl Fanout {
    /// Answers the request with a snapshot of each run.
    pub(super) fn resume(&mut self, ResumeRequest { client, request, position }: ResumeRequest) {
        let mut runs = Vec::new();
        for (run, known) in &position.runs {
            match self.snapshot(run, known, &client, &position) {
                Ok(snapshot) => runs.push(snapshot),
                Err(error) => return client.send_queue.respond(&Response::error(request, error)),
            }
        }
        client.send_queue.respond(&Response::ok(&request, json!({"sessionKey": position.requested_key, "runs": runs})));
    }

    fn snapshot(
        &mut self,
        run: &RunId,
        known: &KnownRun,
        client: &Client,
        position: &ResumePosition,
    ) -> Result<Value, ErrorShape> {
        if let KnownRun::Active(tape) = known
            && let Some(snapshot) = self.active_snapshot(tape, client, position)
        {
            return Ok(snapshot);
        }
        match (self.finished.find(run), known) {
            (Some(finished), _) => finished.snapshot(position),
            (None, KnownRun::Finished(stored)) => Ok(stored.clone()),
            (None, KnownRun::Active(_) | KnownRun::Unknown) => Err(ErrorShape::invalid(format!(
                "unknown run {run}: it was not accepted by this gateway, or its record has expired; use chat.history \
                 to read the conversation"
            ))),
        }
    }

    /// Builds the snapshot of a run in progress and subscribes the client to its tool events as requested.
    fn active_snapshot(&mut self, tape: &Arc<Tape>, client: &Client, position: &ResumePosition) -> Option<Value> {
        let stream = self.stream(tape);
        let projection = stream.projection.as_ref()?;
        let seq = projection.seq();
        // A client that saw more than there is counts the events of the previous process, which the restart resumed: it
        // needs all.
        let after = if position.after > seq { 0 } else { position.after };
        let mut snapshot = json!({
            "runId": tape.run(), "sessionKey": tape.key(), "state": if seq == 0 { "queued" } else { "running" },
            "seq": seq, "events": stream.log.after(after, position.detail),
        });
        if position.detail.is_some() {
            snapshot["tools"] = stream.log.open_tools().into();
        }
        if let Some(message) = projection.so_far() {
            snapshot["message"] = message;
        }
        // The next delta continues from what other clients received, not from this snapshot, so this client needs the
        // full text.
        stream.lagging.insert(client.id);
        self.unwatch(tape.run(), client.id);
        if let Some(detail) = position.detail {
            self.watch(tape.run().clone(), client.id, detail);
        }
        Some(snapshot)
    }
}

impl FinishedRun {
    fn snapshot(&self, position: &ResumePosition) -> Result<Value, ErrorShape> {
        if self.last.session_key != position.key.as_str() {
            return Err(ErrorShape::invalid("runId does not match sessionKey"));
        }
        let mut snapshot = json!({
            "runId": self.run, "sessionKey": position.key, "state": "ended", "seq": self.seq,
            "events": self.log.after(position.after, position.detail), "last": self.last,
        });
        if position.detail.is_some() {
            snapshot["tools"] = json!([]);
        }
        if let Some(message) = &self.last.message {
            snapshot["message"] = message.clone();
        }
        Ok(snapshot)
    }
}
