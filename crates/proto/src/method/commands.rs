//! `commands.list`: what can be written in a chat besides messages.

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Others, flag, text};

/// What `commands.list` takes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ListParams {
    /// Whose commands; without one, the default agent's. Every agent has the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// Whether their arguments are told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub include_args: Option<bool>,
}

params!(ListParams, "commands.list", &[], |_| {
    (json!({"agentId": text(), "includeArgs": flag()}), Others::PassedOver)
});
