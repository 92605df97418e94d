//! Questions about the house that take little: nodes, usage, tools, and lists of what there may be.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Others, text};

/// Makes a type for the parameters of a method that heeds none.
macro_rules! unheeded {
    ($($(#[$doc:meta])* $type:ident = $method:literal;)*) => { $(
        $(#[$doc])*
        #[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub struct $type {}

        params!($type, $method, &[], |_| (json!({}), Others::PassedOver));
    )* };
}

unheeded! {
    /// What `node.list` takes: nothing.
    NodeListParams = "node.list";
    /// What `usage.status` takes: nothing.
    UsageStatusParams = "usage.status";
    /// What `diagnostics.lanes` takes: nothing.
    LanesParams = "diagnostics.lanes";
    /// What the lists take of which there is nothing here.
    NothingParams = "list";
}

/// What `tools.catalog` takes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CatalogParams {
    /// Whose tools; without one, the default agent's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
}

params!(CatalogParams, "tools.catalog", &[], |_| (json!({"agentId": text()}), Others::PassedOver));

/// What `tools.effective` takes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ToolsParams {
    /// Whose tools; without one, the default agent's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// In which session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_key: Option<String>,
}

params!(ToolsParams, "tools.effective", &[], |_| {
    (json!({"agentId": text(), "sessionKey": text()}), Others::PassedOver)
});

/// What `system-event` takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SystemEventParams {
    /// What happened.
    pub text: String,
}

params!(SystemEventParams, "system-event", &["text"], |_| (json!({"text": text()}), Others::Refused), no_effect: &[
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

const PRESENCE: &str = "it is about who is connected, which the gateway knows from its connections";

/// What `models.authStatus`, `doctor.memory.status` and `webSearch.status` take.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OfAgentParams {
    /// Whose; without one, the default agent's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
}

params!(OfAgentParams, "models.authStatus", &[], |_| (json!({"agentId": text()}), Others::PassedOver));

/// What `tools.github.status` takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GithubParams {
    /// Whose account.
    pub agent_id: String,
    /// `system` or `agent`.
    pub selected_scope: String,
}

params!(GithubParams, "tools.github.status", &["agentId", "selectedScope"], |_| {
    (json!({"agentId": text(), "selectedScope": {"enum": ["system", "agent"]}}), Others::PassedOver)
});

/// What `tasks.list` takes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TasksParams {
    /// Only of this agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// Only those that this session started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_key: Option<String>,
    /// Only in this state, or in one of these.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub status: Value,
    /// How many.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

params!(TasksParams, "tasks.list", &[], |_| {
    let states = json!({"enum": ["queued", "running", "completed", "failed", "cancelled", "timed_out"]});
    let status = json!({"anyOf": [states, {"type": "array", "items": states}]});
    let limit = json!({"type": "integer", "minimum": 1, "maximum": 500});
    (json!({"agentId": text(), "sessionKey": text(), "status": status, "limit": limit}), Others::PassedOver)
});
