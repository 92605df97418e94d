//! `cron.*`, `wake`, `last-heartbeat` and `set-heartbeats`: scheduled jobs and heartbeats.

use std::cmp::Ordering;

use homard_proto::{
    AgentId, ErrorShape, Generation, SessionKey,
    method::{
        Params,
        cron::{
            AddParams, GetParams, JobRef, LastHeartbeatParams, ListParams, RemoveParams, RunParams, RunsParams,
            SetHeartbeatsParams, StatusParams, UpdateParams, WakeParams,
        },
    },
};
use homard_schedule::{
    self as schedule, RunMode, RunNowResult, Schedule,
    job::{CronJob, WakeMode},
};
use serde_json::{Value, json};

use super::unavailable;
use crate::router::{RpcCall, RpcResult};

/// Default number of items per page of `cron.list` and `cron.runs` in protocol 4.
const DEFAULT_PAGE: usize = 200;
/// Default number of runs that `cron.runs` returns in protocol 3, which has no pages: the newest ones.
const DEFAULT_PAGE_V3: usize = 200;

/// Returns the state of the schedule, the number of jobs, and the time of the next run.
pub(crate) async fn status(mut call: RpcCall) -> Result<RpcResult, ErrorShape> {
    let StatusParams {} = call.params()?;
    let schedule = schedule(&call)?;
    let view = schedule.view();
    let next = view.jobs.iter().filter(|job| job.enabled).filter_map(|job| job.state.next_run_at_ms).min();
    let next = next.filter(|_| view.is_enabled);
    let answer = json!({
        "enabled": view.is_enabled, "storePath": schedule.location(), "jobs": view.jobs.len(), "nextWakeAtMs": next,
    });
    Ok(answer.into())
}

/// Lists jobs, next run first.
pub(crate) async fn list(mut call: RpcCall) -> Result<RpcResult, ErrorShape> {
    let ListParams { include_disabled, limit, offset, query, enabled, agent_id, sort_by, sort_dir } = call.params()?;
    let filter = JobFilter { include_disabled: include_disabled == Some(true), query, enabled, agent_id };
    let view = schedule(&call)?.view();
    let agents = call.server.hub.agents();
    let default = agents.default_id();
    let mut jobs: Vec<&CronJob> = view.jobs.iter().filter(|job| filter.matches(job, default)).collect();
    jobs.sort_by(|a, b| order(a, b, sort_by.as_deref()));
    if sort_dir.as_deref() == Some("desc") {
        jobs.reverse();
    }
    let jobs: Vec<Value> = jobs.into_iter().map(|job| json!(job)).collect();
    let answer = match call.client.generation {
        Generation::Three => json!({"jobs": jobs}),
        Generation::Four => {
            let mut page = page(&jobs, "jobs", offset, limit);
            page["snapshotRevision"] = view.revision.to_string().into();
            page
        }
    };
    Ok(answer.into())
}

/// Builds a page of a list, in the member `name`, with paging information.
fn page(all: &[Value], name: &str, offset: Option<usize>, limit: Option<usize>) -> Value {
    let (total, limit) = (all.len(), limit.unwrap_or(DEFAULT_PAGE));
    let offset = offset.unwrap_or(0).min(total);
    let next = (offset + limit).min(total);
    let has_more = next < total;
    json!({
        name: &all[offset..next], "total": total, "offset": offset, "limit": limit, "hasMore": has_more,
        "nextOffset": has_more.then_some(next),
    })
}

/// Filter of a job list.
struct JobFilter {
    include_disabled: bool,
    query: Option<String>,
    enabled: Option<String>,
    agent_id: Option<String>,
}

impl JobFilter {
    fn matches(&self, job: &CronJob, default: &AgentId) -> bool {
        let is_enabled = match self.enabled.as_deref() {
            Some("all") => true,
            Some("enabled") => job.enabled,
            Some("disabled") => !job.enabled,
            Some(_) | None => job.enabled || self.include_disabled,
        };
        let query = self.query.as_deref().unwrap_or_default().trim().to_lowercase();
        let description = job.extra.get("description").and_then(Value::as_str).unwrap_or_default();
        let is_found = [job.name.as_str(), description].iter().any(|text| text.to_lowercase().contains(&query));
        let is_of_agent = self.agent_id.as_deref().is_none_or(|id| job.agent(default) == AgentId::normalize(id));
        is_enabled && is_found && is_of_agent
    }
}

