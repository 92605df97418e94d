//! How a run is told to clients: a pure projection of its events, for both generations at once.
//!
//! Payloads are a superset that either generation reads, so an event is serialised once for all who listen. What really
//! differs, the answers to requests, takes a [`Generation`].

use homard_proto::{
    EntryId, ErrorShape, Generation, RunId, SessionId, SessionKey,
    event::{Agent, Stream},
    message::{Block, Message, Usage},
    transcript::{Entry, Kind},
};
use homard_store::{Ended, RunRow};
use serde_json::{Map, Value, json};

use crate::{
    event::{AbortReason, End, Event, Failure, FailureKind, Outcome, RunEvent},
    hub::{Accepted, Disposition, Waited},
    tape::Tape,
};

/// How much of a tool's text an event carries.
const TOOL_TEXT: usize = 8_000;

/// One run on its way to clients. `seq` counts what was made here, so it has no holes.
#[derive(Debug)]
pub struct Projection {
    run: String,
    key: String,
    agent: Option<String>,
    session: Option<String>,
    started_at: Option<u64>,
    seq: u64,
    /// Which assistant message is being told, all of its text, and how much of that was told.
    message: Option<u32>,
    text: String,
    told: usize,
    at: u64,
}

impl Projection {
    /// The beginning of a run's story.
    pub fn new(tape: &Tape) -> Self {
        Self {
            run: tape.run().to_string(),
            key: tape.key().to_string(),
            agent: tape.key().agent().map(ToString::to_string),
            session: None,
            started_at: None,
            seq: 0,
            message: None,
            text: String::new(),
            told: 0,
            at: 0,
        }
    }

    /// Takes in an event. Text is kept until [`flush`](Self::flush), so that many tokens make one event; anything else
    /// is told at once, after the text before it.
    pub fn push(&mut self, event: Event) -> Vec<Agent> {
        if let RunEvent::Text { message, delta } = event.kind {
            let mut told = Vec::new();
            if self.message != Some(message) {
                told.extend(self.flush());
                self.message = Some(message);
                self.text.clear();
                self.told = 0;
            }
            self.text.push_str(&delta);
            self.at = event.at;
            return told;
        }
        let mut told: Vec<_> = self.flush().into_iter().collect();
        let at = event.at;
        told.extend(self.step(event.kind, at).map(|(stream, data)| self.agent_event(stream, data, at)));
        told
    }

    /// Whether there is text that was not told yet.
    pub fn has_text(&self) -> bool {
        self.told < self.text.len()
    }

    /// Tells the text so far: all of it, and what is new.
    pub fn flush(&mut self) -> Option<Agent> {
        if !self.has_text() {
            return None;
        }
        let data = json!({"text": self.text, "delta": self.text[self.told..]});
        self.told = self.text.len();
        Some(self.agent_event(Stream::Assistant, data, self.at))
    }

    fn step(&mut self, kind: RunEvent, at: u64) -> Option<(Stream, Value)> {
        match kind {
            RunEvent::Started { session } => {
                self.session = Some(session.to_string());
                self.started_at = Some(at);
                Some((Stream::Lifecycle, json!({"phase": "start", "startedAt": at})))
            }
            RunEvent::ToolStarted { call, name, arguments } => {
                Some((Stream::Tool, json!({"phase": "start", "name": name, "toolCallId": call, "args": arguments})))
            }
            RunEvent::ToolProgress { call, name, partial } => {
                let partial = tool_result(&partial.content, partial.details.as_ref());
                Some((
                    Stream::Tool,
                    json!({"phase": "update", "name": name, "toolCallId": call, "partialResult": partial}),
                ))
            }
            RunEvent::ToolEnded { call, result } => Some((
                Stream::Tool,
                json!({
                    "phase": "result", "name": result.tool_name, "toolCallId": call, "isError": result.is_error,
                    "result": tool_result(&result.content, result.details.as_ref()),
                }),
            )),
            RunEvent::Ended(end) => Some((Stream::Lifecycle, lifecycle_end(&end))),
            // Reasoning becomes visible with the settings that say to whom.
            RunEvent::Input(_) | RunEvent::Text { .. } | RunEvent::Thinking { .. } | RunEvent::Assistant { .. } => None,
        }
    }

    fn agent_event(&mut self, stream: Stream, data: Value, ts: u64) -> Agent {
        self.seq += 1;
        Agent {
            run_id: self.run.clone(),
            session_id: self.session.clone().filter(|_| stream == Stream::Lifecycle),
            stream,
            data,
            session_key: Some(self.key.clone()),
            agent_id: self.agent.clone(),
            seq: Some(self.seq),
            ts,
            extra: Map::new(),
        }
    }
}

