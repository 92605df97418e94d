//! Invariants across all hub lifetimes: accepted runs are not lost, and nothing is done twice.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use homard_agent::{
    CONTINUE_NUDGE, FLUSH_PROMPT, REPLY_NUDGE,
    hub::WaitResult,
    tape::TapeState,
    wire::{self, RunReport},
};
use homard_prompt::notes::insert_notes;
use homard_proto::{
    EntryId, Generation, RunId,
    message::{Block, Content, Message, User},
    transcript::Entry,
};
use homard_store::{
    Outcome, RunState, ToolClass,
    repair::{self, ProviderPolicy},
};
use jiff::{Timestamp, tz::TimeZone};
use serde_json::json;

use super::{
    is_interrupted, message,
    messages::{self, parts},
};
use crate::{
    recorder::RecordedRun,
    runner::{ENCORE, TraceResult},
    tools::START_NUMBER,
};

/// Returns all violations.
pub(super) fn violations(result: &TraceResult) -> Vec<String> {
    let checks = [
        ends,
        stops,
        published_once,
        messages::violations,
        events,
        replies,
        started_calls,
        answers,
        waits,
        requests_match_disk,
    ]
    .map(|check: fn(&TraceResult) -> Vec<String>| check(result));
    checks.concat()
}

/// Returns the outcome of a run, if the store has it.
fn outcome<'a>(result: &'a TraceResult, run: &RunId) -> Option<&'a Outcome> {
    match &result.rows.get(run)?.state {
        RunState::Ended(ended) => Some(&ended.outcome),
        RunState::Accepted | RunState::Running | RunState::Absorbed(_) | RunState::Held => None,
    }
}

/// Every run that was acknowledged as accepted is in the store and ends exactly once.
fn ends(result: &TraceResult) -> Vec<String> {
    let mut problems = Vec::new();
    let lost = result.acknowledged.accepted.iter().filter(|run| !result.rows.contains_key(run));
    problems.extend(lost.map(|run| format!("run {run} was acknowledged and is not in the store")));
    for run in result.rows.keys() {
        // An absorbed run ends with its host.
        let hosts = result.committed.hosts.get(run).into_iter().flatten();
        let count: usize = hosts.chain([run]).filter_map(|run| result.committed.ends.get(run)).sum();
        match (count, outcome(result, run)) {
            (1, Some(Outcome::Done)) => {}
            (1, Some(outcome)) if run.as_str().starts_with(ENCORE) && !may_stay_unanswered(result, outcome) => {
                problems.push(format!("the message after everything was not answered: {outcome:?}"));
            }
            (1, Some(_)) => {}
            (0, None)
                if !result.conditions.is_played_out && (result.conditions.stopped || result.conditions.disk_failed) => {
            }
            (0, None) if !result.conditions.is_played_out && result.rows[run].state == RunState::Held => {}
            (count, outcome) => problems.push(format!("run {run} ended {count} times in the store, with {outcome:?}")),
        }
    }
    // A run interrupted by a shutdown continues at the next start, so it must not have ended.
    let last =
        |recorded_run: &&RecordedRun| result.conditions.stopped && recorded_run.lifetime == result.log.restarts.len();
    let suspended = result.log.runs.iter().filter(last).filter(|recorded_run| is_interrupted(result, recorded_run));
    let ended = suspended
        .filter(|recorded_run| outcome(result, recorded_run.tape.run()).is_some() && !result.conditions.disk_failed);
    problems.extend(
        ended.map(|recorded_run| format!("run {} was suspended and has ended nevertheless", recorded_run.tape.run())),
    );
    problems
}

/// True if a run may end without an answer: because of a bad disk or a third crash.
fn may_stay_unanswered(result: &TraceResult, outcome: &Outcome) -> bool {
    // A guard that cannot answer never can: that is what the trace tests.
    if matches!(outcome, Outcome::Failed(failure) if failure.message.contains("the guard ")) {
        return !result.hook_invocations.is_empty();
    }
    result.conditions.disk_failed || outcome.error().is_some_and(|error| error.starts_with("INTERRUPTED"))
}

