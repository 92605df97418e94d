//! What a model is asked.

use std::sync::Arc;

use homard_proto::message::Message;
use serde_json::Value;

/// A question to a model: everything that it sees.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// The system prompt.
    pub system: Arc<str>,
    /// The conversation, oldest first. Shared with the history, never copied.
    pub messages: Vec<Arc<Message>>,
    /// What it may call.
    pub tools: Arc<[ToolSpec]>,
}

/// A tool as a model sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolSpec {
    /// How it is called.
    pub name: String,
    /// What it does, for the model.
    pub description: String,
    /// JSON Schema of its arguments.
    pub parameters: Value,
}
