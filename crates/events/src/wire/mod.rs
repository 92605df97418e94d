//! Wire projection: how a run's events are sent to clients. Pure, for both protocol generations at once.
//!
//! Payloads are a superset that either generation can read, so an event is serialized once for all subscribers. Only
//! `chat` deltas and the responses to requests differ and take a [`Generation`](homard_proto::Generation).

mod answer;
mod chat;
pub mod run_trace;

use std::time::Duration;

use homard_proto::{
    RunId, SessionKey,
    event::{AgentEvent, Stream},
    message::Block,
};
use homard_queue::inbox::SUMMARIZED;
use serde_json::{Map, Value, json};

use crate::event::{
    AbortReason, CompactionEvent, Outcome, QueueEvent, RequestEvent, RunEnd, RunEvent, StoredEvent, TapeEvent,
    ToolEvent,
};

pub use answer::{RunReport, add_disposition, complete_reply, failed, is_in_transcript, store_payloads};
pub use chat::{ClientEvent, RunProjection, text_of, whole};

/// Maximum characters of a tool's text in an event.
const MAX_TOOL_TEXT: usize = 8_000;

/// Field with the truncation of the run's message, if it did not fit into the context window.
pub const TRUNCATED_FIELD: &str = "inputTruncated";

/// Bytes of reasoning between two events. Each event has all of it, so they must not be too frequent.
const REASONING_STEP: usize = 1_000;

/// Projection of one run for clients. `seq` counts the emitted events, so it has no gaps.
#[derive(Debug)]
pub struct Projection {
    run: String,
    key: String,
    agent: Option<String>,
    session: Option<String>,
    started_at: Option<u64>,
    seq: u64,
    /// The current assistant message, its whole text, and how much of it was emitted.
    message: Option<u32>,
    text: String,
    emitted: usize,
    /// True if the emitted text of the message was discarded.
    is_discarded: bool,
    /// Reasoning of that message, and how much of it was emitted.
    reasoning: String,
    reasoning_emitted: usize,
    at: u64,
}

impl Projection {
    /// Starts the projection of a run.
    pub fn new(run: &RunId, key: &SessionKey) -> Self {
        Self {
            run: run.to_string(),
            key: key.to_string(),
            agent: key.agent().map(ToString::to_string),
            session: None,
            started_at: None,
            seq: 0,
            message: None,
            text: String::new(),
            emitted: 0,
            is_discarded: false,
            reasoning: String::new(),
            reasoning_emitted: 0,
            at: 0,
        }
    }

    /// Processes an event. Text is buffered until [`flush`](Self::flush), so that many tokens make one event;
    /// everything else is emitted at once, after the buffered text.
    pub fn push(&mut self, event: TapeEvent) -> Vec<AgentEvent> {
        if let RunEvent::Thinking { delta, .. } = &event.kind {
            let mut events: Vec<_> = self.flush().into_iter().collect();
            self.reasoning.push_str(delta);
            self.at = event.at;
            if self.reasoning.len() - self.reasoning_emitted >= REASONING_STEP {
                events.extend(self.emit_reasoning());
            }
            return events;
        }
        if let RunEvent::Text { message, delta } = event.kind {
            let mut events: Vec<_> = self.emit_reasoning().into_iter().collect();
            if self.message != Some(message) {
                events.extend(self.flush());
                self.message = Some(message);
                self.text.clear();
                self.emitted = 0;
                self.is_discarded = false;
            }
            self.text.push_str(&delta);
            self.at = event.at;
            return events;
        }
        if let RunEvent::Model(RequestEvent::MessageReset { message }) = event.kind {
            if self.message == Some(message) {
                self.is_discarded |= self.emitted > 0;
                self.text.clear();
                self.emitted = 0;
            }
            self.clear_reasoning();
            return Vec::new();
        }
        let mut events: Vec<_> = self.flush().into_iter().chain(self.emit_reasoning()).collect();
        let at = event.at;
        if matches!(event.kind, RunEvent::Stored(StoredEvent::Assistant { .. })) {
            self.clear_reasoning();
        }
        if matches!(event.kind, RunEvent::Stored(StoredEvent::Assistant { .. } | StoredEvent::Ended(_))) {
            events.extend(self.settle(at));
        }
        events.extend(self.step(event.kind, at).map(|(stream, data)| self.agent_event(stream, data, at)));
        events
    }

