//! Request body of the Chat Completions API.

use std::borrow::Cow;

use homard_model::ToolSpec;
use serde::Serialize;
use serde_json::{Map, Value};

#[derive(Serialize)]
pub(super) struct ChatCompletionsBody<'a> {
    pub(super) model: &'a str,
    pub(super) messages: Vec<ChatMessage<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) tools: Vec<FunctionWrapper<Function<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tool_choice: Option<&'static str>,
    pub(super) stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) stream_options: Option<StreamOptions>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) store: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) max_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) max_completion_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) prompt_cache_key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) prompt_cache_retention: Option<&'static str>,
    #[serde(flatten)]
    pub(super) effort: Map<String, Value>,
}

#[derive(Serialize)]
pub(super) struct StreamOptions {
    pub(super) include_usage: bool,
}

#[derive(Serialize)]
#[serde(tag = "role", rename_all = "lowercase")]
pub(super) enum ChatMessage<'a> {
    System {
        content: MessageContent,
    },
    Developer {
        content: MessageContent,
    },
    User {
        content: MessageContent,
    },
    Assistant {
        content: Option<String>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<ToolCallBody<'a>>,
        #[serde(flatten)]
        reasoning: Map<String, Value>,
    },
    Tool {
        tool_call_id: Cow<'a, str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        name: Option<&'a str>,
        content: String,
    },
}

#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum MessageContent {
    Plain(String),
    Parts(Vec<InputPart>),
}

impl MessageContent {
    /// Converts to the form that can carry a cache marker.
    pub(super) fn spread(&mut self) -> &mut Self {
        if let Self::Plain(text) = self {
            *self = Self::Parts(vec![InputPart::text(std::mem::take(text))]);
        }
        self
    }

    /// Marks its end as the end of a cached prefix. An image cannot be marked.
    pub(super) fn mark(&mut self) {
        if let Self::Parts(parts) = self
            && let Some(InputPart::Text { cache_control, .. }) =
                parts.iter_mut().rfind(|part| matches!(part, InputPart::Text { .. }))
        {
            *cache_control = Some(CacheControl { r#type: "ephemeral" });
        }
    }
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum InputPart {
    Text {
        text: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<CacheControl>,
    },
    ImageUrl {
        image_url: ImageUrl,
    },
}

impl InputPart {
    pub(super) fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into(), cache_control: None }
    }

    pub(super) fn image(url: String) -> Self {
        Self::ImageUrl { image_url: ImageUrl { url } }
    }
}

#[derive(Serialize)]
pub(super) struct CacheControl {
    r#type: &'static str,
}

#[derive(Serialize)]
pub(super) struct ImageUrl {
    url: String,
}

#[derive(Serialize)]
pub(super) struct ToolCallBody<'a> {
    id: Cow<'a, str>,
    #[serde(flatten)]
    function: FunctionWrapper<Invocation<'a>>,
}

impl<'a> ToolCallBody<'a> {
    pub(super) fn new(id: Cow<'a, str>, function: FunctionWrapper<Invocation<'a>>) -> Self {
        Self { id, function }
    }
}

#[derive(Serialize)]
pub(super) struct Invocation<'a> {
    pub(super) name: &'a str,
    pub(super) arguments: String,
}

#[derive(Serialize)]
pub(super) struct Function<'a> {
    name: &'a str,
    description: &'a str,
    parameters: &'a Value,
}

/// Wrapper that the API uses for both a tool and a call: `{"type": "function", "function": …}`.
#[derive(Serialize)]
pub(super) struct FunctionWrapper<T> {
    r#type: &'static str,
    function: T,
}

pub(super) fn function<T>(function: T) -> FunctionWrapper<T> {
    FunctionWrapper { r#type: "function", function }
}

pub(super) fn tool(spec: &ToolSpec) -> FunctionWrapper<Function<'_>> {
    function(Function { name: &spec.name, description: &spec.description, parameters: &spec.parameters })
}
