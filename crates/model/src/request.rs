//! Request to a model.

use std::sync::Arc;

use homard_proto::message::Message;
use serde_json::Value;

use crate::thinking::ReasoningLevel;

/// A request to a model: its complete input and the options for the answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// The system prompt.
    pub system: Arc<str>,
    /// Number of bytes at the start of the system prompt that are the same in every turn of the session; the remainder
    /// may change.
    pub stable_bytes: usize,
    /// Messages, oldest first. Shared with the history, never copied.
    pub messages: Vec<Arc<Message>>,
    /// Tools that the model may see.
    pub tools: Arc<[ToolSpec]>,
    /// Whether it may call tools. Providers without this option may return calls anyway.
    pub allow_calls: bool,
    /// Reasoning level. A wire sends the nearest level that the model supports.
    pub thinking: ReasoningLevel,
    /// Maximum output tokens; defaults to the value in its [`ModelSpec`](crate::ModelSpec).
    pub max_output: Option<u64>,
    /// Requested lifetime of the prompt cache.
    pub cache: CacheLifetime,
    /// Session, for providers that route requests of one session to the same cache.
    pub session: Option<Arc<str>>,
}

impl Default for Request {
    fn default() -> Self {
        Self {
            system: Arc::default(),
            stable_bytes: 0,
            messages: Vec::new(),
            tools: Arc::default(),
            allow_calls: true,
            thinking: ReasoningLevel::default(),
            max_output: None,
            cache: CacheLifetime::default(),
            session: None,
        }
    }
}

/// Requested lifetime of the prompt cache. Many providers cache without being asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CacheLifetime {
    /// No caching.
    Off,
    /// The provider's default, usually minutes.
    #[default]
    Short,
    /// As long as possible, at a price.
    Long,
}

/// Description of a tool for a model.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolSpec {
    /// Name used in calls.
    pub name: String,
    /// Description for the model.
    pub description: String,
    /// JSON Schema of its arguments.
    pub parameters: Value,
}
