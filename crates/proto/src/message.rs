//! Messages of users, models and tools in OpenClaw's transcript format.
//!
//! Unknown fields and blocks survive a round trip, so a transcript written by a newer version loses nothing here.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::Extra;

/// A message of a conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "camelCase")]
pub enum Message {
    /// A user message.
    User(User),
    /// A model's message.
    Assistant(Assistant),
    /// A tool result.
    ToolResult(ToolResult),
    /// A role of OpenClaw that the agent loop ignores.
    #[serde(untagged)]
    Other(Map<String, Value>),
}

/// Member of a user message that names the active run into which it was steered.
pub const STEERED_INTO: &str = "steeredInto";

/// A user message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct User {
    /// Text or blocks, as written.
    pub content: Content,
    /// Time in milliseconds since the epoch.
    #[serde(default)]
    pub timestamp: u64,
    /// Fields of other versions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// A model's message.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Assistant {
    /// Text, reasoning and tool calls, in the order in which they arrived.
    pub content: Vec<Block>,
    /// Wire API, such as `openai-completions`.
    #[serde(default)]
    pub api: String,
    /// Provider name in the config.
    #[serde(default)]
    pub provider: String,
    /// Model name at that provider.
    #[serde(default)]
    pub model: String,
    /// Token usage and cost.
    #[serde(default)]
    pub usage: Usage,
    /// Stop reason.
    #[serde(default)]
    pub stop_reason: StopReason,
    /// Error message of the provider, if it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,
    /// Time in milliseconds since the epoch.
    #[serde(default)]
    pub timestamp: u64,
    /// Fields of other versions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// A tool result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolResult {
    /// Id of the call.
    pub tool_call_id: String,
    /// Tool name.
    pub tool_name: String,
    /// Content for the model.
    pub content: Vec<Block>,
    /// Content for programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Value>,
    /// True if the call failed.
    #[serde(default)]
    pub is_error: bool,
    /// Time in milliseconds since the epoch.
    #[serde(default)]
    pub timestamp: u64,
    /// Fields of other versions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// Why a model stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StopReason {
    /// It finished.
    #[default]
    Stop,
    /// It reached its output limit.
    Length,
    /// It waits for tool results.
    ToolUse,
    /// The provider failed.
    Error,
    /// The run was aborted.
    Aborted,
}

/// Token usage, and its cost if known.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Usage {
    /// Prompt tokens that were not cached.
    pub input: u64,
    /// Output tokens.
    pub output: u64,
    /// Prompt tokens read from the provider's cache.
    pub cache_read: u64,
    /// Prompt tokens written to the provider's cache.
    pub cache_write: u64,
    /// Total tokens.
    pub total_tokens: u64,
    /// Cost in US dollars.
    pub cost: Cost,
    /// Fields of other versions.
    #[serde(flatten)]
    pub extra: Extra,
}

impl std::ops::AddAssign<&Self> for Usage {
    fn add_assign(&mut self, other: &Self) {
        self.input += other.input;
        self.output += other.output;
        self.cache_read += other.cache_read;
        self.cache_write += other.cache_write;
        self.total_tokens += other.total_tokens;
        self.cost.input += other.cost.input;
        self.cost.output += other.cost.output;
        self.cost.cache_read += other.cost.cache_read;
        self.cost.cache_write += other.cost.cache_write;
        self.cost.total += other.cost.total;
    }
}

/// Cost of a [`Usage`] in US dollars.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Cost {
    /// Cost of `input`.
    #[serde(with = "dollars")]
    pub input: f64,
    /// Cost of `output`.
    #[serde(with = "dollars")]
    pub output: f64,
    /// Cost of `cacheRead`.
    #[serde(with = "dollars")]
    pub cache_read: f64,
    /// Cost of `cacheWrite`.
    #[serde(with = "dollars")]
    pub cache_write: f64,
    /// Total cost.
    #[serde(with = "dollars")]
    pub total: f64,
}

