//! From a transcript's tree to the straight line that a model sees.
//!
//! A file is a tree of lines, each naming its parent; the last line is where the conversation stands. [`path`] is the
//! way there, [`said`] what people said and heard on it, [`messages`] what a model is told of it.

mod foreign;

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use homard_proto::{
    EntryId,
    message::Message,
    transcript::{Entry, Kind},
};
use serde::Deserialize;
use serde_json::{Map, Value};
use tracing::warn;

use crate::timeline::TruncatedInput;

/// The lines on the way from the root to the last line, oldest first.
///
/// A line whose parent is not before it in the file follows the line before it: the parent was lost, and with it what
/// led there. So does a message that names none: old versions wrote some so, and a file with two beginnings comes from
/// a program that gave up an unanswered message, which is not given up here.
pub fn path(entries: &[Entry]) -> Vec<&Entry> {
    let mut places: HashMap<&EntryId, usize> = HashMap::with_capacity(entries.len());
    let mut parents = Vec::with_capacity(entries.len());
    for (at, entry) in entries.iter().enumerate() {
        let before = at.checked_sub(1);
        parents.push(match (&entry.parent_id, &entry.kind) {
            (Some(parent), _) => places.get(parent).copied().or(before),
            (None, Kind::Message(_)) => before,
            (None, Kind::ModelChange(_) | Kind::Other(_)) => None,
        });
        places.insert(&entry.id, at);
    }
    let last = entries.len().checked_sub(1);
    let mut path: Vec<_> = std::iter::successors(last, |&at| parents[at]).map(|at| &entries[at]).collect();
    path.reverse();
    path
}

/// What was said on the way to the last line, oldest first, as it was written: also what a model no longer sees.
pub fn said(entries: &[Entry]) -> Vec<Arc<Message>> {
    said_lines(entries).into_iter().map(|(_, message)| message).collect()
}

/// The same, with the lines that say it.
pub fn said_lines(entries: &[Entry]) -> Vec<(EntryId, Arc<Message>)> {
    let messages = path(entries).into_iter().filter_map(|entry| match &entry.kind {
        Kind::Message(said) => Some((entry.id.clone(), Arc::new(said.message.clone()))),
        Kind::ModelChange(_) | Kind::Other(_) => None,
    });
    messages.collect()
}

/// What a model is told, oldest first: only users, assistants and tools speak.
///
/// After a compaction: its summary, then the lines that it kept, then those behind it. Only the last one counts.
pub fn messages(entries: &[Entry]) -> Vec<Arc<Message>> {
    let View { summary, lines, .. } = view(entries);
    summary.into_iter().map(|summary| summary.message).chain(lines.into_iter().map(|(_, message)| message)).collect()
}

/// What a model is told of a transcript, line by line.
#[derive(Debug, Clone, Default)]
pub struct View {
    /// What stands for everything before, if there was a compaction.
    pub summary: Option<Summary>,
    /// How many of the lines that compaction kept.
    pub kept: usize,
    /// The lines that are told, and what they say.
    pub lines: Vec<(EntryId, Arc<Message>)>,
}

/// What stands for everything before.
#[derive(Debug, Clone)]
pub struct Summary {
    /// As a model reads it.
    pub message: Arc<Message>,
    /// As it was written.
    pub text: String,
    /// What the compaction says of itself.
    pub details: Value,
    /// Its line, and how many tokens the conversation had before it, if the line says so.
    pub line: (EntryId, Option<u64>),
}

/// What a model is told of a transcript, with the lines that say it.
pub fn view(entries: &[Entry]) -> View {
    let path = path(entries);
    let left_out = left_out(&path);
    let path: Vec<_> = path.into_iter().filter(|entry| !left_out.contains(entry.id.as_str())).collect();
    let void = undone(&path);
    let counts = |entry: &&Entry| !void.contains(entry.id.as_str());
    let lines = path.iter().enumerate().rev().filter(|(_, entry)| counts(entry));
    let Some((at, compaction)) = lines.filter_map(|(at, entry)| Some((at, Compaction::of(entry)?))).next() else {
        return View { lines: told(&path).collect(), ..View::default() };
    };
    let (before, line, after) = (&path[..at], path[at], &path[at + 1..]);
    let kept = before.iter().rposition(|entry| Some(entry.id.as_str()) == compaction.first_kept);
    // One that names itself kept nothing, and means it.
    if kept.is_none() && compaction.first_kept != Some(line.id.as_str()) {
        let (line, kept) = (line.id.as_str(), compaction.first_kept);
        warn!(line, kept, "a compaction keeps a line that is not before it; it keeps none");
    }
    let mut lines: Vec<_> = told(&before[kept.unwrap_or(at)..]).collect();
    let kept = lines.len();
    lines.extend(told(after));
    let (text, details) = (compaction.summary.to_owned(), compaction.details.clone());
    let summary = Summary::new(text, details, (line.id.clone(), compaction.before));
    View { summary: Some(summary), kept, lines }
}

