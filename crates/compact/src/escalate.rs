//! Escalation of compaction strategies: each is used once, the gentlest first.

use homard_model::tokens::estimate;
use homard_proto::message::{Block, Message, ToolResult};
use serde_json::Value;

use crate::notice;

/// Maximum number of context overflow errors per user message that are recovered from; the next one fails the run.
pub const MAX_RECOVERIES: u32 = 3;

/// Maximum number of characters of a tool result, however large the window.
const MAX_RESULT_CHARS: u64 = 400_000;

/// Minimum number of characters kept of a block, unless the whole result may not be that long.
const MIN_BLOCK_CHARS: usize = 2_000;

/// A compaction strategy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompactionStrategy {
    /// Summarize all but the newest lines.
    Summary,
    /// Truncate tool results that take too much of the window.
    Results,
    /// Summarize the older half of the kept lines.
    Half,
    /// Summarize the older half of the lines that are still kept.
    Quarter,
    /// Keep only the last call with its results, and quote instead of using a model.
    Unit,
    /// Keep no line: the summary consists of quotations, without using a model, and of the newest request.
    Bare,
}

const STRATEGIES: [CompactionStrategy; 6] = [
    CompactionStrategy::Summary,
    CompactionStrategy::Results,
    CompactionStrategy::Half,
    CompactionStrategy::Quarter,
    CompactionStrategy::Unit,
    CompactionStrategy::Bare,
];

/// Progress through the strategies. It only advances, so no strategy is used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ladder {
    used: usize,
    recoveries: u32,
}

impl Ladder {
    /// Returns the next strategy, or `None` if all were used.
    pub fn next_strategy(&mut self) -> Option<CompactionStrategy> {
        let strategy = STRATEGIES.get(self.used).copied();
        self.used += usize::from(strategy.is_some());
        strategy
    }

    /// Records a context overflow error. Returns `false` if there were too many and the run must fail.
    ///
    /// The ladder continues where earlier attempts ended; the last attempt starts near its end.
    pub fn recover(&mut self) -> bool {
        self.recoveries += 1;
        if self.recoveries == MAX_RECOVERIES {
            self.used = self.used.max(4);
        }
        self.recoveries <= MAX_RECOVERIES
    }

    /// True if a provider reported a context overflow.
    pub fn is_recovery(&self) -> bool {
        self.recoveries > 0
    }
}

/// Why a conversation cannot be compacted, with advice for the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CompactionFailure {
    /// The system prompt and tools leave hardly any space.
    #[error(
        "the system prompt and the tool definitions alone use about {overhead} of the {threshold} tokens available \
         for a request to this model: choose a model with a larger context window, shorten the files of the \
         workspace, or allow fewer tools"
    )]
    NoSpace {
        /// Tokens that they take.
        overhead: u64,
        /// Tokens that may be sent.
        threshold: u64,
    },
    /// All strategies were used.
    #[error(
        "the conversation is too long for this model and compaction could not shorten it enough: choose a model with \
         a larger context window, or start a new session with /new"
    )]
    Exhausted,
}

/// Returns the maximum number of characters of a tool result: three tenths of the window.
pub fn result_chars(window: u64) -> usize {
    usize::try_from((window * 3 / 10 * 4).min(MAX_RESULT_CHARS)).unwrap_or(usize::MAX)
}

/// Returns the maximum number of characters of the results kept by a compaction, from its details.
pub fn kept_chars(details: &Value) -> Option<usize> {
    details.get("resultChars").and_then(Value::as_u64).and_then(|chars| usize::try_from(chars).ok())
}

/// Truncates a tool result; `None` if it is short enough. Deterministic.
///
/// Assumes four characters per token, so a text with more tokens per character gets fewer characters.
pub fn truncate_result(message: &Message, max_chars: usize) -> Option<Message> {
    let Message::ToolResult(result) = message else { return None };
    // A token has at least one byte, so fewer bytes than the token budget always fit.
    let bytes: usize = result.content.iter().filter_map(Block::as_text).map(str::len).sum();
    if bytes <= max_chars / 4 {
        return None;
    }
    let texts = texts(result);
    let length: usize = texts.iter().map(|text| text.length).sum();
    let tokens = texts.iter().map(|text| estimate(text.text)).sum::<u64>().max(1);
    let allowed = (max_chars as u64 / 4).saturating_mul(length as u64) / tokens;
    let max = max_chars.min(usize::try_from(allowed).unwrap_or(usize::MAX));
    if length <= max {
        return None;
    }
    let min = MIN_BLOCK_CHARS.min(max);
    let mut texts = texts.into_iter();
    let content = result.content.iter().filter_map(|block| match block {
        // A block that contained only a truncation note has no text of its own, so the last block is dropped.
        Block::Text(_) => texts.next().map(|text| {
            let share = (max as u64).saturating_mul(text.length as u64) / length as u64;
            Block::text(truncate_text(&text, min.max(usize::try_from(share).unwrap_or(usize::MAX))))
        }),
        other @ (Block::Thinking(_) | Block::Image(_) | Block::ToolCall(_) | Block::Other(_)) => Some(other.clone()),
    });
    Some(Message::ToolResult(ToolResult { content: content.collect(), ..result.clone() }))
}

/// A text of a result, without the note about its length.
struct ResultText<'a> {
    text: &'a str,
    length: usize,
    /// Number of characters before it was truncated.
    original_length: usize,
}

/// Returns the texts of a result without their truncation notes. Characters that were never stored, according to such a
/// note, count in the original length of the last text.
fn texts(result: &ToolResult) -> Vec<ResultText<'_>> {
    let mut texts: Vec<ResultText<'_>> = Vec::new();
    for text in result.content.iter().filter_map(Block::as_text) {
        let (text, original_length) = notice::strip(text);
        let length = text.chars().count();
        match (original_length, texts.split_last_mut()) {
            (Some(original_length), Some((last, others))) if text.is_empty() => {
                let others: usize = others.iter().map(|text| text.original_length).sum();
                last.original_length = original_length.saturating_sub(others).max(last.original_length);
            }
            _ => {
                texts.push(ResultText { text, length, original_length: original_length.unwrap_or(length).max(length) })
            }
        }
    }
    texts
}

fn truncate_text(text: &ResultText<'_>, max: usize) -> String {
    let start = crate::cut::first(text.text, max);
    let start = match start.rfind('\n') {
        Some(end) if start.len() < text.text.len() && end > start.len() / 5 * 4 => &start[..end],
        _ => start,
    };
    let shown = start.chars().count();
    if shown == text.original_length {
        start.to_owned()
    } else {
        format!("{start}\n\n{}", notice::shown_note(shown, text.original_length))
    }
}

#[cfg(test)]
mod tests;
