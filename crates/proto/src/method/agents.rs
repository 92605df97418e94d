//! `agents.list` and `agent.identity.get`: configured agents and their identities.

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{UnknownMembers, text};

/// Parameters of `agents.list`: none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListParams {}

params!(ListParams, "agents.list", &[], |_| (json!({}), UnknownMembers::Refused));

/// Parameters of `agent.identity.get`; defaults to the default agent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IdentityParams {
    /// Agent id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// Session whose agent is meant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_key: Option<String>,
}

params!(IdentityParams, "agent.identity.get", &[], |_| {
    (json!({"agentId": text(), "sessionKey": {"type": "string"}}), UnknownMembers::Refused)
});
