//! `models.list`: available models.

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{UnknownMembers, text};

/// Parameters of `models.list`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ListParams {
    /// Agent id; defaults to the default agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// Only models of this provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
}

// Views and details are for longer lists.
params!(ListParams, "models.list", &[], |_| (json!({"agentId": text(), "provider": text()}), UnknownMembers::Ignored));
