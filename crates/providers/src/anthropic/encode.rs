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

/// Rule for call ids: at most 64 characters; ids that the model itself created are sent back unchanged.
const IDS: CallIdRule = CallIdRule { max_length: 64, own: OwnIds::Kept };

/// Accepted image types.
const IMAGE_TYPES: [&str; 4] = ["image/jpeg", "image/png", "image/gif", "image/webp"];

/// Encodes a request body.
pub(crate) fn encode(target: &ModelTarget, request: &Request) -> Result<Vec<u8>, serde_json::Error> {
    let spec = &target.spec;
    let mut messages = messages(spec, request);
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
    let last_block =
        messages.last_mut().filter(|message| message.role == Role::User).and_then(|message| message.content.last_mut());
    for part in [system.first_mut(), last_block].into_iter().flatten() {
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

/// True if the request continues an answer after tool calls, and no assistant message since the user's last message has
/// reasoning. Messages with tool results have the role of the user, too, but are not the user's.
fn lacks_reasoning(messages: &[MessageBody<'_>]) -> bool {
    let has_block =
        |message: &MessageBody<'_>, kind: fn(&Block<'_>) -> bool| message.content.iter().any(|part| kind(&part.block));
    let is_result = |block: &Block<'_>| matches!(block, Block::ToolResult { .. });
    let is_reasoning = |block: &Block<'_>| matches!(block, Block::Thinking { .. } | Block::RedactedThinking { .. });
    let last_user = messages.iter().rposition(|message| message.role == Role::User && !has_block(message, is_result));
    let after = &messages[last_user.map_or(0, |last_user| last_user + 1)..];
    !after.is_empty() && !after.iter().any(|message| has_block(message, is_reasoning))
}

fn messages<'a>(spec: &ModelSpec, request: &'a Request) -> Vec<MessageBody<'a>> {
    let mut messages = Vec::new();
    for step in conversation_steps(spec, request, IDS) {
        match step {
            ConversationStep::User(user) => {
                let blocks = user_parts(user, spec).into_iter().filter_map(content_block);
                push_message(Role::User, blocks.map(MarkedBlock::from).collect(), &mut messages);
            }
            ConversationStep::Answer(exchange) => {
                let blocks = exchange.message.content.iter().filter_map(|block| assistant_blocks(block, &exchange));
                push_message(Role::Assistant, blocks.map(MarkedBlock::from).collect(), &mut messages);
                let results = exchange.calls.into_iter().map(|call| tool_result(spec, call));
                push_message(Role::User, results.map(MarkedBlock::from).collect(), &mut messages);
            }
        }
    }
    messages
}

/// Appends content; merges consecutive messages of one role and skips empty ones.
fn push_message<'a>(role: Role, mut content: Vec<MarkedBlock<'a>>, messages: &mut Vec<MessageBody<'a>>) {
    match messages.last_mut() {
        _ if content.is_empty() => {}
        Some(message) if message.role == role => message.content.append(&mut content),
        _ => messages.push(MessageBody { role, content }),
    }
}

/// Returns a text block; blank texts are rejected by the API.
fn text(text: &str) -> Option<Block<'_>> {
    (!text.trim().is_empty()).then_some(Block::Text { text: Cow::Borrowed(text) })
}

fn content_block(part: ContentPart<'_>) -> Option<Block<'_>> {
    match part {
        ContentPart::Text(content) => text(content),
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

/// Converts one block of an assistant message. Reasoning is sent only to the model that wrote it, because its signature
/// is invalid for other models.
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
    let signature = thought.thinking_signature.as_deref().filter(|signature| !signature.is_empty())?;
    let is_redacted = thought.extra.get("redacted").and_then(Value::as_bool).unwrap_or(false);
    Some(match is_redacted {
        true => Block::RedactedThinking { data: signature },
        false => Block::Thinking { thinking: &thought.thinking, signature },
    })
}

fn tool_result<'a>(spec: &ModelSpec, call: CallWithResult<'a>) -> Block<'a> {
    let CallWithResult { id, result, .. } = call;
    let mut content: Vec<_> = result_parts(result, spec).into_iter().filter_map(content_block).collect();
    if content.is_empty() {
        content.push(Block::Text { text: Cow::Borrowed("(no output)") });
    }
    // A failed result may contain only text, so one with an image is not marked as failed.
    let has_image = content.iter().any(|block| matches!(block, Block::Image { .. }));
    let is_error = result.is_none_or(|result| result.is_error) && !has_image;
    Block::ToolResult { tool_use_id: id, content, is_error }
}
