//! Session record: the value of one key in `sessions.json`.

use serde::{Deserialize, Serialize};

use crate::{Extra, SessionId};

/// Metadata of a session, stored beside its transcript. Fields that the agent loop does not use yet stay in `extra`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// Session id that the key refers to.
    pub session_id: SessionId,
    /// Time of the last change in milliseconds since the epoch.
    #[serde(default)]
    pub updated_at: u64,
    /// Label given by a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Session that started this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spawned_by: Option<String>,
    /// Whether messages may be sent here: `allow` or `deny`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub send_policy: Option<String>,
    /// How much clients see of tool calls: `off`, `on` or `full`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verbose_level: Option<String>,
    /// Reasoning level.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thinking_level: Option<String>,
    /// Provider that answered last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_provider: Option<String>,
    /// Model that answered last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Context window of the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_tokens: Option<u64>,
    /// Prompt tokens of the last run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_tokens: Option<u64>,
    /// Output tokens of the last run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_tokens: Option<u64>,
    /// Size of the last prompt in tokens: how full the context window is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_tokens: Option<u64>,
    /// True if the last run was aborted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aborted_last_run: Option<bool>,
    /// Other fields, kept for OpenClaw and for later versions.
    #[serde(flatten)]
    pub extra: Extra,
}

impl Record {
    /// Creates the record of a new session.
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

/// A field of a session's record and its new value; `None` clears it.
pub type RecordField = (&'static str, Option<serde_json::Value>);
