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
    /// The conversation is made short.
    Compaction,
    /// A stream that this version does not send.
    #[serde(untagged)]
    Other(String),
}

/// The payload of a `chat` event: a run as those see it who follow the conversation. One form for both generations.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Chat {
    /// The run.
    pub run_id: String,
    /// The session's canonical key.
    pub session_key: String,
    /// The agent (protocol 4).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// That of the `agent` event that it goes with.
    pub seq: u64,
    /// How far the run has come.
    pub state: ChatState,
    /// What is new in the message since the last `delta` (protocol 4).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delta_text: Option<String>,
    /// Whether what earlier ones said is void, and `delta_text` is all that counts (protocol 4).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replace: Option<bool>,
    /// What the assistant has said so far; absent if that is nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<Value>,
    /// Why it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<String>,
    /// What went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,
    /// Members of other versions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// How far a run has come. All but the first are said once, and last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChatState {
    /// The assistant said more.
    Delta,
    /// It is done.
    Final,
    /// It was stopped.
    Aborted,
    /// It failed.
    Error,
    /// A state that this version does not send.
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
