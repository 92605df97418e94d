//! `homard.audit.*`: the audit log.

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::text;

/// Parameters of `homard.audit.acknowledge`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AcknowledgeParams {
    /// Why the log may continue as it is.
    pub reason: String,
}

params!(AcknowledgeParams, "homard.audit.acknowledge", &["reason"], |_| json!({"reason": text()}));
