//! Request body of the Messages API.

use std::borrow::Cow;

use homard_model::ToolSpec;
use serde::Serialize;
use serde_json::Value;

use super::think::Thinking;

#[derive(Serialize)]
pub(super) struct MessagesBody<'a> {
    pub(super) model: &'a str,
    pub(super) max_tokens: u64,
    pub(super) stream: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) system: Vec<MarkedBlock<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) tools: Vec<Tool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tool_choice: Option<ToolChoice>,
    pub(super) messages: Vec<MessageBody<'a>>,
    #[serde(flatten)]
    pub(super) thinking: Thinking,
}

#[derive(Serialize)]
pub(super) struct ToolChoice {
    pub(super) r#type: &'static str,
}

#[derive(Serialize)]
pub(super) struct MessageBody<'a> {
    pub(super) role: Role,
    pub(super) content: Vec<MarkedBlock<'a>>,
}

#[derive(Serialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(super) enum Role {
    User,
    Assistant,
}

/// A block, with a marker if a cached prefix ends with it.
#[derive(Serialize)]
pub(super) struct MarkedBlock<'a> {
    #[serde(flatten)]
    pub(super) block: Block<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cache_control: Option<CacheControl>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Block<'a> {
    Text {
        text: Cow<'a, str>,
    },
    Image {
        source: Source<'a>,
    },
    Thinking {
        thinking: &'a str,
        signature: &'a str,
    },
    RedactedThinking {
        data: &'a str,
    },
    ToolUse {
        id: Cow<'a, str>,
        name: &'a str,
        input: Cow<'a, Value>,
    },
    ToolResult {
        tool_use_id: Cow<'a, str>,
        content: Vec<Self>,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
    },
}

impl<'a> From<Block<'a>> for MarkedBlock<'a> {
    fn from(block: Block<'a>) -> Self {
        Self { block, cache_control: None }
    }
}

#[derive(Serialize)]
pub(super) struct Source<'a> {
    pub(super) r#type: &'static str,
    pub(super) media_type: &'a str,
    pub(super) data: &'a str,
}

#[derive(Serialize, Clone, Copy)]
pub(super) struct CacheControl {
    pub(super) r#type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ttl: Option<&'static str>,
}

#[derive(Serialize)]
pub(super) struct Tool<'a> {
    name: &'a str,
    description: &'a str,
    input_schema: &'a Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cache_control: Option<CacheControl>,
}

impl<'a> From<&'a ToolSpec> for Tool<'a> {
    fn from(spec: &'a ToolSpec) -> Self {
        Self { name: &spec.name, description: &spec.description, input_schema: &spec.parameters, cache_control: None }
    }
}
