//! Encoder for requests of the Chat Completions API.

use homard_model::{CacheLifetime, ReasoningLevel, Request};
use homard_proto::message::{Block, ThinkingBlock};
use serde_json::{Map, Value, json};

use super::body::{
    ChatCompletionsBody, ChatMessage, InputPart, Invocation, MessageContent, StreamOptions, ToolCallBody, function,
    tool,
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
        messages: messages(target, request),
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
    let parameters = match (quirks.effort, level) {
        (EffortFormat::Uncontrolled, _) | (_, ReasoningLevel::Off) => Value::Null,
        (EffortFormat::Plain, level) => json!({"reasoning_effort": level.as_str()}),
        (EffortFormat::Nested, level) => json!({"reasoning": {"effort": level.as_str()}}),
        (EffortFormat::Switch, _) => json!({"thinking": {"type": "enabled"}}),
        (EffortFormat::Template, _) => json!({"chat_template_kwargs": {"enable_thinking": true}}),
    };
    match parameters {
        Value::Object(fields) => fields,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Map::new(),
    }
}

fn messages<'a>(target: &ModelTarget, request: &'a Request) -> Vec<ChatMessage<'a>> {
    let ModelTarget { spec, quirks, .. } = target;
    let mut messages = Vec::with_capacity(request.messages.len() + 1);
    if !request.system.is_empty() {
        let is_developer = quirks.developer_role && !spec.thinking.is_empty();
        let content = MessageContent::Plain(request.system.to_string());
        messages.push(if is_developer { ChatMessage::Developer { content } } else { ChatMessage::System { content } });
    }
    for step in conversation_steps(spec, request, IDS) {
        match step {
            ConversationStep::User(user) => {
                if let Some(content) = user_content(user_parts(user, spec)) {
                    push_user(quirks, content, &mut messages);
                }
            }
            ConversationStep::Answer(answer) => exchange(target, answer, &mut messages),
        }
    }
    // Only Anthropic's models behind a router need cache markers; the others cache automatically.
    if quirks.cache_marks && spec.model.starts_with("anthropic/") && request.cache != CacheLifetime::Off {
        mark_cache(&mut messages);
    }
    messages
}

/// Appends a user message. If none may directly follow a tool result, an assistant message is inserted between them.
fn push_user(quirks: &Quirks, content: MessageContent, messages: &mut Vec<ChatMessage<'_>>) {
    if quirks.strict_results && matches!(messages.last(), Some(ChatMessage::Tool { .. })) {
        let content = Some("I have read the results.".to_owned());
        messages.push(ChatMessage::Assistant { content, tool_calls: Vec::new(), reasoning: Map::new() });
    }
    messages.push(ChatMessage::User { content });
}

/// Marks the system prompt and the last user message as ends of cached prefixes.
fn mark_cache(messages: &mut [ChatMessage<'_>]) {
    let last_user = messages.iter().rposition(|message| matches!(message, ChatMessage::User { .. }));
    for (at, message) in messages.iter_mut().enumerate() {
        match message {
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
fn user_content(pieces: Vec<ContentPart<'_>>) -> Option<MessageContent> {
    let is_plain = pieces.iter().all(|piece| matches!(piece, ContentPart::Text(_)));
    match pieces.is_empty() {
        true => None,
        false if is_plain => Some(MessageContent::Plain(pieces.iter().map(ContentPart::text).collect())),
        false => Some(MessageContent::Parts(pieces.into_iter().map(part).collect())),
    }
}

fn part(piece: ContentPart<'_>) -> InputPart {
    match piece {
        ContentPart::Text(text) => InputPart::text(text),
        ContentPart::Image(image) => InputPart::image(data_url(image)),
    }
}

/// Appends an assistant message and the results of its calls.
fn exchange<'a>(target: &ModelTarget, answer: AssistantExchange<'a>, messages: &mut Vec<ChatMessage<'a>>) {
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
    messages.push(ChatMessage::Assistant { content, tool_calls, reasoning });

    let mut all_images = Vec::new();
    for CallWithResult { call, id, result } in answer.calls {
        let (images, pieces): (Vec<_>, Vec<_>) =
            result_parts(result, &target.spec).into_iter().partition(|piece| piece.image().is_some());
        let output: String = pieces.iter().map(ContentPart::text).collect();
        let content = if output.is_empty() { "(an image, see below)".to_owned() } else { output };
        all_images.extend(images);
        let name = target.quirks.strict_results.then_some(call.name.as_str());
        messages.push(ChatMessage::Tool { tool_call_id: id, name, content });
    }
    // A tool message may contain only text, so its images follow as if the user had sent them.
    if !all_images.is_empty() {
        let mut parts = vec![InputPart::text("Images from the tool results above:")];
        parts.extend(all_images.into_iter().map(part));
        push_user(&target.quirks, MessageContent::Parts(parts), messages);
    }
}

/// Returns a model's own reasoning in the fields in which it was received.
fn reasoning(answer: &AssistantExchange<'_>) -> Map<String, Value> {
    let mut fields = Map::new();
    for field in REASONING {
        let is_in_field = |thought: &&ThinkingBlock| thought.thinking_signature.as_deref() == Some(field);
        let texts: Vec<_> =
            own_reasoning(answer).filter(is_in_field).map(|thought| thought.thinking.as_str()).collect();
        if !texts.is_empty() {
            fields.insert(field.to_owned(), texts.join("\n").into());
        }
    }
    let signatures = answer.message.tool_calls().filter_map(|call| call.extra.get("thoughtSignature")?.as_str());
    let details: Vec<Value> =
        signatures.filter_map(|signature| serde_json::from_str(signature).ok()).filter(Value::is_object).collect();
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