impl Summary {
    /// What stands for everything before a compaction that wrote this.
    pub fn new(text: String, details: Value, line: (EntryId, Option<u64>)) -> Self {
        Self { message: Arc::new(foreign::compacted(&text)), text, details, line }
    }
}

/// A compaction on the way to the last line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compacted {
    /// Its line.
    pub id: EntryId,
    /// When it was made, as the line says it.
    pub at: String,
    /// What stands in place of what was said before.
    pub summary: String,
    /// How many tokens the conversation had before, if the line says so.
    pub tokens_before: Option<u64>,
    /// How many it had afterwards, if the line says so.
    pub tokens_after: Option<u64>,
    /// Which way it was made, if the line says so.
    pub way: Option<String>,
    /// How much of the newest message it kept, if that was not all.
    pub truncated: Option<TruncatedInput>,
    /// Whether it was undone.
    pub is_undone: bool,
}

/// The compactions on the way to the last line, oldest first.
pub fn compactions(entries: &[Entry]) -> Vec<Compacted> {
    let path = path(entries);
    let void = undone(&path);
    let compacted = |entry: &&Entry| {
        let compaction = Compaction::of(entry)?;
        Some(Compacted {
            id: entry.id.clone(),
            at: entry.timestamp.clone(),
            summary: compaction.summary.to_owned(),
            tokens_before: compaction.before,
            tokens_after: compaction.details.get("tokensAfter").and_then(Value::as_u64),
            way: compaction.details.get("way").and_then(Value::as_str).map(str::to_owned),
            truncated: truncated(compaction.details),
            is_undone: void.contains(entry.id.as_str()),
        })
    };
    path.iter().filter_map(compacted).collect()
}

/// How much of the newest message a compaction kept, by its details; `None` if all of it.
pub fn truncated(details: &Value) -> Option<TruncatedInput> {
    TruncatedInput::deserialize(details.get("requestCut")?).ok()
}

/// The lines that later ones make void.
fn undone<'a>(path: &[&'a Entry]) -> HashSet<&'a str> {
    path.iter().filter_map(|entry| entry.kind.undoes()).collect()
}

/// The lines that later ones take out of the model's context. A mark that names a line which is not before it counts
/// for nothing.
fn left_out<'a>(path: &[&'a Entry]) -> HashSet<&'a str> {
    let mut left_out = HashSet::new();
    for (at, first) in path.iter().enumerate().filter_map(|(at, entry)| Some((at, entry.kind.leaves_out()?))) {
        // Backwards: a mark follows its lines closely.
        if let Some(first) = path[..at].iter().rposition(|entry| entry.id.as_str() == first) {
            left_out.extend(path[first..at].iter().map(|entry| entry.id.as_str()));
        }
    }
    left_out
}

/// The last messages, beginning with a user's, of which there are at most `turns`; `0` for no limit.
///
/// A history must be repaired before, so that no result stands behind the cut and its call before it.
pub fn last_turns(history: &[Arc<Message>], turns: usize) -> &[Arc<Message>] {
    let users = history.iter().enumerate().filter(|(_, message)| matches!(***message, Message::User(_)));
    match turns.checked_sub(1).and_then(|others| users.rev().nth(others)) {
        Some((first, _)) => &history[first..],
        None => history,
    }
}

fn told<'a>(entries: &'a [&Entry]) -> impl Iterator<Item = (EntryId, Arc<Message>)> + 'a {
    entries.iter().filter_map(|entry| {
        let message = match &entry.kind {
            Kind::Message(said) => match &said.message {
                Message::Other(fields) => foreign::message(fields),
                spoken @ (Message::User(_) | Message::Assistant(_) | Message::ToolResult(_)) => Some(spoken.clone()),
            },
            Kind::Other(fields) => foreign::line(fields),
            Kind::ModelChange(_) => None,
        };
        Some((entry.id.clone(), Arc::new(message?)))
    })
}

/// A line that replaces what was said before by a summary.
struct Compaction<'a> {
    summary: &'a str,
    /// The first line before it that still counts.
    first_kept: Option<&'a str>,
    details: &'a Value,
    /// How many tokens there were before.
    before: Option<u64>,
}

impl<'a> Compaction<'a> {
    fn of(entry: &'a Entry) -> Option<Self> {
        let Kind::Other(fields) = &entry.kind else { return None };
        let is_one = word(fields, "type") == Some("compaction");
        let summary = word(fields, "summary").filter(|_| is_one)?;
        let details = fields.get("details").unwrap_or(&Value::Null);
        let before = fields.get("tokensBefore").and_then(Value::as_u64);
        Some(Self { summary, first_kept: word(fields, "firstKeptEntryId"), details, before })
    }
}

fn word<'a>(fields: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    fields.get(name).and_then(Value::as_str)
}

#[cfg(test)]
mod tests;
