//! Encoder for requests of the Messages API.
//!
//! User and assistant messages alternate, results come first in the user message after calls, and a model's reasoning
//! is sent back exactly as it was received, in its position, or not at all.

use std::borrow::Cow;

use homard_model::{CacheLifetime, ModelSpec, Request};
use homard_proto::message::{self, ImageBlock, ThinkingBlock};
use serde_json::Value;

use super::{
    body::{Block, CacheControl, MarkedBlock, MessageBody, MessagesBody, Role, Source, Tool, ToolChoice},
    think,
};
use crate::{
    ModelTarget,
    ids::{CallIdRule, OwnIds},
    turns::{
        AssistantExchange, CallWithResult, ContentPart, ConversationStep, arguments, conversation_steps, result_parts,
        user_parts,
    },
};

/// Accepted call ids.
const IDS: CallIdRule = CallIdRule { max_length: 64, own: OwnIds::Kept };

/// Accepted image types.
const IMAGE_TYPES: [&str; 4] = ["image/jpeg", "image/png", "image/gif", "image/webp"];

/// Encodes a request body.
pub(crate) fn encode(target: &ModelTarget, request: &Request) -> Result<Vec<u8>, serde_json::Error> {
    let spec = &target.spec;
    let mut messages = lines(spec, request);
    let (max_tokens, thinking) = think::plan(spec, request, !lacks_reasoning(&messages));
    let mut tools: Vec<_> = request.tools.iter().map(Tool::from).collect();
    let (stable, tail) = request.system.split_at_checked(request.stable_bytes).unwrap_or((&request.system, ""));
    let mut system: Vec<_> = [text(stable), text(tail)].into_iter().flatten().map(MarkedBlock::from).collect();
    // Cache markers are set where the prompt changes least: after the tools, the stable part of the system prompt, and
    // the last user message.
    let mark = mark(target, request.cache);
    if let Some(tool) = tools.last_mut() {
        tool.cache_control = mark;
    }
    let last_words =
        messages.last_mut().filter(|line| line.role == Role::User).and_then(|line| line.content.last_mut());
    for part in [system.first_mut(), last_words].into_iter().flatten() {
        part.cache_control = mark;
    }
    let tool_choice = target.forbids_calls(request).then_some(ToolChoice { r#type: "none" });
    let model = &spec.model;
    serde_json::to_vec(&MessagesBody {
        model,
        max_tokens,
        stream: true,
        system,
        tools,
        tool_choice,
        messages,
        thinking,
    })
}

fn mark(target: &ModelTarget, cache: CacheLifetime) -> Option<CacheControl> {
    // Only Anthropic itself supports the long lifetime.
    let is_anthropic = target.base_url.starts_with("https://api.anthropic.com");
    match cache {
        CacheLifetime::Off => None,
        CacheLifetime::Short => Some(CacheControl { r#type: "ephemeral", ttl: None }),
        CacheLifetime::Long => Some(CacheControl { r#type: "ephemeral", ttl: is_anthropic.then_some("1h") }),
    }
}

/// True if calls are open and no answer since the last user message has reasoning.
fn lacks_reasoning(lines: &[MessageBody<'_>]) -> bool {
    let has = |line: &MessageBody<'_>, kind: fn(&Block<'_>) -> bool| line.content.iter().any(|part| kind(&part.block));
    let is_result = |block: &Block<'_>| matches!(block, Block::ToolResult { .. });
    let is_thought = |block: &Block<'_>| matches!(block, Block::Thinking { .. } | Block::RedactedThinking { .. });
    let asked = lines.iter().rposition(|line| line.role == Role::User && !has(line, is_result));
    let since = &lines[asked.map_or(0, |asked| asked + 1)..];
    !since.is_empty() && !since.iter().any(|line| has(line, is_thought))
}

fn lines<'a>(spec: &ModelSpec, request: &'a Request) -> Vec<MessageBody<'a>> {
    let mut lines = Vec::new();
    for turn in conversation_steps(spec, request, IDS) {
        match turn {
            ConversationStep::User(user) => {
                let said = user_parts(user, spec).into_iter().filter_map(show);
                push_message(Role::User, said.map(MarkedBlock::from).collect(), &mut lines);
            }
            ConversationStep::Answer(exchange) => {
                let blocks = exchange.message.content.iter().filter_map(|block| assistant_blocks(block, &exchange));
                push_message(Role::Assistant, blocks.map(MarkedBlock::from).collect(), &mut lines);
                let results = exchange.calls.into_iter().map(|called| answer(spec, called));
                push_message(Role::User, results.map(MarkedBlock::from).collect(), &mut lines);
            }
        }
    }
    lines
}

/// Appends content; merges consecutive messages of one role and skips empty ones.
fn push_message<'a>(role: Role, mut content: Vec<MarkedBlock<'a>>, lines: &mut Vec<MessageBody<'a>>) {
    match lines.last_mut() {
        _ if content.is_empty() => {}
        Some(line) if line.role == role => line.content.append(&mut content),
        _ => lines.push(MessageBody { role, content }),
    }
}

/// Returns a text block; blank texts are rejected by the API.
fn text(text: &str) -> Option<Block<'_>> {
    (!text.trim().is_empty()).then_some(Block::Text { text: Cow::Borrowed(text) })
}

fn show(piece: ContentPart<'_>) -> Option<Block<'_>> {
    match piece {
        ContentPart::Text(words) => text(words),
        ContentPart::Image(image) if IMAGE_TYPES.contains(&image.mime_type.as_str()) => Some(image_block(image)),
        ContentPart::Image(image) => {
            let text = format!("(an image was left out: its type {} is not supported)", image.mime_type);
            Some(Block::Text { text: Cow::Owned(text) })
        }
    }
}

fn image_block(image: &ImageBlock) -> Block<'_> {
    Block::Image { source: Source { r#type: "base64", media_type: &image.mime_type, data: &image.data } }
}

fn assistant_blocks<'a>(block: &'a message::Block, exchange: &AssistantExchange<'a>) -> Option<Block<'a>> {
    match block {
        message::Block::Text(block) => text(&block.text),
        message::Block::Thinking(thought) => thinking(thought).filter(|_| exchange.is_own),
        message::Block::ToolCall(call) => {
            Some(Block::ToolUse { id: exchange.id_of(call), name: &call.name, input: arguments(call) })
        }
        message::Block::Image(_) | message::Block::Other(_) => None,
    }
}

/// Returns a reasoning block; the API accepts it only with its signature.
fn thinking(thought: &ThinkingBlock) -> Option<Block<'_>> {
    let seal = thought.thinking_signature.as_deref().filter(|seal| !seal.is_empty())?;
    let is_redacted = thought.extra.get("redacted").and_then(Value::as_bool).unwrap_or(false);
    Some(match is_redacted {
        true => Block::RedactedThinking { data: seal },
        false => Block::Thinking { thinking: &thought.thinking, signature: seal },
    })
}

fn answer<'a>(spec: &ModelSpec, called: CallWithResult<'a>) -> Block<'a> {
    let CallWithResult { id, result, .. } = called;
    let mut content: Vec<_> = result_parts(result, spec).into_iter().filter_map(show).collect();
    if content.is_empty() {
        content.push(Block::Text { text: Cow::Borrowed("(no output)") });
    }
    // A failed result may contain only text, so one with an image is not marked as failed.
    let has_picture = content.iter().any(|block| matches!(block, Block::Image { .. }));
    let is_error = result.is_none_or(|result| result.is_error) && !has_picture;
    Block::ToolResult { tool_use_id: id, content, is_error }
}
