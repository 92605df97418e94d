//! Linearizes a transcript's tree into the history that a model sees.
//!
//! A transcript is a tree of entries, each naming its parent; the last entry is the current leaf. [`path`] is the
//! branch that ends there, [`all_messages`] the messages on it, [`messages`] the messages that a model receives.

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

/// Returns the entries on the path from the root to the last entry, oldest first.
///
/// An entry whose parent does not precede it in the file is attached to the preceding entry, because its parent was
/// lost. So is a message without a parent: old versions wrote such messages, and a file with two roots comes from a
/// program that abandoned an unanswered message, which is kept here.
pub fn path(entries: &[Entry]) -> Vec<&Entry> {
    let mut indices: HashMap<&EntryId, usize> = HashMap::with_capacity(entries.len());
    let mut parents = Vec::with_capacity(entries.len());
    for (index, entry) in entries.iter().enumerate() {
        let previous = index.checked_sub(1);
        parents.push(match (&entry.parent_id, &entry.kind) {
            (Some(parent), _) => indices.get(parent).copied().or(previous),
            (None, Kind::Message(_)) => previous,
            (None, Kind::ModelChange(_) | Kind::Other(_)) => None,
        });
        indices.insert(&entry.id, index);
    }
    let last = entries.len().checked_sub(1);
    let mut path: Vec<_> = std::iter::successors(last, |&index| parents[index]).map(|index| &entries[index]).collect();
    path.reverse();
    path
}

/// Returns the messages on the path to the last entry, oldest first, as they were written, including those that a model
/// no longer sees.
pub fn all_messages(entries: &[Entry]) -> Vec<Arc<Message>> {
    all_message_entries(entries).into_iter().map(|(_, message)| message).collect()
}

/// Like [`all_messages`], with the entry ids.
pub fn all_message_entries(entries: &[Entry]) -> Vec<(EntryId, Arc<Message>)> {
    let messages = path(entries).into_iter().filter_map(|entry| match &entry.kind {
        Kind::Message(message) => Some((entry.id.clone(), Arc::new(message.message.clone()))),
        Kind::ModelChange(_) | Kind::Other(_) => None,
    });
    messages.collect()
}

/// Returns the messages that a model receives, oldest first: only those of users, assistants and tools.
///
/// After a compaction: its summary, then the entries that it kept, then those that follow it. Only the last compaction
/// applies.
pub fn messages(entries: &[Entry]) -> Vec<Arc<Message>> {
    let ContextView { summary, lines, .. } = view(entries);
    summary.into_iter().map(|summary| summary.message).chain(lines.into_iter().map(|(_, message)| message)).collect()
}

/// The part of a transcript that a model receives.
#[derive(Debug, Clone, Default)]
pub struct ContextView {
    /// Summary that replaces everything before it, if there was a compaction.
    pub summary: Option<Summary>,
    /// Number of `lines` that the compaction kept.
    pub kept: usize,
    /// Entries that the model receives, with their messages.
    pub lines: Vec<(EntryId, Arc<Message>)>,
}

/// Summary that replaces the history before it.
#[derive(Debug, Clone)]
pub struct Summary {
    /// Message that the model receives.
    pub message: Arc<Message>,
    /// Text as stored.
    pub text: String,
    /// Details recorded by the compaction.
    pub details: Value,
    /// Entry of the compaction.
    pub entry: EntryId,
    /// Number of tokens before the compaction, if recorded.
    pub tokens_before: Option<u64>,
}

/// Builds the view of a transcript that a model receives, with entry ids.
pub fn view(entries: &[Entry]) -> ContextView {
    let path = path(entries);
    let left_out = excluded_entries(&path);
    let path: Vec<_> = path.into_iter().filter(|entry| !left_out.contains(entry.id.as_str())).collect();
    let undone = undone_entries(&path);
    let counts = |entry: &&Entry| !undone.contains(entry.id.as_str());
    let lines = path.iter().enumerate().rev().filter(|(_, entry)| counts(entry));
    let Some((at, compaction)) = lines.filter_map(|(at, entry)| Some((at, Compaction::of(entry)?))).next() else {
        return ContextView { lines: visible_messages(&path).collect(), ..ContextView::default() };
    };
    let (before, line, after) = (&path[..at], path[at], &path[at + 1..]);
    let kept = before.iter().rposition(|entry| Some(entry.id.as_str()) == compaction.first_kept);
    // A compaction that names itself deliberately kept nothing.
    if kept.is_none() && compaction.first_kept != Some(line.id.as_str()) {
        let (line, kept) = (line.id.as_str(), compaction.first_kept);
        warn!(line, kept, "a compaction refers to an entry that does not precede it; keeping no earlier entries");
    }
    let mut lines: Vec<_> = visible_messages(&before[kept.unwrap_or(at)..]).collect();
    let kept = lines.len();
    lines.extend(visible_messages(after));
    let (text, details) = (compaction.summary.to_owned(), compaction.details.clone());
    let summary = Summary::new(text, details, line.id.clone(), compaction.before);
    ContextView { summary: Some(summary), kept, lines }
}

