//! Listeners for what OpenClaw calls internal hooks: events of commands, sessions, messages, agents and the gateway.

use std::{path::PathBuf, time::Duration};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::HookError;

/// Key in an event's context that contains the bootstrap files.
const FILES_KEY: &str = "bootstrapFiles";

/// The only event that a guard can block. It comes after the bootstrap files were read and before the model is
/// requested.
pub const GUARDED_EVENT: &str = "agent:bootstrap";

/// An event of OpenClaw's internal hooks: a command, or something that happened to a session, a message, an agent or
/// the gateway. Its name is `type:action`, such as `command:new`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InternalEvent {
    /// Type: command, session, agent, gateway or message.
    #[serde(rename = "type")]
    pub kind: String,
    /// Action, such as `new` or `bootstrap`.
    pub action: String,
    /// Session key.
    pub session_key: String,
    /// Data of the event.
    pub context: Map<String, Value>,
    /// Time in milliseconds since the epoch.
    pub timestamp: u64,
    /// Messages to send to the chat.
    #[serde(default)]
    pub messages: Vec<String>,
}

impl InternalEvent {
    /// Returns the bootstrap files, if the event has any.
    pub fn files(&self) -> Option<Vec<BootstrapFile>> {
        serde_json::from_value(self.context.get(FILES_KEY)?.clone()).ok()
    }

    /// Sets the bootstrap files.
    pub fn set_files(&mut self, files: &[BootstrapFile]) {
        let files = files.iter().filter_map(|file| serde_json::to_value(file).ok()).collect();
        self.context.insert(FILES_KEY.to_owned(), Value::Array(files));
    }
}

/// A bootstrap file, which is part of every prompt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BootstrapFile {
    /// Its name, such as `SOUL.md`.
    pub name: String,
    /// Its path.
    pub path: PathBuf,
    /// Its content; `None` if it is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// True if the file is missing.
    #[serde(default)]
    pub missing: bool,
}

/// Result of a listener.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ListenerResult {
    /// Messages to send to the chat.
    pub messages: Vec<String>,
    /// Replacement for the bootstrap files.
    pub bootstrap_files: Option<Vec<BootstrapFile>>,
}

/// A listener for [`InternalEvent`]s.
///
/// A [`Hook`](crate::Hook) is called at points of the agent loop and may change what happens there. A listener
/// subscribes to events by name instead. Its result can only add chat messages and replace bootstrap files.
#[async_trait]
pub trait Listener: Send + Sync {
    /// Returns its name for logs.
    fn name(&self) -> &str;

    /// Returns the events it subscribes to: `command` for all commands, `command:new` for that one.
    fn events(&self) -> &[String];

    /// Returns its deadline.
    fn deadline(&self) -> Duration {
        crate::DEADLINE
    }

    /// Returns true if it is a guard for an event: if it fails, the event is blocked. This has an effect on
    /// [`GUARDED_EVENT`] only; the other events report what has happened or cannot be blocked.
    fn is_guard(&self, _event: &str) -> bool {
        false
    }

    /// Handles an event.
    async fn handle(&self, event: &InternalEvent) -> Result<ListenerResult, HookError>;
}

impl dyn Listener {
    /// Returns whether it subscribes to an event, and if so, `true` for the exact event or `false` for all of its type.
    pub(crate) fn listens(&self, kind: &str, action: &str) -> Option<bool> {
        let events = self.events();
        if events.iter().any(|event| event == kind) {
            return Some(false);
        }
        events
            .iter()
            .any(|event| event.strip_prefix(kind).and_then(|rest| rest.strip_prefix(':')) == Some(action))
            .then_some(true)
    }
}
