//! Published events of a run, compacted to the fewest that convey everything.
//!
//! The text of a message is kept as its last event only, and so is its reasoning; of a tool's progress events the
//! newest is kept. A client that reconnects states the last sequence number it saw and receives the rest. A message
//! that it saw in part is sent whole, as a replacement.

use homard_proto::event::{AgentEvent, Stream};
use serde_json::{Value, json};

use super::ToolDetail;

/// Compacted log of a run's published events.
#[derive(Debug, Default)]
pub(super) struct RunEventLog(Vec<LoggedEvent>);

#[derive(Debug)]
struct LoggedEvent {
    /// Sequence number of the first event that this one replaces.
    first_seq: u64,
    event: AgentEvent,
}

impl LoggedEvent {
    fn seq(&self) -> u64 {
        self.event.seq.unwrap_or_default()
    }

    fn text(&self, name: &str) -> Option<&str> {
        text_field(&self.event, name)
    }
}

impl RunEventLog {
    /// Appends an event and removes the ones that it supersedes.
    pub(super) fn append(&mut self, event: AgentEvent) {
        let superseded = match event.stream {
            Stream::Assistant | Stream::Thinking if !is_first(&event) => {
                self.0.iter().rposition(|logged| logged.event.stream == event.stream)
            }
            Stream::Tool if text_field(&event, "phase") != Some("start") => {
                self.progress_index(text_field(&event, "toolCallId"))
            }
            Stream::Assistant
            | Stream::Tool
            | Stream::Lifecycle
            | Stream::Thinking
            | Stream::Compaction
            | Stream::Other(_) => None,
        };
        let previous = superseded.map(|index| self.0.remove(index));
        let first_seq = previous.filter(|_| is_cumulative(&event)).map(|previous| previous.first_seq);
        self.0.push(LoggedEvent { first_seq: first_seq.or(event.seq).unwrap_or_default(), event });
    }

    /// Index of the last progress event of a call.
    fn progress_index(&self, call: Option<&str>) -> Option<usize> {
        self.0.iter().rposition(|logged| logged.text("phase") == Some("update") && logged.text("toolCallId") == call)
    }

    /// Returns the events after a sequence number, with tool events at the given level of detail.
    pub(super) fn after(&self, seq: u64, detail: Option<ToolDetail>) -> Vec<Value> {
        let unseen = self.0.iter().filter(|logged| logged.seq() > seq);
        let events = unseen.filter_map(|logged| match (&logged.event.stream, detail) {
            (Stream::Tool, None) => None,
            (Stream::Tool, Some(ToolDetail::Brief)) => Some(brief(&logged.event)),
            (Stream::Assistant | Stream::Thinking, _) => Some(merged(logged, seq)),
            (Stream::Tool | Stream::Lifecycle | Stream::Compaction | Stream::Other(_), _) => Some(logged.event.clone()),
        });
        events.map(|event| json!(event)).collect()
    }

    /// Returns the calls in progress, in order of their start.
    pub(super) fn open_tools(&self) -> Vec<Value> {
        let tools = || self.0.iter().filter(|logged| logged.event.stream == Stream::Tool);
        let has_result =
            |call| tools().any(|logged| logged.text("phase") == Some("result") && logged.text("toolCallId") == call);
        let started =
            tools().filter(|logged| logged.text("phase") == Some("start") && !has_result(logged.text("toolCallId")));
        let tool_json = |logged: &LoggedEvent| {
            let AgentEvent { data, ts, .. } = &logged.event;
            json!({"toolCallId": data["toolCallId"], "name": data["name"], "args": data["args"], "startedAt": ts})
        };
        started.map(tool_json).collect()
    }

    /// Approximate size in bytes.
    pub(super) fn size(&self) -> usize {
        // Events consist of JSON values, so serialisation does not fail.
        self.0.iter().map(|logged| serde_json::to_string(&logged.event).unwrap_or_default().len()).sum()
    }
}

fn text_field<'a>(event: &'a AgentEvent, name: &str) -> Option<&'a str> {
    event.data.get(name).and_then(Value::as_str)
}

/// True for events that repeat the whole text so far.
fn is_cumulative(event: &AgentEvent) -> bool {
    matches!(event.stream, Stream::Assistant | Stream::Thinking)
}

/// True if an event is the first of a message's text or reasoning: the delta is the whole text, and it replaces
/// nothing.
fn is_first(event: &AgentEvent) -> bool {
    let length = |name| text_field(event, name).map(str::len);
    length("delta") == length("text") && event.data.get("replace").is_none()
}

/// Returns a message's text as one event, for a client that saw everything up to sequence number `last_seen`.
fn merged(logged: &LoggedEvent, last_seen: u64) -> AgentEvent {
    let mut event = logged.event.clone();
    event.data["delta"] = event.data["text"].clone();
    if logged.first_seq <= last_seen {
        event.data["replace"] = true.into();
    } else if let Some(data) = event.data.as_object_mut() {
        data.shift_remove("replace");
    }
    event
}

