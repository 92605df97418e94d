//! Invariants that hold for every trace, whatever its snapshot says.
//!
//! This file has the invariants within one hub lifetime; those across lifetimes are in `lives`.

mod delivery;
mod messages;
mod restarts;
mod timeline;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use homard_agent::{Outcome, RunEvent, payload_of, tape::TapeState};
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
pub fn violations(played: &TraceResult) -> Vec<String> {
    let mut broken = played.complaints.clone();
    for (place, heard) in played.log.runs.iter().enumerate() {
        let told: Vec<_> = played.log.payloads.iter().filter(|told| told.run == place).collect();
        let mut say = |wrong: String| broken.push(format!("run {}: {wrong}", heard.tape.run()));
        ends_once(played, place).into_iter().for_each(&mut say);
        sequence(heard, &told).into_iter().for_each(&mut say);
        streamed_text(played, heard, &told).into_iter().for_each(&mut say);
        published_is_stored(played, heard).into_iter().for_each(&mut say);
    }
    broken.extend(timeline::violations(played));
    broken.extend(no_overlap(played));
    for (key, session) in &played.sessions {
        let mut say = |wrong: String| broken.push(format!("transcript of {key}: {wrong}"));
        parents_are_linked(&session.entries).into_iter().for_each(&mut say);
        let messages: Vec<_> = session.entries.iter().filter_map(message).collect();
        let (wrong, open) = calls_have_results(&messages);
        // A disk that failed during a run may have stored its tool calls without their results.
        let wrong = wrong.into_iter().filter(|wrong| !played.disk_failed || wrong.starts_with(STRAY));
        let is_at_work = |row: &RunRow| row.key == *key && !matches!(row.state, RunState::Ended(_));
        let open = open.into_iter().filter(|_| !played.disk_failed && !played.rows.values().any(is_at_work));
        wrong.chain(open).for_each(&mut say);
    }
    for (number, seen) in (1..).zip(&played.seen) {
        let messages: Vec<_> = seen.request.messages.iter().map(AsRef::as_ref).collect();
        let (wrong, open) = calls_have_results(&messages);
        broken.extend(wrong.into_iter().chain(open).map(|wrong| format!("model call {number}: {wrong}")));
    }
    broken.extend(restarts::violations(played));
    broken.extend(delivery::broken(played));
    broken
}

/// True if the process crashed or stopped before the end of this run could be published.
pub(crate) fn is_interrupted(played: &TraceResult, heard: &RecordedRun) -> bool {
    let is_over = heard.lifetime < played.log.restarts.len();
    match heard.tape.state() {
        TapeState::Ended(_) | TapeState::Rejected => false,
        TapeState::Broken(_) => is_over || played.stopped,
        TapeState::Queued | TapeState::Running => is_over,
    }
}

/// A run ends exactly once, and last; the store has the same end, and the replies that it refers to.
fn ends_once(played: &TraceResult, place: usize) -> Vec<String> {
    let heard = &played.log.runs[place];
    let mut wrong = Vec::new();
    let ends: Vec<_> = (0..).zip(&heard.events).filter(|(_, event)| matches!(event.kind, RunEvent::Ended(_))).collect();
    let state = heard.tape.state();
    match (&ends[..], &state) {
        ([(last, _)], TapeState::Ended(_)) if last + 1 == heard.events.len() => {}
        ([], TapeState::Broken(_) | TapeState::Rejected) if played.disk_failed => {}
        ([], _) if is_interrupted(played, heard) => {}
        _ => wrong.push(format!("must end once, as the last thing; it is {state:?} with {} ends", ends.len())),
    }
    let stored = match played.rows.get(heard.tape.run()).map(|row| &row.state) {
        Some(RunState::Ended(ended)) => Some(ended),
        Some(RunState::Accepted | RunState::Running | RunState::Absorbed(_) | RunState::Held) | None => None,
    };
    match (stored, &state) {
        (None, TapeState::Ended(_)) => wrong.push("told to be over, but the store does not know that".to_owned()),
        (Some(ended), _) => {
            let known: BTreeSet<_> =
                played.transcripts().flat_map(|(_, entries)| entries).map(|entry| &entry.id).collect();
            let lost = ended.replies.iter().filter(|reply| !known.contains(reply));
            wrong.extend(lost.map(|reply| format!("its stored reply {reply} is not in the transcript")));
        }
        (None, TapeState::Queued | TapeState::Running | TapeState::Broken(_) | TapeState::Rejected) => {}
    }
    wrong
}