/// Serializes whole numbers without a decimal point like JavaScript: a free call costs `0` and not `0.0`.
mod dollars {
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(amount: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        if amount.fract() == 0.0 && (0.0..9e15).contains(amount) {
            serializer.serialize_u64(*amount as u64)
        } else {
            serializer.serialize_f64(*amount)
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        f64::deserialize(deserializer)
    }
}

/// Content of a user message: old writers used a plain text, newer ones blocks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Content {
    /// Plain text.
    Text(String),
    /// Text and images.
    Blocks(Vec<Block>),
}

impl Content {
    /// Returns the text, without images.
    pub fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Blocks(blocks) => join_text(blocks),
        }
    }

    /// Returns the images.
    pub fn images(&self) -> impl Iterator<Item = &ImageBlock> {
        let blocks = match self {
            Self::Text(_) => &[],
            Self::Blocks(blocks) => &blocks[..],
        };
        blocks.iter().filter_map(|block| match block {
            Block::Image(image) => Some(image),
            Block::Text(_) | Block::Thinking(_) | Block::ToolCall(_) | Block::Other(_) => None,
        })
    }
}

/// A block of a message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase")]
pub enum Block {
    /// Text.
    Text(TextBlock),
    /// Reasoning.
    Thinking(ThinkingBlock),
    /// An image.
    Image(ImageBlock),
    /// A tool call.
    ToolCall(ToolCall),
    /// A block of an unknown kind.
    #[serde(untagged)]
    Other(Value),
}

/// A text block.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct TextBlock {
    /// The text.
    pub text: String,
    /// Fields of other versions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// A reasoning block.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ThinkingBlock {
    /// The text.
    pub thinking: String,
    /// The provider's signature; must be sent back unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thinking_signature: Option<String>,
    /// Fields of other versions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// An image block.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ImageBlock {
    /// Content in base64.
    pub data: String,
    /// MIME type, such as `image/png`.
    pub mime_type: String,
    /// Fields of other versions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// A tool call.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ToolCall {
    /// Call id chosen by the model.
    pub id: String,
    /// Tool name.
    pub name: String,
    /// Arguments: an object; anything else means that the model did not write valid JSON.
    #[serde(default)]
    pub arguments: Value,
    /// Fields of other versions.
    #[serde(flatten)]
    pub extra: Extra,
}

impl Block {
    /// Creates a text block.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(TextBlock { text: text.into(), extra: Map::new() })
    }

    /// Returns the text of a text block.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(block) => Some(&block.text),
            Self::Thinking(_) | Self::Image(_) | Self::ToolCall(_) | Self::Other(_) => None,
        }
    }
}

/// Concatenates the text blocks.
pub fn join_text(blocks: &[Block]) -> String {
    blocks.iter().filter_map(Block::as_text).collect()
}

impl User {
    /// Creates a message with a text block.
    pub fn text(text: impl Into<String>, timestamp: u64) -> Self {
        Self { content: Content::Blocks(vec![Block::text(text)]), timestamp, extra: Map::new() }
    }
}

impl Assistant {
    /// Returns the text.
    pub fn text(&self) -> String {
        join_text(&self.content)
    }

    /// Returns the tool calls, in order.
    pub fn tool_calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.content.iter().filter_map(|block| match block {
            Block::ToolCall(call) => Some(call),
            Block::Text(_) | Block::Thinking(_) | Block::Image(_) | Block::Other(_) => None,
        })
    }
}

impl Message {
    /// Returns the time in milliseconds since the epoch, or zero if there is none.
    pub fn timestamp(&self) -> u64 {
        match self {
            Self::User(user) => user.timestamp,
            Self::Assistant(assistant) => assistant.timestamp,
            Self::ToolResult(result) => result.timestamp,
            Self::Other(fields) => fields.get("timestamp").and_then(Value::as_u64).unwrap_or(0),
        }
    }
}
