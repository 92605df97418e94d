//! `agents.list` and `agent.identity.get`: who answers here, and how they present themselves.

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Others, text};

/// What `agents.list` takes: nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListParams {}

params!(ListParams, "agents.list", &[], |_| (json!({}), Others::Refused));

/// What `agent.identity.get` takes; without anything, the default agent is meant.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IdentityParams {
    /// Which agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// A session whose agent is meant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_key: Option<String>,
}

params!(IdentityParams, "agent.identity.get", &[], |_| {
    (json!({"agentId": text(), "sessionKey": {"type": "string"}}), Others::Refused)
});