/// A run that was acknowledged as stopped is not resumed by a later lifetime.
fn stops(result: &TraceResult) -> Vec<String> {
    let mut problems = Vec::new();
    for (at, run) in result.acknowledged.stopped.iter().filter(|_| !result.conditions.disk_failed) {
        let started_at = |recorded_run: &RecordedRun| {
            recorded_run.lifetime.checked_sub(1).map(|before| result.log.restarts[before].0)
        };
        let mut later = result
            .log
            .runs
            .iter()
            .filter(|recorded_run| started_at(recorded_run).is_some_and(|started_at| started_at > *at));
        if later.any(|recorded_run| recorded_run.tape.run() == run && recorded_run.tape.state() != TapeState::Rejected)
        {
            problems.push(format!("run {run} was told to be stopped and was taken up again"));
        }
    }
    problems
}

/// The end of a run is published in at most one lifetime, and as the store has it.
fn published_once(result: &TraceResult) -> Vec<String> {
    let mut problems = Vec::new();
    let mut over = BTreeSet::new();
    for recorded_run in &result.log.runs {
        let (TapeState::Ended(end), run) = (recorded_run.tape.state(), recorded_run.tape.run()) else { continue };
        if !over.insert(run) {
            problems.push(format!("run {run} was told to be over in two lives"));
        }
        if let Some(stored) = outcome(result, run).filter(|stored| **stored != end.outcome) {
            problems.push(format!("run {run} was told to be {:?} and is stored as {stored:?}", end.outcome));
        }
    }
    problems
}

/// An acknowledged system event reaches the session exactly once: with a message, or it is still pending.
fn events(result: &TraceResult) -> Vec<String> {
    let mut problems = Vec::new();
    for (key, text) in &result.acknowledged.events {
        let note = json!(format!("System event: {text}"));
        let lines =
            result.transcripts().filter(|(session_key, _)| *session_key == key).flat_map(|(_, entries)| entries);
        let delivered = lines
            .filter(|entry| json!(entry)["message"]["notes"].as_array().is_some_and(|notes| notes.contains(&note)));
        let record = result
            .sessions
            .iter()
            .find(|(session_key, _)| session_key == key)
            .map(|(_, session)| json!(session.record));
        let waits = record.is_some_and(|record| {
            record["systemEvents"].as_array().is_some_and(|events| events.contains(&json!(text)))
        });
        let count = delivered.count() + usize::from(waits);
        if count != 1 {
            problems.push(format!("the event {text:?} of {key} is told or waits {count} times"));
        }
    }
    problems
}

/// The stored reply of a run was said in that run. A run that was held and released is in its transcript twice.
fn replies(result: &TraceResult) -> Vec<String> {
    let mut answers: BTreeMap<&str, BTreeSet<&EntryId>> = BTreeMap::new();
    for part in result.transcripts().flat_map(|(_, entries)| parts(entries)) {
        answers.entry(part.run).or_default().extend(part.answers);
    }
    let mut problems = Vec::new();
    for (run, answers) in answers {
        let row = result.rows.values().find(|row| row.run.as_str() == run);
        let Some(RunState::Ended(ended)) = row.map(|row| &row.state) else { continue };
        let foreign = ended.replies.iter().filter(|reply| !answers.contains(reply));
        problems.extend(foreign.map(|reply| format!("run {run}: its stored reply {reply} is not its own")));
    }
    problems
}

/// A tool with side effects is started at most once for each call in the transcript, and never for another.
fn started_calls(result: &TraceResult) -> Vec<String> {
    let mut allowed: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for part in result.transcripts().flat_map(|(_, entries)| parts(entries)) {
        part.calls.iter().for_each(|call| *allowed.entry((part.run, call)).or_default() += 1);
    }
    let mut problems = Vec::new();
    for started_call in result.started_calls.iter().filter(|started_call| started_call.class == ToolClass::Effect) {
        match allowed.get_mut(&(started_call.run.as_str(), started_call.call.as_str())) {
            Some(left) if *left > 0 => *left -= 1,
            Some(_) | None => {
                problems.push(format!("call {} of run {} was done once too often", started_call.call, started_call.run))
            }
        }
    }
    problems
}

