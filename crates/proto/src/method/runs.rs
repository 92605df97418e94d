//! `runs.*`: state and timeline of runs.

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::text;
use crate::RunId;

/// Parameters of `runs.list`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ListParams {
    /// Only runs of this session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_key: Option<String>,
    /// Only runs accepted before this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// Maximum number of runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

params!(ListParams, "runs.list", &[], |_| {
    json!({
        "sessionKey": text(), "before": text(), "limit": {"type": "integer", "minimum": 1, "maximum": 1000},
    })
});

/// Parameters of `runs.get`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GetParams {
    /// Run id, or `last`.
    pub id: String,
}

params!(GetParams, "runs.get", &["id"], |_| json!({"id": text()}));

/// Parameters of `runs.trace`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TraceParams {
    /// A run id, channel event, delivery id or the platform's message id; or `last`.
    pub id: String,
}

params!(TraceParams, "runs.trace", &["id"], |_| json!({"id": text()}));

/// Parameters of `runs.held`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HeldParams {}

params!(HeldParams, "runs.held", &[], |_| json!({}));

/// Parameters of `runs.release`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReleaseParams {
    /// Held run.
    pub run_id: RunId,
}

params!(ReleaseParams, "runs.release", &["runId"], |_| json!({"runId": text()}));

/// Parameters of `runs.drop`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DropParams {
    /// Held run.
    pub run_id: RunId,
}

params!(DropParams, "runs.drop", &["runId"], |_| json!({"runId": text()}));
