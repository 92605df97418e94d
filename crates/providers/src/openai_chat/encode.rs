//! Encoder for requests of the Chat Completions API.

use homard_model::{CacheLifetime, ReasoningLevel, Request};
use homard_proto::message::{Block, ThinkingBlock};
use serde_json::{Map, Value, json};

use super::body::{
    ChatCompletionsBody, ChatMessage, InputPart, Invocation, StreamOptions, ToolCallBody, Words, function, tool,
};
use crate::{
    ModelTarget, Quirks,
    ids::{CallIdRule, OwnIds},
    quirks::{EffortFormat, LimitField},
    turns::{
        AssistantExchange, CallWithResult, ContentPart, ConversationStep, arguments, conversation_steps, data_url,
        result_parts, user_parts,
    },
};

/// Fields in which servers send reasoning and accept it back. The decoder stores the one used as the signature.
const REASONING: [&str; 3] = ["reasoning_content", "reasoning", "reasoning_text"];

/// Accepted call ids: OpenAI allows forty characters.
const IDS: CallIdRule = CallIdRule { max_length: 40, own: OwnIds::Kept };

/// Encodes a request body.
pub(crate) fn encode(target: &ModelTarget, request: &Request) -> Result<Vec<u8>, serde_json::Error> {
    let ModelTarget { spec, quirks, .. } = target;
    let limit = request.max_output.or((spec.max_output > 0).then_some(spec.max_output));
    let (max_tokens, max_completion_tokens) = match quirks.limit {
        LimitField::MaxTokens => (limit, None),
        LimitField::MaxCompletionTokens => (None, limit),
    };
    let is_cached = quirks.cache_key && request.cache != CacheLifetime::Off;
    serde_json::to_vec(&ChatCompletionsBody {
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
        prompt_cache_retention: (is_cached && request.cache == CacheLifetime::Long).then_some("24h"),
        effort: effort(quirks, request.thinking.clamp(&spec.thinking)),
    })
}

/// Returns the reasoning parameters; empty if there are none.
fn effort(quirks: &Quirks, level: ReasoningLevel) -> Map<String, Value> {
    let asked = match (quirks.effort, level) {
        (EffortFormat::Uncontrolled, _) | (_, ReasoningLevel::Off) => Value::Null,
        (EffortFormat::Plain, level) => json!({"reasoning_effort": level.as_str()}),
        (EffortFormat::Nested, level) => json!({"reasoning": {"effort": level.as_str()}}),
        (EffortFormat::Switch, _) => json!({"thinking": {"type": "enabled"}}),
        (EffortFormat::Template, _) => json!({"chat_template_kwargs": {"enable_thinking": true}}),
    };
    match asked {
        Value::Object(fields) => fields,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Map::new(),
    }
}

fn lines<'a>(target: &ModelTarget, request: &'a Request) -> Vec<ChatMessage<'a>> {
    let ModelTarget { spec, quirks, .. } = target;
    let mut lines = Vec::with_capacity(request.messages.len() + 1);
    if !request.system.is_empty() {
        let is_developer = quirks.developer_role && !spec.thinking.is_empty();
        let content = Words::Plain(request.system.to_string());
        lines.push(if is_developer { ChatMessage::Developer { content } } else { ChatMessage::System { content } });
    }
    for turn in conversation_steps(spec, request, IDS) {
        match turn {
            ConversationStep::User(user) => {
                if let Some(content) = user_content(user_parts(user, spec)) {
                    push_user(quirks, content, &mut lines);
                }
            }
            ConversationStep::Answer(answer) => exchange(target, answer, &mut lines),
        }
    }
    // Only Anthropic's models behind a router need cache markers; the others cache automatically.
    if quirks.cache_marks && spec.model.starts_with("anthropic/") && request.cache != CacheLifetime::Off {
        mark_cache(&mut lines);
    }
    lines
}

/// Appends a user message. If none may directly follow a tool result, an assistant message is inserted between them.
fn push_user(quirks: &Quirks, content: Words, lines: &mut Vec<ChatMessage<'_>>) {
    if quirks.strict_results && matches!(lines.last(), Some(ChatMessage::Tool { .. })) {
        let content = Some("I have read the results.".to_owned());
        lines.push(ChatMessage::Assistant { content, tool_calls: Vec::new(), reasoning: Map::new() });
    }
    lines.push(ChatMessage::User { content });
}

