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
    /// Only runs with this status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// Only runs of this agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// Only runs of sessions of this channel, such as `telegram`, `cron` or `subagent`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    /// Only runs that a model answered whose name, as `provider/model`, contains this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Only runs whose id, session key or error contains this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub search: Option<String>,
}

params!(ListParams, "runs.list", &[], |_| {
    json!({
        "sessionKey": text(), "before": text(), "limit": {"type": "integer", "minimum": 1, "maximum": 1000},
        "status": {"enum": ["accepted", "running", "absorbed", "held", "ok", "error", "aborted"]},
        "agentId": text(), "channel": text(), "model": text(), "search": text(),
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

/// Parameters of `runs.tools`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolsParams {
    /// A run id, channel event, delivery id or the platform's message id; or `last`.
    pub id: String,
    /// Maximum number of characters of each text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_chars: Option<usize>,
}

params!(ToolsParams, "runs.tools", &["id"], |_| json!({
    "id": text(), "maxChars": {"type": "integer", "minimum": 1, "maximum": 500_000},
}));

/// Parameters of `runs.prompt`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PromptParams {
    /// A run id, channel event, delivery id or the platform's message id; or `last`.
    pub id: String,
    /// Position of the request among the model requests of the run, from 0. Default: the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<usize>,
    /// Maximum number of characters of each text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_chars: Option<usize>,
}

params!(PromptParams, "runs.prompt", &["id"], |_| json!({
    "id": text(), "request": {"type": "integer", "minimum": 0},
    "maxChars": {"type": "integer", "minimum": 1, "maximum": 500_000},
}));

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
