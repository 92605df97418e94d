//! A job as OpenClaw's `cron/jobs.json` keeps it: what shall be done, and when.
//!
//! Names are OpenClaw's. What this version does not know is kept as it came, so a file written by another version loses
//! nothing by passing through this one.

use homard_proto::{AgentId, Extra, RunId, SessionKey};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Job {
    /// Names it for good.
    pub id: String,
    /// Whose work it is; without one, the default agent's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// What people call it.
    #[serde(default)]
    pub name: String,
    /// Whether it runs at all.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// Whether it goes once it has run well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delete_after_run: Option<bool>,
    /// Milliseconds since the epoch.
    #[serde(default)]
    pub created_at_ms: u64,
    /// Milliseconds since the epoch.
    #[serde(default)]
    pub updated_at_ms: u64,
    /// When it runs.
    pub schedule: When,
    /// Where it runs.
    pub session_target: Target,
    /// When the main session is told of it.
    #[serde(default)]
    pub wake_mode: Wake,
    /// What is done.
    pub payload: Payload,
    /// Where its answer goes, kept as it came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery: Option<Value>,
    /// How far it has come.
    #[serde(default)]
    pub state: State,
    /// Fields of other versions.
    #[serde(flatten)]
    pub extra: Extra,
}

fn yes() -> bool {
    true
}

/// When a job runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum When {
    /// Once.
    At(At),
    /// Again and again, so far apart.
    Every(Every),
    /// By a cron expression.
    Cron(Cron),
    /// In a way of another version.
    #[serde(untagged)]
    Other(Extra),
}

/// A moment. Older files say it in milliseconds.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct At {
    /// An ISO 8601 time; one without a zone is UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// Milliseconds since the epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_ms: Option<u64>,
    /// Fields of other versions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// A distance.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Every {
    /// How far apart, in milliseconds.
    pub every_ms: u64,
    /// From when it is counted; without one, from when the job was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anchor_ms: Option<u64>,
    /// Fields of other versions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// A cron expression.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cron {
    /// Five fields, or six with seconds first.
    pub expr: String,
    /// The time zone whose clock counts, such as `Europe/Berlin`; without one, the machine's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tz: Option<String>,
    /// Fields of other versions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// Where a job runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Target {
    /// The agent's main session hears of it.
    Main,
    /// A session of its own, with a new transcript each time.
    Isolated,
    /// Somewhere that this version does not know.
    #[serde(untagged)]
    Other(String),
}

/// When the main session is told.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wake {
    /// At once.
    #[default]
    Now,
    /// With the next heartbeat.
    NextHeartbeat,
    /// In a way of another version; read as `now`.
    #[serde(untagged)]
    Other(String),
}

/// What a job does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub enum Payload {
    /// The main session is told something.
    SystemEvent(SystemEvent),
    /// The agent is asked something.
    AgentTurn(AgentTurn),
    /// Something that this version cannot do.
    #[serde(untagged)]
    Other(Extra),
}

/// What the main session is told.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SystemEvent {
    /// The words.
    pub text: String,
    /// Fields of other versions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// What the agent is asked.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentTurn {
    /// The words.
    pub message: String,
    /// How hard the model thinks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thinking: Option<String>,
    /// How long it may take; 0 is the agent's own limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<f64>,
    /// Fields of other versions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// How far a job has come. A slot is the moment that a run was planned for.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct State {
    /// The next slot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_run_at_ms: Option<u64>,
    /// Since when it is at work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running_at_ms: Option<u64>,
    /// The slot that it is at work on. Written before the run is asked for, so a restart knows what to look for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running_slot_ms: Option<u64>,
    /// Everything planned up to here has ended as ran, missed or skipped, or is at work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settled_at_ms: Option<u64>,
    /// When it last ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_run_at_ms: Option<u64>,
    /// How that ended: `ok`, `error` or `skipped`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_status: Option<String>,
    /// The same, as newer clients read it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_run_status: Option<String>,
    /// What went wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// How long it took.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_duration_ms: Option<u64>,
    /// How often in a row it went wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consecutive_errors: Option<u64>,
    /// How many slots went by while nobody was there to run them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missed_slots: Option<u64>,
    /// Fields of other versions.
    #[serde(flatten)]
    pub extra: Extra,
}

impl Job {
    /// Whose work it is.
    pub fn agent(&self, default: &AgentId) -> AgentId {
        self.agent_id.as_deref().map_or_else(|| default.clone(), AgentId::normalize)
    }

