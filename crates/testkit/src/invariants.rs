//! Invariants that hold for every trace, whatever its snapshot says.
//!
//! This file has the invariants within one hub lifetime; those across lifetimes are in `restarts`.

mod delivery;
mod messages;
mod restarts;
mod timeline;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use homard_agent::{
    CompactionEvent, Outcome, QueueEvent, RequestEvent, RunEvent, StoredEvent, payload_of, tape::TapeState,
};
use homard_proto::{
    AgentId,
    event::Stream,
    message::{Message, StopReason, ToolResult},
    transcript::{Entry, Kind},
};
use homard_store::{RunRow, RunState};

use crate::{
    recorder::{RecordedPayload, RecordedRun},
    runner::TraceResult,
};

/// Returns all violations; empty if there are none.
pub fn violations(result: &TraceResult) -> Vec<String> {
    let mut problems = result.complaints.clone();
    for (index, recorded_run) in result.log.runs.iter().enumerate() {
        let payloads: Vec<_> = result.log.payloads.iter().filter(|recorded| recorded.run == index).collect();
        let mut report = |problem: String| problems.push(format!("run {}: {problem}", recorded_run.tape.run()));
        ends_once(result, index).into_iter().for_each(&mut report);
        sequence(recorded_run, &payloads).into_iter().for_each(&mut report);
        streamed_text(result, recorded_run, &payloads).into_iter().for_each(&mut report);
        published_is_stored(result, recorded_run).into_iter().for_each(&mut report);
    }
    problems.extend(timeline::violations(result));
    problems.extend(no_overlap(result));
    for (key, session) in &result.sessions {
        let mut report = |problem: String| problems.push(format!("transcript of {key}: {problem}"));
        parents_are_linked(&session.entries).into_iter().for_each(&mut report);
        let messages: Vec<_> = session.entries.iter().filter_map(message).collect();
        let (call_problems, open) = calls_have_results(&messages);
        // A disk that failed during a run may have stored its tool calls without their results.
        let call_problems =
            call_problems.into_iter().filter(|problem| !result.conditions.disk_failed || problem.starts_with(STRAY));
        let is_active = |row: &RunRow| row.key == *key && !matches!(row.state, RunState::Ended(_));
        let open = open.into_iter().filter(|_| !result.conditions.disk_failed && !result.rows.values().any(is_active));
        call_problems.chain(open).for_each(&mut report);
    }
    for (number, recorded) in (1..).zip(&result.requests) {
        let messages: Vec<_> = recorded.request.messages.iter().map(AsRef::as_ref).collect();
        let (call_problems, open) = calls_have_results(&messages);
        problems.extend(call_problems.into_iter().chain(open).map(|problem| format!("model call {number}: {problem}")));
    }
    problems.extend(restarts::violations(result));
    problems.extend(delivery::broken(result));
    problems
}

/// True if the process crashed or stopped before the end of this run could be published.
pub(crate) fn is_interrupted(result: &TraceResult, recorded_run: &RecordedRun) -> bool {
    let is_over = recorded_run.lifetime < result.log.restarts.len();
    match recorded_run.tape.state() {
        TapeState::Ended(_) | TapeState::Rejected => false,
        TapeState::Broken(_) => is_over || result.conditions.stopped,
        TapeState::Queued | TapeState::Running => is_over,
    }
}

