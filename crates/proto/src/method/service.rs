//! `homard.gateway.*`: the process of the gateway.

use serde::{Deserialize, Serialize};
use serde_json::json;

/// Parameters of `homard.gateway.restart`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RestartParams {
    /// How long active runs may take to end, in milliseconds; the new process resumes the others. Default: 60,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
}

params!(RestartParams, "homard.gateway.restart", &[], |_| json!({"waitMs": {"type": "integer", "minimum": 0}}));

/// Parameters of `homard.gateway.status`: none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusParams {}

params!(StatusParams, "homard.gateway.status", &[], |_| json!({}));
