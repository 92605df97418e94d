//! Messages that a model is shown, with their estimated tokens.

use std::sync::Arc;

use homard_model::tokens;
use homard_proto::{EntryId, message::Message};

/// A message of a conversation.
#[derive(Debug, Clone, PartialEq)]
pub struct HistoryLine {
    /// Transcript entry.
    pub entry: EntryId,
    /// The message.
    pub message: Arc<Message>,
    /// Estimated tokens, computed once.
    pub tokens: u64,
}

impl HistoryLine {
    /// Creates a line and estimates its tokens.
    pub fn new(entry: EntryId, message: Arc<Message>) -> Self {
        let tokens = tokens::of_message(&message);
        Self { entry, message, tokens }
    }
}

/// A conversation as shown to a model, without the summary that may precede it.
#[derive(Debug, Clone, Copy)]
pub struct History<'a> {
    /// Oldest first.
    pub lines: &'a [HistoryLine],
    /// How many of the lines are older than the last compaction, which kept them; `None` if there was none.
    pub kept: Option<usize>,
}

impl History<'_> {
    /// True if there are no messages since the last compaction.
    pub fn is_just_compacted(&self) -> bool {
        self.kept.is_some_and(|kept| kept >= self.lines.len())
    }
}

/// Returns the estimated tokens of these lines.
pub(crate) fn total_tokens(lines: &[HistoryLine]) -> u64 {
    lines.iter().map(|line| line.tokens).sum()
}
