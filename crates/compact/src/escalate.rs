//! What comes next when a conversation is still too long: each way once, the gentlest first.

use homard_model::tokens::estimate;
use homard_proto::message::{Block, Message, ToolResult};
use serde_json::Value;

use crate::notice;

/// How often a provider may say that a request is too long before the user is told, for one message of the user.
pub const RECOVERIES: u32 = 3;

/// No result is longer than this, in characters, however large the window.
const MOST_CHARS: u64 = 400_000;

/// What is left of a block at least, in characters, unless the whole result may not be that long.
const LEAST_BLOCK: usize = 2_000;

/// A way to make a conversation short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rung {
    /// Sum up all but the newest lines.
    Summary,
    /// Show less of tool results that take too much of the window.
    Results,
    /// Sum up the older half of the lines that were kept.
    Half,
    /// And the older half of the rest.
    Quarter,
    /// Keep the last call with its results only, and quote instead of asking.
    Unit,
    /// Keep no line: quotations, and the newest request.
    Bare,
}

const RUNGS: [Rung; 6] = [Rung::Summary, Rung::Results, Rung::Half, Rung::Quarter, Rung::Unit, Rung::Bare];

/// Where one stands. It is climbed in one direction only, so no way is taken twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ladder {
    taken: usize,
    recoveries: u32,
}

impl Ladder {
    /// The next way, or `None` if all were taken.
    pub fn climb(&mut self) -> Option<Rung> {
        let rung = RUNGS.get(self.taken).copied();
        self.taken += usize::from(rung.is_some());
        rung
    }

    /// Takes note that a provider found a request too long. `false` if it said so too often, and the user must be told.
    ///
    /// The ladder of the earlier attempts goes on; the last attempt starts near its end.
    pub fn recover(&mut self) -> bool {
        self.recoveries += 1;
        if self.recoveries == RECOVERIES {
            self.taken = self.taken.max(4);
        }
        self.recoveries <= RECOVERIES
    }

    /// Whether a provider found a request too long.
    pub fn is_recovery(&self) -> bool {
        self.recoveries > 0
    }
}

/// Why a conversation cannot be made short, and what the user can do about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum GaveUp {
    /// There is hardly room for a conversation.
    #[error(
        "the instructions and tools alone take about {overhead} of the {threshold} tokens that this model may be sent: \
         choose a model with a larger context window, shorten the files of the workspace, or allow fewer tools"
    )]
    NoRoom {
        /// What they take.
        overhead: u64,
        /// What may be taken.
        threshold: u64,
    },
    /// Every way was taken.
    #[error(
        "the conversation is too long for this model and could not be made shorter: choose a model with a larger \
         context window, or begin a new session with /new"
    )]
    Spent,
}

/// How many characters a tool result may have: three tenths of the window.
pub fn result_chars(window: u64) -> usize {
    usize::try_from((window * 3 / 10 * 4).min(MOST_CHARS)).unwrap_or(usize::MAX)
}

/// How many characters the results may have that a compaction kept, by its details.
pub fn kept_chars(details: &Value) -> Option<usize> {
    details.get("resultChars").and_then(Value::as_u64).and_then(|chars| usize::try_from(chars).ok())
}

/// A tool result made short, or `None` if it is short enough. The same result always becomes the same text.
///
/// Four characters are taken for a token, so a text that weighs more per character gets fewer of them.
pub fn shorten(message: &Message, chars: usize) -> Option<Message> {
    let Message::ToolResult(result) = message else { return None };
    // A token has at least one byte, so fewer bytes than the budget for tokens fit either way.
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
        // Those that are missing at the end said only how long it was.
        Block::Text(_) => texts.next().map(|text| {
            let share = (most as u64).saturating_mul(text.length as u64) / length as u64;
            Block::text(shortened(&text, least.max(usize::try_from(share).unwrap_or(usize::MAX))))
        }),
        other @ (Block::Thinking(_) | Block::Image(_) | Block::ToolCall(_) | Block::Other(_)) => Some(other.clone()),
    });
    Some(Message::ToolResult(ToolResult { content: content.collect(), ..result.clone() }))
}

/// A text of a result, without what was said of its length.
struct Text<'a> {
    text: &'a str,
    length: usize,
    /// How many characters it had before it was cut.
    all: usize,
}

/// The texts of a result. What was not even stored of it counts for the last one.
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