/// No two calls have the result of the same execution of a tool.
fn answers(result: &TraceResult) -> Vec<String> {
    let mut known = BTreeSet::new();
    let entries = result.transcripts().flat_map(|(_, entries)| entries);
    let results = entries.filter_map(message).filter_map(|message| match message {
        Message::ToolResult(tool_result) => homard_proto::message::join_text(&tool_result.content)
            .rsplit_once(START_NUMBER)
            .map(|(_, number)| (tool_result.tool_call_id.clone(), number.to_owned())),
        Message::User(_) | Message::Assistant(_) | Message::Other(_) => None,
    });
    let duplicates: Vec<_> = results.filter(|(_, number)| !known.insert(number.clone())).collect();
    duplicates
        .iter()
        .map(|(call, number)| format!("call {call} got the answer of start {number}, as another did"))
        .collect()
}

/// A client that waits after everything has ended gets the stored outcome, with the same text as one that waited at the
/// end.
fn waits(result: &TraceResult) -> Vec<String> {
    let problems = result.wait_results.iter().filter(|(run, waited)| match waited {
        WaitResult::Ended(report) => Some(report.outcome()) != outcome(result, run),
        WaitResult::Queued | WaitResult::Timeout | WaitResult::Broken(_) => true,
    });
    let problems = problems.map(|(run, waited)| format!("who waits for run {run} learns {waited:?}"));
    let differs = result.wait_results.iter().filter_map(|(run, waited)| {
        let ended = result.log.runs.iter().rev().find_map(|recorded_run| match recorded_run.tape.state() {
            TapeState::Ended(end) if recorded_run.tape.run() == run => Some((recorded_run.tape.key().clone(), end)),
            TapeState::Ended(_)
            | TapeState::Broken(_)
            | TapeState::Queued
            | TapeState::Running
            | TapeState::Rejected => None,
        });
        let (key, end) = ended?;
        let at_end = WaitResult::Ended(Box::new(RunReport::of(run, &key, &end)));
        let differs = |generation: &Generation| {
            let [then, now] = [&at_end, waited].map(|waited| wire::waited(*generation, run, waited));
            (then != now).then(|| format!("who waited for run {run} learnt {then}, and later {now}"))
        };
        [Generation::Three, Generation::Four].iter().find_map(differs)
    });
    problems.chain(differs).collect()
}

/// Returns a stored message as it is and as a model may see it: what no provider accepts is repaired in the copy.
fn as_shown(message: &Message, zone: Option<&TimeZone>) -> Vec<Arc<Message>> {
    let stored = Arc::new(message.clone());
    let policy = ProviderPolicy::of("scripted", "script", "script-1");
    let repaired = repair::for_model(std::slice::from_ref(&stored), &policy);
    let mut visible: Vec<_> = repaired.into_iter().take(1).chain([stored]).collect();
    // A message that came with a time gets no other, so the version without is valid, too.
    if let Some(zone) = zone {
        visible.extend(visible.clone().iter().filter_map(|message| with_time(message, zone)));
    }
    insert_notes(visible)
}

/// Returns a user message with its time prepended.
fn with_time(message: &Message, zone: &TimeZone) -> Option<Arc<Message>> {
    let Message::User(user) = message else { return None };
    let at = Timestamp::from_millisecond(user.timestamp.try_into().ok()?).ok()?.to_zoned(zone.clone());
    let mut user = user.clone();
    let text = match &mut user.content {
        Content::Text(text) => text,
        Content::Blocks(blocks) => blocks.iter_mut().find_map(|block| match block {
            Block::Text(text) => Some(&mut text.text),
            Block::Image(_) | Block::Thinking(_) | Block::ToolCall(_) | Block::Other(_) => None,
        })?,
    };
    text.insert_str(0, &at.strftime("[%a %Y-%m-%d %H:%M %Z] ").to_string());
    Some(Arc::new(Message::User(user)))
}

