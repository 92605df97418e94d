//! Renders a conversation as text for the summary model, in pieces that fit into one request.

use std::{ops::Range, sync::Arc};

use homard_model::tokens::estimate;
use homard_proto::message::{Assistant, Block, Content, ImageBlock, Message, ToolResult};
use serde_json::Value;

use crate::cut;

/// Maximum number of pieces read by a model. Longer conversations are truncated more, and then their middle is only
/// extracted.
pub(crate) const MAX_PIECES: usize = 12;

/// Number of times that the limits are halved before pieces are omitted.
const MAX_HALVINGS: u32 = 4;

/// A range of messages as text.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TranscriptPiece {
    pub(crate) messages: Range<usize>,
    /// Text; empty if no model reads it.
    pub(crate) text: String,
    /// Tokens of the text, or of the text that was omitted.
    pub(crate) tokens: u64,
}

/// Maximum number of characters shown of the parts of a message.
#[derive(Debug, Clone, Copy)]
struct RenderLimits {
    words: usize,
    result: usize,
    argument: usize,
}

impl RenderLimits {
    fn halved(times: u32) -> Self {
        let words = if times == 0 { usize::MAX } else { 8_000 >> times };
        Self { words, result: 2_000 >> times, argument: 400 >> times }
    }
}

/// Renders the messages in pieces of at most `most` tokens each.
pub(crate) fn pieces(messages: &[Arc<Message>], most: u64) -> Vec<TranscriptPiece> {
    // Only two thirds of the maximum, because pieces are rarely full.
    let all = most.saturating_mul(MAX_PIECES as u64) / 3 * 2;
    let mut told = render_all(messages, RenderLimits::halved(0), most);
    for times in 1..=MAX_HALVINGS {
        if told.iter().map(|(_, tokens)| tokens).sum::<u64>() <= all {
            break;
        }
        told = render_all(messages, RenderLimits::halved(times), most);
    }
    let mut pieces = pack(told, most);
    if pieces.len() > MAX_PIECES {
        // Omits the text of the middle pieces: the beginning states the subject, the end the current state.
        let middle = 1..pieces.len() - (MAX_PIECES - 1);
        let (first, last) = (pieces[middle.start].messages.start, pieces[middle.end - 1].messages.end);
        let tokens = pieces[middle.clone()].iter().map(|piece| piece.tokens).sum();
        pieces.splice(middle, [TranscriptPiece { messages: first..last, text: String::new(), tokens }]);
    }
    pieces
}

fn render_all(messages: &[Arc<Message>], caps: RenderLimits, most: u64) -> Vec<(String, u64)> {
    let told = messages.iter().map(|message| {
        let text = render_message(message, caps);
        let tokens = estimate(&text);
        if tokens <= most {
            return (text, tokens);
        }
        let text = cut::middle(&text, most);
        let tokens = estimate(&text);
        (text, tokens)
    });
    told.collect()
}

fn pack(told: Vec<(String, u64)>, most: u64) -> Vec<TranscriptPiece> {
    let mut pieces: Vec<TranscriptPiece> = Vec::new();
    for (at, (text, tokens)) in told.into_iter().enumerate() {
        match pieces.last_mut() {
            // The separator of two messages has one token.
            Some(piece) if piece.tokens + tokens < most => {
                if !piece.text.is_empty() && !text.is_empty() {
                    piece.text.push_str("\n\n");
                }
                piece.text.push_str(&text);
                piece.tokens += tokens + 1;
                piece.messages.end = at + 1;
            }
            Some(_) | None => pieces.push(TranscriptPiece { messages: at..at + 1, text, tokens }),
        }
    }
    pieces
}

/// Renders a message; empty if it has no content. Reasoning is omitted, because its result follows.
fn render_message(message: &Message, caps: RenderLimits) -> String {
    let text = match message {
        Message::User(user) => match &user.content {
            Content::Text(text) => marked("[User]: ", &cut::characters(text, caps.words)),
            Content::Blocks(blocks) => marked("[User]: ", &shown(blocks, caps.words)),
        },
        Message::Assistant(said) => render_assistant(said, caps),
        Message::ToolResult(result) => render_result(result, caps),
        Message::Other(_) => String::new(),
    };
    escape_closing_tag(text)
}

fn render_assistant(said: &Assistant, caps: RenderLimits) -> String {
    let words = marked("[Assistant]: ", &shown(&said.content, caps.words));
    let calls: Vec<_> = said
        .tool_calls()
        .map(|call| format!("{}({})", cut::one_line(&call.name, 100), arguments(&call.arguments, caps.argument)))
        .collect();
    let calls = marked("[Assistant tool calls]: ", &calls.join("; "));
    match (words.is_empty(), calls.is_empty()) {
        (false, false) => format!("{words}\n{calls}"),
        (true, _) => calls,
        (false, true) => words,
    }
}

fn render_result(result: &ToolResult, caps: RenderLimits) -> String {
    let mark = if result.is_error { "[Tool result, failed]: " } else { "[Tool result]: " };
    let text = shown(&result.content, caps.result);
    format!("{mark}{}", if text.trim().is_empty() { "(nothing)" } else { &text })
}

fn arguments(arguments: &Value, most: usize) -> String {
    let Value::Object(fields) = arguments else { return cut::one_line(&arguments.to_string(), most) };
    let fields = fields.iter().map(|(name, value)| match value {
        Value::String(text) => format!("{name}={:?}", cut::one_line(text, most)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            format!("{name}={}", cut::one_line(&value.to_string(), most))
        }
    });
    fields.collect::<Vec<_>>().join(", ")
}

fn shown(blocks: &[Block], most: usize) -> String {
    let parts = blocks.iter().filter_map(|block| match block {
        Block::Text(text) => Some(cut::characters(&text.text, most)),
        Block::Image(image) => Some(name_image(image)),
        Block::Thinking(_) | Block::ToolCall(_) | Block::Other(_) => None,
    });
    parts.collect::<Vec<_>>().join("\n")
}

/// Returns the text that replaces an image.
pub(crate) fn name_image(image: &ImageBlock) -> String {
    format!("[image: {}, {} KB]", cut::one_line(&image.mime_type, 40), (image.data.len() * 3 / 4).div_ceil(1024))
}

fn marked(mark: &str, text: &str) -> String {
    if text.trim().is_empty() { String::new() } else { format!("{mark}{text}") }
}

/// Escapes the closing tag of the conversation, so that a message cannot end the quoted part of the request.
fn escape_closing_tag(text: String) -> String {
    if text.contains("</conversation") { text.replace("</conversation", "<\\/conversation") } else { text }
}

#[cfg(test)]
mod tests;
