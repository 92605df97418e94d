//! A conversation in the order that every wire wants.
//!
//! Wires are strict about one thing: every call is answered directly after the message that made it, and nothing else is
//! an answer. A history can be less tidy (a run was stopped, a message came in between), so it is put in order here.

use std::{borrow::Cow, sync::Arc};

use homard_model::{Request, Spec};
use homard_proto::message::{Assistant, Block, Content, ImageBlock, Message, StopReason, ToolCall, ToolResult, User};
use serde_json::Value;

use crate::ids::{Ids, Rule};

/// What a model reads in place of a picture that it cannot see. Some wires put it right behind other words.
const UNSEEN: &str = "\n(an image was left out: this model reads only text)";

/// One step of a conversation.
pub(crate) enum Turn<'a> {
    /// What the user said.
    User(&'a User),
    /// What the model said, and what its tools answered.
    Answer(Exchange<'a>),
}

/// What the model said, and what its tools answered.
pub(crate) struct Exchange<'a> {
    pub(crate) said: &'a Assistant,
    /// Whether the model that is asked said it: only then does it take its own reasoning and seals back.
    pub(crate) is_own: bool,
    /// In their order.
    pub(crate) calls: Vec<Called<'a>>,
}

/// A call, and what came of it.
pub(crate) struct Called<'a> {
    pub(crate) call: &'a ToolCall,
    /// What binds it to its result; no other call of the request has it.
    pub(crate) id: Cow<'a, str>,
    /// `None` if it was interrupted.
    pub(crate) result: Option<&'a ToolResult>,
}

impl<'a> Exchange<'a> {
    /// The id under which a call of this answer is sent.
    pub(crate) fn id_of(&self, call: &ToolCall) -> Cow<'a, str> {
        let known = self.calls.iter().find(|called| std::ptr::eq(called.call, call));
        known.map(|called| called.id.clone()).unwrap_or_default()
    }
}

/// A piece of what a user or a tool shows to a model.
#[derive(Clone, Copy)]
pub(crate) enum Shown<'a> {
    Text(&'a str),
    Image(&'a ImageBlock),
}

impl<'a> Shown<'a> {
    /// Its words, if it is words.
    pub(crate) fn text(&self) -> &'a str {
        match self {
            Self::Text(text) => text,
            Self::Image(_) => "",
        }
    }

    /// The picture, if it is one.
    pub(crate) fn image(&self) -> Option<&'a ImageBlock> {
        match self {
            Self::Text(_) => None,
            Self::Image(image) => Some(image),
        }
    }
}

/// The steps of a conversation.
///
/// Half an answer is not repeated to a model: it was never finished, and its calls were never run. A result is given with
/// its call, or not at all. Other roles are not for models.
pub(crate) fn turns<'a>(spec: &Spec, request: &'a Request, rule: Rule) -> Vec<Turn<'a>> {
    let messages = &request.messages;
    let mut ids = Ids::new(rule);
    let turn = |(at, message): (usize, &'a Arc<Message>)| match &**message {
        Message::User(user) => Some(Turn::User(user)),
        Message::Assistant(said) => match said.stop_reason {
            StopReason::Error | StopReason::Aborted => None,
            StopReason::Stop | StopReason::Length | StopReason::ToolUse => {
                let is_own = spec.wrote(said);
                let called =
                    |(call, result): (&'a ToolCall, _)| Called { call, id: ids.give(&call.id, is_own), result };
                let calls = paired(said, &messages[at + 1..]).into_iter().map(called).collect();
                Some(Turn::Answer(Exchange { said, is_own, calls }))
            }
        },
        Message::ToolResult(_) | Message::Other(_) => None,
    };
    messages.iter().enumerate().filter_map(turn).collect()
}

/// Only results up to the next thing that a model said can belong to the last calls, whose ids may be used again.
fn paired<'a>(said: &'a Assistant, later: &'a [Arc<Message>]) -> Vec<(&'a ToolCall, Option<&'a ToolResult>)> {
    let until_model = later.iter().take_while(|message| !matches!(***message, Message::Assistant(_)));
    let mut results: Vec<_> = until_model
        .filter_map(|message| match &**message {
            Message::ToolResult(result) => Some(result),
            Message::User(_) | Message::Assistant(_) | Message::Other(_) => None,
        })
        .collect();
    let result = |call: &'a ToolCall| {
        let found = results.iter().position(|result| result.tool_call_id == call.id);
        (call, found.map(|at| results.remove(at)))
    };
    said.tool_calls().map(result).collect()
}

/// What a user shows: texts that are not empty, and pictures.
pub(crate) fn shown_by<'a>(user: &'a User, spec: &Spec) -> Vec<Shown<'a>> {
    match &user.content {
        Content::Text(text) if text.is_empty() => Vec::new(),
        Content::Text(text) => vec![Shown::Text(text)],
        Content::Blocks(blocks) => shown(blocks, spec),
    }
}

/// What blocks show: texts that are not empty, and pictures, or what stands for them if the model does not see.
pub(crate) fn shown<'a>(blocks: &'a [Block], spec: &Spec) -> Vec<Shown<'a>> {
    let piece = |block: &'a Block| match block {
        Block::Text(block) => (!block.text.is_empty()).then_some(Shown::Text(&block.text)),
        Block::Image(image) if spec.sees => Some(Shown::Image(image)),
        Block::Image(_) => Some(Shown::Text(UNSEEN)),
        Block::Thinking(_) | Block::ToolCall(_) | Block::Other(_) => None,
    };
    blocks.iter().filter_map(piece).collect()
}

/// What a tool answered; something for every call, because no wire takes nothing.
pub(crate) fn answered<'a>(result: Option<&'a ToolResult>, spec: &Spec) -> Vec<Shown<'a>> {
    let Some(result) = result else { return vec![Shown::Text("(no result: the call was interrupted)")] };
    let pieces = shown(&result.content, spec);
    if pieces.is_empty() { vec![Shown::Text("(no output)")] } else { pieces }
}

/// A call's arguments. Servers want an object, so what a model wrote that was not one goes back as an empty one.
pub(crate) fn arguments(call: &ToolCall) -> Cow<'_, Value> {
    if call.arguments.is_object() {
        Cow::Borrowed(&call.arguments)
    } else {
        Cow::Owned(Value::Object(serde_json::Map::new()))
    }
}

/// The data URL of a picture.
pub(crate) fn data_url(image: &ImageBlock) -> String {
    format!("data:{};base64,{}", image.mime_type, image.data)
}
