//! `sessions.subscribe` and `sessions.messages.subscribe`: who wants to hear what becomes of conversations.

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Others, text};

/// What `sessions.subscribe` and `sessions.unsubscribe` take: nothing that matters.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubscribeParams {}

params!(SubscribeParams, "sessions.subscribe", &[], |_| (json!({}), Others::PassedOver));

/// What `sessions.messages.subscribe` and `sessions.messages.unsubscribe` take.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MessagesParams {
    /// Which conversation.
    pub key: String,
    /// Whose, if the key does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
}

params!(MessagesParams, "sessions.messages.subscribe", &["key"], |_| {
    (json!({"key": text(), "agentId": text()}), Others::PassedOver)
});