/// A run ends exactly once, and last; the store has the same end, and the replies that it refers to.
fn ends_once(result: &TraceResult, index: usize) -> Vec<String> {
    let recorded_run = &result.log.runs[index];
    let mut problems = Vec::new();
    let ends: Vec<_> = (0..)
        .zip(&recorded_run.events)
        .filter(|(_, event)| matches!(event.kind, RunEvent::Stored(StoredEvent::Ended(_))))
        .collect();
    let state = recorded_run.tape.state();
    match (&ends[..], &state) {
        ([(last, _)], TapeState::Ended(_)) if last + 1 == recorded_run.events.len() => {}
        ([], TapeState::Broken(_) | TapeState::Rejected) if result.conditions.disk_failed => {}
        ([], _) if is_interrupted(result, recorded_run) => {}
        _ => problems.push(format!("must end once, as the last thing; it is {state:?} with {} ends", ends.len())),
    }
    let stored = match result.rows.get(recorded_run.tape.run()).map(|row| &row.state) {
        Some(RunState::Ended(ended)) => Some(ended),
        Some(RunState::Accepted | RunState::Running | RunState::Absorbed(_) | RunState::Held) | None => None,
    };
    match (stored, &state) {
        (None, TapeState::Ended(_)) => problems.push("told to be over, but the store does not know that".to_owned()),
        (Some(ended), _) => {
            let known: BTreeSet<_> =
                result.transcripts().flat_map(|(_, entries)| entries).map(|entry| &entry.id).collect();
            let lost = ended.replies.iter().filter(|reply| !known.contains(reply));
            problems.extend(lost.map(|reply| format!("its stored reply {reply} is not in the transcript")));
        }
        (None, TapeState::Queued | TapeState::Running | TapeState::Broken(_) | TapeState::Rejected) => {}
    }
    problems
}

/// Payloads are numbered from 1 without gaps, name their session, and conclude with the terminal event, if there is
/// one.
fn sequence(recorded_run: &RecordedRun, payloads: &[&RecordedPayload]) -> Vec<String> {
    let mut problems = Vec::new();
    let key = recorded_run.tape.key();
    let owner = (recorded_run.tape.run().as_str(), Some(key.as_str()), key.agent().map(AgentId::as_str));
    for (number, RecordedPayload { payload, .. }) in (1..).zip(payloads) {
        if payload.seq != Some(number) {
            problems.push(format!("payload {number} has seq {:?}", payload.seq));
        }
        let named = (&*payload.run_id, payload.session_key.as_deref(), payload.agent_id.as_deref());
        if named != owner {
            problems.push(format!("payload {number} belongs to {named:?}"));
        }
    }
    let phases: Vec<_> = payloads.iter().map(|payload| phase(payload)).collect();
    let ends: Vec<_> = (0..phases.len()).filter(|&at| matches!(phases[at], Some("end" | "error"))).collect();
    let has_ended = matches!(recorded_run.tape.state(), TapeState::Ended(_));
    let expected: Vec<_> = phases.len().checked_sub(1).filter(|_| has_ended).into_iter().collect();
    if ends != expected {
        problems.push(format!("payloads tell the phases {phases:?}: there must be one end, last"));
    }
    let starts = phases.iter().filter(|phase| **phase == Some("start")).count();
    if starts > 1 {
        problems.push(format!("payloads tell {starts} beginnings"));
    }
    problems
}

/// Returns the lifecycle phase of a payload, if it has one.
pub(crate) fn phase(recorded: &RecordedPayload) -> Option<&str> {
    match recorded.payload.stream {
        Stream::Lifecycle => recorded.payload.data["phase"].as_str(),
        Stream::Assistant | Stream::Tool | Stream::Thinking | Stream::Compaction | Stream::Other(_) => None,
    }
}

