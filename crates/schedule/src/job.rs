//! A job in the format of OpenClaw's `cron/jobs.json`: what to do, and when.
//!
//! Names are OpenClaw's. Unknown fields are preserved, so a file of another version loses nothing.

use homard_proto::{AgentId, Extra, RunId, SessionKey};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CronJob {
    /// Permanent id.
    pub id: String,
    /// Agent; `None` for the default one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// Display name.
    #[serde(default)]
    pub name: String,
    /// True if it runs at all.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// True to delete it after a successful run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delete_after_run: Option<bool>,
    /// Creation time, in milliseconds since the epoch.
    #[serde(default)]
    pub created_at_ms: u64,
    /// Time of the last change, in milliseconds since the epoch.
    #[serde(default)]
    pub updated_at_ms: u64,
    /// Schedule.
    pub schedule: JobSchedule,
    /// Session it runs in.
    pub session_target: JobTarget,
    /// When the main session is woken.
    #[serde(default)]
    pub wake_mode: WakeMode,
    /// What it does.
    pub payload: JobPayload,
    /// Destination of its answer, as given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery: Option<Value>,
    /// Progress.
    #[serde(default)]
    pub state: JobState,
    /// Fields of other versions.
    #[serde(flatten)]
    pub extra: Extra,
}

fn yes() -> bool {
    true
}

/// Schedule of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum JobSchedule {
    /// Once.
    At(AtSchedule),
    /// At a fixed interval.
    Every(EverySchedule),
    /// By a cron expression.
    Cron(CronSchedule),
    /// A kind of another version.
    #[serde(untagged)]
    Other(Extra),
}

/// A moment. Older files have it in milliseconds.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AtSchedule {
    /// ISO 8601 time; UTC if it has no zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// Milliseconds since the epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_ms: Option<u64>,
    /// Fields of other versions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// A fixed interval.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EverySchedule {
    /// Interval in milliseconds.
    pub every_ms: u64,
    /// Start of the first interval; `None` for the creation of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anchor_ms: Option<u64>,
    /// Fields of other versions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// A cron expression.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CronSchedule {
    /// Five fields, or six with seconds first.
    pub expr: String,
    /// Time zone, such as `Europe/Berlin`; `None` for the machine's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tz: Option<String>,
    /// Fields of other versions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// Session that a job runs in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobTarget {
    /// The agent's main session.
    Main,
    /// A session of its own, with a new transcript each time.
    Isolated,
    /// A target of another version.
    #[serde(untagged)]
    Other(String),
}

/// When the main session is woken.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WakeMode {
    /// At once.
    #[default]
    Now,
    /// With the next heartbeat.
    NextHeartbeat,
    /// A mode of another version; treated as `now`.
    #[serde(untagged)]
    Other(String),
}

/// What a job does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub enum JobPayload {
    /// Sends an event to the main session.
    SystemEvent(SystemEvent),
    /// Starts a run of the agent.
    AgentTurn(AgentTurn),
    /// An unsupported payload.
    #[serde(untagged)]
    Other(Extra),
}

/// An event for the main session.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SystemEvent {
    /// Text.
    pub text: String,
    /// Fields of other versions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// A run of the agent that a job starts. The name is OpenClaw's; such a run may have several turns.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentTurn {
    /// Message that the run answers.
    pub message: String,
    /// Thinking level.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thinking: Option<String>,
    /// Time limit; 0 for the agent's own limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<f64>,
    /// Fields of other versions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// Progress of a job. A slot is a time at which it is planned to run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobState {
    /// The next slot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_run_at_ms: Option<u64>,
    /// When the current run started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running_at_ms: Option<u64>,
    /// The slot that is running. Stored before the run is submitted, so that a restart can find it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running_slot_ms: Option<u64>,
    /// All slots up to here have ended as ran, missed or skipped, or are running.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settled_at_ms: Option<u64>,
    /// Time of the last run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_run_at_ms: Option<u64>,
    /// Its status: `ok`, `error` or `skipped`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_status: Option<String>,
    /// The same for newer clients.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_run_status: Option<String>,
    /// Its error message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// Its duration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_duration_ms: Option<u64>,
    /// Number of consecutive failures.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consecutive_errors: Option<u64>,
    /// Number of missed slots.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missed_slots: Option<u64>,
    /// Fields of other versions.
    #[serde(flatten)]
    pub extra: Extra,
}

impl CronJob {
    /// Returns the agent.
    pub fn agent(&self, default: &AgentId) -> AgentId {
        self.agent_id.as_deref().map_or_else(|| default.clone(), AgentId::normalize)
    }

    /// Returns the key of the job's own session, for an isolated job; `None` if its id is invalid in a key.
    pub fn session(&self, default: &AgentId) -> Option<SessionKey> {
        SessionKey::parse(&format!("agent:{}:cron:{}", self.agent(default), self.id), default).ok()
    }

    /// Returns the id of the run for a slot, given in milliseconds since the epoch. The id is derived from the slot, so
    /// that a slot cannot run twice.
    pub fn run_id(&self, slot: u64) -> Option<RunId> {
        RunId::parse(&format!("cron-{}-{slot}", self.id)).ok()
    }

