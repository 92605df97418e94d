//! Request body of the Responses API.

use std::borrow::Cow;

use homard_model::ToolSpec;
use serde::Serialize;
use serde_json::{Map, Value};

/// The conversation comes last, so that a longer request starts with the bytes of a shorter one.
#[derive(Serialize)]
pub(super) struct ResponsesBody<'a> {
    pub(super) model: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) instructions: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) tools: Vec<Tool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tool_choice: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) parallel_tool_calls: Option<bool>,
    pub(super) stream: bool,
    pub(super) store: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) max_output_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reasoning: Option<Reasoning>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub(super) include: &'static [&'static str],
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) prompt_cache_key: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) prompt_cache_retention: Option<&'static str>,
    pub(super) input: Vec<Item<'a>>,
}

#[derive(Serialize)]
pub(super) struct Reasoning {
    pub(super) effort: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) summary: Option<&'static str>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Item<'a> {
    Message {
        role: &'static str,
        content: MessageContent<'a>,
        #[serde(flatten)]
        identity: MessageIdentity,
    },
    FunctionCall {
        #[serde(skip_serializing_if = "Option::is_none")]
        id: Option<&'a str>,
        call_id: Cow<'a, str>,
        name: &'a str,
        arguments: String,
    },
    FunctionCallOutput {
        call_id: Cow<'a, str>,
        output: MessageContent<'a>,
    },
    /// Reasoning exactly as it was received. The map contains the `type` field, so no tag is added.
    #[serde(untagged)]
    Reasoning(Map<String, Value>),
}

/// Fields that identify a message as the provider's own.
#[derive(Serialize, Default)]
pub(super) struct MessageIdentity {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) status: Option<&'static str>,
    /// Phase of the message: commentary or final answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) phase: Option<String>,
}

#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum MessageContent<'a> {
    Plain(Cow<'a, str>),
    Parts(Vec<InputPart<'a>>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum InputPart<'a> {
    InputText { text: &'a str },
    InputImage { detail: &'static str, image_url: String },
    OutputText { text: &'a str, annotations: [(); 0] },
}

#[derive(Serialize)]
pub(super) struct Tool<'a> {
    r#type: &'static str,
    name: &'a str,
    description: &'a str,
    parameters: &'a Value,
    /// The API's default is true, which rejects most schemas.
    strict: bool,
}

pub(super) fn tool(spec: &ToolSpec) -> Tool<'_> {
    let ToolSpec { name, description, parameters } = spec;
    Tool { r#type: "function", name, description, parameters, strict: false }
}
