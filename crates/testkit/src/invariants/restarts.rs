//! Invariants across all hub lifetimes: accepted runs are not lost, and nothing is done twice.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use homard_agent::{
    CONTINUE_NUDGE, FLUSH_PROMPT, REPLY_NUDGE,
    hub::WaitResult,
    insert_notes,
    tape::TapeState,
    wire::{self, RunReport},
};
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
    tools::LAUNCH,
};

/// Returns all violations.
pub(super) fn violations(played: &TraceResult) -> Vec<String> {
    let laws = [
        ends,
        stops,
        published_once,
        messages::violations,
        events,
        replies,
        launches,
        answers,
        waits,
        requests_match_disk,
    ]
    .map(|law: fn(&TraceResult) -> Vec<String>| law(played));
    laws.concat()
}

/// Returns the outcome of a run, if the store has it.
fn outcome<'a>(played: &'a TraceResult, run: &RunId) -> Option<&'a Outcome> {
    match &played.rows.get(run)?.state {
        RunState::Ended(ended) => Some(&ended.outcome),
        RunState::Accepted | RunState::Running | RunState::Absorbed(_) | RunState::Held => None,
    }
}

/// Every run that was acknowledged as accepted is in the store and ends exactly once.
fn ends(played: &TraceResult) -> Vec<String> {
    let mut wrong = Vec::new();
    let lost = played.promises.accepted.iter().filter(|run| !played.rows.contains_key(run));
    wrong.extend(lost.map(|run| format!("run {run} was acknowledged and is not in the store")));
    for run in played.rows.keys() {
        // An absorbed run ends with its host.
        let hosts = played.taken.hosts.get(run).into_iter().flatten();
        let count: usize = hosts.chain([run]).filter_map(|run| played.taken.ends.get(run)).sum();
        match (count, outcome(played, run)) {
            (1, Some(Outcome::Done)) => {}
            (1, Some(outcome)) if run.as_str().starts_with(ENCORE) && !may_stay_unanswered(played, outcome) => {
                wrong.push(format!("the message after everything was not answered: {outcome:?}"));
            }
            (1, Some(_)) => {}
            (0, None) if !played.is_played_out && (played.stopped || played.disk_failed) => {}
            (0, None) if !played.is_played_out && played.rows[run].state == RunState::Held => {}
            (count, outcome) => wrong.push(format!("run {run} ended {count} times in the store, with {outcome:?}")),
        }
    }
    // A run interrupted by a shutdown continues at the next start, so it must not have ended.
    let last = |heard: &&RecordedRun| played.stopped && heard.lifetime == played.log.restarts.len();
    let suspended = played.log.runs.iter().filter(last).filter(|heard| is_interrupted(played, heard));
    let ended = suspended.filter(|heard| outcome(played, heard.tape.run()).is_some() && !played.disk_failed);
    wrong.extend(ended.map(|heard| format!("run {} was suspended and has ended nevertheless", heard.tape.run())));
    wrong
}

/// True if a run may end without an answer: because of a bad disk or a third crash.
fn may_stay_unanswered(played: &TraceResult, outcome: &Outcome) -> bool {
    // A guard that cannot answer never can: that is what the trace tests.
    if matches!(outcome, Outcome::Failed(failure) if failure.message.contains("the guard ")) {
        return !played.rung.is_empty();
    }
    played.disk_failed || outcome.error().is_some_and(|error| error.starts_with("INTERRUPTED"))
}

/// A run that was acknowledged as stopped is not resumed by a later lifetime.
fn stops(played: &TraceResult) -> Vec<String> {
    let mut wrong = Vec::new();
    for (at, run) in played.promises.stopped.iter().filter(|_| !played.disk_failed) {
        let began = |heard: &RecordedRun| heard.lifetime.checked_sub(1).map(|before| played.log.restarts[before].0);
        let mut later = played.log.runs.iter().filter(|heard| began(heard).is_some_and(|began| began > *at));
        if later.any(|heard| heard.tape.run() == run && heard.tape.state() != TapeState::Rejected) {
            wrong.push(format!("run {run} was told to be stopped and was taken up again"));
        }
    }
    wrong
}

/// The end of a run is published in at most one lifetime, and as the store has it.
fn published_once(played: &TraceResult) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut over = BTreeSet::new();
    for heard in &played.log.runs {
        let (TapeState::Ended(end), run) = (heard.tape.state(), heard.tape.run()) else { continue };
        if !over.insert(run) {
            wrong.push(format!("run {run} was told to be over in two lives"));
        }
        if let Some(stored) = outcome(played, run).filter(|stored| **stored != end.outcome) {
            wrong.push(format!("run {run} was told to be {:?} and is stored as {stored:?}", end.outcome));
        }
    }
    wrong
}

