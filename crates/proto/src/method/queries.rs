//! Small queries about the gateway: nodes, usage, tools, tasks, and lists that are always empty.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{UnknownMembers, text};

/// Defines the parameter type of a method that ignores its parameters.
macro_rules! unheeded {
    ($($(#[$doc:meta])* $type:ident = $method:literal;)*) => { $(
        $(#[$doc])*
        #[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub struct $type {}

        params!($type, $method, &[], |_| (json!({}), UnknownMembers::Ignored));
    )* };
}

unheeded! {
    /// Parameters of `node.list`: none.
    NodeListParams = "node.list";
    /// Parameters of `usage.status`: none.
    UsageStatusParams = "usage.status";
    /// Parameters of `diagnostics.lanes`: none.
    LanesParams = "diagnostics.lanes";
    /// Parameters of queries that ignore them, such as lists that are always empty.
    NothingParams = "list";
}

/// Parameters of `tools.catalog`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CatalogParams {
    /// Agent id; defaults to the default agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
}

params!(CatalogParams, "tools.catalog", &[], |_| (json!({"agentId": text()}), UnknownMembers::Ignored));

/// Parameters of `tools.effective`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ToolsParams {
    /// Agent id; defaults to the default agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// Session key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_key: Option<String>,
}

params!(ToolsParams, "tools.effective", &[], |_| {
    (json!({"agentId": text(), "sessionKey": text()}), UnknownMembers::Ignored)
});

/// Parameters of `system-event`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SystemEventParams {
    /// Text of the event.
    pub text: String,
}

params!(SystemEventParams, "system-event", &["text"], |_| (json!({"text": text()}), UnknownMembers::Refused), no_effect: &[
    ("deviceId", PRESENCE),
    ("instanceId", PRESENCE),
    ("host", PRESENCE),
    ("ip", PRESENCE),
    ("mode", PRESENCE),
    ("version", PRESENCE),
    ("platform", PRESENCE),
    ("deviceFamily", PRESENCE),
    ("modelIdentifier", PRESENCE),
    ("lastInputSeconds", PRESENCE),
    ("reason", PRESENCE),
    ("roles", PRESENCE),
    ("scopes", PRESENCE),
    ("tags", PRESENCE),
]);

const PRESENCE: &str = "presence is derived from the gateway's connections";

/// Parameters of `models.authStatus`, `doctor.memory.status` and `webSearch.status`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AgentQueryParams {
    /// Agent id; defaults to the default agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
}

params!(AgentQueryParams, "models.authStatus", &[], |_| (json!({"agentId": text()}), UnknownMembers::Ignored));

/// Parameters of `tools.github.status`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GithubParams {
    /// Agent id.
    pub agent_id: String,
    /// `system` or `agent`.
    pub selected_scope: String,
}

params!(GithubParams, "tools.github.status", &["agentId", "selectedScope"], |_| {
    (json!({"agentId": text(), "selectedScope": {"enum": ["system", "agent"]}}), UnknownMembers::Ignored)
});

/// Parameters of `tasks.list`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TasksParams {
    /// Only tasks of this agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// Only tasks that this session started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_key: Option<String>,
    /// Only tasks with this status, or with one of these.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub status: Value,
    /// Maximum number of tasks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

params!(TasksParams, "tasks.list", &[], |_| {
    let states = json!({"enum": ["queued", "running", "completed", "failed", "cancelled", "timed_out"]});
    let status = json!({"anyOf": [states, {"type": "array", "items": states}]});
    let limit = json!({"type": "integer", "minimum": 1, "maximum": 500});
    (json!({"agentId": text(), "sessionKey": text(), "status": status, "limit": limit}), UnknownMembers::Ignored)
});
