//! Invariants of messages: each is in its transcript once: by itself, in the run that absorbed it, or merged with
//! others.

use std::collections::BTreeMap;

use homard_agent::intake::CHANNEL;
use homard_proto::{
    EntryId, RunId, SessionKey,
    message::Message,
    method::{Params, chat::SendParams},
    transcript::Entry,
};
use homard_store::{Outcome, RunRow, RunState, recovery::STEERED_INTO};

use super::message;
use crate::runner::TraceResult;

/// What a run added to a transcript.
#[derive(Default)]
pub(super) struct RunEntries<'a> {
    pub(super) run: &'a str,
    /// Entry of its own message.
    own: UserEntry<'a>,
    /// Entries of messages that were absorbed while it was active.
    absorbed: Vec<UserEntry<'a>>,
    /// Tool calls of the model.
    pub(super) calls: Vec<&'a str>,
    /// Ids of its answers.
    pub(super) answers: Vec<&'a EntryId>,
}

/// A user entry.
#[derive(Debug, Clone, Default, PartialEq)]
struct UserEntry<'a> {
    /// The run that was accepted for it; empty for messages that were only shown to another run.
    run: &'a str,
    /// The run that absorbed it while active.
    host: Option<&'a str>,
    text: String,
}

/// Splits a transcript by run.
pub(super) fn parts(entries: &[Entry]) -> impl Iterator<Item = RunEntries<'_>> {
    let mut parts: Vec<RunEntries<'_>> = Vec::new();
    for entry in entries {
        match (message(entry), parts.last_mut()) {
            (Some(Message::User(user)), last) => {
                let member = |name: &str| user.extra.get(name).and_then(|value| value.as_str());
                let key = member("idempotencyKey").unwrap_or_default();
                let (run, host) = (key.strip_suffix(":user").unwrap_or(key), member(STEERED_INTO));
                let line = UserEntry { run, host, text: user.content.text() };
                match last {
                    Some(part) if host == Some(part.run) => part.absorbed.push(line),
                    Some(_) | None => parts.push(RunEntries { run, own: line, ..RunEntries::default() }),
                }
            }
            (Some(Message::Assistant(said)), Some(part)) => {
                part.answers.push(&entry.id);
                part.calls.extend(said.tool_calls().map(|call| call.id.as_str()));
            }
            (Some(Message::Assistant(_) | Message::ToolResult(_) | Message::Other(_)) | None, _) => {}
        }
    }
    parts.into_iter()
}

/// Messages are in their transcript once, in the order of acceptance. One is missing only if its run never started, or
/// if it is merged into the message of its host.
pub(super) fn violations(played: &TraceResult) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut written: BTreeMap<&str, Vec<UserEntry<'_>>> = BTreeMap::new();
    for (key, entries) in played.transcripts() {
        // A thread begins with the messages of its parent session.
        let inherited = |run: &str| {
            let accepted = played.taken.accepted.iter().find(|(accepted, _)| accepted.as_str() == run);
            accepted.is_some_and(|(_, place)| key.thread_parent().as_ref() == Some(place))
        };
        let parts: Vec<_> = parts(entries).filter(|part| !inherited(part.run)).collect();
        wrong.extend(
            unsent_entries(played, key, &parts).into_iter().map(|stray| format!("transcript of {key}: {stray}")),
        );
        let lines = parts.into_iter().flat_map(|part| [vec![part.own], part.absorbed].concat());
        let lines: Vec<_> = lines.filter(|line| !line.run.is_empty()).collect();
        wrong.extend(out_of_order(played, key, &lines));
        lines.into_iter().for_each(|line| written.entry(line.run).or_default().push(line));
    }
    for row in played.rows.values() {
        let lines = written.get(row.run.as_str()).map(Vec::as_slice).unwrap_or_default();
        let hosts = played.taken.hosts.get(&row.run).map(Vec::as_slice).unwrap_or_default();
        let why = match hosts {
            [] => check_own_run(played, row, lines),
            [host] => check_absorbed(played, &row.run, host, (lines, written.get(host.as_str()))),
            _ => Some(format!("became a part of {hosts:?}")),
        };
        wrong.extend(why.map(|why| format!("the message of run {} {why}", row.run)));
    }
    wrong
}

