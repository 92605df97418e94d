//! Encoder for requests of the Chat Completions API.

use homard_model::{Cache, Level, Request};
use homard_proto::message::{Block, ThinkingBlock};
use serde_json::{Map, Value, json};

use super::body::{Body, Call, Invocation, Line, Part, StreamOptions, Words, function, tool};
use crate::{
    Quirks, Target,
    ids::{Own, Rule},
    quirks::{Effort, Limit},
    turns::{Called, Exchange, Shown, Turn, answered, arguments, data_url, shown_by, turns},
};

/// Fields in which servers send reasoning and accept it back. The decoder stores the one used as the signature.
const REASONING: [&str; 3] = ["reasoning_content", "reasoning", "reasoning_text"];

/// Accepted call ids: OpenAI allows forty characters.
const IDS: Rule = Rule { longest: 40, own: Own::Kept };

/// Encodes a request body.
pub(crate) fn encode(target: &Target, request: &Request) -> Result<Vec<u8>, serde_json::Error> {
    let Target { spec, quirks, .. } = target;
    let limit = request.max_output.or((spec.max_output > 0).then_some(spec.max_output));
    let (max_tokens, max_completion_tokens) = match quirks.limit {
        Limit::MaxTokens => (limit, None),
        Limit::MaxCompletionTokens => (None, limit),
    };
    let is_cached = quirks.cache_key && request.cache != Cache::Off;
    serde_json::to_vec(&Body {
        model: &spec.model,
        messages: lines(target, request),
        tools: request.tools.iter().map(tool).collect(),
        tool_choice: target.forbids_calls(request).then_some("none"),
        stream: true,
        stream_options: quirks.asks_for_usage.then_some(StreamOptions { include_usage: true }),
        store: quirks.store.then_some(false),
        max_tokens,
        max_completion_tokens,
        prompt_cache_key: request.session.as_deref().filter(|_| is_cached),
        prompt_cache_retention: (is_cached && request.cache == Cache::Long).then_some("24h"),
        effort: effort(quirks, request.thinking.clamp(&spec.thinking)),
    })
}

/// Returns the reasoning parameters; empty if there are none.
fn effort(quirks: &Quirks, level: Level) -> Map<String, Value> {
    let asked = match (quirks.effort, level) {
        (Effort::Unasked, _) | (_, Level::Off) => Value::Null,
        (Effort::Plain, level) => json!({"reasoning_effort": level.as_str()}),
        (Effort::Nested, level) => json!({"reasoning": {"effort": level.as_str()}}),
        (Effort::Switch, _) => json!({"thinking": {"type": "enabled"}}),
        (Effort::Template, _) => json!({"chat_template_kwargs": {"enable_thinking": true}}),
    };
    match asked {
        Value::Object(fields) => fields,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Map::new(),
    }
}

fn lines<'a>(target: &Target, request: &'a Request) -> Vec<Line<'a>> {
    let Target { spec, quirks, .. } = target;
    let mut lines = Vec::with_capacity(request.messages.len() + 1);
    if !request.system.is_empty() {
        let is_developer = quirks.developer_role && !spec.thinking.is_empty();
        let content = Words::Plain(request.system.to_string());
        lines.push(if is_developer { Line::Developer { content } } else { Line::System { content } });
    }
    for turn in turns(spec, request, IDS) {
        match turn {
            Turn::User(user) => {
                if let Some(content) = words(shown_by(user, spec)) {
                    say(quirks, content, &mut lines);
                }
            }
            Turn::Answer(answer) => exchange(target, answer, &mut lines),
        }
    }
    // Only Anthropic's models behind a router need cache markers; the others cache automatically.
    if quirks.cache_marks && spec.model.starts_with("anthropic/") && request.cache != Cache::Off {
        mark(&mut lines);
    }
    lines
}

/// Appends a user message. If none may directly follow a tool result, an assistant message is inserted between them.
fn say(quirks: &Quirks, content: Words, lines: &mut Vec<Line<'_>>) {
    if quirks.strict_results && matches!(lines.last(), Some(Line::Tool { .. })) {
        let content = Some("I have read the results.".to_owned());
        lines.push(Line::Assistant { content, tool_calls: Vec::new(), reasoning: Map::new() });
    }
    lines.push(Line::User { content });
}

