//! `runs.*`: what became of messages.

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::text;
use crate::RunId;

/// What `runs.list` takes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ListParams {
    /// Only those of this session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_key: Option<String>,
    /// Only those that were accepted before this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// How many at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

params!(ListParams, "runs.list", &[], |_| {
    json!({
        "sessionKey": text(), "before": text(), "limit": {"type": "integer", "minimum": 1, "maximum": 1000},
    })
});

/// What `runs.get` takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GetParams {
    /// The run; or `last`.
    pub id: String,
}

params!(GetParams, "runs.get", &["id"], |_| json!({"id": text()}));

/// What `runs.trace` takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TraceParams {
    /// The run, the event of a channel, a delivery or what a channel calls a message; or `last`.
    pub id: String,
}

params!(TraceParams, "runs.trace", &["id"], |_| json!({"id": text()}));

/// What `runs.held` takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HeldParams {}

params!(HeldParams, "runs.held", &[], |_| json!({}));

/// What `runs.release` takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReleaseParams {
    /// The held run.
    pub run_id: RunId,
}

params!(ReleaseParams, "runs.release", &["runId"], |_| json!({"runId": text()}));

/// What `runs.drop` takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DropParams {
    /// The held run.
    pub run_id: RunId,
}

params!(DropParams, "runs.drop", &["runId"], |_| json!({"runId": text()}));
