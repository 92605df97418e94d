//! Encoder for requests of the Responses API.
//!
//! The provider stores nothing (`store: false`), so every request contains its complete output: encrypted reasoning in
//! its position, and messages and calls with the ids that it assigned.

use homard_model::{CacheLifetime, ModelSpec, ReasoningLevel, Request};
use homard_proto::message::{Block, TextBlock, ThinkingBlock, ToolCall};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::body::{InputPart, Item, MessageContent, MessageIdentity, Reasoning, ResponsesBody, tool};
use crate::{
    ModelTarget,
    ids::{self, CallIdRule, OwnIds},
    quirks::EffortFormat,
    turns::{
        AssistantExchange, CallWithResult, ContentPart, ConversationStep, arguments, conversation_steps, data_url,
        result_parts, user_parts,
    },
};

/// Maximum length of an id.
const MAX_ID_LENGTH: usize = 64;
/// Constraints on call ids. Transcripts store `call_id|item_id`; only the part before the bar is sent as `call_id`.
const IDS: CallIdRule = CallIdRule { max_length: MAX_ID_LENGTH, own: OwnIds::BeforeBar };
/// Minimum value of the output limit.
const MIN_OUTPUT: u64 = 16;

/// Encodes a request body.
pub(crate) fn encode(target: &ModelTarget, request: &Request) -> Result<Vec<u8>, serde_json::Error> {
    let ModelTarget { spec, quirks, .. } = target;
    let limit = request.max_output.or((spec.max_output > 0).then_some(spec.max_output));
    let is_cached = quirks.cache_key && request.cache != CacheLifetime::Off;
    // A model without reasoning rejects this option.
    let include: &[_] = if spec.thinking.is_empty() { &[] } else { &["reasoning.encrypted_content"] };
    serde_json::to_vec(&ResponsesBody {
        model: &spec.model,
        instructions: &request.system,
        tools: request.tools.iter().map(tool).collect(),
        tool_choice: target.forbids_calls(request).then_some("none"),
        parallel_tool_calls: (!request.tools.is_empty()).then_some(true),
        stream: true,
        store: false,
        max_output_tokens: limit.map(|limit| limit.max(MIN_OUTPUT)),
        reasoning: reasoning(target, request.thinking),
        include,
        prompt_cache_key: request
            .session
            .as_deref()
            .filter(|_| is_cached)
            .map(|id| ids::unless_too_long(id, MAX_ID_LENGTH)),
        prompt_cache_retention: (is_cached && request.cache == CacheLifetime::Long).then_some("24h"),
        input: input(spec, request),
    })
}

/// Returns the reasoning parameters. The default would be `medium`, so a model that cannot turn reasoning off gets its
/// lowest level.
fn reasoning(target: &ModelTarget, level: ReasoningLevel) -> Option<Reasoning> {
    let levels = &target.spec.thinking;
    if target.quirks.effort == EffortFormat::Uncontrolled {
        return None;
    }
    Some(match level.clamp(levels) {
        ReasoningLevel::Off if levels.contains(&ReasoningLevel::Off) => Reasoning { effort: "none", summary: None },
        ReasoningLevel::Off => Reasoning { effort: levels.iter().min()?.as_str(), summary: None },
        level @ (ReasoningLevel::Minimal
        | ReasoningLevel::Low
        | ReasoningLevel::Medium
        | ReasoningLevel::High
        | ReasoningLevel::Xhigh) => Reasoning { effort: level.as_str(), summary: Some("auto") },
    })
}

fn input<'a>(spec: &ModelSpec, request: &'a Request) -> Vec<Item<'a>> {
    let mut items = Vec::with_capacity(request.messages.len());
    for step in conversation_steps(spec, request, IDS) {
        match step {
            ConversationStep::User(user) => {
                let parts: Vec<_> = user_parts(user, spec).into_iter().map(part).collect();
                if !parts.is_empty() {
                    items.push(Item::Message {
                        role: "user",
                        content: MessageContent::Parts(parts),
                        identity: MessageIdentity::default(),
                    });
                }
            }
            ConversationStep::Answer(answer) => exchange(spec, answer, &mut items),
        }
    }
    items
}

fn part(piece: ContentPart<'_>) -> InputPart<'_> {
    match piece {
        ContentPart::Text(text) => InputPart::InputText { text },
        ContentPart::Image(image) => InputPart::InputImage { detail: "auto", image_url: data_url(image) },
    }
}

/// Whether the item ids that the provider assigned to an answer are sent back.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ItemIdPolicy {
    /// Omitted: another model wrote the answer.
    Foreign,
    /// Omitted: the items depend on reasoning items that can no longer be sent.
    Lost,
    /// Sent unchanged.
    Kept,
}

/// Appends an assistant message and the results of its calls.
fn exchange<'a>(spec: &ModelSpec, answer: AssistantExchange<'a>, items: &mut Vec<Item<'a>>) {
    let AssistantExchange { message: assistant, is_own, .. } = answer;
    let has_all_reasoning = assistant.content.iter().all(|block| match block {
        Block::Thinking(thought) => reasoning_item(thought).is_some(),
        Block::Text(_) | Block::Image(_) | Block::ToolCall(_) | Block::Other(_) => true,
    });
    let ids = match (is_own, has_all_reasoning) {
        (false, _) => ItemIdPolicy::Foreign,
        (true, false) => ItemIdPolicy::Lost,
        (true, true) => ItemIdPolicy::Kept,
    };
    let start = items.len();
    for block in &assistant.content {
        match block {
            Block::Thinking(thought) if is_own => items.extend(reasoning_item(thought).map(Item::Reasoning)),
            Block::Text(text) if !text.text.is_empty() => items.push(message(text, ids)),
            Block::ToolCall(call) => items.push(Item::FunctionCall {
                id: item_id(call).filter(|_| ids == ItemIdPolicy::Kept),
                call_id: answer.id_of(call),
                name: &call.name,
                arguments: arguments(call).to_string(),
            }),
            Block::Thinking(_) | Block::Text(_) | Block::Image(_) | Block::Other(_) => {}
        }
    }
    // Trailing reasoning without output, from a truncated answer, is rejected.
    while items.len() > start && matches!(items.last(), Some(Item::Reasoning(_))) {
        items.pop();
    }
    for CallWithResult { id, result, .. } in answer.calls {
        items.push(Item::FunctionCallOutput { call_id: id, output: output(result_parts(result, spec)) });
    }
}

