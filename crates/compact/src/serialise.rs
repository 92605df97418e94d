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
    /// The rendered text; empty if the piece is omitted and no model reads it.
    pub(crate) text: String,
    /// Tokens of the text, or of the text that was omitted.
    pub(crate) tokens: u64,
}

/// Maximum number of characters shown of the parts of a message.
#[derive(Debug, Clone, Copy)]
struct RenderLimits {
    text: usize,
    result: usize,
    argument: usize,
}

impl RenderLimits {
    fn halved(times: u32) -> Self {
        let text = if times == 0 { usize::MAX } else { 8_000 >> times };
        Self { text, result: 2_000 >> times, argument: 400 >> times }
    }
}

/// Renders the messages in pieces of at most `max` tokens each.
pub(crate) fn pieces(messages: &[Arc<Message>], max: u64) -> Vec<TranscriptPiece> {
    // Only two thirds of the maximum, because pieces are rarely full.
    let max_total = max.saturating_mul(MAX_PIECES as u64) / 3 * 2;
    let mut rendered = render_all(messages, RenderLimits::halved(0), max);
    for halvings in 1..=MAX_HALVINGS {
        if rendered.iter().map(|(_, tokens)| tokens).sum::<u64>() <= max_total {
            break;
        }
        rendered = render_all(messages, RenderLimits::halved(halvings), max);
    }
    let mut pieces = pack(rendered, max);
    if pieces.len() > MAX_PIECES {
        // Omits the text of the middle pieces: the beginning states the subject, the end the current state.
        let middle = 1..pieces.len() - (MAX_PIECES - 1);
        let (first, last) = (pieces[middle.start].messages.start, pieces[middle.end - 1].messages.end);
        let tokens = pieces[middle.clone()].iter().map(|piece| piece.tokens).sum();
        pieces.splice(middle, [TranscriptPiece { messages: first..last, text: String::new(), tokens }]);
    }
    pieces
}

fn render_all(messages: &[Arc<Message>], limits: RenderLimits, max: u64) -> Vec<(String, u64)> {
    let rendered = messages.iter().map(|message| {
        let text = render_message(message, limits);
        let tokens = estimate(&text);
        if tokens <= max {
            return (text, tokens);
        }
        let text = cut::middle(&text, max);
        let tokens = estimate(&text);
        (text, tokens)
    });
    rendered.collect()
}

fn pack(rendered: Vec<(String, u64)>, max: u64) -> Vec<TranscriptPiece> {
    let mut pieces: Vec<TranscriptPiece> = Vec::new();
    for (index, (text, tokens)) in rendered.into_iter().enumerate() {
        match pieces.last_mut() {
            // The separator of two messages has one token.
            Some(piece) if piece.tokens + tokens < max => {
                if !piece.text.is_empty() && !text.is_empty() {
                    piece.text.push_str("\n\n");
                }
                piece.text.push_str(&text);
                piece.tokens += tokens + 1;
                piece.messages.end = index + 1;
            }
            Some(_) | None => pieces.push(TranscriptPiece { messages: index..index + 1, text, tokens }),
        }
    }
    pieces
}

/// Renders a message; empty if it has no content. Reasoning is omitted: the text or tool call that it led to follows.
fn render_message(message: &Message, limits: RenderLimits) -> String {
    let text = match message {
        Message::User(user) => match &user.content {
            Content::Text(text) => prefixed("[User]: ", &cut::characters(text, limits.text)),
            Content::Blocks(blocks) => prefixed("[User]: ", &render_blocks(blocks, limits.text)),
        },
        Message::Assistant(assistant) => render_assistant(assistant, limits),
        Message::ToolResult(result) => render_result(result, limits),
        Message::Other(_) => String::new(),
    };
    escape_closing_tag(text)
}

fn render_assistant(assistant: &Assistant, limits: RenderLimits) -> String {
    let text = prefixed("[Assistant]: ", &render_blocks(&assistant.content, limits.text));
    let calls: Vec<_> = assistant
        .tool_calls()
        .map(|call| format!("{}({})", cut::one_line(&call.name, 100), arguments(&call.arguments, limits.argument)))
        .collect();
    let calls = prefixed("[Assistant tool calls]: ", &calls.join("; "));
    match (text.is_empty(), calls.is_empty()) {
        (false, false) => format!("{text}\n{calls}"),
        (true, _) => calls,
        (false, true) => text,
    }
}

fn render_result(result: &ToolResult, limits: RenderLimits) -> String {
    let prefix = if result.is_error { "[Tool result, failed]: " } else { "[Tool result]: " };
    let text = render_blocks(&result.content, limits.result);
    format!("{prefix}{}", if text.trim().is_empty() { "(nothing)" } else { &text })
}

fn arguments(arguments: &Value, max: usize) -> String {
    let Value::Object(fields) = arguments else { return cut::one_line(&arguments.to_string(), max) };
    let fields = fields.iter().map(|(name, value)| match value {
        Value::String(text) => format!("{name}={:?}", cut::one_line(text, max)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            format!("{name}={}", cut::one_line(&value.to_string(), max))
        }
    });
    fields.collect::<Vec<_>>().join(", ")
}

fn render_blocks(blocks: &[Block], max: usize) -> String {
    let parts = blocks.iter().filter_map(|block| match block {
        Block::Text(text) => Some(cut::characters(&text.text, max)),
        Block::Image(image) => Some(name_image(image)),
        Block::Thinking(_) | Block::ToolCall(_) | Block::Other(_) => None,
    });
    parts.collect::<Vec<_>>().join("\n")
}

/// Returns the text that replaces an image.
pub(crate) fn name_image(image: &ImageBlock) -> String {
    format!("[image: {}, {} KB]", cut::one_line(&image.mime_type, 40), (image.data.len() * 3 / 4).div_ceil(1024))
}

fn prefixed(prefix: &str, text: &str) -> String {
    if text.trim().is_empty() { String::new() } else { format!("{prefix}{text}") }
}

/// Escapes the closing tag of the conversation, so that a message cannot end the quoted part of the request.
fn escape_closing_tag(text: String) -> String {
    if text.contains("</conversation") { text.replace("</conversation", "<\\/conversation") } else { text }
}

#[cfg(test)]
mod tests;
