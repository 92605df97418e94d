//! Request body of the Gemini API.

use std::borrow::Cow;

use homard_proto::message::ImageBlock;
use serde::Serialize;
use serde_json::Value;

/// Stable fields come first and the conversation last, so that a longer request starts with the bytes of a shorter one.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct GenerateContentBody<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) system_instruction: Option<Instruction<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) tools: Vec<ToolDeclarations<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tool_config: Option<ToolConfig>,
    pub(super) generation_config: Generation,
    pub(super) contents: Vec<Content<'a>>,
}

#[derive(Serialize)]
pub(super) struct Instruction<'a> {
    pub(super) parts: [GeminiPart<'a>; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ToolDeclarations<'a> {
    pub(super) function_declarations: Vec<Declaration<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ToolConfig {
    pub(super) function_calling_config: FunctionCalling,
}

#[derive(Serialize)]
pub(super) struct FunctionCalling {
    pub(super) mode: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Declaration<'a> {
    pub(super) name: &'a str,
    pub(super) description: &'a str,
    pub(super) parameters_json_schema: Value,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Generation {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) max_output_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) thinking_config: Option<Thinking>,
}

#[derive(Debug, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Thinking {
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) include_thoughts: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) thinking_level: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) thinking_budget: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Role {
    User,
    Model,
}

#[derive(Serialize)]
pub(super) struct Content<'a> {
    pub(super) role: Role,
    pub(super) parts: Vec<GeminiPart<'a>>,
}

impl Content<'_> {
    /// True if it contains tool results, which must be alone: as many results as there were calls, and nothing else.
    pub(super) fn is_results(&self) -> bool {
        self.parts.iter().any(|part| part.function_response.is_some())
    }
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct GeminiPart<'a> {
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) thought: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) text: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) inline_data: Option<Blob<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) function_call: Option<FunctionCallBody<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) function_response: Option<Response<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) thought_signature: Option<&'a str>,
}

impl<'a> GeminiPart<'a> {
    pub(super) fn text(text: &'a str) -> Self {
        Self { text: Some(text), ..Self::default() }
    }

    pub(super) fn image(image: &'a ImageBlock) -> Self {
        let blob = Blob { mime_type: &image.mime_type, data: &image.data };
        Self { inline_data: Some(blob), ..Self::default() }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Blob<'a> {
    mime_type: &'a str,
    data: &'a str,
}

#[derive(Serialize)]
pub(super) struct FunctionCallBody<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<Cow<'a, str>>,
    pub(super) name: &'a str,
    pub(super) args: Cow<'a, Value>,
}

#[derive(Serialize)]
pub(super) struct Response<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<Cow<'a, str>>,
    pub(super) name: &'a str,
    pub(super) response: Outcome,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) parts: Vec<GeminiPart<'a>>,
}

/// The two keys under which Gemini expects a tool's output.
#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Outcome {
    Output(String),
    Error(String),
}
