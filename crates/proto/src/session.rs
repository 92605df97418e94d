//! A session's record: the value of one key in `sessions.json`.

use serde::{Deserialize, Serialize};

use crate::{Extra, SessionId};

/// What is remembered of a session beside its transcript. Fields that the loop does not use yet stay in `extra`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// The transcript that the key points at.
    pub session_id: SessionId,
    /// Milliseconds since the epoch.
    #[serde(default)]
    pub updated_at: u64,
    /// A name that a person gave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// The session that started this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spawned_by: Option<String>,
    /// Whether messages may be sent here: `allow` or `deny`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub send_policy: Option<String>,
    /// How much clients are told of tools: `off`, `on` or `full`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verbose_level: Option<String>,
    /// How hard the model thinks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thinking_level: Option<String>,
    /// The provider that answered last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_provider: Option<String>,
    /// The model that answered last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The model's context window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_tokens: Option<u64>,
    /// Prompt tokens of the last run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_tokens: Option<u64>,
    /// Tokens that the model wrote in the last run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_tokens: Option<u64>,
    /// The size of the last prompt: how full the window is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_tokens: Option<u64>,
    /// Whether the last run was stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aborted_last_run: Option<bool>,
    /// Fields that are kept for OpenClaw and for later.
    #[serde(flatten)]
    pub extra: Extra,
}

impl Record {
    /// A new session.
    pub fn new(session_id: SessionId, updated_at: u64) -> Self {
        Self {
            session_id,
            updated_at,
            label: None,
            spawned_by: None,
            send_policy: None,
            verbose_level: None,
            thinking_level: None,
            model_provider: None,
            model: None,
            context_tokens: None,
            input_tokens: None,
            output_tokens: None,
            total_tokens: None,
            aborted_last_run: None,
            extra: Extra::new(),
        }
    }
}