/// What was published as stored is stored.
fn published_is_stored(result: &TraceResult, recorded_run: &RecordedRun) -> Vec<String> {
    // A session under another key of the agent may have continued the transcript.
    let agent = recorded_run.tape.key().agent();
    let entries = result.transcripts().filter(|(key, _)| key.agent() == agent).flat_map(|(_, all)| all);
    let entries: Vec<_> = entries.collect();
    // An answer that waited for its transcript entry got none if neither the end of its run nor, later, the entry could
    // be stored.
    let stored = result.rows.get(recorded_run.tape.run()).map(|row| &row.state);
    let is_lost = result.conditions.disk_failed
        && matches!(stored, Some(RunState::Ended(ended)) if ended.outcome != Outcome::Done);
    let is_stored = |event: &RunEvent| match event {
        RunEvent::Stored(StoredEvent::Assistant { entry: entry_id, message: answer }) => entries.iter().any(|entry| {
            entry.id == *entry_id
                && message(entry).is_some_and(|message| *message == Message::Assistant((**answer).clone()))
        }),
        // A result that waited for its entry across a restart has the timestamp of the entry.
        RunEvent::Stored(StoredEvent::ToolEnded { .. }) if is_lost => true,
        RunEvent::Stored(StoredEvent::ToolEnded { result: tool_result, .. }) => {
            entries.iter().filter_map(|entry| message(entry)).any(|message| match message {
                Message::ToolResult(stored_result) => {
                    ToolResult { timestamp: stored_result.timestamp, ..(**tool_result).clone() } == *stored_result
                }
                Message::User(_) | Message::Assistant(_) | Message::Other(_) => false,
            })
        }
        RunEvent::Stored(StoredEvent::Input(input)) => {
            entries.iter().filter_map(|entry| message(entry)).any(|message| *message == **input)
        }
        RunEvent::Stored(StoredEvent::Started { .. } | StoredEvent::Compacted { .. } | StoredEvent::Ended(_))
        | RunEvent::Queue(_)
        | RunEvent::Text { .. }
        | RunEvent::Thinking { .. }
        | RunEvent::Model(_)
        | RunEvent::Tool(_)
        | RunEvent::Compaction(_)
        | RunEvent::Reply(_)
        | RunEvent::HookDecision(_) => true,
    };
    let lost = recorded_run.events.iter().filter(|event| !is_stored(&event.kind));
    lost.map(|event| format!("shown as kept, but not in the transcript: {:?}", event.kind)).collect()
}

/// The streamed text equals the user-visible text of the message, byte for byte.
fn streamed_text(result: &TraceResult, recorded_run: &RecordedRun, payloads: &[&RecordedPayload]) -> Vec<String> {
    if !matches!(recorded_run.tape.state(), TapeState::Ended(_)) {
        return Vec::new();
    }
    let mut problems = Vec::new();
    // Text of each message, and whether it was cut off, in which case the end of its text may have been held back.
    let mut texts: Vec<(String, bool)> = Vec::new();
    let mut pieces: BTreeMap<u32, String> = BTreeMap::new();
    for event in &recorded_run.events {
        if let RunEvent::Text { message, delta } = &event.kind {
            pieces.entry(*message).or_default().push_str(delta);
        } else if let RunEvent::Model(RequestEvent::MessageReset { message }) = &event.kind {
            pieces.remove(message);
        } else if let RunEvent::Stored(StoredEvent::Assistant { message, .. }) = &event.kind {
            texts.push((payload_of(message).text, message.stop_reason == StopReason::Error));
        }
    }
    // Replies to commands are in no transcript. A fallback reply for a model that said nothing is not streamed. An
    // absorbed run streams nothing, because its host does.
    let row = result.rows.get(recorded_run.tape.run()).filter(|row| row.host.is_none());
    if texts.is_empty()
        && let Some(RunState::Ended(ended)) = row.map(|row| &row.state)
        && let Some(answer) = &ended.command_reply
    {
        texts.push((answer.clone(), false));
    }
    let before = messages_before_restart(recorded_run);
    let mut expected_text = String::new();
    for (number, (text, is_cut)) in (0..).zip(&texts).skip(before) {
        let pieces = pieces.remove(&number).unwrap_or_default();
        let is_complete =
            pieces == *text || *is_cut && text.starts_with(&pieces) || result.hooks_received("before_message_write");
        if !is_complete {
            problems.push(format!("message {number} was told as {pieces:?} and is {text:?}"));
        }
        expected_text.push_str(&pieces);
    }
    problems.extend(pieces.keys().map(|number| format!("message {number} was begun and is not there")));
    let member =
        |recorded: &RecordedPayload, name: &str| recorded.payload.data[name].as_str().unwrap_or_default().to_owned();
    let assistant = || payloads.iter().filter(|recorded| recorded.payload.stream == Stream::Assistant);
    // A replacement, after a discarded attempt, replaces what was streamed for that message.
    let (mut before, mut now) = (String::new(), String::new());
    for recorded in assistant() {
        let (text, delta) = (member(recorded, "text"), member(recorded, "delta"));
        if recorded.payload.data["replace"] != true && text != format!("{now}{delta}") {
            before.push_str(&now);
        }
        now = text;
    }
    let received = before + &now;
    if received != expected_text {
        problems.push(format!("clients were told {received:?}, and it is {expected_text:?}"));
    }
    let cut = assistant().find(|recorded| !member(recorded, "text").ends_with(&member(recorded, "delta")));
    problems.extend(
        cut.map(|recorded| format!("the text so far does not end with what is new: {}", recorded.payload.data)),
    );
    problems
}