/// Compares two jobs by the requested key; jobs without a next run come last.
fn order(a: &CronJob, b: &CronJob, by: Option<&str>) -> Ordering {
    match by {
        Some("name") => a.name.to_lowercase().cmp(&b.name.to_lowercase()),
        Some("updatedAtMs") => a.updated_at_ms.cmp(&b.updated_at_ms),
        Some(_) | None => {
            let next = |job: &CronJob| job.state.next_run_at_ms.unwrap_or(u64::MAX);
            next(a).cmp(&next(b))
        }
    }
}

/// Returns one job.
pub(crate) async fn get(mut call: RpcCall) -> Result<RpcResult, ErrorShape> {
    let GetParams { which } = call.params()?;
    let id = job_id::<GetParams>(&which)?;
    let view = schedule(&call)?.view();
    let job = view.jobs.iter().find(|job| job.id == id);
    let job = job.ok_or_else(|| error_response::<GetParams>(&schedule::Error::Unknown(id.to_owned())))?;
    Ok(json!(job).into())
}

/// Adds a job.
pub(crate) async fn add(mut call: RpcCall) -> Result<RpcResult, ErrorShape> {
    let AddParams(fields) = call.params()?;
    let job = schedule(&call)?.add(fields).await.map_err(|error| error_response::<AddParams>(&error))?;
    Ok(json!(job).into())
}

/// Changes a job.
pub(crate) async fn update(mut call: RpcCall) -> Result<RpcResult, ErrorShape> {
    let UpdateParams { which, patch } = call.params()?;
    let id = job_id::<UpdateParams>(&which)?;
    let job = schedule(&call)?.update(id, patch).await.map_err(|error| error_response::<UpdateParams>(&error))?;
    Ok(json!(job).into())
}

/// Removes a job.
pub(crate) async fn remove(mut call: RpcCall) -> Result<RpcResult, ErrorShape> {
    let RemoveParams { which } = call.params()?;
    let id = job_id::<RemoveParams>(&which)?;
    let removed = schedule(&call)?.remove(id).await.map_err(|error| error_response::<RemoveParams>(&error))?;
    Ok(json!({"ok": true, "removed": removed}).into())
}

/// Starts a job now; does not wait for its end.
pub(crate) async fn run(mut call: RpcCall) -> Result<RpcResult, ErrorShape> {
    let RunParams { which, mode } = call.params()?;
    let id = job_id::<RunParams>(&which)?;
    let mode = if mode.as_deref() == Some("due") { RunMode::Due } else { RunMode::Force };
    let result = schedule(&call)?.run(id, mode).await.map_err(|error| error_response::<RunParams>(&error))?;
    let answer = match (result, call.client.generation) {
        (RunNowResult::Started(_), Generation::Three) => json!({"ok": true, "ran": true}),
        (RunNowResult::Started(run), Generation::Four) => json!({"ok": true, "enqueued": true, "runId": run}),
        (RunNowResult::NotDue, _) => json!({"ok": true, "ran": false, "reason": "not-due"}),
        (RunNowResult::AlreadyRunning, _) => json!({"ok": true, "ran": false, "reason": "already-running"}),
    };
    Ok(answer.into())
}

