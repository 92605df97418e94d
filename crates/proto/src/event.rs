//! What the gateway tells without being asked.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Extra;

/// The payload of an `agent` event: one step of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Agent {
    /// The run.
    pub run_id: String,
    /// Which kind of step.
    pub stream: Stream,
    /// The step.
    pub data: Value,
    /// The session's canonical key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_key: Option<String>,
    /// The session's transcript (protocol 4, lifecycle).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// The agent (protocol 4).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// The run's count of events, from 1, without holes at the source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// Milliseconds since the epoch.
    pub ts: u64,
    /// Members of other versions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// The kinds of step that a run is told in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stream {
    /// It began, it ended, it failed.
    Lifecycle,
    /// The model's words, as they come.
    Assistant,
    /// A tool began, went on, answered.
    Tool,
    /// The model's reasoning, as it comes.
    Thinking,
    /// A stream that this version does not send.
    #[serde(untagged)]
    Other(String),
}

/// The payload of `connect.challenge`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Challenge {
    /// To be signed by the device.
    pub nonce: String,
    /// Milliseconds since the epoch.
    pub ts: u64,
    /// Members of other versions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// The payload of `tick`: a sign of life.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tick {
    /// Milliseconds since the epoch.
    pub ts: u64,
}