    /// The session that it works in, if it has its own.
    pub fn session(&self, default: &AgentId) -> Option<SessionKey> {
        SessionKey::parse(&format!("agent:{}:cron:{}", self.agent(default), self.id), default).ok()
    }

    /// The run of a slot. The same slot is always the same run, so it cannot run twice.
    pub fn run_id(&self, slot: u64) -> Option<RunId> {
        RunId::parse(&format!("cron-{}-{slot}", self.id)).ok()
    }

    /// Why this version cannot run it, if it cannot.
    pub fn unsupported(&self) -> Option<String> {
        if let When::Other(fields) = &self.schedule {
            return Some(match kind(fields) {
                "every" => "schedule.everyMs is missing or not a whole number of milliseconds".to_owned(),
                "cron" => "schedule.expr is missing or not a text".to_owned(),
                "at" => "schedule.at is not a text; write it as 2026-11-15T08:30:00Z".to_owned(),
                other => format!("schedule.kind \"{other}\" is not supported; use at, every or cron"),
            });
        }
        // A job that would run without its condition, or at another pace, is better not run.
        if let Some(name) =
            ["trigger", "pacing"].iter().find(|name| self.extra.get(**name).is_some_and(|v| !v.is_null()))
        {
            return Some(format!("{name} is not supported; leave it out"));
        }
        if self.delivery.as_ref().is_some_and(|delivery| delivery["mode"] == "webhook") {
            return Some("delivery.mode \"webhook\" is not supported; use announce, or none".to_owned());
        }
        match (&self.session_target, &self.payload) {
            (Target::Other(target), _) => {
                Some(format!("sessionTarget \"{target}\" is not supported; use main or isolated"))
            }
            (_, Payload::Other(fields)) => Some(match kind(fields) {
                "systemEvent" => "payload.text is missing or not a text".to_owned(),
                "agentTurn" => {
                    "payload.message is missing or not a text, or another field has the wrong type".to_owned()
                }
                other => format!("payload.kind \"{other}\" is not supported; use systemEvent or agentTurn"),
            }),
            (Target::Main, Payload::AgentTurn(_)) => Some(
                "a job of the main session needs payload.kind \"systemEvent\"; use it, or sessionTarget \"isolated\""
                    .to_owned(),
            ),
            (Target::Isolated, Payload::SystemEvent(_)) => {
                Some("an isolated job needs payload.kind \"agentTurn\"; use it, or sessionTarget \"main\"".to_owned())
            }
            (Target::Main, Payload::SystemEvent(_)) | (Target::Isolated, Payload::AgentTurn(_)) => None,
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
        json!(serde_json::from_value::<Job>(job.clone()).unwrap())
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
        let strange = json!({
            "id": "j2", "name": "", "enabled": false, "createdAtMs": 1, "updatedAtMs": 2,
            "schedule": {"kind": "on-exit", "command": "make"}, "sessionTarget": "session:abc", "wakeMode": "later",
            "payload": {"kind": "command", "argv": ["ls"]}, "state": {},
        });
        assert_eq!(round_trip(&strange), strange);
    }

    #[test]
    fn what_cannot_be_run_is_said_with_the_way_out() {
        let why = |schedule: Value, target: &str, payload: Value| {
            let job = json!({"id": "j", "schedule": schedule, "sessionTarget": target, "payload": payload});
            serde_json::from_value::<Job>(job).unwrap().unsupported()
        };
        let (every, event) = (json!({"kind": "every", "everyMs": 5}), json!({"kind": "systemEvent", "text": "x"}));
        let turn = json!({"kind": "agentTurn", "message": "x"});
        assert_eq!(why(every.clone(), "main", event.clone()), None);
        assert_eq!(why(every.clone(), "isolated", turn.clone()), None);
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
            assert_eq!(why(schedule, target, payload.clone()).as_deref(), Some(text));
        }
        let calls = json!({
            "id": "j", "schedule": {"kind": "every", "everyMs": 5}, "sessionTarget": "isolated", "payload": turn,
            "delivery": {"mode": "webhook", "to": "https://a.example"},
        });
        let why = serde_json::from_value::<Job>(calls).unwrap().unsupported();
        assert_eq!(why.as_deref(), Some("delivery.mode \"webhook\" is not supported; use announce, or none"));
    }
}