/// Returns the content of a tool result, as one string if it is only text.
fn output(pieces: Vec<ContentPart<'_>>) -> MessageContent<'_> {
    if pieces.iter().all(|piece| piece.image().is_none()) {
        return MessageContent::Plain(pieces.iter().map(ContentPart::text).collect());
    }
    MessageContent::Parts(pieces.into_iter().map(part).collect())
}

/// Returns the reasoning item stored in a signature, if it can be sent back: without content it would be looked up by
/// its id, and the provider has not stored it.
fn reasoning_item(thought: &ThinkingBlock) -> Option<Map<String, Value>> {
    let mut item: Map<String, Value> = serde_json::from_str(thought.thinking_signature.as_deref()?).ok()?;
    item.retain(|_, value| !value.is_null());
    let is_encrypted = item.get("encrypted_content").and_then(Value::as_str).is_some_and(|text| !text.is_empty());
    if is_encrypted {
        // The API rejects items with both.
        item.remove("content");
    }
    let is_open = item.get("content").and_then(Value::as_array).is_some_and(|parts| !parts.is_empty());
    let is_reasoning = item.get("type").and_then(Value::as_str) == Some("reasoning");
    item.remove("status");
    item.entry("summary").or_insert_with(|| Value::Array(Vec::new()));
    (is_reasoning && (is_encrypted || is_open)).then_some(item)
}

fn message(block: &TextBlock, ids: ItemIdPolicy) -> Item<'_> {
    let text = block.text.as_str();
    let signature = block.extra.get("textSignature").and_then(Value::as_str);
    let identity = match ids {
        ItemIdPolicy::Foreign => MessageIdentity::default(),
        ItemIdPolicy::Lost => MessageIdentity { id: None, status: None, ..signature.map(identity).unwrap_or_default() },
        ItemIdPolicy::Kept => signature.map(identity).unwrap_or_default(),
    };
    let content = match identity.id {
        Some(_) => MessageContent::Parts(vec![InputPart::OutputText { text, annotations: [] }]),
        None => MessageContent::Plain(text.into()),
    };
    Item::Message { role: "assistant", content, identity }
}

/// Parses a message's signature: its id, or in newer transcripts `{"v":1,"id":…,"phase":…}`.
fn identity(signature: &str) -> MessageIdentity {
    #[derive(Deserialize)]
    struct StoredIdentity {
        id: String,
        phase: Option<String>,
    }
    let StoredIdentity { id, phase } =
        serde_json::from_str(signature).unwrap_or_else(|_| StoredIdentity { id: signature.to_owned(), phase: None });
    let id = Some(id).filter(|id| is_valid_id(id));
    MessageIdentity { status: id.as_ref().map(|_| "completed"), id, phase }
}

/// Returns the provider's item id of a call: the part after the bar in `call_id|item_id`.
fn item_id(call: &ToolCall) -> Option<&str> {
    call.id.split_once('|').map(|(_, item)| item).filter(|item| is_valid_id(item))
}

fn is_valid_id(id: &str) -> bool {
    ids::is_valid(id, MAX_ID_LENGTH)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use homard_proto::message::Message;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_longer_conversation_begins_with_the_bytes_of_the_shorter() {
        let spec = ModelSpec {
            api: "openai-responses".to_owned(),
            thinking: vec![ReasoningLevel::Low],
            max_output: 8_192,
            ..ModelSpec::default()
        };
        let target = ModelTarget::new(spec, "https://api.openai.com/v1");
        let signature = r#"{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"gAAA"}"#;
        let messages: Vec<Arc<Message>> = serde_json::from_value(json!([
            {"role": "user", "content": "Go"},
            {"role": "assistant", "api": "openai-responses", "stopReason": "toolUse", "content": [
                {"type": "thinking", "thinking": "", "thinkingSignature": signature},
                {"type": "text", "text": "I look.", "textSignature": "msg_1"},
                {"type": "toolCall", "id": "call_a|fc_1", "name": "ls", "arguments": {}},
            ]},
            {"role": "toolResult", "toolCallId": "call_a|fc_1", "toolName": "ls", "content": [{"type": "text", "text": "a"}]},
            {"role": "user", "content": "Thanks"},
        ]))
        .unwrap();
        let body = |count: usize| {
            let session = Some("s1".into());
            let request = Request { messages: messages[..count].to_vec(), session, ..Request::default() };
            String::from_utf8(encode(&target, &request).unwrap()).unwrap()
        };
        for (shorter, longer) in [(1, 3), (3, 4)] {
            let (shorter, longer) = (body(shorter), body(longer));
            let open = shorter.strip_suffix("]}").unwrap();
            assert!(longer.starts_with(open), "{shorter}\n{longer}");
        }
    }
}
