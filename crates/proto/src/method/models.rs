//! `models.list`: who can answer.

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Others, text};

/// What `models.list` takes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ListParams {
    /// Whose models; without one, the default agent's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// Only the models of this provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
}

// Views and details are for lists that are longer than ours.
params!(ListParams, "models.list", &[], |_| (json!({"agentId": text(), "provider": text()}), Others::PassedOver));