    /// Returns why this version of Homard cannot run the job; `None` if it can.
    pub fn unsupported(&self) -> Option<String> {
        if let JobSchedule::Other(fields) = &self.schedule {
            return Some(match kind(fields) {
                "every" => "schedule.everyMs is missing or not a whole number of milliseconds".to_owned(),
                "cron" => "schedule.expr is missing or not a string".to_owned(),
                "at" => "schedule.at is not a string; write it as 2026-11-15T08:30:00Z".to_owned(),
                other => format!("schedule.kind \"{other}\" is not supported; use at, every or cron"),
            });
        }
        // A job must not run without its condition, or at another pace.
        if let Some(name) =
            ["trigger", "pacing"].iter().find(|name| self.extra.get(**name).is_some_and(|v| !v.is_null()))
        {
            return Some(format!("{name} is not supported; leave it out"));
        }
        if self.delivery.as_ref().is_some_and(|delivery| delivery["mode"] == "webhook") {
            return Some("delivery.mode \"webhook\" is not supported; use announce, or none".to_owned());
        }
        match (&self.session_target, &self.payload) {
            (JobTarget::Other(target), _) => {
                Some(format!("sessionTarget \"{target}\" is not supported; use main or isolated"))
            }
            (_, JobPayload::Other(fields)) => Some(match kind(fields) {
                "systemEvent" => "payload.text is missing or not a string".to_owned(),
                "agentTurn" => {
                    "payload.message is missing or not a string, or another field has the wrong type".to_owned()
                }
                other => format!("payload.kind \"{other}\" is not supported; use systemEvent or agentTurn"),
            }),
            (JobTarget::Main, JobPayload::AgentTurn(_)) => Some(
                "a job of the main session needs payload.kind \"systemEvent\"; use it, or sessionTarget \"isolated\""
                    .to_owned(),
            ),
            (JobTarget::Isolated, JobPayload::SystemEvent(_)) => {
                Some("an isolated job needs payload.kind \"agentTurn\"; use it, or sessionTarget \"main\"".to_owned())
            }
            (JobTarget::Main, JobPayload::SystemEvent(_)) | (JobTarget::Isolated, JobPayload::AgentTurn(_)) => None,
        }
    }
}

fn kind(fields: &Extra) -> &str {
    fields.get("kind").and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn round_trip(job: &Value) -> Value {
        json!(serde_json::from_value::<CronJob>(job.clone()).unwrap())
    }

    #[test]
    fn a_job_of_another_version_keeps_every_field() {
        let job = json!({
            "id": "j1", "agentId": "ops", "name": "Daily", "enabled": true, "createdAtMs": 1, "updatedAtMs": 2,
            "schedule": {"kind": "cron", "expr": "0 7 * * *", "tz": "America/New_York", "staggerMs": 5},
            "sessionTarget": "isolated", "wakeMode": "next-heartbeat",
            "payload": {"kind": "agentTurn", "message": "look", "model": "a/b", "lightContext": true},
            "delivery": {"mode": "announce", "channel": "last"},
            "state": {"nextRunAtMs": 5, "lastRunAtMs": 3, "lastStatus": "ok", "lastDelivered": true},
            "description": "every day", "failureAlert": false,
        });
        assert_eq!(round_trip(&job), job);
        let unknown = json!({
            "id": "j2", "name": "", "enabled": false, "createdAtMs": 1, "updatedAtMs": 2,
            "schedule": {"kind": "on-exit", "command": "make"}, "sessionTarget": "session:abc", "wakeMode": "later",
            "payload": {"kind": "command", "argv": ["ls"]}, "state": {},
        });
        assert_eq!(round_trip(&unknown), unknown);
    }

    #[test]
    fn an_unsupported_job_is_reported_with_a_remedy() {
        let unsupported_reason = |schedule: Value, target: &str, payload: Value| {
            let job = json!({"id": "j", "schedule": schedule, "sessionTarget": target, "payload": payload});
            serde_json::from_value::<CronJob>(job).unwrap().unsupported()
        };
        let (every, event) = (json!({"kind": "every", "everyMs": 5}), json!({"kind": "systemEvent", "text": "x"}));
        let turn = json!({"kind": "agentTurn", "message": "x"});
        assert_eq!(unsupported_reason(every.clone(), "main", event.clone()), None);
        assert_eq!(unsupported_reason(every.clone(), "isolated", turn.clone()), None);
        for (schedule, target, payload, text) in [
            (
                json!({"kind": "stream"}),
                "main",
                &event,
                "schedule.kind \"stream\" is not supported; use at, every or cron",
            ),
            (every.clone(), "current", &turn, "sessionTarget \"current\" is not supported; use main or isolated"),
            (
                every.clone(),
                "isolated",
                &json!({"kind": "script"}),
                "payload.kind \"script\" is not supported; use systemEvent or agentTurn",
            ),
            (
                every.clone(),
                "main",
                &turn,
                "a job of the main session needs payload.kind \"systemEvent\"; use it, or sessionTarget \"isolated\"",
            ),
            (
                every,
                "isolated",
                &event,
                "an isolated job needs payload.kind \"agentTurn\"; use it, or sessionTarget \"main\"",
            ),
        ] {
            assert_eq!(unsupported_reason(schedule, target, payload.clone()).as_deref(), Some(text));
        }
        let webhook_job = json!({
            "id": "j", "schedule": {"kind": "every", "everyMs": 5}, "sessionTarget": "isolated", "payload": turn,
            "delivery": {"mode": "webhook", "to": "https://a.example"},
        });
        let unsupported_reason = serde_json::from_value::<CronJob>(webhook_job).unwrap().unsupported();
        assert_eq!(
            unsupported_reason.as_deref(),
            Some("delivery.mode \"webhook\" is not supported; use announce, or none")
        );
    }
}