/// An acknowledged system event reaches the session exactly once: with a message, or it is still pending.
fn events(played: &TraceResult) -> Vec<String> {
    let mut wrong = Vec::new();
    for (key, text) in &played.promises.events {
        let note = json!(format!("System event: {text}"));
        let lines = played.transcripts().filter(|(place, _)| *place == key).flat_map(|(_, entries)| entries);
        let told = lines
            .filter(|entry| json!(entry)["message"]["notes"].as_array().is_some_and(|notes| notes.contains(&note)));
        let record = played.sessions.iter().find(|(place, _)| place == key).map(|(_, session)| json!(session.record));
        let waits = record.is_some_and(|record| {
            record["systemEvents"].as_array().is_some_and(|events| events.contains(&json!(text)))
        });
        let count = told.count() + usize::from(waits);
        if count != 1 {
            wrong.push(format!("the event {text:?} of {key} is told or waits {count} times"));
        }
    }
    wrong
}

/// The stored reply of a run was said in that run. A run that was held and released is in its transcript twice.
fn replies(played: &TraceResult) -> Vec<String> {
    let mut said: BTreeMap<&str, BTreeSet<&EntryId>> = BTreeMap::new();
    for part in played.transcripts().flat_map(|(_, entries)| parts(entries)) {
        said.entry(part.run).or_default().extend(part.answers);
    }
    let mut wrong = Vec::new();
    for (run, said) in said {
        let row = played.rows.values().find(|row| row.run.as_str() == run);
        let Some(RunState::Ended(ended)) = row.map(|row| &row.state) else { continue };
        let strange = ended.replies.iter().filter(|reply| !said.contains(reply));
        wrong.extend(strange.map(|reply| format!("run {run}: its stored reply {reply} is not its own")));
    }
    wrong
}

/// A tool with side effects is started at most once for each call in the transcript, and never for another.
fn launches(played: &TraceResult) -> Vec<String> {
    let mut allowed: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for part in played.transcripts().flat_map(|(_, entries)| parts(entries)) {
        part.calls.iter().for_each(|call| *allowed.entry((part.run, call)).or_default() += 1);
    }
    let mut wrong = Vec::new();
    for launch in played.launches.iter().filter(|launch| launch.class == ToolClass::Effect) {
        match allowed.get_mut(&(launch.run.as_str(), launch.call.as_str())) {
            Some(left) if *left > 0 => *left -= 1,
            Some(_) | None => wrong.push(format!("call {} of run {} was done once too often", launch.call, launch.run)),
        }
    }
    wrong
}

/// No two calls have the result of the same execution of a tool.
fn answers(played: &TraceResult) -> Vec<String> {
    let mut known = BTreeSet::new();
    let entries = played.transcripts().flat_map(|(_, entries)| entries);
    let results = entries.filter_map(message).filter_map(|message| match message {
        Message::ToolResult(result) => homard_proto::message::join_text(&result.content)
            .rsplit_once(LAUNCH)
            .map(|(_, number)| (result.tool_call_id.clone(), number.to_owned())),
        Message::User(_) | Message::Assistant(_) | Message::Other(_) => None,
    });
    let twice: Vec<_> = results.filter(|(_, number)| !known.insert(number.clone())).collect();
    twice
        .iter()
        .map(|(call, number)| format!("call {call} got the answer of launch {number}, as another did"))
        .collect()
}

/// A client that waits after everything has ended gets the stored outcome, with the same text as one that waited at the
/// end.
fn waits(played: &TraceResult) -> Vec<String> {
    let wrong = played.waited.iter().filter(|(run, waited)| match waited {
        WaitResult::Ended(report) => Some(report.outcome()) != outcome(played, run),
        WaitResult::Queued | WaitResult::Timeout | WaitResult::Broken(_) => true,
    });
    let wrong = wrong.map(|(run, waited)| format!("who waits for run {run} learns {waited:?}"));
    let differs = played.waited.iter().filter_map(|(run, waited)| {
        let ended = played.log.runs.iter().rev().find_map(|heard| match heard.tape.state() {
            TapeState::Ended(end) if heard.tape.run() == run => Some((heard.tape.key().clone(), end)),
            TapeState::Ended(_)
            | TapeState::Broken(_)
            | TapeState::Queued
            | TapeState::Running
            | TapeState::Rejected => None,
        });
        let (key, end) = ended?;
        let at_the_end = WaitResult::Ended(Box::new(RunReport::of(run, &key, &end)));
        let differs = |generation: &Generation| {
            let [then, now] = [&at_the_end, waited].map(|waited| wire::waited(*generation, run, waited));
            (then != now).then(|| format!("who waited for run {run} learnt {then}, and later {now}"))
        };
        [Generation::Three, Generation::Four].iter().find_map(differs)
    });
    wrong.chain(differs).collect()
}