/// Marks the system prompt and the last user message as ends of cached prefixes.
fn mark_cache(lines: &mut [ChatMessage<'_>]) {
    let last_user = lines.iter().rposition(|line| matches!(line, ChatMessage::User { .. }));
    for (at, line) in lines.iter_mut().enumerate() {
        match line {
            ChatMessage::System { content } => content.spread().mark(),
            ChatMessage::User { content } if Some(at) == last_user => content.spread().mark(),
            // No longer marked, but in the same form as when it was.
            ChatMessage::User { content } => {
                content.spread();
            }
            ChatMessage::Developer { .. } | ChatMessage::Assistant { .. } | ChatMessage::Tool { .. } => {}
        }
    }
}

/// Returns the content of a user message, as one string if it is only text; `None` if it is empty.
fn user_content(pieces: Vec<ContentPart<'_>>) -> Option<Words> {
    let is_plain = pieces.iter().all(|piece| matches!(piece, ContentPart::Text(_)));
    match pieces.is_empty() {
        true => None,
        false if is_plain => Some(Words::Plain(pieces.iter().map(ContentPart::text).collect())),
        false => Some(Words::Parts(pieces.into_iter().map(part).collect())),
    }
}

fn part(piece: ContentPart<'_>) -> InputPart {
    match piece {
        ContentPart::Text(text) => InputPart::text(text),
        ContentPart::Image(image) => InputPart::image(data_url(image)),
    }
}

/// Appends an assistant message and the results of its calls.
fn exchange<'a>(target: &ModelTarget, answer: AssistantExchange<'a>, lines: &mut Vec<ChatMessage<'a>>) {
    let text = answer.message.text();
    let content = (!text.is_empty()).then_some(text);
    let call = |CallWithResult { call, id, .. }: &CallWithResult<'a>| {
        ToolCallBody::new(id.clone(), function(Invocation { name: &call.name, arguments: arguments(call).to_string() }))
    };
    let tool_calls: Vec<_> = answer.calls.iter().map(call).collect();
    if content.is_none() && tool_calls.is_empty() {
        return;
    }
    let replays = answer.is_own && target.quirks.replays_reasoning;
    let reasoning = if replays { reasoning(&answer) } else { Map::new() };
    lines.push(ChatMessage::Assistant { content, tool_calls, reasoning });

    let mut pictures = Vec::new();
    for CallWithResult { call, id, result } in answer.calls {
        let (images, pieces): (Vec<_>, Vec<_>) =
            result_parts(result, &target.spec).into_iter().partition(|piece| piece.image().is_some());
        let words: String = pieces.iter().map(ContentPart::text).collect();
        let content = if words.is_empty() { "(an image, see below)".to_owned() } else { words };
        pictures.extend(images);
        let name = target.quirks.strict_results.then_some(call.name.as_str());
        lines.push(ChatMessage::Tool { tool_call_id: id, name, content });
    }
    // A tool message may contain only text, so its images follow as if the user had sent them.
    if !pictures.is_empty() {
        let mut parts = vec![InputPart::text("Images from the tool results above:")];
        parts.extend(pictures.into_iter().map(part));
        push_user(&target.quirks, Words::Parts(parts), lines);
    }
}

/// Returns a model's own reasoning in the fields in which it was received.
fn reasoning(answer: &AssistantExchange<'_>) -> Map<String, Value> {
    let mut fields = Map::new();
    for field in REASONING {
        let is_here = |thought: &&ThinkingBlock| thought.thinking_signature.as_deref() == Some(field);
        let thoughts: Vec<_> = own_reasoning(answer).filter(is_here).map(|thought| thought.thinking.as_str()).collect();
        if !thoughts.is_empty() {
            fields.insert(field.to_owned(), thoughts.join("\n").into());
        }
    }
    let seals = answer.message.tool_calls().filter_map(|call| call.extra.get("thoughtSignature")?.as_str());
    let details: Vec<Value> =
        seals.filter_map(|seal| serde_json::from_str(seal).ok()).filter(Value::is_object).collect();
    if !details.is_empty() {
        fields.insert("reasoning_details".to_owned(), details.into());
    }
    fields
}

fn own_reasoning<'a>(answer: &AssistantExchange<'a>) -> impl Iterator<Item = &'a ThinkingBlock> {
    answer.message.content.iter().filter_map(|block| match block {
        Block::Thinking(thought) => Some(thought),
        Block::Text(_) | Block::Image(_) | Block::ToolCall(_) | Block::Other(_) => None,
    })
}
