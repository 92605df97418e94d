//! What a model is shown of a conversation, line by line, and what each line weighs.

use std::sync::Arc;

use homard_model::tokens;
use homard_proto::{EntryId, message::Message};

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// Its line in the transcript.
    pub entry: EntryId,
    /// What was said.
    pub message: Arc<Message>,
    /// How many tokens it takes, estimated once.
    pub weight: u64,
}

impl Line {
    /// A line, weighed.
    pub fn new(entry: EntryId, message: Arc<Message>) -> Self {
        let weight = tokens::of_message(&message);
        Self { entry, message, weight }
    }
}

/// A conversation as a model is shown it, without the summary that may stand before it.
#[derive(Debug, Clone, Copy)]
pub struct History<'a> {
    /// Oldest first.
    pub lines: &'a [Line],
    /// How many of the lines are older than the last compaction, which kept them; `None` if there was none.
    pub kept: Option<usize>,
}

impl History<'_> {
    /// Whether nothing was said since the last compaction.
    pub fn is_just_compacted(&self) -> bool {
        self.kept.is_some_and(|kept| kept >= self.lines.len())
    }
}

/// What the lines take together.
pub(crate) fn weight(lines: &[Line]) -> u64 {
    lines.iter().map(|line| line.weight).sum()
}