/// Payloads are numbered from 1 without gaps, name their session, and conclude with the terminal event, if there is
/// one.
fn sequence(heard: &RecordedRun, told: &[&RecordedPayload]) -> Vec<String> {
    let mut wrong = Vec::new();
    let key = heard.tape.key();
    let owner = (heard.tape.run().as_str(), Some(key.as_str()), key.agent().map(AgentId::as_str));
    for (number, RecordedPayload { payload, .. }) in (1..).zip(told) {
        if payload.seq != Some(number) {
            wrong.push(format!("payload {number} has seq {:?}", payload.seq));
        }
        let named = (&*payload.run_id, payload.session_key.as_deref(), payload.agent_id.as_deref());
        if named != owner {
            wrong.push(format!("payload {number} belongs to {named:?}"));
        }
    }
    let phases: Vec<_> = told.iter().map(|told| phase(told)).collect();
    let ends: Vec<_> = (0..phases.len()).filter(|&at| matches!(phases[at], Some("end" | "error"))).collect();
    let has_ended = matches!(heard.tape.state(), TapeState::Ended(_));
    let expected: Vec<_> = phases.len().checked_sub(1).filter(|_| has_ended).into_iter().collect();
    if ends != expected {
        wrong.push(format!("payloads tell the phases {phases:?}: there must be one end, last"));
    }
    let starts = phases.iter().filter(|phase| **phase == Some("start")).count();
    if starts > 1 {
        wrong.push(format!("payloads tell {starts} beginnings"));
    }
    wrong
}

/// Returns the lifecycle phase of a payload, if it has one.
pub(crate) fn phase(told: &RecordedPayload) -> Option<&str> {
    match told.payload.stream {
        Stream::Lifecycle => told.payload.data["phase"].as_str(),
        Stream::Assistant | Stream::Tool | Stream::Thinking | Stream::Compaction | Stream::Other(_) => None,
    }
}

/// What was published as stored is stored.
fn published_is_stored(played: &TraceResult, heard: &RecordedRun) -> Vec<String> {
    // A session under another key of the agent may have continued the transcript.
    let agent = heard.tape.key().agent();
    let lines = played.transcripts().filter(|(key, _)| key.agent() == agent).flat_map(|(_, entries)| entries);
    let lines: Vec<_> = lines.collect();
    // An answer that waited for its transcript entry got none if neither the end of its run nor, later, the entry could
    // be stored.
    let stored = played.rows.get(heard.tape.run()).map(|row| &row.state);
    let is_lost =
        played.disk_failed && matches!(stored, Some(RunState::Ended(ended)) if ended.outcome != Outcome::Done);
    let is_kept = |event: &RunEvent| match event {
        RunEvent::Assistant { entry, said } => lines.iter().any(|line| {
            line.id == *entry && message(line).is_some_and(|message| *message == Message::Assistant((**said).clone()))
        }),
        // A result that waited for its entry across a restart has the timestamp of the entry.
        RunEvent::ToolEnded { .. } if is_lost => true,
        RunEvent::ToolEnded { result, .. } => {
            lines.iter().filter_map(|line| message(line)).any(|message| match message {
                Message::ToolResult(line) => ToolResult { timestamp: line.timestamp, ..(**result).clone() } == *line,
                Message::User(_) | Message::Assistant(_) | Message::Other(_) => false,
            })
        }
        RunEvent::Input(input) => lines.iter().filter_map(|line| message(line)).any(|message| *message == **input),
        RunEvent::Started { .. }
        | RunEvent::SlotWaited(_)
        | RunEvent::DispositionChanged(_)
        | RunEvent::Busy(_)
        | RunEvent::Summarized(_)
        | RunEvent::Absorbed { .. }
        | RunEvent::Text { .. }
        | RunEvent::Thinking { .. }
        | RunEvent::ModelChanged { .. }
        | RunEvent::MessageReset { .. }
        | RunEvent::Retrying { .. }
        | RunEvent::CandidateFailed { .. }
        | RunEvent::ToolStarted { .. }
        | RunEvent::ToolProgress { .. }
        | RunEvent::Compacting
        | RunEvent::Compacted { .. }
        | RunEvent::NotCompacted { .. }
        | RunEvent::Block(_)
        | RunEvent::ModelRequested(_)
        | RunEvent::FirstToken
        | RunEvent::AnswerDropped { .. }
        | RunEvent::HookDecision(_)
        | RunEvent::Withheld(_)
        | RunEvent::Ended(_) => true,
    };
    let lost = heard.events.iter().filter(|event| !is_kept(&event.kind));
    lost.map(|event| format!("shown as kept, but not in the transcript: {:?}", event.kind)).collect()
}

