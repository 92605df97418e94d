//! What plugins may request from the gateway. The implementation is in the binary; this module defines the interface.

use async_trait::async_trait;
use serde_json::Value;

/// A request of a plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostMethod {
    /// Reads the config, without secrets.
    ConfigGet,
    /// Writes the config.
    ConfigWrite,
    /// Enqueues an event for a session.
    SystemEvent,
    /// Calls a gateway method.
    GatewayRequest,
    /// Starts an agent run.
    AgentRun,
    /// Requests a completion from a model.
    LlmComplete,
    /// Searches the memory.
    MemorySearch,
    /// Reads a memory note.
    MemoryGet,
}

impl HostMethod {
    /// All host methods.
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

    /// Returns its name in the protocol, and in a manifest under `rights.host`.
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
        Self::ALL.into_iter().find(|method| method.name() == name)
    }
}

/// The gateway as seen by plugins. Requests that it does not support are rejected by name.
#[async_trait]
pub trait Host: Send + Sync {
    /// Handles a permitted request; an error is returned to the plugin.
    async fn handle(&self, plugin: &str, method: HostMethod, params: Value) -> Result<Value, String> {
        drop(params);
        tracing::debug!(plugin, ask = method.name(), "plugin called a method that is not available");
        Err(format!("{} is not available here", method.name()))
    }

    /// Returns true if it handles requests with this name that are not in [`HostMethod`].
    fn serves(&self, _method: &str) -> bool {
        false
    }

    /// Handles a request for which [`serves`](Self::serves) returned true.
    async fn serve(&self, method: &str, params: Value) -> Result<Value, String> {
        drop(params);
        Err(format!("{method} is not available here"))
    }

    /// Receives a notification other than a log message; returns false if it is unknown.
    fn notified(&self, _method: &str, _params: &Value) -> bool {
        false
    }

    /// Receives a plugin's log message.
    fn log(&self, plugin: &str, level: &str, message: &str) {
        match level {
            "error" => tracing::error!(plugin, "{message}"),
            "warn" => tracing::warn!(plugin, "{message}"),
            "debug" | "trace" => tracing::debug!(plugin, "{message}"),
            _ => tracing::info!(plugin, "{message}"),
        }
    }
}

/// A host that supports no request.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoHost;

impl Host for NoHost {}
