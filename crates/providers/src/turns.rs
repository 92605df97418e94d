//! Orders a conversation as every wire requires.
//!
//! Every call must be answered directly after the message that made it. A history can be less tidy (a run was aborted,
//! a message arrived in between), so it is ordered here.

use std::{borrow::Cow, sync::Arc};

use homard_model::{ModelSpec, Request};
use homard_proto::message::{Assistant, Block, Content, ImageBlock, Message, StopReason, ToolCall, ToolResult, User};
use serde_json::Value;

use crate::ids::{CallIdRule, CallIds};

/// Placeholder for an image that the model does not accept. Some wires append it directly to other text.
const IMAGE_PLACEHOLDER: &str = "\n(an image was left out: this model reads only text)";

/// One step of a conversation.
pub(crate) enum ConversationStep<'a> {
    /// A user message.
    User(&'a User),
    /// An assistant message, with the results of its calls.
    Answer(AssistantExchange<'a>),
}

/// An assistant message, with the results of its calls.
pub(crate) struct AssistantExchange<'a> {
    pub(crate) message: &'a Assistant,
    /// True if the requested model wrote it. A model accepts only its own reasoning and signatures back.
    pub(crate) is_own: bool,
    /// Calls in order.
    pub(crate) calls: Vec<CallWithResult<'a>>,
}

/// A call and its result.
pub(crate) struct CallWithResult<'a> {
    pub(crate) call: &'a ToolCall,
    /// Id that links it to its result; unique in the request.
    pub(crate) id: Cow<'a, str>,
    /// `None` if it was interrupted.
    pub(crate) result: Option<&'a ToolResult>,
}

impl<'a> AssistantExchange<'a> {
    /// Returns the id under which a call of this message is sent.
    pub(crate) fn id_of(&self, call: &ToolCall) -> Cow<'a, str> {
        let found = self.calls.iter().find(|entry| std::ptr::eq(entry.call, call));
        found.map(|entry| entry.id.clone()).unwrap_or_default()
    }
}

/// A part of a user message or tool result.
#[derive(Clone, Copy)]
pub(crate) enum ContentPart<'a> {
    Text(&'a str),
    Image(&'a ImageBlock),
}

impl<'a> ContentPart<'a> {
    /// Returns the text of the part; empty for an image.
    pub(crate) fn text(&self) -> &'a str {
        match self {
            Self::Text(text) => text,
            Self::Image(_) => "",
        }
    }

    pub(crate) fn image(&self) -> Option<&'a ImageBlock> {
        match self {
            Self::Text(_) => None,
            Self::Image(image) => Some(image),
        }
    }
}

/// Splits a conversation into steps.
///
/// Incomplete assistant messages are dropped: they never finished, and their calls were never run. A result is sent
/// with its call, or not at all. Messages of other roles are dropped.
pub(crate) fn conversation_steps<'a>(
    spec: &ModelSpec,
    request: &'a Request,
    rule: CallIdRule,
) -> Vec<ConversationStep<'a>> {
    let messages = &request.messages;
    let mut ids = CallIds::new(rule);
    let step = |(at, message): (usize, &'a Arc<Message>)| match &**message {
        Message::User(user) => Some(ConversationStep::User(user)),
        Message::Assistant(assistant) => match assistant.stop_reason {
            StopReason::Error | StopReason::Aborted => None,
            StopReason::Stop | StopReason::Length | StopReason::ToolUse => {
                let is_own = spec.wrote(assistant);
                let with_id = |(call, result): (&'a ToolCall, _)| CallWithResult {
                    call,
                    id: ids.assign(&call.id, is_own),
                    result,
                };
                let calls = paired(assistant, &messages[at + 1..]).into_iter().map(with_id).collect();
                Some(ConversationStep::Answer(AssistantExchange { message: assistant, is_own, calls }))
            }
        },
        Message::ToolResult(_) | Message::Other(_) => None,
    };
    messages.iter().enumerate().filter_map(step).collect()
}

/// Pairs calls with results. Only results before the next assistant message can belong to these calls, because ids may
/// be reused.
fn paired<'a>(assistant: &'a Assistant, later: &'a [Arc<Message>]) -> Vec<(&'a ToolCall, Option<&'a ToolResult>)> {
    let before_next_answer = later.iter().take_while(|message| !matches!(***message, Message::Assistant(_)));
    let mut results: Vec<_> = before_next_answer
        .filter_map(|message| match &**message {
            Message::ToolResult(result) => Some(result),
            Message::User(_) | Message::Assistant(_) | Message::Other(_) => None,
        })
        .collect();
    let result = |call: &'a ToolCall| {
        let found = results.iter().position(|result| result.tool_call_id == call.id);
        (call, found.map(|at| results.remove(at)))
    };
    assistant.tool_calls().map(result).collect()
}

/// Returns the parts of a user message: non-empty texts, and images.
pub(crate) fn user_parts<'a>(user: &'a User, spec: &ModelSpec) -> Vec<ContentPart<'a>> {
    match &user.content {
        Content::Text(text) if text.is_empty() => Vec::new(),
        Content::Text(text) => vec![ContentPart::Text(text)],
        Content::Blocks(blocks) => content_parts(blocks, spec),
    }
}

/// Returns the parts of blocks: non-empty texts, and images, or a placeholder if the model does not accept images.
pub(crate) fn content_parts<'a>(blocks: &'a [Block], spec: &ModelSpec) -> Vec<ContentPart<'a>> {
    let part = |block: &'a Block| match block {
        Block::Text(block) => (!block.text.is_empty()).then_some(ContentPart::Text(&block.text)),
        Block::Image(image) if spec.accepts_images => Some(ContentPart::Image(image)),
        Block::Image(_) => Some(ContentPart::Text(IMAGE_PLACEHOLDER)),
        Block::Thinking(_) | Block::ToolCall(_) | Block::Other(_) => None,
    };
    blocks.iter().filter_map(part).collect()
}

/// Returns the content of a tool result; never empty, because no wire accepts an empty one.
pub(crate) fn result_parts<'a>(result: Option<&'a ToolResult>, spec: &ModelSpec) -> Vec<ContentPart<'a>> {
    let Some(result) = result else { return vec![ContentPart::Text("(no result: the call was interrupted)")] };
    let parts = content_parts(&result.content, spec);
    if parts.is_empty() { vec![ContentPart::Text("(no output)")] } else { parts }
}

/// Returns a call's arguments. Servers require an object, so anything else is replaced by an empty one.
pub(crate) fn arguments(call: &ToolCall) -> Cow<'_, Value> {
    if call.arguments.is_object() {
        Cow::Borrowed(&call.arguments)
    } else {
        Cow::Owned(Value::Object(serde_json::Map::new()))
    }
}

pub(crate) fn data_url(image: &ImageBlock) -> String {
    format!("data:{};base64,{}", image.mime_type, image.data)
}