/// Lists past runs of jobs: the last ones, oldest first, in protocol 3; pages, newest first, in protocol 4.
pub(crate) async fn runs(mut call: RpcCall) -> Result<RpcResult, ErrorShape> {
    let RunsParams { which, scope, limit, offset, status, statuses, sort_dir } = call.params()?;
    let schedule = schedule(&call)?;
    let jobs: Vec<String> = if scope.as_deref() == Some("all") {
        schedule.view().jobs.iter().map(|job| job.id.clone()).collect()
    } else {
        vec![job_id::<RunsParams>(&which)?.to_owned()]
    };
    let mut entries = Vec::new();
    for job in &jobs {
        entries.extend(schedule.history(job).await.map_err(|error| error_response::<RunsParams>(&error))?);
    }
    let status = status.as_deref().filter(|status| *status != "all");
    entries.retain(|entry| {
        let found = entry["status"].as_str().unwrap_or_default();
        status.is_none_or(|status| status == found)
            && (statuses.is_empty() || statuses.iter().any(|status| status == found))
    });
    entries.sort_by_key(|entry| entry["ts"].as_u64());
    let answer = match call.client.generation {
        Generation::Three => {
            let first = entries.len().saturating_sub(limit.unwrap_or(DEFAULT_PAGE_V3));
            json!({"entries": &entries[first..]})
        }
        Generation::Four => {
            if sort_dir.as_deref() != Some("asc") {
                entries.reverse();
            }
            page(&entries, "entries", offset, limit)
        }
    };
    Ok(answer.into())
}

/// Sends a text to a main session, now or with its next heartbeat.
pub(crate) async fn wake(mut call: RpcCall) -> Result<RpcResult, ErrorShape> {
    let WakeParams { mode, text, agent_id, session_key } = call.params()?;
    let invalid = |why: String| ErrorShape::invalid(format!("invalid wake params: {why}"));
    let text = text.trim();
    if text.is_empty() {
        return Err(invalid("text must not be blank".to_owned()));
    }
    let agents = call.server.hub.agents();
    let key = session_key.map(|key| SessionKey::parse(&key, agents.default_id())).transpose();
    let key = key.map_err(|error| invalid(format!("sessionKey: {error}")))?;
    let agent =
        agent_id.as_deref().map(AgentId::normalize).or_else(|| key.as_ref().and_then(SessionKey::agent).cloned());
    if let Some(unknown) = agent.as_ref().filter(|agent| agents.get(agent).is_none()) {
        return Err(invalid(format!("unknown agent id \"{unknown}\"")));
    }
    let mode = if mode == "now" { WakeMode::Now } else { WakeMode::NextHeartbeat };
    schedule(&call)?.wake(agent, text, call.client.authority(), &mode).await.map_err(unavailable)?;
    Ok(json!({"ok": true}).into())
}

/// Returns the result of the last heartbeat.
pub(crate) async fn last_heartbeat(mut call: RpcCall) -> Result<RpcResult, ErrorShape> {
    let LastHeartbeatParams {} = call.params()?;
    // Without a schedule there was no heartbeat.
    let last = schedule(&call).ok().and_then(|schedule| schedule.heartbeats().last());
    Ok(last.map_or(Value::Null, |last| (*last).clone()).into())
}

/// Enables or disables heartbeats until the gateway stops.
pub(crate) async fn set_heartbeats(mut call: RpcCall) -> Result<RpcResult, ErrorShape> {
    let SetHeartbeatsParams { enabled } = call.params()?;
    schedule(&call)?.heartbeats().enable(enabled).await;
    Ok(json!({"ok": true, "enabled": enabled}).into())
}

fn schedule(call: &RpcCall) -> Result<&Schedule, ErrorShape> {
    call.server.schedule.as_ref().map_err(ErrorShape::unavailable)
}

fn job_id<P: Params>(which: &JobRef) -> Result<&str, ErrorShape> {
    let missing = || ErrorShape::invalid(format!("invalid {} params: missing id", P::METHOD));
    which.job().ok_or_else(missing)
}

fn error_response<P: Params>(error: &schedule::Error) -> ErrorShape {
    let why = format!("invalid {} params: {error}", P::METHOD);
    match error {
        schedule::Error::Invalid(_) | schedule::Error::Unknown(_) => ErrorShape::invalid(why),
        schedule::Error::Store(error) => ErrorShape::unavailable(error.to_string()),
        schedule::Error::Stopping => ErrorShape { retryable: Some(true), ..ErrorShape::unavailable(error.to_string()) },
    }
}
