//! A question as Chat Completions wants it.
//!
//! The wire is strict about one thing: every call is answered directly after the message that made it, and nothing else
//! is an answer. A history can be less tidy (a run was stopped, a message came in between), so it is put in order here.

use std::{borrow::Cow, sync::Arc};

use homard_model::{Request, ToolSpec};
use homard_proto::message::{
    Assistant, Block, Content, ImageBlock, Message, StopReason, ToolCall, ToolResult, join_text,
};
use serde::Serialize;
use serde_json::Value;

use super::Settings;

/// Writes a request's body.
pub fn encode(settings: &Settings, request: &Request) -> Result<Vec<u8>, serde_json::Error> {
    let limit = (settings.max_output > 0).then_some(settings.max_output);
    // OpenAI's newer models refuse `max_tokens`; everybody else knows only that.
    let openai = settings.base_url.starts_with("https://api.openai.com/");
    let (max_completion_tokens, max_tokens) = if openai { (limit, None) } else { (None, limit) };
    serde_json::to_vec(&Body {
        model: &settings.model,
        messages: lines(request),
        tools: request.tools.iter().map(tool).collect(),
        stream: true,
        stream_options: StreamOptions { include_usage: true },
        max_tokens,
        max_completion_tokens,
    })
}

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    messages: Vec<Line<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Typed<Function<'a>>>,
    stream: bool,
    stream_options: StreamOptions,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_completion_tokens: Option<u64>,
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

#[derive(Serialize)]
#[serde(tag = "role", rename_all = "lowercase")]
enum Line<'a> {
    System {
        content: &'a str,
    },
    User {
        content: Words<'a>,
    },
    Assistant {
        content: Option<String>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<Call<'a>>,
    },
    Tool {
        tool_call_id: &'a str,
        content: Cow<'static, str>,
    },
}

#[derive(Serialize)]
#[serde(untagged)]
enum Words<'a> {
    Plain(String),
    Parts(Vec<Part<'a>>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Part<'a> {
    Text { text: &'a str },
    ImageUrl { image_url: ImageUrl },
}

#[derive(Serialize)]
struct ImageUrl {
    url: String,
}

#[derive(Serialize)]
struct Call<'a> {
    id: &'a str,
    #[serde(flatten)]
    function: Typed<Invocation<'a>>,
}

#[derive(Serialize)]
struct Invocation<'a> {
    name: &'a str,
    arguments: String,
}

#[derive(Serialize)]
struct Function<'a> {
    name: &'a str,
    description: &'a str,
    parameters: &'a Value,
}

/// The wire wraps both a tool and a call of it as `{"type": "function", "function": …}`.
#[derive(Serialize)]
struct Typed<T> {
    r#type: &'static str,
    function: T,
}

fn function<T>(function: T) -> Typed<T> {
    Typed { r#type: "function", function }
}

fn tool(spec: &ToolSpec) -> Typed<Function<'_>> {
    function(Function { name: &spec.name, description: &spec.description, parameters: &spec.parameters })
}

fn lines(request: &Request) -> Vec<Line<'_>> {
    let mut lines = Vec::with_capacity(request.messages.len() + 1);
    if !request.system.is_empty() {
        lines.push(Line::System { content: &request.system });
    }
    for (at, message) in request.messages.iter().enumerate() {
        match &**message {
            Message::User(user) => lines.extend(words(&user.content).map(|content| Line::User { content })),
            Message::Assistant(assistant) => exchange(assistant, &request.messages[at + 1..], &mut lines),
            // A result is written with its call, or not at all. Other roles are not for models.
            Message::ToolResult(_) | Message::Other(_) => {}
        }
    }
    lines
}

fn words(content: &Content) -> Option<Words<'_>> {
    let blocks = match content {
        Content::Text(text) => return (!text.is_empty()).then(|| Words::Plain(text.clone())),
        Content::Blocks(blocks) => blocks,
    };
    if images(blocks).next().is_none() {
        let text = join_text(blocks);
        return (!text.is_empty()).then_some(Words::Plain(text));
    }
    let parts = blocks.iter().filter_map(|block| match block {
        Block::Text(block) => (!block.text.is_empty()).then_some(Part::Text { text: &block.text }),
        Block::Image(image) => Some(image_part(image)),
        Block::Thinking(_) | Block::ToolCall(_) | Block::Other(_) => None,
    });
    Some(Words::Parts(parts.collect()))
}

/// What the model said and what its tools answered.
///
/// Half an answer is not repeated to a model: it was never finished, and its calls were never run.
fn exchange<'a>(assistant: &'a Assistant, later: &'a [Arc<Message>], lines: &mut Vec<Line<'a>>) {
    match assistant.stop_reason {
        StopReason::Error | StopReason::Aborted => return,
        StopReason::Stop | StopReason::Length | StopReason::ToolUse => {}
    }
    let text = assistant.text();
    let content = (!text.is_empty()).then_some(text);
    let tool_calls: Vec<_> = assistant.tool_calls().map(call).collect();
    if content.is_none() && tool_calls.is_empty() {
        return;
    }
    lines.push(Line::Assistant { content, tool_calls });

    let mut results: Vec<_> = results(later).collect();
    let mut pictures = Vec::new();
    for call in assistant.tool_calls() {
        let found = results.iter().position(|result| result.tool_call_id == call.id).map(|at| results.remove(at));
        pictures.extend(found.iter().flat_map(|result| images(&result.content)));
        lines.push(Line::Tool { tool_call_id: &call.id, content: answer(found) });
    }
    // A tool's message holds words only, so its pictures follow as if the user had shown them.
    if !pictures.is_empty() {
        let mut parts = vec![Part::Text { text: "Images from the tool results above:" }];
        parts.extend(pictures.into_iter().map(image_part));
        lines.push(Line::User { content: Words::Parts(parts) });
    }
}

/// The results up to the next thing that a model said: only those can belong to the last calls, whose ids may be used again.
fn results(later: &[Arc<Message>]) -> impl Iterator<Item = &ToolResult> {
    let until_model = later.iter().take_while(|message| !matches!(***message, Message::Assistant(_)));
    until_model.filter_map(|message| match &**message {
        Message::ToolResult(result) => Some(result),
        Message::User(_) | Message::Assistant(_) | Message::Other(_) => None,
    })
}

fn answer(result: Option<&ToolResult>) -> Cow<'static, str> {
    let Some(result) = result else { return "(no result: the call was interrupted)".into() };
    let text = join_text(&result.content);
    if !text.is_empty() {
        text.into()
    } else if images(&result.content).next().is_some() {
        "(an image, see below)".into()
    } else {
        "(no output)".into()
    }
}

/// Servers parse the arguments, so what a model wrote that was not an object goes back as an empty one.
fn call(call: &ToolCall) -> Call<'_> {
    let arguments = if call.arguments.is_object() { call.arguments.to_string() } else { "{}".to_owned() };
    Call { id: &call.id, function: function(Invocation { name: &call.name, arguments }) }
}

fn images(blocks: &[Block]) -> impl Iterator<Item = &ImageBlock> {
    blocks.iter().filter_map(|block| match block {
        Block::Image(image) => Some(image),
        Block::Text(_) | Block::Thinking(_) | Block::ToolCall(_) | Block::Other(_) => None,
    })
}

fn image_part(image: &ImageBlock) -> Part<'_> {
    Part::ImageUrl { image_url: ImageUrl { url: format!("data:{};base64,{}", image.mime_type, image.data) } }
}