fn lifecycle_end(end: &End) -> Value {
    let mut data = Map::new();
    // A run that was stopped has ended; only one that broke has failed.
    let phase = if matches!(end.outcome, Outcome::Failed(_)) { "error" } else { "end" };
    data.insert("phase".to_owned(), phase.into());
    if let Some(at) = end.started_at {
        data.insert("startedAt".to_owned(), at.into());
    }
    data.insert("endedAt".to_owned(), end.ended_at.into());
    data.insert("aborted".to_owned(), matches!(end.outcome, Outcome::Aborted(_)).into());
    data.insert("stopReason".to_owned(), stop_reason(&end.outcome).into());
    if let Some(error) = end.outcome.error() {
        data.insert("error".to_owned(), error.into());
    }
    data.insert("executionSettled".to_owned(), true.into());
    Value::Object(data)
}

fn stop_reason(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Done => "stop",
        Outcome::Failed(_) => "error",
        Outcome::Aborted(AbortReason::User) => "rpc",
        Outcome::Aborted(AbortReason::Timeout) => "timeout",
    }
}

/// A tool's result as events carry it: long text is cut, pictures are counted and left out.
fn tool_result(content: &[Block], details: Option<&Value>) -> Value {
    let block = |block: &Block| match block {
        Block::Text(text) => json!({"type": "text", "text": cut(&text.text)}),
        Block::Image(image) => {
            json!({"type": "image", "mimeType": image.mime_type, "bytes": image.data.len(), "omitted": true})
        }
        Block::Thinking(_) | Block::ToolCall(_) | Block::Other(_) => json!(block),
    };
    let mut result = json!({"content": content.iter().map(block).collect::<Vec<_>>()});
    if let Some(details) = details {
        result["details"] = shorten(details);
    }
    result
}

/// Details repeat a tool's output; their texts are cut as the result's own.
fn shorten(details: &Value) -> Value {
    match details {
        Value::String(text) => cut(text).into(),
        Value::Array(items) => items.iter().map(shorten).collect(),
        Value::Object(fields) => fields.iter().map(|(key, value)| (key.clone(), shorten(value))).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) => details.clone(),
    }
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(TOOL_TEXT) {
        None => text.to_owned(),
        Some((at, _)) => format!("{}\n…(truncated)…", &text[..at]),
    }
}

/// What came of a run, as clients are told: while it is fresh from its tape, later from the store.
#[derive(Debug, Clone, PartialEq)]
pub struct Reported {
    run: RunId,
    key: SessionKey,
    session: Option<SessionId>,
    outcome: Outcome,
    replies: Vec<String>,
    model: (String, String),
    usage: Usage,
    started_at: Option<u64>,
    ended_at: u64,
}

impl Reported {
    /// From a run that has just ended.
    pub fn of(run: &RunId, key: &SessionKey, end: &End) -> Self {
        Self {
            run: run.clone(),
            key: key.clone(),
            session: end.session.clone(),
            outcome: end.outcome.clone(),
            replies: end.replies.iter().map(|reply| reply.text.clone()).collect(),
            model: end.model.clone(),
            usage: end.usage.clone(),
            started_at: end.started_at,
            ended_at: end.ended_at,
        }
    }

    /// From the store, with the replies looked up in the transcript.
    pub(crate) fn from_row(row: &RunRow, ended: &Ended, entries: &[Entry]) -> Self {
        let said = |entry: &Entry| match &entry.kind {
            Kind::Message(said) => match &said.message {
                Message::Assistant(assistant) => Some(assistant.text()),
                Message::User(_) | Message::ToolResult(_) | Message::Other(_) => None,
            },
            Kind::ModelChange(_) | Kind::Other(_) => None,
        };
        let reply = |id: &EntryId| entries.iter().find(|entry| entry.id == *id).and_then(said);
        Self {
            run: row.run.clone(),
            key: row.key.clone(),
            session: row.session.clone(),
            outcome: ended.outcome.clone(),
            replies: ended.replies.iter().filter_map(reply).collect(),
            model: ended.model.clone(),
            usage: ended.usage.clone(),
            started_at: ended.started_at,
            ended_at: ended.ended_at,
        }
    }

    /// How it ended.
    pub fn outcome(&self) -> &Outcome {
        &self.outcome
    }

    /// What the user reads.
    pub fn replies(&self) -> &[String] {
        &self.replies
    }