/// True if a message consists of several merged ones, as required by wire formats with strictly alternating turns.
fn is_merged(message: &Message, visible: &[Arc<Message>]) -> bool {
    let blocks = |message: &Message| match message {
        Message::User(User { content: Content::Text(text), .. }) => vec![Block::text(text)],
        Message::User(User { content: Content::Blocks(blocks), .. }) => blocks.clone(),
        Message::Assistant(answer) => answer.content.clone(),
        Message::ToolResult(_) | Message::Other(_) => Vec::new(),
    };
    let is_like = |other: &Message| std::mem::discriminant(other) == std::mem::discriminant(message);
    let known: Vec<_> = visible.iter().filter(|other| is_like(other)).flat_map(|other| blocks(other)).collect();
    let own = blocks(message);
    !own.is_empty() && own.iter().all(|block| known.contains(block))
}

/// True if a message is a request for a summary, or the summary itself.
fn is_compaction_message(message: &Message) -> bool {
    let Message::User(user) = message else { return false };
    let text = user.content.text();
    ["<conversation>", "<summary>", "<previous-summary>", "<checkpoint "].iter().any(|mark| text.contains(mark))
}

/// True if a compaction shows the tool results that it kept truncated.
fn shortens_results(entry: &Entry) -> bool {
    json!(entry)["details"]["resultChars"].is_u64()
}

fn says_prelude(entry: &Entry) -> bool {
    json!(entry)["customType"] == "google-turn-ordering-bootstrap"
}

/// The model sees what is on disk; checked for the last lifetime, in which everything was stored.
fn requests_match_disk(result: &TraceResult) -> Vec<String> {
    if result.conditions.disk_failed {
        return Vec::new();
    }
    let entries = || result.transcripts().flat_map(|(_, entries)| entries);
    let visible: Vec<_> =
        entries().filter_map(message).flat_map(|message| as_shown(message, result.zone.as_ref())).collect();
    // If a transcript says so, the model sees an additional user turn before it, which was never sent.
    let preludes = usize::from(entries().any(says_prelude));
    let are_pruned = result.sessions.iter().any(|(_, session)| session.record.extra.contains_key("homardPruning"));
    let are_short = are_pruned || entries().any(shortens_results);
    let is_short = |message: &Message| are_short && matches!(message, Message::ToolResult(_));
    // What hooks add to a message is not stored.
    let has_hook_context = result.hooks_received("before_agent_start") || result.hooks_received("before_prompt_build");
    let is_framed = |message: &Message| has_hook_context && visible.iter().any(|stored| contains_text(message, stored));
    let mut problems = Vec::new();
    for (number, recorded) in (1..).zip(&result.requests).skip(result.requests_before) {
        let is_nudge = |message: &Message| matches!(message, Message::User(user) if [REPLY_NUDGE, CONTINUE_NUDGE].iter().any(|nudge| user.content.text().ends_with(nudge)));
        let is_unknown = |message: &&Arc<Message>| {
            !visible.contains(message)
                && !is_merged(message, &visible)
                && !is_nudge(message)
                && !is_compaction_message(message)
                && !is_short(message)
                && !is_framed(message)
        };
        // The messages of a memory flush are not stored.
        let is_flush =
            |message: &Message| matches!(message, Message::User(user) if user.content.text().ends_with(FLUSH_PROMPT));
        let messages = recorded.request.messages.iter().take_while(|message| !is_flush(message));
        let unknown = messages.filter(is_unknown).nth(preludes);
        problems
            .extend(unknown.map(|message| format!("model call {number} has a line that is not on disk: {message:?}")));
    }
    problems
}

/// True if a message contains all the text of another one, with additions around it or between its paragraphs.
fn contains_text(message: &Message, original: &Message) -> bool {
    match (message, original) {
        (Message::User(extended), Message::User(user)) => {
            let extended = extended.content.text();
            user.content.text().split("\n\n").all(|part| extended.contains(part))
        }
        (Message::User(_) | Message::Assistant(_) | Message::ToolResult(_) | Message::Other(_), _) => false,
    }
}
