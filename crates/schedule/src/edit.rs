//! Creation and changes of jobs: accepted fields, defaults and error messages.

use homard_agent::profile::Agents;
use homard_proto::{AgentId, Extra};
use jiff::tz::TimeZone;
use serde_json::{Value, json};

use super::{
    due::{self, MIN_INTERVAL_MS},
    job::{CronJob, JobPayload, JobSchedule, JobState},
};

/// How far in the past a one-time job may be created: a client's clock may be slow.
const PAST_MS: u64 = 60_000;

/// What a job is validated against.
#[derive(Debug, Clone, Copy)]
pub(super) struct JobContext<'a> {
    pub(super) agents: &'a Agents,
    pub(super) zone: &'a TimeZone,
    pub(super) now: u64,
}

/// Creates a job from a client's fields, or returns what is wrong with them.
pub(super) fn create(mut fields: Extra, id: &str, context: JobContext<'_>) -> Result<CronJob, String> {
    fields.retain(|name, value| !value.is_null() && !is_internal_field(name));
    let kind = |fields: &Extra, name: &str| fields.get(name).map(|value| value["kind"].clone());
    let target = if kind(&fields, "payload") == Some(json!("systemEvent")) { "main" } else { "isolated" };
    if kind(&fields, "schedule") == Some(json!("at")) && !fields.contains_key("deleteAfterRun") {
        fields.insert("deleteAfterRun".to_owned(), true.into());
    }
    for (name, value) in [("sessionTarget", json!(target)), ("wakeMode", json!("now")), ("enabled", json!(true))] {
        fields.entry(name).or_insert(value);
    }
    for (name, value) in [("id", json!(id)), ("createdAtMs", json!(context.now)), ("updatedAtMs", json!(context.now))] {
        fields.insert(name.to_owned(), value);
    }
    check(read(fields)?, context, None)
}

/// Applies a client's patch to a job, or returns what is wrong with it. If the patch changes the schedule of a
/// recurring job or enables such a job, slots that have already passed neither run nor count as missed.
pub(super) fn change(job: &CronJob, patch: Extra, context: JobContext<'_>) -> Result<CronJob, String> {
    let Value::Object(mut fields) = json!(job) else { return Err("the job cannot be serialized".to_owned()) };
    for (name, value) in patch {
        let is_merged = matches!(name.as_str(), "payload" | "delivery");
        match (fields.get_mut(&name), value) {
            _ if is_internal_field(&name) => {}
            (_, Value::Null) => drop(fields.shift_remove(&name)),
            (Some(Value::Object(old)), Value::Object(new)) if is_merged && is_same_kind(old, &new) => merge(old, new),
            (_, value) => drop(fields.insert(name, value)),
        }
    }
    fields.insert("updatedAtMs".to_owned(), context.now.into());
    let changed = read(fields)?;
    let is_restarted = changed.schedule != job.schedule || (changed.enabled && !job.enabled);
    let mut changed = check(changed, context, Some(job))?;
    if is_restarted {
        changed.state.settled_at_ms = (!matches!(changed.schedule, JobSchedule::At(_))).then_some(context.now);
        changed.state.last_run_at_ms =
            changed.state.last_run_at_ms.filter(|_| !matches!(changed.schedule, JobSchedule::At(_)));
        changed.state.next_run_at_ms = None;
    }
    Ok(changed)
}

/// Fields of a job that only the scheduler sets.
fn is_internal_field(name: &str) -> bool {
    matches!(name, "id" | "state" | "createdAtMs" | "updatedAtMs")
}

fn is_same_kind(old: &Extra, new: &Extra) -> bool {
    ["kind", "mode"].iter().all(|name| new.get(*name).is_none_or(|kind| old.get(*name) == Some(kind)))
}

/// Merges new values into old ones; `null` clears one.
fn merge(old: &mut Extra, new: Extra) {
    for (name, value) in new {
        if value.is_null() {
            old.shift_remove(&name);
        } else {
            old.insert(name, value);
        }
    }
}

fn read(fields: Extra) -> Result<CronJob, String> {
    serde_json::from_value(Value::Object(fields)).map_err(|error| error.to_string().replace('`', "\""))
}

fn check(mut job: CronJob, context: JobContext<'_>, before: Option<&CronJob>) -> Result<CronJob, String> {
    job.name = job.name.trim().to_owned();
    if job.name.is_empty() {
        return Err("name must not be blank".to_owned());
    }
    if let Some(reason) = job.unsupported() {
        return Err(reason);
    }
    let text_field = match &job.payload {
        JobPayload::SystemEvent(event) => ("payload.text", event.text.as_str()),
        JobPayload::AgentTurn(turn) => ("payload.message", turn.message.as_str()),
        JobPayload::Other(_) => ("payload", ""),
    };
    if text_field.1.trim().is_empty() {
        return Err(format!("{} must not be blank", text_field.0));
    }
    if let JobPayload::AgentTurn(turn) = &job.payload
        && let Some(level) = turn.thinking.as_deref().filter(|level| homard_command::levels::thinking(level).is_none())
    {
        return Err(format!(
            "payload.thinking \"{level}\" is not a level; use {}",
            homard_command::levels::THINKING_LEVELS.join("|")
        ));
    }
    if let Some(raw) = &job.agent_id
        && context.agents.get(&AgentId::normalize(raw)).is_none()
    {
        return Err(format!("unknown agent id \"{}\"", raw.trim()));
    }
    let is_rescheduled = before.is_none_or(|before| before.schedule != job.schedule || !before.enabled);
    if is_rescheduled && job.enabled {
        check_schedule(&job, context)?;
    }
    if before.is_none() {
        job.state = JobState::default();
    }
    Ok(job)
}

/// Checks that a schedule has at least one more slot.
fn check_schedule(job: &CronJob, context: JobContext<'_>) -> Result<(), String> {
    if let JobSchedule::Every(every) = &job.schedule
        && every.every_ms < MIN_INTERVAL_MS
    {
        return Err(format!("schedule.everyMs must be at least {MIN_INTERVAL_MS}"));
    }
    let next = due::next(job, context.zone, context.now.saturating_sub(PAST_MS)).map_err(|error| error.to_string())?;
    match (next, &job.schedule) {
        (Some(_), _) => Ok(()),
        (None, JobSchedule::At(_)) => Err("schedule.at is in the past".to_owned()),
        (None, JobSchedule::Every(_) | JobSchedule::Cron(_) | JobSchedule::Other(_)) => {
            Err("the schedule has no future run time".to_owned())
        }
    }
}