/// Returns a stored message as it is and as a model may see it: what no provider accepts is repaired in the copy.
fn as_shown(message: &Message, zone: Option<&TimeZone>) -> Vec<Arc<Message>> {
    let stored = Arc::new(message.clone());
    let policy = ProviderPolicy::of("scripted", "script", "script-1");
    let mended = repair::for_model(std::slice::from_ref(&stored), &policy);
    let mut shown: Vec<_> = mended.into_iter().take(1).chain([stored]).collect();
    // A message that came with a time gets no other, so the version without is valid, too.
    if let Some(zone) = zone {
        shown.extend(shown.clone().iter().filter_map(|message| with_time(message, zone)));
    }
    insert_notes(shown)
}

/// Returns a user message with its time prepended.
fn with_time(message: &Message, zone: &TimeZone) -> Option<Arc<Message>> {
    let Message::User(user) = message else { return None };
    let at = Timestamp::from_millisecond(user.timestamp.try_into().ok()?).ok()?.to_zoned(zone.clone());
    let mut user = user.clone();
    let words = match &mut user.content {
        Content::Text(words) => words,
        Content::Blocks(blocks) => blocks.iter_mut().find_map(|block| match block {
            Block::Text(words) => Some(&mut words.text),
            Block::Image(_) | Block::Thinking(_) | Block::ToolCall(_) | Block::Other(_) => None,
        })?,
    };
    words.insert_str(0, &at.strftime("[%a %Y-%m-%d %H:%M %Z] ").to_string());
    Some(Arc::new(Message::User(user)))
}

/// True if a message consists of several merged ones, as required by wire formats with strictly alternating turns.
fn is_merged(message: &Message, shown: &[Arc<Message>]) -> bool {
    let blocks = |message: &Message| match message {
        Message::User(User { content: Content::Text(words), .. }) => vec![Block::text(words)],
        Message::User(User { content: Content::Blocks(blocks), .. }) => blocks.clone(),
        Message::Assistant(said) => said.content.clone(),
        Message::ToolResult(_) | Message::Other(_) => Vec::new(),
    };
    let is_like = |other: &Message| std::mem::discriminant(other) == std::mem::discriminant(message);
    let known: Vec<_> = shown.iter().filter(|other| is_like(other)).flat_map(|other| blocks(other)).collect();
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
fn requests_match_disk(played: &TraceResult) -> Vec<String> {
    if played.disk_failed {
        return Vec::new();
    }
    let entries = || played.transcripts().flat_map(|(_, entries)| entries);
    let shown: Vec<_> =
        entries().filter_map(message).flat_map(|message| as_shown(message, played.zone.as_ref())).collect();
    // If a transcript says so, the model sees an additional user turn before it, which was never sent.
    let preludes = usize::from(entries().any(says_prelude));
    let are_pruned = played.sessions.iter().any(|(_, session)| session.record.extra.contains_key("homardPruning"));
    let are_short = are_pruned || entries().any(shortens_results);
    let is_short = |message: &Message| are_short && matches!(message, Message::ToolResult(_));
    // What hooks add to a message is not stored.
    let has_more = played.asked_hooks("before_agent_start") || played.asked_hooks("before_prompt_build");
    let is_framed = |message: &Message| has_more && shown.iter().any(|line| contains_text(message, line));
    let mut wrong = Vec::new();
    for (number, seen) in (1..).zip(&played.seen).skip(played.seen_before) {
        let is_plea = |message: &Message| matches!(message, Message::User(user) if [REPLY_NUDGE, CONTINUE_NUDGE].iter().any(|plea| user.content.text().ends_with(plea)));
        let is_strange = |message: &&Arc<Message>| {
            !shown.contains(message)
                && !is_merged(message, &shown)
                && !is_plea(message)
                && !is_compaction_message(message)
                && !is_short(message)
                && !is_framed(message)
        };
        // The messages of a memory flush are not stored.
        let is_flush =
            |message: &Message| matches!(message, Message::User(user) if user.content.text().ends_with(FLUSH_PROMPT));
        let told = seen.request.messages.iter().take_while(|message| !is_flush(message));
        let strange = told.filter(is_strange).nth(preludes);
        wrong.extend(strange.map(|message| format!("model call {number} has a line that is not on disk: {message:?}")));
    }
    wrong
}

/// True if a message contains all the text of another one, with additions around it or between its paragraphs.
fn contains_text(message: &Message, line: &Message) -> bool {
    match (message, line) {
        (Message::User(more), Message::User(said)) => {
            let more = more.content.text();
            said.content.text().split("\n\n").all(|part| more.contains(part))
        }
        (Message::User(_) | Message::Assistant(_) | Message::ToolResult(_) | Message::Other(_), _) => false,
    }
}