/// Finds entries that were never sent, and entries in the wrong run.
fn unsent_entries(played: &TraceResult, key: &SessionKey, parts: &[RunEntries<'_>]) -> Vec<String> {
    let is_sent = |text: &str| {
        let mut runs = played.taken.accepted.iter().filter(|(_, place)| place == key);
        runs.any(|(run, _)| played.taken.messages.get(run).is_some_and(|said| said == text))
    };
    let mut strays = Vec::new();
    for part in parts {
        strays.extend(part.own.host.map(|host| format!("the line of {:?} for {host} is not in it", part.run)));
        let made_up = part.absorbed.iter().filter(|line| line.run.is_empty() && !is_sent(&line.text));
        strays.extend(made_up.map(|line| format!("nobody sent {:?}", line.text)));
    }
    strays
}

/// Finds messages that are not in the order of acceptance.
fn out_of_order(played: &TraceResult, key: &SessionKey, lines: &[UserEntry<'_>]) -> Option<String> {
    // A run whose start could not be stored starts after a restart, behind later ones.
    if played.disk_failed {
        return None;
    }
    // A run that was held and released appears again, behind what was said meanwhile.
    let is_again = |place: usize| {
        let run = lines[place].run;
        let row = played.rows.values().find(|row| row.run.as_str() == run);
        let is_released = row.and_then(|row| row.hold).is_some_and(|hold| hold.is_reentered);
        is_released && lines[..place].iter().any(|line| line.run == run)
    };
    let lines: Vec<_> = (0..lines.len()).filter(|place| !is_again(*place)).map(|place| &lines[place]).collect();
    let due = |line: &UserEntry<'_>| played.taken.accepted.iter().position(|(run, _)| run.as_str() == line.run);
    let (found, order): (Vec<_>, Vec<_>) = lines.iter().map(|line| (line.run, due(line))).unzip();
    let is_wrong = |(place, first): (usize, &Option<usize>)| {
        let mut later = (place + 1..).zip(&order[place + 1..]);
        later.any(|(other, second)| second < first && !may_overtake(played, found[place], found[other]))
    };
    let is_taken_in = order.iter().all(Option::is_some);
    (!is_taken_in || order.iter().enumerate().any(is_wrong))
        .then(|| format!("transcript of {key}: has the messages {found:?}, taken in as {order:?}"))
}

/// True if a message may precede an earlier one. A message that always gets a run of its own may, because the other may
/// have been dropped from a full queue and is reported later. A steered message may, too: it overtakes waiting turns,
/// but not another that was steered into the same run.
fn may_overtake(played: &TraceResult, later: &str, earlier: &str) -> bool {
    let host = |run: &str| played.rows.values().find(|row| row.run.as_str() == run).and_then(|row| row.host.as_ref());
    let is_resumed = |host: &RunId| played.rows.get(host).is_some_and(|host| !host.resumed_at.is_empty());
    // After a restart the run may take in a turn that waited before it.
    let is_steered = host(later).is_some_and(|of| host(earlier) != Some(of) || is_resumed(of));
    let by_rules = |run: &str| {
        let row = played.rows.values().find(|row| row.run.as_str() == run);
        let said = played.taken.messages.iter().find(|(id, _)| id.as_str() == run);
        row.is_some_and(|row| [SendParams::METHOD, CHANNEL].contains(&row.method.as_str()))
            && said.is_some_and(|(_, said)| !said.starts_with('/'))
    };
    is_steered || (!by_rules(later) && by_rules(earlier))
}

/// Returns what is wrong with a message that was not absorbed.
fn check_own_run(played: &TraceResult, row: &RunRow, lines: &[UserEntry<'_>]) -> Option<String> {
    let said = played.taken.messages.get(&row.run).map(String::as_str).unwrap_or_default();
    // A request for compaction is not part of the conversation. Compaction is also started automatically.
    let is_foreign = said.starts_with('/') && played.asked_hooks("command");
    let is_wish = said.starts_with("/compact") || row.method == "compaction" || is_foreign;
    match (lines, row.session.is_some() && !is_wish) {
        ([], false) if is_wish => None,
        ([], true) => Some("is in no transcript, and its run began".to_owned()),
        ([], false) => match &row.state {
            RunState::Ended(ended) if ended.outcome == Outcome::Done && ended.words.is_none() => {
                Some("is in no transcript, and its run is done".to_owned())
            }
            RunState::Ended(_) | RunState::Accepted | RunState::Running | RunState::Absorbed(_) | RunState::Held => {
                None
            }
        },
        ([line], true) if line.host.is_some() => Some(format!("was taken in by {:?}, who does not know", line.host)),
        ([line], true) => {
            let guests: Vec<_> = merged_texts(played, &row.run);
            // A command that begins a new transcript is not part of it.
            let is_own = said.ends_with(line.text.as_str()) || played.asked_hooks("before_message_write");
            match MergedMessage::read(&line.text) {
                None => (!is_own || !guests.is_empty()).then(|| format!("is {said:?} and became {:?}", line.text)),
                Some(digest) => digest.missing(guests.into_iter().chain([said])),
            }
        }
        ([_], false) => Some("is in a transcript, and its run never began".to_owned()),
        // It was held and released.
        ([_, _], true) if row.hold.is_some_and(|hold| hold.is_reentered) => None,
        (_, _) => Some(format!("is in transcripts {} times", lines.len())),
    }
}

/// Returns what is wrong with an absorbed message.
fn check_absorbed(
    played: &TraceResult,
    run: &RunId,
    host: &RunId,
    (lines, of_host): (&[UserEntry<'_>], Option<&Vec<UserEntry<'_>>>),
) -> Option<String> {
    match lines {
        // It is in the merged message of its host; if not, that is reported for the host.
        [] if of_host.is_some_and(|lines| lines.iter().any(|line| MergedMessage::read(&line.text).is_some())) => None,
        [] => Some(format!("became a part of {host} and is not there")),
        [line] if line.host != Some(host.as_str()) => Some(format!("became a part of {host} and stands alone")),
        [line] => {
            let said = played.taken.messages.get(run).map(String::as_str).unwrap_or_default();
            (line.text != said).then(|| format!("is {said:?} and became {:?}", line.text))
        }
        _ => Some(format!("is in transcripts {} times", lines.len())),
    }
}

/// Returns the texts of absorbed messages without an entry of their own.
fn merged_texts<'a>(played: &'a TraceResult, host: &RunId) -> Vec<&'a str> {
    let has_line = |guest: &RunId| {
        let lines = played.transcripts().flat_map(|(_, entries)| parts(entries)).flat_map(|part| part.absorbed);
        lines.into_iter().any(|line| line.run == guest.as_str())
    };
    let guests = played.taken.hosts.iter().filter(|(guest, hosts)| hosts.contains(host) && !has_line(guest));
    guests.filter_map(|(guest, _)| played.taken.messages.get(guest).map(String::as_str)).collect()
}

/// Beginning of a merged message.
const COLLECTED: &str = "[Queued messages while agent was busy]";
/// Beginning of the note about dropped messages.
const OVERFLOW: &str = "[Queue overflow] Dropped ";

/// Content of a merged message.
#[derive(Debug, PartialEq)]
struct MergedMessage<'a> {
    /// Messages included verbatim.
    blocks: Vec<&'a str>,
    /// Number of dropped messages.
    dropped: usize,
}

impl<'a> MergedMessage<'a> {
    fn read(text: &'a str) -> Option<Self> {
        let rest = text.strip_prefix(COLLECTED).unwrap_or(text).trim_start();
        if rest.len() == text.len() && !text.starts_with(OVERFLOW) {
            return None;
        }
        let dropped = rest.strip_prefix(OVERFLOW).and_then(|rest| rest.split(' ').next()?.parse().ok());
        let blocks =
            rest.split("---\nQueued #").skip(1).map(|block| block.split_once('\n').unwrap_or((block, "")).1.trim());
        Some(Self { blocks: blocks.collect(), dropped: dropped.unwrap_or_default() })
    }

    /// Returns what is wrong with it, given the messages that it should contain.
    fn missing<'b>(mut self, texts: impl Iterator<Item = &'b str>) -> Option<String> {
        let mut missing = Vec::new();
        for text in texts.map(str::trim) {
            match self.blocks.iter().position(|block| *block == text) {
                Some(place) => drop(self.blocks.remove(place)),
                None => missing.push(text),
            }
        }
        (missing.len() != self.dropped || !self.blocks.is_empty()).then(|| {
            format!("speaks for {missing:?} too few and {:?} too many, with {} dropped", self.blocks, self.dropped)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_speaks_for_several_has_each_once() {
        let text = "[Queued messages while agent was busy]\n\n[Queue overflow] Dropped 1 message due to cap.\nSummary:\n- a\n\n\
                    ---\nQueued #1\nb\n\n---\nQueued #2\nc\nd";
        let digest = || MergedMessage::read(text).unwrap();
        assert_eq!(digest(), MergedMessage { blocks: vec!["b", "c\nd"], dropped: 1 });
        assert_eq!(digest().missing(["a", "b", "c\nd"].into_iter()), None);
        for wrong in [&["b", "c\nd"][..], &["a", "b"], &["a", "b", "c\nd", "e"], &["a", "b", "b", "c\nd"]] {
            assert!(digest().missing(wrong.iter().copied()).is_some(), "{wrong:?}");
        }
        assert_eq!(MergedMessage::read("plain"), None);
    }
}
