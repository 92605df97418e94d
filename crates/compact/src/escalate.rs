//! Escalation of compaction strategies: each is used once, the gentlest first.

use homard_model::tokens::estimate;
use homard_proto::message::{Block, Message, ToolResult};
use serde_json::Value;

use crate::notice;

/// Maximum number of context overflow errors per user message that are recovered from; the next one fails the run.
pub const RECOVERIES: u32 = 3;

/// Maximum number of characters of a tool result, however large the window.
const MOST_CHARS: u64 = 400_000;

/// Minimum number of characters kept of a block, unless the whole result may not be that long.
const LEAST_BLOCK: usize = 2_000;

/// A compaction strategy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rung {
    /// Summarize all but the newest lines.
    Summary,
    /// Truncate tool results that take too much of the window.
    Results,
    /// Summarize the older half of the kept lines.
    Half,
    /// Summarize the older half of the remainder.
    Quarter,
    /// Keep only the last call with its results, and quote instead of using a model.
    Unit,
    /// Keep no line: quotations, and the newest request.
    Bare,
}

const RUNGS: [Rung; 6] = [Rung::Summary, Rung::Results, Rung::Half, Rung::Quarter, Rung::Unit, Rung::Bare];

/// Progress through the strategies. It only advances, so no strategy is used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ladder {
    taken: usize,
    recoveries: u32,
}

impl Ladder {
    /// Returns the next strategy, or `None` if all were used.
    pub fn climb(&mut self) -> Option<Rung> {
        let rung = RUNGS.get(self.taken).copied();
        self.taken += usize::from(rung.is_some());
        rung
    }

    /// Records a context overflow error. Returns `false` if there were too many and the run must fail.
    ///
    /// The ladder continues where earlier attempts ended; the last attempt starts near its end.
    pub fn recover(&mut self) -> bool {
        self.recoveries += 1;
        if self.recoveries == RECOVERIES {
            self.taken = self.taken.max(4);
        }
        self.recoveries <= RECOVERIES
    }

    /// True if a provider reported a context overflow.
    pub fn is_recovery(&self) -> bool {
        self.recoveries > 0
    }
}

/// Why a conversation cannot be compacted, with advice for the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum GaveUp {
    /// The system prompt and tools leave hardly any space.
    #[error(
        "the instructions and tools alone take about {overhead} of the {threshold} tokens that this model may be sent: \
         choose a model with a larger context window, shorten the files of the workspace, or allow fewer tools"
    )]
    NoRoom {
        /// Tokens that they take.
        overhead: u64,
        /// Tokens that may be sent.
        threshold: u64,
    },
    /// All strategies were used.
    #[error(
        "the conversation is too long for this model and could not be made shorter: choose a model with a larger \
         context window, or begin a new session with /new"
    )]
    Spent,
}

/// Returns the maximum number of characters of a tool result: three tenths of the window.
pub fn result_chars(window: u64) -> usize {
    usize::try_from((window * 3 / 10 * 4).min(MOST_CHARS)).unwrap_or(usize::MAX)
}

/// Returns the maximum number of characters of the results kept by a compaction, from its details.
pub fn kept_chars(details: &Value) -> Option<usize> {
    details.get("resultChars").and_then(Value::as_u64).and_then(|chars| usize::try_from(chars).ok())
}

/// Truncates a tool result; `None` if it is short enough. Deterministic.
///
/// Assumes four characters per token, so a text with more tokens per character gets fewer characters.
pub fn shorten(message: &Message, chars: usize) -> Option<Message> {
    let Message::ToolResult(result) = message else { return None };
    // A token has at least one byte, so fewer bytes than the token budget always fit.
    let bytes: usize = result.content.iter().filter_map(Block::as_text).map(str::len).sum();
    if bytes <= chars / 4 {
        return None;
    }
    let texts = texts(result);
    let length: usize = texts.iter().map(|text| text.length).sum();
    let tokens = texts.iter().map(|text| estimate(text.text)).sum::<u64>().max(1);
    let allowed = (chars as u64 / 4).saturating_mul(length as u64) / tokens;
    let most = chars.min(usize::try_from(allowed).unwrap_or(usize::MAX));
    if length <= most {
        return None;
    }
    let least = LEAST_BLOCK.min(most);
    let mut texts = texts.into_iter();
    let content = result.content.iter().filter_map(|block| match block {
        // The blocks left over contained only a note about the length.
        Block::Text(_) => texts.next().map(|text| {
            let share = (most as u64).saturating_mul(text.length as u64) / length as u64;
            Block::text(shortened(&text, least.max(usize::try_from(share).unwrap_or(usize::MAX))))
        }),
        other @ (Block::Thinking(_) | Block::Image(_) | Block::ToolCall(_) | Block::Other(_)) => Some(other.clone()),
    });
    Some(Message::ToolResult(ToolResult { content: content.collect(), ..result.clone() }))
}

/// A text of a result, without the note about its length.
struct Text<'a> {
    text: &'a str,
    length: usize,
    /// Number of characters before it was truncated.
    all: usize,
}

/// Returns the texts of a result. Text that was never stored is added to the length of the last one.
fn texts(result: &ToolResult) -> Vec<Text<'_>> {
    let mut texts: Vec<Text<'_>> = Vec::new();
    for text in result.content.iter().filter_map(Block::as_text) {
        let (text, had) = notice::strip(text);
        let length = text.chars().count();
        match (had, texts.split_last_mut()) {
            (Some(had), Some((last, others))) if text.is_empty() => {
                let others: usize = others.iter().map(|text| text.all).sum();
                last.all = had.saturating_sub(others).max(last.all);
            }
            _ => texts.push(Text { text, length, all: had.unwrap_or(length).max(length) }),
        }
    }
    texts
}

fn shortened(text: &Text<'_>, most: usize) -> String {
    let start = crate::cut::first(text.text, most);
    let start = match start.rfind('\n') {
        Some(end) if start.len() < text.text.len() && end > start.len() / 5 * 4 => &start[..end],
        _ => start,
    };
    let shown = start.chars().count();
    if shown == text.all { start.to_owned() } else { format!("{start}\n\n{}", notice::cut(shown, text.all)) }
}

#[cfg(test)]
mod tests;