/// The streamed text equals the user-visible text of the message, byte for byte.
fn streamed_text(played: &TraceResult, heard: &RecordedRun, told: &[&RecordedPayload]) -> Vec<String> {
    if !matches!(heard.tape.state(), TapeState::Ended(_)) {
        return Vec::new();
    }
    let mut wrong = Vec::new();
    // Text of each message, and whether it was cut off, in which case the end of its text may have been held back.
    let mut said: Vec<(String, bool)> = Vec::new();
    let mut pieces: BTreeMap<u32, String> = BTreeMap::new();
    for event in &heard.events {
        if let RunEvent::Text { message, delta } = &event.kind {
            pieces.entry(*message).or_default().push_str(delta);
        } else if let RunEvent::MessageReset { message } = &event.kind {
            pieces.remove(message);
        } else if let RunEvent::Assistant { said: message, .. } = &event.kind {
            said.push((payload_of(message).text, message.stop_reason == StopReason::Error));
        }
    }
    // Replies to commands are in no transcript. A fallback reply for a model that said nothing is not streamed. An
    // absorbed run streams nothing, because its host does.
    let row = played.rows.get(heard.tape.run()).filter(|row| row.host.is_none());
    if said.is_empty()
        && let Some(RunState::Ended(ended)) = row.map(|row| &row.state)
        && let Some(answer) = &ended.words
    {
        said.push((answer.clone(), false));
    }
    let before = messages_before_restart(heard);
    let mut whole = String::new();
    for (number, (text, is_cut)) in (0..).zip(&said).skip(before) {
        let pieces = pieces.remove(&number).unwrap_or_default();
        let is_told =
            pieces == *text || *is_cut && text.starts_with(&pieces) || played.asked_hooks("before_message_write");
        if !is_told {
            wrong.push(format!("message {number} was told as {pieces:?} and is {text:?}"));
        }
        whole.push_str(&pieces);
    }
    wrong.extend(pieces.keys().map(|number| format!("message {number} was begun and is not there")));
    let member = |told: &RecordedPayload, name: &str| told.payload.data[name].as_str().unwrap_or_default().to_owned();
    let assistant = || told.iter().filter(|told| told.payload.stream == Stream::Assistant);
    // A replacement, after a discarded attempt, replaces what was streamed for that message.
    let (mut before, mut now) = (String::new(), String::new());
    for told in assistant() {
        let (text, delta) = (member(told, "text"), member(told, "delta"));
        if told.payload.data["replace"] != true && text != format!("{now}{delta}") {
            before.push_str(&now);
        }
        now = text;
    }
    let heard = before + &now;
    if heard != whole {
        wrong.push(format!("clients were told {heard:?}, and it is {whole:?}"));
    }
    let cut = assistant().find(|told| !member(told, "text").ends_with(&member(told, "delta")));
    wrong.extend(cut.map(|told| format!("the text so far does not end with what is new: {}", told.payload.data)));
    wrong
}

