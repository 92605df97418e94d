//! `cron.*`, `wake` and the heartbeats: scheduled work.
//!
//! The content of a job is validated, with readable errors, where jobs are created; here only the outermost shape is
//! checked.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{UnknownMembers, flag, text};
use crate::{Extra, Generation};

fn count(minimum: u64, maximum: u64) -> Value {
    json!({"type": "integer", "minimum": minimum, "maximum": maximum})
}

/// Newer clients send filters that only affect the display.
fn newer(generation: Generation) -> UnknownMembers {
    match generation {
        Generation::Three => UnknownMembers::Refused,
        Generation::Four => UnknownMembers::Ignored,
    }
}

/// Parameters of `cron.status`: none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusParams {}

params!(StatusParams, "cron.status", &[], |generation| (json!({}), newer(generation)));

/// Parameters of `cron.list`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ListParams {
    /// Whether disabled jobs are listed.
    pub include_disabled: Option<bool>,
    /// Maximum number of jobs.
    pub limit: Option<usize>,
    /// Number of jobs to skip.
    pub offset: Option<usize>,
    /// Only jobs whose name or description contains this.
    pub query: Option<String>,
    /// `all`, `enabled` or `disabled`; takes precedence over `include_disabled`.
    pub enabled: Option<String>,
    /// Only jobs of this agent.
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

/// Parameters of `cron.add`: a job, without the fields maintained by the scheduler.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AddParams(pub Extra);

params!(AddParams, "cron.add", &["name", "schedule", "payload"], |generation| {
    let mut properties = json!({"name": text(), "schedule": {"type": "object"}, "payload": {"type": "object"}});
    properties.as_object_mut().into_iter().for_each(|job| job.extend(job_members(generation)));
    (properties, UnknownMembers::Refused)
});

/// Returns the optional members of a job.
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

/// A job, by either of its two names on the wire.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobRef {
    /// Job id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Job id, as some clients name it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_id: Option<String>,
}

impl JobRef {
    /// Returns the job id.
    pub fn job(&self) -> Option<&str> {
        self.id.as_deref().or(self.job_id.as_deref()).map(str::trim).filter(|id| !id.is_empty())
    }
}

fn with_job_id(mut properties: Value) -> Value {
    properties["id"] = text();
    properties["jobId"] = text();
    properties
}

/// Parameters of `cron.get`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GetParams {
    /// The job.
    #[serde(flatten)]
    pub which: JobRef,
}

params!(GetParams, "cron.get", &[], |_| (with_job_id(json!({})), UnknownMembers::Refused));

/// Parameters of `cron.update`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UpdateParams {
    /// The job.
    #[serde(flatten)]
    pub which: JobRef,
    /// New values; `null` clears one.
    pub patch: Extra,
}

params!(UpdateParams, "cron.update", &["patch"], |generation| {
    let mut patch = json!({
        "name": text(), "schedule": {"type": "object"}, "payload": {"type": "object"}, "state": {"type": "object"},
    });
    patch.as_object_mut().into_iter().for_each(|patch| patch.extend(job_members(generation)));
    let patch = json!({"type": "object", "additionalProperties": false, "properties": patch});
    (with_job_id(json!({"patch": patch})), UnknownMembers::Refused)
});

/// Parameters of `cron.remove`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoveParams {
    /// The job.
    #[serde(flatten)]
    pub which: JobRef,
}

params!(RemoveParams, "cron.remove", &[], |_| (with_job_id(json!({})), UnknownMembers::Refused));

/// Parameters of `cron.run`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunParams {
    /// The job.
    #[serde(flatten)]
    pub which: JobRef,
    /// `due` or `force`; defaults to `force`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
}

params!(RunParams, "cron.run", &[], |_| (
    with_job_id(json!({"mode": {"enum": ["due", "force"]}})),
    UnknownMembers::Refused
));

/// Parameters of `cron.runs`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RunsParams {
    /// The job; not needed for the scope `all`.
    #[serde(flatten)]
    pub which: JobRef,
    /// `job` or `all`.
    pub scope: Option<String>,
    /// Maximum number of runs.
    pub limit: Option<usize>,
    /// Number of runs to skip.
    pub offset: Option<usize>,
    /// Only runs with this status: `ok`, `error`, `skipped`, or `all`.
    pub status: Option<String>,
    /// Only runs with one of these statuses.
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
    (with_job_id(properties), newer(generation))
});

/// Parameters of `wake`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WakeParams {
    /// `now` or `next-heartbeat`.
    pub mode: String,
    /// Text for the main session.
    pub text: String,
    /// Agent of the main session; defaults to the default agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// Session whose agent is meant.
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

/// Parameters of `last-heartbeat`: none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastHeartbeatParams {}

params!(LastHeartbeatParams, "last-heartbeat", &[], |_| (json!({}), UnknownMembers::Ignored));

/// Parameters of `set-heartbeats`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetHeartbeatsParams {
    /// Whether heartbeats are enabled from now on.
    pub enabled: bool,
}

params!(SetHeartbeatsParams, "set-heartbeats", &["enabled"], |_| (json!({"enabled": flag()}), UnknownMembers::Refused));
