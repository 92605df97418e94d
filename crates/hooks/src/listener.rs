//! What OpenClaw calls internal hooks: events of commands, sessions, messages, agents and the gateway.

use std::{path::PathBuf, time::Duration};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::HookError;

/// The key of a signal's context under which the files of a prompt are.
const FILES: &str = "bootstrapFiles";

/// The event that a guard among listeners can refuse: the files of a prompt were read, and the model is asked next.
pub const GUARDED: &str = "agent:bootstrap";

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Signal {
    /// What it is about: command, session, agent, gateway or message.
    #[serde(rename = "type")]
    pub kind: String,
    /// What happened to it, such as `new` or `bootstrap`.
    pub action: String,
    /// The session.
    pub session_key: String,
    /// What is known of it.
    pub context: Map<String, Value>,
    /// When; milliseconds since the epoch.
    pub timestamp: u64,
    /// What is to be said in the chat about it.
    #[serde(default)]
    pub messages: Vec<String>,
}

impl Signal {
    /// The files of a prompt, if it is about them.
    pub fn files(&self) -> Option<Vec<BootstrapFile>> {
        serde_json::from_value(self.context.get(FILES)?.clone()).ok()
    }

    /// Sets the files of a prompt.
    pub fn set_files(&mut self, files: &[BootstrapFile]) {
        let files = files.iter().filter_map(|file| serde_json::to_value(file).ok()).collect();
        self.context.insert(FILES.to_owned(), Value::Array(files));
    }
}

/// A file that goes into every prompt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BootstrapFile {
    /// Its name, such as `SOUL.md`.
    pub name: String,
    /// Where it is.
    pub path: PathBuf,
    /// What it says; none if it is not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// Whether it is not there.
    #[serde(default)]
    pub missing: bool,
}

/// What somebody who heard a signal wants.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Heard {
    /// To be said in the chat.
    pub messages: Vec<String>,
    /// The files that go into the prompt instead.
    pub bootstrap_files: Option<Vec<BootstrapFile>>,
}

/// Somebody who hears signals.
#[async_trait]
pub trait Listener: Send + Sync {
    /// What it is called in logs.
    fn name(&self) -> &str;

    /// What it listens to: `command` for all commands, `command:new` for just that.
    fn events(&self) -> &[String];

    /// How long it may take.
    fn deadline(&self) -> Duration {
        crate::DEADLINE
    }

    /// Whether an event must not happen without its answer. It has an effect on [`GUARDED`] only: what the other events are
    /// about has happened, or cannot be refused.
    fn is_guard(&self, _event: &str) -> bool {
        false
    }

    /// Hears of it.
    async fn hear(&self, signal: &Signal) -> Result<Heard, HookError>;
}

impl dyn Listener {
    /// Whether it listens to this, and if so whether to just this.
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
