//! Events that the gateway sends unprompted.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Extra;

/// Payload of an `agent` event: one step of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentEvent {
    /// Run id.
    pub run_id: String,
    /// Kind of step.
    pub stream: Stream,
    /// Data of the step.
    pub data: Value,
    /// Canonical session key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_key: Option<String>,
    /// Session id (protocol 4, lifecycle).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// Agent id (protocol 4).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// Sequence number of the event within the run, from 1, without gaps where it is emitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// Time in milliseconds since the epoch.
    pub ts: u64,
    /// Members of other versions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// Kinds of steps of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stream {
    /// Start, end or failure of the run.
    Lifecycle,
    /// Streamed text of the model.
    Assistant,
    /// Start, progress or result of a tool call.
    Tool,
    /// Streamed reasoning of the model.
    Thinking,
    /// Compaction of the conversation.
    Compaction,
    /// A stream that this version does not send.
    #[serde(untagged)]
    Other(String),
}

/// Payload of a `chat` event: the state of a run for subscribers of the session. The same form for both generations.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ChatEvent {
    /// Run id.
    pub run_id: String,
    /// Canonical session key.
    pub session_key: String,
    /// Agent id (protocol 4).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// Sequence number of the corresponding `agent` event.
    pub seq: u64,
    /// State of the run.
    pub state: ChatState,
    /// Text added to the message since the last `delta` (protocol 4).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delta_text: Option<String>,
    /// True if earlier deltas are discarded and `delta_text` is the whole text (protocol 4).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replace: Option<bool>,
    /// The assistant's message so far; absent if empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<Value>,
    /// Why it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<String>,
    /// Error message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,
    /// Members of other versions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// State of a run. All but the first are terminal and sent once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChatState {
    /// The assistant's message grew.
    Delta,
    /// The run completed.
    Final,
    /// The run was aborted.
    Aborted,
    /// The run failed.
    Error,
    /// A state that this version does not send.
    #[serde(untagged)]
    Other(String),
}

/// Payload of `connect.challenge`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Challenge {
    /// Nonce to be signed by the device.
    pub nonce: String,
    /// Time in milliseconds since the epoch.
    pub ts: u64,
    /// Members of other versions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// Payload of `tick`: a heartbeat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tick {
    /// Time in milliseconds since the epoch.
    pub ts: u64,
}
