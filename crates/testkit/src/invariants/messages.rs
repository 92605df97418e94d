//! Invariants of messages: each is in its transcript once: by itself, in the run that absorbed it, or merged with
//! others.

use std::collections::BTreeMap;

use homard_agent::intake::CHANNEL;
use homard_proto::{
    EntryId, RunId, SessionKey,
    message::{Message, STEERED_INTO},
    method::{Params, chat::SendParams},
    transcript::Entry,
};
use homard_store::{Outcome, RunRow, RunState};

use super::message;
use crate::runner::TraceResult;

/// Entries that a run added to a transcript.
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
                let user_entry = UserEntry { run, host, text: user.content.text() };
                match last {
                    Some(part) if host == Some(part.run) => part.absorbed.push(user_entry),
                    Some(_) | None => parts.push(RunEntries { run, own: user_entry, ..RunEntries::default() }),
                }
            }
            (Some(Message::Assistant(answer)), Some(part)) => {
                part.answers.push(&entry.id);
                part.calls.extend(answer.tool_calls().map(|call| call.id.as_str()));
            }
            (Some(Message::Assistant(_) | Message::ToolResult(_) | Message::Other(_)) | None, _) => {}
        }
    }
    parts.into_iter()
}

/// Messages are in their transcript once, in the order of acceptance. One is missing only if its run never started, or
/// if it is merged into the message of its host.
pub(super) fn violations(result: &TraceResult) -> Vec<String> {
    let mut problems = Vec::new();
    let mut written: BTreeMap<&str, Vec<UserEntry<'_>>> = BTreeMap::new();
    for (key, entries) in result.transcripts() {
        // A thread begins with the messages of its parent session.
        let inherited = |run: &str| {
            let accepted = result.committed.accepted.iter().find(|(accepted, _)| accepted.as_str() == run);
            accepted.is_some_and(|(_, session)| key.thread_parent().as_ref() == Some(session))
        };
        let parts: Vec<_> = parts(entries).filter(|part| !inherited(part.run)).collect();
        problems.extend(
            unsent_entries(result, key, &parts).into_iter().map(|stray| format!("transcript of {key}: {stray}")),
        );
        let lines = parts.into_iter().flat_map(|part| [vec![part.own], part.absorbed].concat());
        let lines: Vec<_> = lines.filter(|line| !line.run.is_empty()).collect();
        problems.extend(out_of_order(result, key, &lines));
        lines.into_iter().for_each(|line| written.entry(line.run).or_default().push(line));
    }
    for row in result.rows.values() {
        let lines = written.get(row.run.as_str()).map(Vec::as_slice).unwrap_or_default();
        let hosts = result.committed.hosts.get(&row.run).map(Vec::as_slice).unwrap_or_default();
        let problem = match hosts {
            [] => check_own_run(result, row, lines),
            [host] => check_absorbed(result, &row.run, host, lines, written.get(host.as_str())),
            _ => Some(format!("became a part of {hosts:?}")),
        };
        problems.extend(problem.map(|problem| format!("the message of run {} {problem}", row.run)));
    }
    problems
}