/// Returns the number of messages from before a restart: a resumed run publishes them first, as a whole.
fn messages_before_restart(recorded_run: &RecordedRun) -> usize {
    let kinds = recorded_run.events.iter().map(|event| &event.kind);
    let after_start = kinds.skip_while(|kind| {
        matches!(
            kind,
            RunEvent::Stored(StoredEvent::Started { .. })
                | RunEvent::Queue(
                    QueueEvent::SlotWaited(_)
                        | QueueEvent::DispositionChanged(_)
                        | QueueEvent::Busy(_)
                        | QueueEvent::Summarized(_)
                )
        )
    });
    // New messages come after a model request.
    let is_entry = |kind: &&RunEvent| {
        matches!(
            kind,
            RunEvent::Stored(StoredEvent::Assistant { .. } | StoredEvent::ToolEnded { .. } | StoredEvent::Input(_))
        )
    };
    let is_compaction = |kind: &&RunEvent| {
        matches!(kind, RunEvent::Compaction(CompactionEvent::Started) | RunEvent::Stored(StoredEvent::Compacted { .. }))
    };
    let before = after_start.take_while(|kind| is_entry(kind) || is_compaction(kind));
    before.filter(|kind| matches!(kind, RunEvent::Stored(StoredEvent::Assistant { .. }))).count()
}

/// Runs of one session do not overlap.
fn no_overlap(result: &TraceResult) -> Vec<String> {
    let mut problems = Vec::new();
    let mut active = BTreeMap::new();
    for recorded in &result.log.payloads {
        let RecordedRun { tape, lifetime, .. } = &result.log.runs[recorded.run];
        let lane = (lifetime, tape.key());
        match phase(recorded) {
            Some("start") => {
                if let Some(other) = active.insert(lane, tape.run()) {
                    problems.push(format!("run {} began in {} before {other} had ended", tape.run(), tape.key()));
                }
            }
            Some("end" | "error") if active.get(&lane) == Some(&tape.run()) => {
                active.remove(&lane);
            }
            _ => {}
        }
    }
    if result.conditions.disk_failed { Vec::new() } else { problems }
}

/// Every entry names its predecessor as parent.
fn parents_are_linked(entries: &[Entry]) -> Vec<String> {
    let mut before = None;
    let mut problems = Vec::new();
    for entry in entries {
        if entry.parent_id.as_ref() != before {
            problems.push(format!("line {} follows {before:?} and says {:?}", entry.id, entry.parent_id));
        }
        before = Some(&entry.id);
    }
    problems
}

/// Beginning of the complaint about a result without a call.
const STRAY: &str = "a result for";

