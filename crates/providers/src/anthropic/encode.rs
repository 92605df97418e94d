//! Encoder for requests of the Messages API.
//!
//! User and assistant messages alternate, results come first in the user message after calls, and a model's reasoning
//! is sent back exactly as it was received, in its position, or not at all.

use std::borrow::Cow;

use homard_model::{Cache, Request, Spec};
use homard_proto::message::{self, ImageBlock, ThinkingBlock};
use serde_json::Value;

use super::{
    body::{Block, Body, CacheControl, Line, Part, Role, Source, Tool, ToolChoice},
    think,
};
use crate::{
    Target,
    ids::{Own, Rule},
    turns::{Called, Exchange, Shown, Turn, answered, arguments, shown_by, turns},
};

/// Accepted call ids.
const IDS: Rule = Rule { longest: 64, own: Own::Kept };

/// Accepted image types.
const PICTURES: [&str; 4] = ["image/jpeg", "image/png", "image/gif", "image/webp"];

/// Encodes a request body.
pub(crate) fn encode(target: &Target, request: &Request) -> Result<Vec<u8>, serde_json::Error> {
    let spec = &target.spec;
    let mut messages = lines(spec, request);
    let (max_tokens, thinking) = think::plan(spec, request, !is_thoughtless(&messages));
    let mut tools: Vec<_> = request.tools.iter().map(Tool::from).collect();
    let (stable, tail) = request.system.split_at_checked(request.stable).unwrap_or((&request.system, ""));
    let mut system: Vec<_> = [text(stable), text(tail)].into_iter().flatten().map(Part::from).collect();
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
    serde_json::to_vec(&Body { model, max_tokens, stream: true, system, tools, tool_choice, messages, thinking })
}

fn mark(target: &Target, cache: Cache) -> Option<CacheControl> {
    // Only Anthropic itself supports the long lifetime.
    let is_anthropic = target.base_url.starts_with("https://api.anthropic.com");
    match cache {
        Cache::Off => None,
        Cache::Short => Some(CacheControl { r#type: "ephemeral", ttl: None }),
        Cache::Long => Some(CacheControl { r#type: "ephemeral", ttl: is_anthropic.then_some("1h") }),
    }
}

/// True if calls are open and no answer since the last user message has reasoning.
fn is_thoughtless(lines: &[Line<'_>]) -> bool {
    let has = |line: &Line<'_>, kind: fn(&Block<'_>) -> bool| line.content.iter().any(|part| kind(&part.block));
    let is_result = |block: &Block<'_>| matches!(block, Block::ToolResult { .. });
    let is_thought = |block: &Block<'_>| matches!(block, Block::Thinking { .. } | Block::RedactedThinking { .. });
    let asked = lines.iter().rposition(|line| line.role == Role::User && !has(line, is_result));
    let since = &lines[asked.map_or(0, |asked| asked + 1)..];
    !since.is_empty() && !since.iter().any(|line| has(line, is_thought))
}

fn lines<'a>(spec: &Spec, request: &'a Request) -> Vec<Line<'a>> {
    let mut lines = Vec::new();
    for turn in turns(spec, request, IDS) {
        match turn {
            Turn::User(user) => {
                let said = shown_by(user, spec).into_iter().filter_map(show);
                say(Role::User, said.map(Part::from).collect(), &mut lines);
            }
            Turn::Answer(exchange) => {
                let blocks = exchange.said.content.iter().filter_map(|block| spoken(block, &exchange));
                say(Role::Assistant, blocks.map(Part::from).collect(), &mut lines);
                let results = exchange.calls.into_iter().map(|called| answer(spec, called));
                say(Role::User, results.map(Part::from).collect(), &mut lines);
            }
        }
    }
    lines
}

/// Appends content; merges consecutive messages of one role and skips empty ones.
fn say<'a>(role: Role, mut content: Vec<Part<'a>>, lines: &mut Vec<Line<'a>>) {
    match lines.last_mut() {
        _ if content.is_empty() => {}
        Some(line) if line.role == role => line.content.append(&mut content),
        _ => lines.push(Line { role, content }),
    }
}

/// Returns a text block; blank texts are rejected by the API.
fn text(text: &str) -> Option<Block<'_>> {
    (!text.trim().is_empty()).then_some(Block::Text { text: Cow::Borrowed(text) })
}

fn show(piece: Shown<'_>) -> Option<Block<'_>> {
    match piece {
        Shown::Text(words) => text(words),
        Shown::Image(image) if PICTURES.contains(&image.mime_type.as_str()) => Some(picture(image)),
        Shown::Image(image) => {
            let text = format!("(an image was left out: its type {} is not taken)", image.mime_type);
            Some(Block::Text { text: Cow::Owned(text) })
        }
    }
}

fn picture(image: &ImageBlock) -> Block<'_> {
    Block::Image { source: Source { r#type: "base64", media_type: &image.mime_type, data: &image.data } }
}

fn spoken<'a>(block: &'a message::Block, exchange: &Exchange<'a>) -> Option<Block<'a>> {
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

fn answer<'a>(spec: &Spec, called: Called<'a>) -> Block<'a> {
    let Called { id, result, .. } = called;
    let mut content: Vec<_> = answered(result, spec).into_iter().filter_map(show).collect();
    if content.is_empty() {
        content.push(Block::Text { text: Cow::Borrowed("(no output)") });
    }
    // A failed result may contain only text, so one with an image is not marked as failed.
    let has_picture = content.iter().any(|block| matches!(block, Block::Image { .. }));
    let is_error = result.is_none_or(|result| result.is_error) && !has_picture;
    Block::ToolResult { tool_use_id: id, content, is_error }
}
