//! Token estimates for budgets, which have to judge a request before it is sent.
//!
//! Every provider counts differently, so this stays close to a common byte-pair tokenizer, and rather above it: an
//! overestimated request is compacted, an underestimated one is rejected. It follows how such tokenizers split: a word
//! with the space before it, digits in groups of three, runs of punctuation, and non-ASCII letters almost individually.
//! The weights were fitted to the texts in the tests; newer tokenizers count fewer tokens for most scripts.

use homard_proto::message::{Block, Content, Message};
use serde_json::Value;

use crate::ToolSpec;

/// Tokens of an image of any size; providers scale images to about this.
const IMAGE_TOKENS: u64 = 1500;

/// Overhead of a message: its start and its role.
const MESSAGE_OVERHEAD: u64 = 4;

/// Overhead of a tool description.
const TOOL_OVERHEAD: u64 = 12;

/// Estimates the tokens of a text. One pass, no allocation.
pub fn estimate(text: &str) -> u64 {
    let mut run = CharRun { class: Class::Newline, last: '\n', length: 0 };
    let mut tenths = 0;
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        tenths += run.cost_of(c);
        rest = &rest[c.len_utf8()..];
        if run.class == Class::Lower {
            // Most of a text is words, so the remainder of a word is counted at once.
            let end = rest.bytes().position(|byte| !byte.is_ascii_lowercase()).unwrap_or(rest.len());
            tenths += run.extend_word(end);
            rest = &rest[end..];
        }
    }
    tenths.div_ceil(10)
}

/// Estimates the tokens of a message as sent to a model; messages that no model sees count zero.
pub fn of_message(message: &Message) -> u64 {
    let blocks = match message {
        Message::User(user) => match &user.content {
            Content::Text(text) => return MESSAGE_OVERHEAD + estimate(text),
            Content::Blocks(blocks) => blocks,
        },
        Message::Assistant(assistant) => &assistant.content,
        Message::ToolResult(result) => &result.content,
        Message::Other(_) => return 0,
    };
    MESSAGE_OVERHEAD + blocks.iter().map(of_block).sum::<u64>()
}

/// Estimates the tokens of tool descriptions.
pub fn of_tools(tools: &[ToolSpec]) -> u64 {
    let of_tool = |tool: &ToolSpec| {
        TOOL_OVERHEAD + estimate(&tool.name) + estimate(&tool.description) + of_json(&tool.parameters)
    };
    tools.iter().map(of_tool).sum()
}

fn of_block(block: &Block) -> u64 {
    match block {
        Block::Text(text) => estimate(&text.text),
        Block::Thinking(thinking) => estimate(&thinking.thinking),
        Block::Image(_) => IMAGE_TOKENS,
        Block::ToolCall(call) => estimate(&call.name) + of_json(&call.arguments),
        Block::Other(_) => 0,
    }
}

fn of_json(value: &Value) -> u64 {
    estimate(&value.to_string())
}

/// The run of characters of one class that ends with the last counted character.
struct CharRun {
    class: Class,
    last: char,
    length: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Lower,
    Upper,
    Digit,
    Space,
    Newline,
    Mark,
    /// Non-ASCII.
    NonAscii,
}

impl CharRun {
    /// Returns the cost of this many more letters of a word, in tenths of a token.
    fn extend_word(&mut self, more: usize) -> u64 {
        let before = word_cost(self.length);
        self.length = self.length.saturating_add(more as u64);
        word_cost(self.length) - before
    }

    /// Returns the cost of one more character, in tenths of a token.
    fn cost_of(&mut self, c: char) -> u64 {
        let class = Class::of(c);
        let before = self.class;
        // A capital belongs to the word that it starts.
        let is_capitalized = before == Class::Upper && class == Class::Lower && self.length == 1;
        self.length = if class == before || is_capitalized { self.length.saturating_add(1) } else { 1 };
        let is_repeated = c == self.last;
        (self.class, self.last) = (class, c);
        match (class, self.length) {
            // Letters after several capitals, or after an accented letter, are partly merged into known tokens.
            (Class::Lower, 1) if before == Class::Upper => 7,
            (Class::Lower | Class::Upper, 1) if before == Class::NonAscii => 5,
            (Class::Lower | Class::Upper, 1) => 10,
            (Class::Lower, length) => word_cost(length) - word_cost(length - 1),
            (Class::Upper, _) => 4,
            // Unlike a word, a number does not absorb the space before it.
            (Class::Digit, 1) if before == Class::Space => 20,
            (Class::Digit, length) if length % 3 == 1 => 10,
            (Class::Digit, _) => 0,
            (Class::Space, 2) => 5,
            (Class::Space, length) if length.is_multiple_of(64) => 10,
            (Class::Space, _) => 0,
            (Class::Newline, 1) if before == Class::Mark => 5,
            (Class::Newline, 1) => 10,
            (Class::Newline, length) if length.is_multiple_of(8) => 10,
            (Class::Newline, _) => 0,
            (Class::Mark, 1) => 9,
            (Class::Mark, _) if is_repeated => 1,
            (Class::Mark, _) => 5,
            (Class::NonAscii, _) => non_ascii_cost(c),
        }
    }
}

/// Returns what a word of this length costs in addition to its first letter.
fn word_cost(length: u64) -> u64 {
    let letters = |from: u64, to: u64| length.min(to).saturating_sub(from);
    // Ordinary words have at most twenty letters.
    letters(4, 8) + 3 * letters(8, 20) + 5 * letters(20, u64::MAX)
}

impl Class {
    fn of(c: char) -> Self {
        match c {
            'a'..='z' => Self::Lower,
            'A'..='Z' => Self::Upper,
            '0'..='9' => Self::Digit,
            ' ' | '\t' => Self::Space,
            '\n' | '\r' => Self::Newline,
            '\0'..='\x7f' => Self::Mark,
            _ => Self::NonAscii,
        }
    }
}

/// Returns the cost of a non-ASCII character, in tenths of a token.
fn non_ascii_cost(c: char) -> u64 {
    match u32::from(c) {
        // An accented Latin letter splits the word that contains it.
        0x80..0x370 | 0x1e00..0x1f00 => 11,
        // Cyrillic.
        0x400..0x530 => 5,
        // Typographic quotes, dashes, joiners.
        0x2000..0x2070 => 10,
        // Chinese, Japanese and their punctuation.
        0x2e80..0xa4d0 | 0xf900..0xfb00 | 0xff00..0xfff0 => 12,
        // Korean.
        0xac00..0xd7b0 => 14,
        // Emoji and rare letters, which are encoded byte by byte.
        0x10000.. => 30,
        // Greek, Arabic, Hebrew, the scripts of India and South-East Asia, symbols.
        _ => 10,
    }
}

#[cfg(test)]
mod tests;