/// Copies a tool event without the tool's output.
pub(super) fn brief(event: &AgentEvent) -> AgentEvent {
    let mut brief = event.clone();
    if let Some(data) = brief.data.as_object_mut() {
        data.shift_remove("result");
        data.shift_remove("partialResult");
    }
    brief
}

#[cfg(test)]
mod tests {
    use homard_proto::Extra;

    use super::*;

    fn log(steps: &[(Stream, Value)]) -> RunEventLog {
        let mut log = RunEventLog::default();
        for (seq, (stream, data)) in (1..).zip(steps) {
            log.append(AgentEvent {
                run_id: "k".to_owned(),
                stream: stream.clone(),
                data: data.clone(),
                session_key: None,
                session_id: None,
                agent_id: None,
                seq: Some(seq),
                ts: 7,
                extra: Extra::new(),
            });
        }
        log
    }

    fn replayed(log: &RunEventLog, after: u64, detail: Option<ToolDetail>) -> Vec<Value> {
        log.after(after, detail).iter().map(|event| json!([event["seq"], event["data"]])).collect()
    }

    #[test]
    fn a_partly_received_message_is_replaced() {
        let text_event = |text: &str, delta: &str| (Stream::Assistant, json!({"text": text, "delta": delta}));
        let mut retried = text_event("Now", "Now");
        retried.1["replace"] = true.into();
        let retry = (Stream::Lifecycle, json!({"phase": "retry"}));
        let log =
            log(&[text_event("One", "One"), text_event("Two", "Two"), text_event("Two, no", ", no"), retry, retried]);
        let retry = json!([4, {"phase": "retry"}]);
        let complete = json!([5, {"text": "Now", "delta": "Now"}]);
        let replacing = json!([5, {"text": "Now", "delta": "Now", "replace": true}]);
        assert_eq!(
            replayed(&log, 0, None),
            [json!([1, {"text": "One", "delta": "One"}]), retry.clone(), complete.clone()]
        );
        assert_eq!(replayed(&log, 1, None), [retry.clone(), complete]);
        assert_eq!(replayed(&log, 2, None), [retry, replacing.clone()]);
        assert_eq!(replayed(&log, 4, None), [replacing]);
        assert_eq!(replayed(&log, 5, None), [] as [Value; 0]);
    }

    #[test]
    fn cumulative_thinking_is_logged_once_and_apart_from_text() {
        let thinking = |text: &str, delta: &str| (Stream::Thinking, json!({"text": text, "delta": delta}));
        let text_event = (Stream::Assistant, json!({"text": "Yes", "delta": "Yes"}));
        let log = log(&[
            thinking("Hm", "Hm"),
            thinking("Hmm", "m"),
            text_event,
            thinking("Hmm.", "."),
            thinking("Next", "Next"),
        ]);
        let text = json!([3, {"text": "Yes", "delta": "Yes"}]);
        let next = json!([5, {"text": "Next", "delta": "Next"}]);
        let complete = json!([4, {"text": "Hmm.", "delta": "Hmm."}]);
        let replacing = json!([4, {"text": "Hmm.", "delta": "Hmm.", "replace": true}]);
        assert_eq!(replayed(&log, 0, None), [text.clone(), complete, next.clone()]);
        assert_eq!(replayed(&log, 1, None), [text, replacing.clone(), next.clone()]);
        assert_eq!(replayed(&log, 3, None), [replacing, next]);
    }

    #[test]
    fn tool_events_keep_the_start_and_the_latest_progress() {
        let tool_event = |phase: &str, call: &str, name: &str| {
            (Stream::Tool, json!({"phase": phase, "toolCallId": call, "name": "echo", name: 1}))
        };
        let log = log(&[
            tool_event("start", "a", "args"),
            tool_event("start", "b", "args"),
            tool_event("update", "a", "partialResult"),
            tool_event("update", "b", "partialResult"),
            tool_event("update", "b", "partialResult"),
            tool_event("result", "a", "result"),
        ]);
        let seqs = |detail| -> Vec<Value> { log.after(0, detail).iter().map(|event| event["seq"].clone()).collect() };
        assert_eq!((seqs(Some(ToolDetail::Full)), seqs(None)), ([1, 2, 5, 6].map(Value::from).to_vec(), Vec::new()));
        assert_eq!(
            replayed(&log, 5, Some(ToolDetail::Brief)),
            [json!([6, {"phase": "result", "toolCallId": "a", "name": "echo"}])]
        );
        assert_eq!(replayed(&log, 5, Some(ToolDetail::Full))[0][1]["result"], 1);
        assert_eq!(log.open_tools(), [json!({"toolCallId": "b", "name": "echo", "args": 1, "startedAt": 7})]);
    }
}
