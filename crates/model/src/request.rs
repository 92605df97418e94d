//! What a model is asked.

use std::sync::Arc;

use homard_proto::message::Message;
use serde_json::Value;

use crate::thinking::Level;

/// A question to a model: everything that it sees, and how it is to answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// The system prompt.
    pub system: Arc<str>,
    /// How many bytes of the system prompt are the same in every turn of the session; the rest may change.
    pub stable: usize,
    /// The conversation, oldest first. Shared with the history, never copied.
    pub messages: Vec<Arc<Message>>,
    /// The tools that it knows of.
    pub tools: Arc<[ToolSpec]>,
    /// Whether it may call them. Where that cannot be said to a provider, calls may come all the same.
    pub may_call: bool,
    /// How hard it is to think. A wire asks for the nearest level that the model has.
    pub thinking: Level,
    /// The most tokens that it may write; what its [`Spec`](crate::Spec) says, if nothing is said here.
    pub max_output: Option<u64>,
    /// How long the provider is asked to remember the beginning.
    pub cache: Cache,
    /// The session, for providers that send requests of one session to the machine that remembers it.
    pub session: Option<Arc<str>>,
}

impl Default for Request {
    fn default() -> Self {
        Self {
            system: Arc::default(),
            stable: 0,
            messages: Vec::new(),
            tools: Arc::default(),
            may_call: true,
            thinking: Level::default(),
            max_output: None,
            cache: Cache::default(),
            session: None,
        }
    }
}

/// How long a provider is asked to remember the beginning of a request. Many remember without being asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Cache {
    /// Not at all.
    Off,
    /// As long as it likes, usually minutes.
    #[default]
    Short,
    /// As long as it can, at a price.
    Long,
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