    /// The second answer to `agent`: a payload, and an error beside it when the run did not end well.
    ///
    /// Protocol 3 learns of a model's failure in a payload, protocol 4 in an error; and protocol 3 shows every
    /// assistant message, protocol 4 the last one.
    pub fn response(&self, generation: Generation) -> (Value, Option<ErrorShape>) {
        match (&self.outcome, generation) {
            (Outcome::Done, _)
            | (Outcome::Aborted(AbortReason::User), Generation::Three)
            | (Outcome::Failed(Failure { kind: FailureKind::Model, .. }), Generation::Three) => {
                (self.completed(generation), None)
            }
            (Outcome::Aborted(AbortReason::User), Generation::Four) => {
                let stop_reason = stop_reason(&self.outcome);
                let stopped =
                    json!({"runId": self.run, "status": "timeout", "summary": "aborted", "stopReason": stop_reason});
                (stopped, None)
            }
            (Outcome::Failed(_) | Outcome::Aborted(AbortReason::Timeout), _) => {
                let summary = self.outcome.error().unwrap_or_default();
                let payload = json!({"runId": self.run, "status": "error", "summary": summary});
                (payload, Some(ErrorShape::unavailable(summary)))
            }
        }
    }

    fn completed(&self, generation: Generation) -> Value {
        json!({"runId": self.run, "status": "ok", "summary": "completed", "result": self.result(generation)})
    }

    /// What a run gives: payloads for the user, facts for programs.
    pub fn result(&self, generation: Generation) -> Value {
        let shown = match generation {
            Generation::Three => &self.replies[..],
            Generation::Four => &self.replies[self.replies.len().saturating_sub(1)..],
        };
        let mut payloads: Vec<_> = shown.iter().map(|text| json!({"text": text, "mediaUrl": null})).collect();
        if let Outcome::Failed(failure) = &self.outcome {
            payloads.push(json!({"text": failure.message, "mediaUrl": null, "isError": true}));
        }
        let usage = &self.usage;
        json!({
            "payloads": payloads,
            "meta": {
                "durationMs": self.ended_at.saturating_sub(self.started_at.unwrap_or(self.ended_at)),
                "agentMeta": {
                    "sessionId": self.session, "sessionKey": self.key, "provider": self.model.0, "model": self.model.1,
                    "usage": {
                        "input": usage.input, "output": usage.output, "cacheRead": usage.cache_read,
                        "cacheWrite": usage.cache_write, "total": usage.total_tokens,
                    },
                },
                "aborted": matches!(self.outcome, Outcome::Aborted(_)),
            },
        })
    }

    /// The answer to `agent.wait`.
    fn waited(&self, generation: Generation) -> Value {
        let status = if self.outcome == Outcome::Done { "ok" } else { "error" };
        let mut answer = json!({"runId": self.run, "status": status});
        if let Some(at) = self.started_at {
            answer["startedAt"] = at.into();
        }
        answer["endedAt"] = self.ended_at.into();
        if let Some(error) = self.outcome.error() {
            answer["error"] = error.into();
        }
        if generation == Generation::Four {
            answer["stopReason"] = stop_reason(&self.outcome).into();
        }
        answer
    }
}

/// The first answer to `agent`.
pub fn accepted(generation: Generation, accepted: &Accepted) -> (Value, Option<ErrorShape>) {
    let status = match (&accepted.disposition, generation) {
        (Disposition::Finished(report), _) => return report.response(generation),
        (Disposition::New(_), _) | (Disposition::InFlight(_), Generation::Three) => "accepted",
        (Disposition::InFlight(_), Generation::Four) => "in_flight",
    };
    let mut answer = json!({"runId": accepted.run, "status": status});
    if status == "accepted" {
        answer["acceptedAt"] = accepted.at.into();
    }
    if generation == Generation::Four {
        answer["sessionKey"] = accepted.key.as_str().into();
        answer["agentId"] = accepted.key.agent().map(ToString::to_string).into();
    }
    (answer, None)
}

/// The answer to `agent.wait`.
pub fn waited(generation: Generation, run: &RunId, waited: &Waited) -> Value {
    match (waited, generation) {
        (Waited::Ended(report), _) => report.waited(generation),
        (Waited::Broken(why), _) => json!({"runId": run, "status": "error", "error": why}),
        (Waited::Queued, Generation::Four) => {
            json!({"runId": run, "status": "pending", "timeoutPhase": "queue", "providerStarted": false})
        }
        (Waited::Queued, Generation::Three) | (Waited::Timeout, _) => json!({"runId": run, "status": "timeout"}),
    }
}
