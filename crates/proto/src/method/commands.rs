//! `commands.list`: chat commands.

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{UnknownMembers, flag, text};

/// Parameters of `commands.list`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ListParams {
    /// Agent id; defaults to the default agent. Every agent has the same commands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// Whether arguments are included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub include_args: Option<bool>,
}

params!(ListParams, "commands.list", &[], |_| {
    (json!({"agentId": text(), "includeArgs": flag()}), UnknownMembers::Ignored)
});
