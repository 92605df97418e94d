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
    pub(super) fn resume(&mut self, ResumeRequest { client, request, position: missed }: ResumeRequest) {
        let mut runs = Vec::new();
        for (run, known) in &missed.runs {
            match self.snapshot(run, known, &client, &missed) {
                Ok(snapshot) => runs.push(snapshot),
                Err(error) => return client.send_queue.respond(&Response::error(request, error)),
            }
        }
        client.send_queue.respond(&Response::ok(&request, json!({"sessionKey": missed.requested_key, "runs": runs})));
    }

    fn snapshot(
        &mut self,
        run: &RunId,
        known: &KnownRun,
        client: &Client,
        missed: &ResumePosition,
    ) -> Result<Value, ErrorShape> {
        if let KnownRun::Active(tape) = known
            && let Some(snapshot) = self.active_snapshot(tape, client, missed)
        {
            return Ok(snapshot);
        }
        match (self.finished.find(run), known) {
            (Some(over), _) => over.snapshot(missed),
            (None, KnownRun::Finished(stored)) => Ok(stored.clone()),
            (None, KnownRun::Active(_) | KnownRun::Unknown) => Err(ErrorShape::invalid(format!(
                "unknown run {run}: it was not accepted by this gateway, or its record has expired; use chat.history \
                 to read the conversation"
            ))),
        }
    }

    /// Builds the snapshot of a run in progress and subscribes the client to its tool events as requested.
    fn active_snapshot(&mut self, tape: &Arc<Tape>, client: &Client, missed: &ResumePosition) -> Option<Value> {
        let story = self.stream(tape);
        let telling = story.projection.as_ref()?;
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
        story.lagging.insert(client.id);
        self.unwatch(tape.run(), client.id);
        if let Some(detail) = missed.detail {
            self.watch(tape.run().clone(), client.id, detail);
        }
        Some(snapshot)
    }
}

impl FinishedRun {
    fn snapshot(&self, missed: &ResumePosition) -> Result<Value, ErrorShape> {
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
