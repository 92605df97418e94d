//! `cron.*`, `wake` and the heartbeats: what is done without anybody asking, and when.
//!
//! What a job may say is checked where jobs are made, in plain words; here only the outermost shape is.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Others, flag, text};
use crate::{Extra, Generation};

fn count(minimum: u64, maximum: u64) -> Value {
    json!({"type": "integer", "minimum": minimum, "maximum": maximum})
}

/// Newer clients send filters that change nothing but what is shown.
fn newer(generation: Generation) -> Others {
    match generation {
        Generation::Three => Others::Refused,
        Generation::Four => Others::PassedOver,
    }
}

/// What `cron.status` takes: nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusParams {}

params!(StatusParams, "cron.status", &[], |generation| (json!({}), newer(generation)));

/// What `cron.list` takes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ListParams {
    /// Whether jobs that are off are listed.
    pub include_disabled: Option<bool>,
    /// How many.
    pub limit: Option<usize>,
    /// How many to pass over first.
    pub offset: Option<usize>,
    /// Only those whose name or description contains this.
    pub query: Option<String>,
    /// `all`, `enabled` or `disabled`; says more than `include_disabled`.
    pub enabled: Option<String>,
    /// Only those of this agent.
    pub agent_id: Option<String>,
    /// `nextRunAtMs`, `updatedAtMs` or `name`.
    pub sort_by: Option<String>,
    /// `asc` or `desc`.
    pub sort_dir: Option<String>,
}

params!(ListParams, "cron.list", &[], |generation| {
    let mut properties = json!({"includeDisabled": flag()});
    if generation == Generation::Four {
        properties = json!({
            "includeDisabled": flag(), "limit": count(1, 200), "offset": count(0, u64::MAX),
            "query": {"type": "string"}, "enabled": {"enum": ["all", "enabled", "disabled"]}, "agentId": text(),
            "sortBy": {"enum": ["nextRunAtMs", "updatedAtMs", "name"]}, "sortDir": {"enum": ["asc", "desc"]},
        });
    }
    (properties, newer(generation))
});

/// What `cron.add` takes: a job, without what the schedule itself says of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AddParams(pub Extra);

params!(AddParams, "cron.add", &["name", "schedule", "payload"], |generation| {
    let mut properties = json!({"name": text(), "schedule": {"type": "object"}, "payload": {"type": "object"}});
    properties.as_object_mut().into_iter().for_each(|job| job.extend(job_members(generation)));
    (properties, Others::Refused)
});

/// What may be said of a job beside what must be.
fn job_members(generation: Generation) -> Extra {
    let or_null = |schema: Value| json!({"anyOf": [schema, {"type": "null"}]});
    let mut members = json!({
        "agentId": or_null(text()), "description": {"type": "string"}, "enabled": flag(), "deleteAfterRun": flag(),
        "sessionTarget": text(), "wakeMode": {"enum": ["now", "next-heartbeat"]},
        "delivery": or_null(json!({"type": "object"})),
    });
    if generation == Generation::Four {
        for name in ["declarationKey", "displayName"] {
            members[name] = text();
        }
        for name in ["owner", "pacing", "trigger"] {
            members[name] = or_null(json!({"type": "object"}));
        }
        members["sessionKey"] = or_null(text());
        members["failureAlert"] = json!({});
    }
    match members {
        Value::Object(members) => members,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Extra::new(),
    }
}

/// Which job, by either of its two names on the wire.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Which {
    /// The job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The same, as some clients say it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_id: Option<String>,
}

impl Which {
    /// The job that is meant.
    pub fn job(&self) -> Option<&str> {
        self.id.as_deref().or(self.job_id.as_deref()).map(str::trim).filter(|id| !id.is_empty())
    }
}

fn which(mut more: Value) -> Value {
    more["id"] = text();
    more["jobId"] = text();
    more
}

/// What `cron.get` takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GetParams {
    /// Which job.
    #[serde(flatten)]
    pub which: Which,
}

params!(GetParams, "cron.get", &[], |_| (which(json!({})), Others::Refused));

/// What `cron.update` takes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UpdateParams {
    /// Which job.
    #[serde(flatten)]
    pub which: Which,
    /// New values; `null` clears one.
    pub patch: Extra,
}

params!(UpdateParams, "cron.update", &["patch"], |generation| {
    let mut patch = json!({
        "name": text(), "schedule": {"type": "object"}, "payload": {"type": "object"}, "state": {"type": "object"},
    });
    patch.as_object_mut().into_iter().for_each(|patch| patch.extend(job_members(generation)));
    let patch = json!({"type": "object", "additionalProperties": false, "properties": patch});
    (which(json!({"patch": patch})), Others::Refused)
});

/// What `cron.remove` takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoveParams {
    /// Which job.
    #[serde(flatten)]
    pub which: Which,
}

params!(RemoveParams, "cron.remove", &[], |_| (which(json!({})), Others::Refused));

/// What `cron.run` takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunParams {
    /// Which job.
    #[serde(flatten)]
    pub which: Which,
    /// `due` or `force`; without one, `force`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
}

params!(RunParams, "cron.run", &[], |_| (which(json!({"mode": {"enum": ["due", "force"]}})), Others::Refused));

/// What `cron.runs` takes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RunsParams {
    /// Which job; not needed for the scope `all`.
    #[serde(flatten)]
    pub which: Which,
    /// `job` or `all`.
    pub scope: Option<String>,
    /// How many.
    pub limit: Option<usize>,
    /// How many to pass over first.
    pub offset: Option<usize>,
    /// Only those that ended so: `ok`, `error`, `skipped`, or `all`.
    pub status: Option<String>,
    /// Only those that ended in one of these ways.
    pub statuses: Vec<String>,
    /// `asc` or `desc`.
    pub sort_dir: Option<String>,
}

params!(RunsParams, "cron.runs", &[], |generation| {
    let properties = match generation {
        Generation::Three => json!({"limit": count(1, 5000)}),
        Generation::Four => json!({
            "scope": {"enum": ["job", "all"]}, "limit": count(1, 200), "offset": count(0, u64::MAX),
            "status": {"enum": ["all", "ok", "error", "skipped"]}, "sortDir": {"enum": ["asc", "desc"]},
            "statuses": {"type": "array", "items": {"enum": ["ok", "error", "skipped"]}},
        }),
    };
    (which(properties), newer(generation))
});

/// What `wake` takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WakeParams {
    /// `now` or `next-heartbeat`.
    pub mode: String,
    /// What the main session is told.
    pub text: String,
    /// Whose main session; without one, the default agent's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// A session whose agent is meant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_key: Option<String>,
}

params!(WakeParams, "wake", &["mode", "text"], |generation| {
    let mut properties = json!({"mode": {"enum": ["now", "next-heartbeat"]}, "text": text()});
    if generation == Generation::Four {
        properties["agentId"] = text();
        properties["sessionKey"] = text();
    }
    (properties, newer(generation))
});

/// What `last-heartbeat` takes: nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastHeartbeatParams {}

params!(LastHeartbeatParams, "last-heartbeat", &[], |_| (json!({}), Others::PassedOver));

/// What `set-heartbeats` takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetHeartbeatsParams {
    /// Whether there are any from now on.
    pub enabled: bool,
}

params!(SetHeartbeatsParams, "set-heartbeats", &["enabled"], |_| (json!({"enabled": flag()}), Others::Refused));