impl Summary {
    /// Creates the summary of a compaction.
    pub fn new(text: String, details: Value, entry: EntryId, tokens_before: Option<u64>) -> Self {
        Self { message: Arc::new(foreign::compacted(&text)), text, details, entry, tokens_before }
    }
}

/// A compaction on the path to the last entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompactionInfo {
    /// Entry of the compaction.
    pub id: EntryId,
    /// Timestamp of the entry.
    pub at: String,
    /// Summary that replaces the messages before it.
    pub summary: String,
    /// Number of tokens before the compaction, if recorded.
    pub tokens_before: Option<u64>,
    /// Number of tokens after the compaction, if recorded.
    pub tokens_after: Option<u64>,
    /// Compaction strategy, if recorded.
    pub strategy: Option<String>,
    /// Part of the newest message that was kept, if it was truncated.
    pub truncated: Option<TruncatedInput>,
    /// True if the compaction was undone.
    pub is_undone: bool,
}

/// Returns the compactions on the path to the last entry, oldest first.
pub fn compactions(entries: &[Entry]) -> Vec<CompactionInfo> {
    let path = path(entries);
    let undone = undone_entries(&path);
    let info = |entry: &&Entry| {
        let compaction = Compaction::of(entry)?;
        Some(CompactionInfo {
            id: entry.id.clone(),
            at: entry.timestamp.clone(),
            summary: compaction.summary.to_owned(),
            tokens_before: compaction.before,
            tokens_after: compaction.details.get("tokensAfter").and_then(Value::as_u64),
            strategy: compaction.details.get("way").and_then(Value::as_str).map(str::to_owned),
            truncated: truncated(compaction.details),
            is_undone: undone.contains(entry.id.as_str()),
        })
    };
    path.iter().filter_map(info).collect()
}

/// Reads from a compaction's details how much of the newest message was kept; `None` if all of it.
pub fn truncated(details: &Value) -> Option<TruncatedInput> {
    TruncatedInput::deserialize(details.get("requestCut")?).ok()
}

/// Returns the entries that later entries undo.
fn undone_entries<'a>(path: &[&'a Entry]) -> HashSet<&'a str> {
    path.iter().filter_map(|entry| entry.kind.undoes()).collect()
}

/// Returns the entries that later entries exclude from the model's context. A mark naming an entry that does not
/// precede it is ignored.
fn excluded_entries<'a>(path: &[&'a Entry]) -> HashSet<&'a str> {
    let mut left_out = HashSet::new();
    for (at, first) in path.iter().enumerate().filter_map(|(at, entry)| Some((at, entry.kind.excluded_from()?))) {
        // Searched backwards, because a mark follows its entries closely.
        if let Some(first) = path[..at].iter().rposition(|entry| entry.id.as_str() == first) {
            left_out.extend(path[first..at].iter().map(|entry| entry.id.as_str()));
        }
    }
    left_out
}

/// Returns the end of a history with the last `turns` user messages and everything between and after them. Returns all
/// of it if there are fewer, or if `turns` is 0.
///
/// The history must already be repaired, so that the cut never separates a result from its call.
pub fn last_turns(history: &[Arc<Message>], turns: usize) -> &[Arc<Message>] {
    let users = history.iter().enumerate().filter(|(_, message)| matches!(***message, Message::User(_)));
    match turns.checked_sub(1).and_then(|skipped| users.rev().nth(skipped)) {
        Some((start, _)) => &history[start..],
        None => history,
    }
}

fn visible_messages<'a>(entries: &'a [&Entry]) -> impl Iterator<Item = (EntryId, Arc<Message>)> + 'a {
    entries.iter().filter_map(|entry| {
        let message = match &entry.kind {
            Kind::Message(entry_message) => match &entry_message.message {
                Message::Other(fields) => foreign::convert_message(fields),
                visible @ (Message::User(_) | Message::Assistant(_) | Message::ToolResult(_)) => Some(visible.clone()),
            },
            Kind::Other(fields) => foreign::convert_entry(fields),
            Kind::ModelChange(_) => None,
        };
        Some((entry.id.clone(), Arc::new(message?)))
    })
}

/// An entry that replaces the preceding messages by a summary.
struct Compaction<'a> {
    summary: &'a str,
    /// First preceding entry that is kept.
    first_kept: Option<&'a str>,
    details: &'a Value,
    /// Number of tokens before the compaction.
    before: Option<u64>,
}

impl<'a> Compaction<'a> {
    fn of(entry: &'a Entry) -> Option<Self> {
        let Kind::Other(fields) = &entry.kind else { return None };
        let is_one = string_field(fields, "type") == Some("compaction");
        let summary = string_field(fields, "summary").filter(|_| is_one)?;
        let details = fields.get("details").unwrap_or(&Value::Null);
        let before = fields.get("tokensBefore").and_then(Value::as_u64);
        Some(Self { summary, first_kept: string_field(fields, "firstKeptEntryId"), details, before })
    }
}

fn string_field<'a>(fields: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    fields.get(name).and_then(Value::as_str)
}

#[cfg(test)]
mod tests;