    /// True if an event continues or resets the current message.
    fn continues_message(&self, event: &TapeEvent) -> bool {
        let is_same = matches!(event.kind, RunEvent::Text { message, .. } if self.message == Some(message));
        is_same || matches!(event.kind, RunEvent::Model(RequestEvent::MessageReset { .. }))
    }

    /// True if there is buffered text.
    pub fn has_text(&self) -> bool {
        self.emitted < self.text.len()
    }

    /// Emits the text so far: the whole text and the new part.
    pub fn flush(&mut self) -> Option<AgentEvent> {
        if !self.has_text() {
            return None;
        }
        let mut data = json!({"text": self.text, "delta": self.text[self.emitted..]});
        if std::mem::take(&mut self.is_discarded) {
            data["replace"] = true.into();
        }
        self.emitted = self.text.len();
        Some(self.agent_event(Stream::Assistant, data, self.at))
    }

    /// Emits an empty text, if the message ended without replacing discarded text.
    fn settle(&mut self, at: u64) -> Option<AgentEvent> {
        let data = json!({"text": "", "delta": "", "replace": true});
        std::mem::take(&mut self.is_discarded).then(|| self.agent_event(Stream::Assistant, data, at))
    }

    /// Emits the reasoning so far. Clients replace the previous text by it.
    fn emit_reasoning(&mut self) -> Option<AgentEvent> {
        if self.reasoning_emitted == self.reasoning.len() {
            return None;
        }
        let data = json!({"text": self.reasoning, "delta": self.reasoning[self.reasoning_emitted..]});
        self.reasoning_emitted = self.reasoning.len();
        Some(self.agent_event(Stream::Thinking, data, self.at))
    }

    fn clear_reasoning(&mut self) {
        self.reasoning.clear();
        self.reasoning_emitted = 0;
    }

    fn step(&mut self, kind: RunEvent, at: u64) -> Option<(Stream, Value)> {
        match kind {
            RunEvent::Stored(event) => self.stored_step(event, at),
            RunEvent::Tool(event) => Some((Stream::Tool, tool_step(event))),
            RunEvent::Model(event) => model_step(event).map(|data| (Stream::Lifecycle, data)),
            RunEvent::Queue(event) => queue_step(event).map(|data| (Stream::Lifecycle, data)),
            RunEvent::Compaction(CompactionEvent::Started) => Some((Stream::Compaction, json!({"phase": "start"}))),
            RunEvent::Compaction(CompactionEvent::Failed { why }) => {
                let data = json!({"phase": "end", "willRetry": false, "completed": false, "error": why});
                Some((Stream::Compaction, data))
            }
            RunEvent::Text { .. } | RunEvent::Thinking { .. } | RunEvent::Reply(_) | RunEvent::HookDecision(_) => None,
        }
    }

    fn stored_step(&mut self, event: StoredEvent, at: u64) -> Option<(Stream, Value)> {
        match event {
            StoredEvent::Started { session } => {
                self.session = Some(session.to_string());
                self.started_at = Some(at);
                Some((Stream::Lifecycle, json!({"phase": "start", "startedAt": at})))
            }
            StoredEvent::ToolEnded { call, result, shown } => {
                let result = shown.unwrap_or(result);
                let data = json!({
                    "phase": "result", "name": result.tool_name, "toolCallId": call, "isError": result.is_error,
                    "result": tool_result(&result.content, result.details.as_ref()),
                });
                Some((Stream::Tool, data))
            }
            StoredEvent::Compacted { before, after, strategy, continues, input, .. } => {
                let mut data = json!({
                    "phase": "end", "willRetry": continues, "completed": true, "tokensBefore": before,
                    "tokensAfter": after, "way": strategy,
                });
                if let Some(input) = input {
                    data[TRUNCATED_FIELD] = json!(input);
                }
                Some((Stream::Compaction, data))
            }
            StoredEvent::Ended(end) => Some((Stream::Lifecycle, lifecycle_end(&end))),
            StoredEvent::Input(_) | StoredEvent::Assistant { .. } => None,
        }
    }