/// Returns the number of messages from before a restart: a resumed run publishes them first, as a whole.
fn messages_before_restart(heard: &RecordedRun) -> usize {
    let kinds = heard.events.iter().map(|event| &event.kind);
    let told = kinds.skip_while(|kind| {
        matches!(
            kind,
            RunEvent::Started { .. }
                | RunEvent::SlotWaited(_)
                | RunEvent::DispositionChanged(_)
                | RunEvent::Busy(_)
                | RunEvent::Summarized(_)
        )
    });
    // New messages come after a model request.
    let is_line =
        |kind: &&RunEvent| matches!(kind, RunEvent::Assistant { .. } | RunEvent::ToolEnded { .. } | RunEvent::Input(_));
    let is_short = |kind: &&RunEvent| matches!(kind, RunEvent::Compacting | RunEvent::Compacted { .. });
    let before = told.take_while(|kind| is_line(kind) || is_short(kind));
    before.filter(|kind| matches!(kind, RunEvent::Assistant { .. })).count()
}

/// Runs of one session do not overlap.
fn no_overlap(played: &TraceResult) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut active = BTreeMap::new();
    for told in &played.log.payloads {
        let RecordedRun { tape, lifetime: life, .. } = &played.log.runs[told.run];
        let place = (life, tape.key());
        match phase(told) {
            Some("start") => {
                if let Some(other) = active.insert(place, tape.run()) {
                    wrong.push(format!("run {} began in {} before {other} had ended", tape.run(), tape.key()));
                }
            }
            Some("end" | "error") if active.get(&place) == Some(&tape.run()) => {
                active.remove(&place);
            }
            _ => {}
        }
    }
    if played.disk_failed { Vec::new() } else { wrong }
}

/// Every entry names its predecessor as parent.
fn parents_are_linked(entries: &[Entry]) -> Vec<String> {
    let mut before = None;
    let mut wrong = Vec::new();
    for entry in entries {
        if entry.parent_id.as_ref() != before {
            wrong.push(format!("line {} follows {before:?} and says {:?}", entry.id, entry.parent_id));
        }
        before = Some(&entry.id);
    }
    wrong
}

/// Beginning of the complaint about a result without a call.
const STRAY: &str = "a result for";

/// Every tool call of a message has one result, right after it, in the order of the calls; there are no other results.
/// Returns the violations, and those that count only if no run is active for the last message.
fn calls_have_results(messages: &[&Message]) -> (Vec<String>, Vec<String>) {
    let mut wrong = Vec::new();
    let mut open: VecDeque<&str> = VecDeque::new();
    for message in messages {
        match message {
            Message::ToolResult(result) => {
                let expected = open.pop_front();
                if expected != Some(&result.tool_call_id) {
                    wrong.push(format!("{STRAY} {} where {expected:?} is next", result.tool_call_id));
                }
            }
            Message::User(_) | Message::Assistant(_) | Message::Other(_) => {
                wrong.extend(open.drain(..).map(|call| format!("call {call} has no result")));
            }
        }
        if let Message::Assistant(assistant) = message {
            open = assistant.tool_calls().map(|call| call.id.as_str()).collect();
        }
    }
    (wrong, open.iter().map(|call| format!("call {call} has no result")).collect())
}

fn message(entry: &Entry) -> Option<&Message> {
    match &entry.kind {
        Kind::Message(said) => Some(&said.message),
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
    fn a_script_is_strict() {
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
        let asked = |calls: &[&str]| {
            let call = |id: &&str| Block::ToolCall(ToolCall { id: (*id).to_owned(), ..ToolCall::default() });
            Message::Assistant(Assistant { content: calls.iter().map(call).collect(), ..Assistant::default() })
        };
        let answered = |call: &str| {
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
        let found = |messages: &[Message]| {
            let (wrong, open) = calls_have_results(&messages.iter().collect::<Vec<_>>());
            [wrong, open].concat()
        };
        let user = || Message::User(User::text("hi", 0));
        assert_eq!(found(&[user(), asked(&["a", "b"]), answered("a"), answered("b"), user()]), Vec::<String>::new());
        assert_eq!(
            found(&[asked(&["a"]), user(), answered("a")]),
            ["call a has no result", "a result for a where None is next"]
        );
        assert_eq!(found(&[asked(&["a"]), answered("a"), answered("a")]), ["a result for a where None is next"]);
        assert_eq!(
            found(&[asked(&["a", "b"]), answered("b")]),
            ["a result for b where Some(\"a\") is next", "call b has no result"]
        );
    }
}
