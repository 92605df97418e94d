//! What a hook is told beside the event: where in the house it happens.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Where something happens. What is not known or does not apply is left out.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Context {
    /// The agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// The session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_key: Option<String>,
    /// Its transcript.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// The run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    /// Where the agent lives.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace_dir: Option<PathBuf>,
    /// The surface that the message came through.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_provider: Option<String>,
    /// What began the run: user, heartbeat or cron.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trigger: Option<String>,
    /// Who answers: the provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_provider_id: Option<String>,
    /// Who answers: the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_id: Option<String>,
    /// The channel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channel_id: Option<String>,
    /// The channel, as newer plugins call it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    /// The chat there, as newer plugins call it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chat_id: Option<String>,
    /// Which of our accounts there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub account_id: Option<String>,
    /// The chat there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conversation_id: Option<String>,
    /// Who wrote.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sender_id: Option<String>,
    /// The message, as the channel calls it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
    /// The tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_name: Option<String>,
    /// The call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// The gateway's port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
}