    fn agent_event(&mut self, stream: Stream, data: Value, ts: u64) -> AgentEvent {
        self.seq += 1;
        AgentEvent {
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

fn tool_step(event: ToolEvent) -> Value {
    match event {
        ToolEvent::Started { call, name, arguments } => {
            json!({"phase": "start", "name": name, "toolCallId": call, "args": arguments})
        }
        ToolEvent::Progress { call, name, partial } => {
            let partial = tool_result(&partial.content, partial.details.as_ref());
            json!({"phase": "update", "name": name, "toolCallId": call, "partialResult": partial})
        }
    }
}

fn model_step(event: RequestEvent) -> Option<Value> {
    match event {
        RequestEvent::Changed { provider, model } => {
            Some(json!({"phase": "model", "provider": provider, "model": model}))
        }
        RequestEvent::CandidateFailed { from, reason, why } => {
            Some(json!({"phase": "fallback_step", "model": from, "reason": reason, "error": why}))
        }
        RequestEvent::Retrying { model, attempt: (attempt, max_attempts), after, why } => Some(json!({
            "phase": "retry", "model": model, "attempt": attempt, "maxAttempts": max_attempts,
            "afterMs": millis(after), "error": why,
        })),
        RequestEvent::NoResponse { model, why } => {
            Some(json!({"phase": "no_response", "model": model, "message": why}))
        }
        RequestEvent::MessageReset { .. }
        | RequestEvent::Requested(_)
        | RequestEvent::FirstToken
        | RequestEvent::AnswerDropped { .. } => None,
    }
}

fn queue_step(event: QueueEvent) -> Option<Value> {
    match event {
        QueueEvent::DispositionChanged(disposition) => {
            let mut data = json!({"phase": "queue"});
            add_disposition(&mut data, disposition);
            Some(data)
        }
        QueueEvent::Busy(busy) => Some(json!({
            "phase": "waiting", "waitedMs": millis(busy.waited), "busyWith": busy.activity.to_string(),
            "busyMs": millis(busy.lasts),
        })),
        QueueEvent::SlotWaited(_) | QueueEvent::Summarized(_) | QueueEvent::Absorbed { .. } => None,
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn lifecycle_end(end: &RunEnd) -> Value {
    let mut data = Map::new();
    // An aborted run has ended; only a broken one has failed.
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
    if end.is_summarized {
        data.insert("disposition".to_owned(), SUMMARIZED.into());
    }
    data.insert("executionSettled".to_owned(), true.into());
    Value::Object(data)
}

fn stop_reason(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Done => "stop",
        Outcome::Failed(_) => "error",
        Outcome::Aborted(AbortReason::User) => "rpc",
        Outcome::Aborted(AbortReason::Stop) => "stop",
        Outcome::Aborted(AbortReason::Timeout) => "timeout",
        Outcome::Aborted(AbortReason::Interrupted) => "interrupted",
        Outcome::Aborted(AbortReason::Dropped) => "dropped",
    }
}

/// Converts a tool's result for events: long text is truncated, pictures are replaced by their size.
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

/// Truncates texts in details, which repeat a tool's output.
fn shorten(details: &Value) -> Value {
    match details {
        Value::String(text) => cut(text).into(),
        Value::Array(items) => items.iter().map(shorten).collect(),
        Value::Object(fields) => fields.iter().map(|(key, value)| (key.clone(), shorten(value))).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) => details.clone(),
    }
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(MAX_TOOL_TEXT) {
        None => text.to_owned(),
        Some((at, _)) => format!("{}\n…(truncated)…", &text[..at]),
    }
}

#[cfg(test)]
mod tests;
