//! What plugins may ask of the house. The binary knows how; here it is only who may ask what.

use async_trait::async_trait;
use serde_json::Value;

/// What a plugin asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// The config, without secrets.
    ConfigGet,
    /// To write the config.
    ConfigWrite,
    /// To put an event into a session.
    SystemEvent,
    /// A method of the gateway.
    GatewayRequest,
    /// A run of an agent.
    AgentRun,
    /// An answer of a model.
    LlmComplete,
    /// What the memory says about something.
    MemorySearch,
    /// A note of the memory.
    MemoryGet,
}

impl Ask {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::ConfigGet,
        Self::ConfigWrite,
        Self::SystemEvent,
        Self::GatewayRequest,
        Self::AgentRun,
        Self::LlmComplete,
        Self::MemorySearch,
        Self::MemoryGet,
    ];

    /// Its name on the wire, and in a manifest under `rights.host`.
    pub fn name(self) -> &'static str {
        match self {
            Self::ConfigGet => "config.get",
            Self::ConfigWrite => "config.write",
            Self::SystemEvent => "system.enqueueEvent",
            Self::GatewayRequest => "gateway.request",
            Self::AgentRun => "agent.run",
            Self::LlmComplete => "llm.complete",
            Self::MemorySearch => "memory.search",
            Self::MemoryGet => "memory.get",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|ask| ask.name() == name)
    }
}

/// The house, as plugins see it. What it does not offer, it refuses by name.
#[async_trait]
pub trait Host: Send + Sync {
    /// Answers a plugin that may ask this; an error is told to it.
    async fn answer(&self, plugin: &str, ask: Ask, params: Value) -> Result<Value, String> {
        drop(params);
        tracing::debug!(plugin, ask = ask.name(), "a plugin asked for what is not offered here");
        Err(format!("{} is not available here", ask.name()))
    }

    /// Hears what a plugin logs.
    fn log(&self, plugin: &str, level: &str, message: &str) {
        match level {
            "error" => tracing::error!(plugin, "{message}"),
            "warn" => tracing::warn!(plugin, "{message}"),
            "debug" | "trace" => tracing::debug!(plugin, "{message}"),
            _ => tracing::info!(plugin, "{message}"),
        }
    }
}

/// A house that offers nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Deaf;

impl Host for Deaf {}
