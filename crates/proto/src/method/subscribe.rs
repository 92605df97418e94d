//! `sessions.subscribe` and `sessions.messages.subscribe`: subscriptions to session changes and messages.

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{UnknownMembers, text};

/// Parameters of `sessions.subscribe` and `sessions.unsubscribe`: all are ignored.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubscribeParams {}

params!(SubscribeParams, "sessions.subscribe", &[], |_| (json!({}), UnknownMembers::Ignored));

/// Parameters of `sessions.messages.subscribe` and `sessions.messages.unsubscribe`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MessagesParams {
    /// Session key.
    pub key: String,
    /// Agent to use if the session key names no agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
}

params!(MessagesParams, "sessions.messages.subscribe", &["key"], |_| {
    (json!({"key": text(), "agentId": text()}), UnknownMembers::Ignored)
});
