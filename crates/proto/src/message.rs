//! What people, models and tools say to one another, as OpenClaw's transcripts keep it.
//!
//! Unknown fields and unknown blocks survive a round trip: a transcript written by a newer
//! version loses nothing by passing through this one.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::Extra;

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "camelCase")]
pub enum Message {
    /// What the user said.
    User(User),
    /// What the model said.
    Assistant(Assistant),
    /// What a tool answered.
    ToolResult(ToolResult),
    /// A role of OpenClaw's that the loop passes by.
    #[serde(untagged)]
    Other(Map<String, Value>),
}

/// A user's message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct User {
    /// A plain text or blocks, as it was written.
    pub content: Content,
    /// Milliseconds since the epoch.
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
    /// Text, thinking and tool calls, in the order in which they came.
    pub content: Vec<Block>,
    /// The wire that was spoken, such as `openai-completions`.
    #[serde(default)]
    pub api: String,
    /// The provider's name in the config.
    #[serde(default)]
    pub provider: String,
    /// The model's name at that provider.
    #[serde(default)]
    pub model: String,
    /// What it cost.
    #[serde(default)]
    pub usage: Usage,
    /// Why the model stopped.
    #[serde(default)]
    pub stop_reason: StopReason,
    /// What the provider said when it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,
    /// Milliseconds since the epoch.
    #[serde(default)]
    pub timestamp: u64,
    /// Fields of other versions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// A tool's answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolResult {
    /// The call that it answers.
    pub tool_call_id: String,
    /// The tool.
    pub tool_name: String,
    /// What the model reads.
    pub content: Vec<Block>,
    /// What programs read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Value>,
    /// Whether the call failed.
    #[serde(default)]
    pub is_error: bool,
    /// Milliseconds since the epoch.
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
    /// It was done.
    #[default]
    Stop,
    /// It ran into its output limit.
    Length,
    /// It wants its tool calls answered.
    ToolUse,
    /// The provider failed.
    Error,
    /// The run was stopped.
    Aborted,
}

/// Tokens, and their price where it is known.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Usage {
    /// Prompt tokens that were not cached.
    pub input: u64,
    /// Tokens that the model wrote.
    pub output: u64,
    /// Prompt tokens read from the provider's cache.
    pub cache_read: u64,
    /// Prompt tokens written to the provider's cache.
    pub cache_write: u64,
    /// All of them.
    pub total_tokens: u64,
    /// In US dollars.
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

/// The price of a [`Usage`], in US dollars.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Cost {
    /// For `input`.
    #[serde(with = "dollars")]
    pub input: f64,
    /// For `output`.
    #[serde(with = "dollars")]
    pub output: f64,
    /// For `cacheRead`.
    #[serde(with = "dollars")]
    pub cache_read: f64,
    /// For `cacheWrite`.
    #[serde(with = "dollars")]
    pub cache_write: f64,
    /// For all of them.
    #[serde(with = "dollars")]
    pub total: f64,
}

/// JavaScript writes a whole number without a point, so a free call costs `0` and not `0.0`.
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

/// A user's content: old writers used a plain text, newer ones blocks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Content {
    /// A plain text.
    Text(String),
    /// Text and images.
    Blocks(Vec<Block>),
}

impl Content {
    /// Its text, without images.
    pub fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Blocks(blocks) => join_text(blocks),
        }
    }

    /// Its pictures.
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

/// A piece of a message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase")]
pub enum Block {
    /// Words.
    Text(TextBlock),
    /// The model's reasoning.
    Thinking(ThinkingBlock),
    /// A picture.
    Image(ImageBlock),
    /// A wish to use a tool.
    ToolCall(ToolCall),
    /// A block of a kind that this version does not know.
    #[serde(untagged)]
    Other(Value),
}

/// Words.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct TextBlock {
    /// The words.
    pub text: String,
    /// Fields of other versions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// The model's reasoning.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ThinkingBlock {
    /// The words.
    pub thinking: String,
    /// The provider's seal; it must go back unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thinking_signature: Option<String>,
    /// Fields of other versions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// A picture.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ImageBlock {
    /// Base64.
    pub data: String,
    /// Such as `image/png`.
    pub mime_type: String,
    /// Fields of other versions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// A wish to use a tool.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ToolCall {
    /// The model's name for the call.
    pub id: String,
    /// The tool.
    pub name: String,
    /// An object; anything else is what a model sent that did not keep to JSON.
    #[serde(default)]
    pub arguments: Value,
    /// Fields of other versions.
    #[serde(flatten)]
    pub extra: Extra,
}

impl Block {
    /// A block of words.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(TextBlock { text: text.into(), extra: Map::new() })
    }

    /// Its words, if it is a block of words.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(block) => Some(&block.text),
            Self::Thinking(_) | Self::Image(_) | Self::ToolCall(_) | Self::Other(_) => None,
        }
    }
}

/// The words of some blocks, one block after the other.
pub fn join_text(blocks: &[Block]) -> String {
    blocks.iter().filter_map(Block::as_text).collect()
}

impl User {
    /// A message of words only.
    pub fn text(text: impl Into<String>, timestamp: u64) -> Self {
        Self { content: Content::Blocks(vec![Block::text(text)]), timestamp, extra: Map::new() }
    }
}

impl Assistant {
    /// Its words.
    pub fn text(&self) -> String {
        join_text(&self.content)
    }

    /// Its tool calls, in order.
    pub fn tool_calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.content.iter().filter_map(|block| match block {
            Block::ToolCall(call) => Some(call),
            Block::Text(_) | Block::Thinking(_) | Block::Image(_) | Block::Other(_) => None,
        })
    }
}

impl Message {
    /// Milliseconds since the epoch, or zero where none was written.
    pub fn timestamp(&self) -> u64 {
        match self {
            Self::User(user) => user.timestamp,
            Self::Assistant(assistant) => assistant.timestamp,
            Self::ToolResult(result) => result.timestamp,
            Self::Other(fields) => fields.get("timestamp").and_then(Value::as_u64).unwrap_or(0),
        }
    }
}