/// Marks the system prompt and the last user message as ends of cached prefixes.
fn mark(lines: &mut [Line<'_>]) {
    let last_user = lines.iter().rposition(|line| matches!(line, Line::User { .. }));
    for (at, line) in lines.iter_mut().enumerate() {
        match line {
            Line::System { content } => content.spread().mark(),
            Line::User { content } if Some(at) == last_user => content.spread().mark(),
            // No longer marked, but in the same form as when it was.
            Line::User { content } => {
                content.spread();
            }
            Line::Developer { .. } | Line::Assistant { .. } | Line::Tool { .. } => {}
        }
    }
}

/// Returns the content of a user message, as one string if it is only text; `None` if it is empty.
fn words(pieces: Vec<Shown<'_>>) -> Option<Words> {
    let is_plain = pieces.iter().all(|piece| matches!(piece, Shown::Text(_)));
    match pieces.is_empty() {
        true => None,
        false if is_plain => Some(Words::Plain(pieces.iter().map(Shown::text).collect())),
        false => Some(Words::Parts(pieces.into_iter().map(part).collect())),
    }
}

fn part(piece: Shown<'_>) -> Part {
    match piece {
        Shown::Text(text) => Part::text(text),
        Shown::Image(image) => Part::image(data_url(image)),
    }
}

/// Appends an assistant message and the results of its calls.
fn exchange<'a>(target: &Target, answer: Exchange<'a>, lines: &mut Vec<Line<'a>>) {
    let text = answer.said.text();
    let content = (!text.is_empty()).then_some(text);
    let call = |Called { call, id, .. }: &Called<'a>| {
        Call::new(id.clone(), function(Invocation { name: &call.name, arguments: arguments(call).to_string() }))
    };
    let tool_calls: Vec<_> = answer.calls.iter().map(call).collect();
    if content.is_none() && tool_calls.is_empty() {
        return;
    }
    let replays = answer.is_own && target.quirks.replays_reasoning;
    let reasoning = if replays { reasoning(&answer) } else { Map::new() };
    lines.push(Line::Assistant { content, tool_calls, reasoning });

    let mut pictures = Vec::new();
    for Called { call, id, result } in answer.calls {
        let (images, pieces): (Vec<_>, Vec<_>) =
            answered(result, &target.spec).into_iter().partition(|piece| piece.image().is_some());
        let words: String = pieces.iter().map(Shown::text).collect();
        let content = if words.is_empty() { "(an image, see below)".to_owned() } else { words };
        pictures.extend(images);
        let name = target.quirks.strict_results.then_some(call.name.as_str());
        lines.push(Line::Tool { tool_call_id: id, name, content });
    }
    // A tool message may contain only text, so its images follow as if the user had sent them.
    if !pictures.is_empty() {
        let mut parts = vec![Part::text("Images from the tool results above:")];
        parts.extend(pictures.into_iter().map(part));
        say(&target.quirks, Words::Parts(parts), lines);
    }
}

/// Returns a model's own reasoning in the fields in which it was received.
fn reasoning(answer: &Exchange<'_>) -> Map<String, Value> {
    let mut fields = Map::new();
    for field in REASONING {
        let is_here = |thought: &&ThinkingBlock| thought.thinking_signature.as_deref() == Some(field);
        let thoughts: Vec<_> = thoughts(answer).filter(is_here).map(|thought| thought.thinking.as_str()).collect();
        if !thoughts.is_empty() {
            fields.insert(field.to_owned(), thoughts.join("\n").into());
        }
    }
    let seals = answer.said.tool_calls().filter_map(|call| call.extra.get("thoughtSignature")?.as_str());
    let details: Vec<Value> =
        seals.filter_map(|seal| serde_json::from_str(seal).ok()).filter(Value::is_object).collect();
    if !details.is_empty() {
        fields.insert("reasoning_details".to_owned(), details.into());
    }
    fields
}

fn thoughts<'a>(answer: &Exchange<'a>) -> impl Iterator<Item = &'a ThinkingBlock> {
    answer.said.content.iter().filter_map(|block| match block {
        Block::Thinking(thought) => Some(thought),
        Block::Text(_) | Block::Image(_) | Block::ToolCall(_) | Block::Other(_) => None,
    })
}