/// Every tool call of a message has one result, right after it, in the order of the calls; there are no other results.
/// Returns the violations, and those that count only if no run is active for the last message.
fn calls_have_results(messages: &[&Message]) -> (Vec<String>, Vec<String>) {
    let mut problems = Vec::new();
    let mut open: VecDeque<&str> = VecDeque::new();
    for message in messages {
        match message {
            Message::ToolResult(result) => {
                let expected = open.pop_front();
                if expected != Some(&result.tool_call_id) {
                    problems.push(format!("{STRAY} {} where {expected:?} is next", result.tool_call_id));
                }
            }
            Message::User(_) | Message::Assistant(_) | Message::Other(_) => {
                problems.extend(open.drain(..).map(|call| format!("call {call} has no result")));
            }
        }
        if let Message::Assistant(assistant) = message {
            open = assistant.tool_calls().map(|call| call.id.as_str()).collect();
        }
    }
    (problems, open.iter().map(|call| format!("call {call} has no result")).collect())
}

fn message(entry: &Entry) -> Option<&Message> {
    match &entry.kind {
        Kind::Message(entry_message) => Some(&entry_message.message),
        Kind::ModelChange(_) | Kind::Other(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use homard_proto::message::{Assistant, Block, ToolCall, User};

    use super::*;
    use crate::{Trace, runner::play};

    fn complaints(trace: &str) -> Vec<String> {
        violations(&play(&Trace::read("x.trace", trace).unwrap()).unwrap())
    }

    #[test]
    fn deviations_from_the_script_are_reported() {
        let fine = "at 0ms say \"hi\"\nmodel text \"Hello.\"\n";
        assert_eq!(complaints(fine), Vec::<String>::new());
        let complaint = |more: &str| complaints(&format!("{fine}{more}"));
        assert_eq!(complaint("model text \"More.\""), ["1 scripted turn(s) were never asked for"]);
        assert_eq!(complaint("at 1s say \"more\""), ["model call 2 was not expected: no turn is left for it"]);
        assert_eq!(complaint("tool exec says \"done\""), ["`tool exec` was never called"]);
        assert_eq!(complaint("fault store.commit #99 ENOSPC"), ["`fault store.commit #99` never happened"]);
        assert_eq!(
            complaints("at 0ms say \"hi\"\nmodel call c1 read {\"path\":\"a\"}\nmodel text \"b\""),
            ["call c1 of read was not expected: no `tool` line for it"]
        );
    }

    #[test]
    fn every_call_is_answered_once_and_in_order() {
        let answer_with_calls = |calls: &[&str]| {
            let call = |id: &&str| Block::ToolCall(ToolCall { id: (*id).to_owned(), ..ToolCall::default() });
            Message::Assistant(Assistant { content: calls.iter().map(call).collect(), ..Assistant::default() })
        };
        let tool_result = |call: &str| {
            Message::ToolResult(ToolResult {
                tool_call_id: call.to_owned(),
                tool_name: String::new(),
                content: Vec::new(),
                details: None,
                is_error: false,
                timestamp: 0,
                extra: serde_json::Map::new(),
            })
        };
        let problems_of = |messages: &[Message]| {
            let (problems, open) = calls_have_results(&messages.iter().collect::<Vec<_>>());
            [problems, open].concat()
        };
        let user = || Message::User(User::text("hi", 0));
        assert_eq!(
            problems_of(&[user(), answer_with_calls(&["a", "b"]), tool_result("a"), tool_result("b"), user()]),
            Vec::<String>::new()
        );
        assert_eq!(
            problems_of(&[answer_with_calls(&["a"]), user(), tool_result("a")]),
            ["call a has no result", "a result for a where None is next"]
        );
        assert_eq!(
            problems_of(&[answer_with_calls(&["a"]), tool_result("a"), tool_result("a")]),
            ["a result for a where None is next"]
        );
        assert_eq!(
            problems_of(&[answer_with_calls(&["a", "b"]), tool_result("b")]),
            ["a result for b where Some(\"a\") is next", "call b has no result"]
        );
    }
}