/// Finds entries that were never sent, and entries in the wrong run.
fn unsent_entries(result: &TraceResult, key: &SessionKey, parts: &[RunEntries<'_>]) -> Vec<String> {
    let is_sent = |text: &str| {
        let mut runs = result.committed.accepted.iter().filter(|(_, session)| session == key);
        runs.any(|(run, _)| result.committed.messages.get(run).is_some_and(|message| message == text))
    };
    let mut strays = Vec::new();
    for part in parts {
        strays.extend(part.own.host.map(|host| format!("the line of {:?} for {host} is not in it", part.run)));
        let unsent = part.absorbed.iter().filter(|line| line.run.is_empty() && !is_sent(&line.text));
        strays.extend(unsent.map(|line| format!("nobody sent {:?}", line.text)));
    }
    strays
}

/// Finds messages that are not in the order of acceptance.
fn out_of_order(result: &TraceResult, key: &SessionKey, lines: &[UserEntry<'_>]) -> Option<String> {
    // A run whose start could not be stored starts after a restart, behind later ones.
    if result.conditions.disk_failed {
        return None;
    }
    // The message of a run that was held and released appears again, behind messages that were accepted meanwhile.
    let is_again = |index: usize| {
        let run = lines[index].run;
        let row = result.rows.values().find(|row| row.run.as_str() == run);
        let is_released = row.and_then(|row| row.hold).is_some_and(|hold| hold.is_reentered);
        is_released && lines[..index].iter().any(|line| line.run == run)
    };
    let lines: Vec<_> = (0..lines.len()).filter(|index| !is_again(*index)).map(|index| &lines[index]).collect();
    let acceptance_index =
        |line: &UserEntry<'_>| result.committed.accepted.iter().position(|(run, _)| run.as_str() == line.run);
    let (found, order): (Vec<_>, Vec<_>) = lines.iter().map(|line| (line.run, acceptance_index(line))).unzip();
    let is_wrong = |(index, first): (usize, &Option<usize>)| {
        let mut later = (index + 1..).zip(&order[index + 1..]);
        later.any(|(other, second)| second < first && !may_overtake(result, found[index], found[other]))
    };
    let is_known = order.iter().all(Option::is_some);
    (!is_known || order.iter().enumerate().any(is_wrong))
        .then(|| format!("transcript of {key}: has the messages {found:?}, taken in as {order:?}"))
}

/// True if a transcript may contain a message before one that was accepted earlier.
///
/// A message that ignores the queue mode may precede one that follows it, because that one may have been dropped from a
/// full queue and is then reported later. A steered message may precede messages that wait in the queue, but not
/// another message that was steered into the same run.
fn may_overtake(result: &TraceResult, later: &str, earlier: &str) -> bool {
    let host = |run: &str| result.rows.values().find(|row| row.run.as_str() == run).and_then(|row| row.host.as_ref());
    let is_resumed = |host: &RunId| result.rows.get(host).is_some_and(|host| !host.resumed_at.is_empty());
    // After a restart, the host run may also absorb a message that was queued before the steered one.
    let is_steered = host(later).is_some_and(|run_host| host(earlier) != Some(run_host) || is_resumed(run_host));
    let follows_queue_mode = |run: &str| {
        let row = result.rows.values().find(|row| row.run.as_str() == run);
        let message = result.committed.messages.iter().find(|(id, _)| id.as_str() == run);
        row.is_some_and(|row| [SendParams::METHOD, CHANNEL].contains(&row.method.as_str()))
            && message.is_some_and(|(_, message)| !message.starts_with('/'))
    };
    is_steered || (!follows_queue_mode(later) && follows_queue_mode(earlier))
}

/// Returns what is wrong with a message that was not absorbed.
fn check_own_run(result: &TraceResult, row: &RunRow, lines: &[UserEntry<'_>]) -> Option<String> {
    let text = result.committed.messages.get(&row.run).map(String::as_str).unwrap_or_default();
    // A request for compaction is not part of the conversation. Compaction is also started automatically.
    let is_plugin_command = text.starts_with('/') && result.hooks_received("command");
    let is_command = text.starts_with("/compact") || row.method == "compaction" || is_plugin_command;
    match (lines, row.session.is_some() && !is_command) {
        ([], false) if is_command => None,
        ([], true) => Some("is in no transcript, and its run began".to_owned()),
        ([], false) => match &row.state {
            RunState::Ended(ended) if ended.outcome == Outcome::Done && ended.command_reply.is_none() => {
                Some("is in no transcript, and its run is done".to_owned())
            }
            RunState::Ended(_) | RunState::Accepted | RunState::Running | RunState::Absorbed(_) | RunState::Held => {
                None
            }
        },
        ([line], true) if line.host.is_some() => {
            Some(format!("was absorbed by {:?}, which has no record of it", line.host))
        }
        ([line], true) => {
            let absorbed_texts: Vec<_> = merged_texts(result, &row.run);
            // A command that begins a new transcript is not part of it.
            let is_own = text.ends_with(line.text.as_str()) || result.hooks_received("before_message_write");
            match MergedMessage::read(&line.text) {
                None => {
                    (!is_own || !absorbed_texts.is_empty()).then(|| format!("is {text:?} and became {:?}", line.text))
                }
                Some(digest) => digest.missing(absorbed_texts.into_iter().chain([text])),
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
    result: &TraceResult,
    run: &RunId,
    host: &RunId,
    lines: &[UserEntry<'_>],
    host_lines: Option<&Vec<UserEntry<'_>>>,
) -> Option<String> {
    match lines {
        // It is in the merged message of its host; if not, that is reported for the host.
        [] if host_lines.is_some_and(|lines| lines.iter().any(|line| MergedMessage::read(&line.text).is_some())) => {
            None
        }
        [] => Some(format!("became a part of {host} and is not there")),
        [line] if line.host != Some(host.as_str()) => Some(format!("became a part of {host} and stands alone")),
        [line] => {
            let text = result.committed.messages.get(run).map(String::as_str).unwrap_or_default();
            (line.text != text).then(|| format!("is {text:?} and became {:?}", line.text))
        }
        _ => Some(format!("is in transcripts {} times", lines.len())),
    }
}

/// Returns the texts of absorbed messages without an entry of their own.
fn merged_texts<'a>(result: &'a TraceResult, host: &RunId) -> Vec<&'a str> {
    let has_line = |run: &RunId| {
        let lines = result.transcripts().flat_map(|(_, entries)| parts(entries)).flat_map(|part| part.absorbed);
        lines.into_iter().any(|line| line.run == run.as_str())
    };
    let merged = result.committed.hosts.iter().filter(|(run, hosts)| hosts.contains(host) && !has_line(run));
    merged.filter_map(|(run, _)| result.committed.messages.get(run).map(String::as_str)).collect()
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
                Some(index) => drop(self.blocks.remove(index)),
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
    fn a_merged_message_contains_each_message_once() {
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
