//! `tasks.list` and `diagnostics.lanes`: background tasks and the use of concurrency slots.

use homard_agent::hub::{LiveRunStatus, RunProgress};
use homard_proto::{
    AgentId, ErrorShape, SessionKey,
    method::queries::{LanesParams, TasksParams},
    session::Record,
};
use serde_json::{Value, json};

use super::{session_key, unavailable};
use crate::router::{RpcCall, RpcResult};

/// Default number of tasks.
const DEFAULT_TASKS: usize = 100;

/// Lists sub-agent and scheduled runs, newest first. Each has a session of its own, which holds its state.
pub(crate) async fn list(mut call: RpcCall) -> Result<RpcResult, ErrorShape> {
    let TasksParams { agent_id, session_key: key, status, limit } = call.params()?;
    let parent = key.as_deref().map(|key| session_key(&call.server, "tasks.list", key)).transpose()?;
    let agent = agent_id.as_deref().map(AgentId::normalize);
    let runs = call.server.hub.runs().live();
    let sessions = call.server.hub.sessions().list().await.map_err(unavailable)?;
    let is_task = |key: &SessionKey| key.is_subagent() || key.is_cron();
    let is_listed = |key: &SessionKey, record: &Record| {
        is_task(key)
            && agent.as_ref().is_none_or(|agent| key.agent() == Some(agent))
            && parent.as_ref().is_none_or(|parent| record.spawned_by.as_deref() == Some(parent.as_str()))
    };
    let tasks = sessions.iter().filter(|(key, record)| is_listed(key, record));
    let tasks = tasks.map(|(key, record)| task(key, record, runs.iter().find(|run| run.key == *key)));
    let tasks = tasks.filter(|task| is_in(&task["status"], &status)).take(limit.unwrap_or(DEFAULT_TASKS));
    Ok(json!({"tasks": tasks.collect::<Vec<_>>()}).into())
}

fn is_in(status: &Value, wanted: &Value) -> bool {
    match wanted {
        Value::Array(statuses) => statuses.contains(status),
        Value::Null => true,
        single @ (Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_)) => single == status,
    }
}

fn task(key: &SessionKey, record: &Record, run: Option<&LiveRunStatus>) -> Value {
    let kind = if key.is_cron() { "cron" } else { "subagent" };
    let status = match run.map(|run| run.progress) {
        Some(RunProgress::Queued) => "queued",
        Some(RunProgress::Running | RunProgress::LongRunning | RunProgress::Stalled | RunProgress::Stuck) => "running",
        None if record.aborted_last_run == Some(true) => "cancelled",
        None => "completed",
    };
    let mut task = json!({
        "id": key, "kind": kind, "runtime": kind, "status": status, "childSessionKey": key,
        "title": record.label.as_deref().unwrap_or(key.as_str()), "updatedAt": record.updated_at,
    });
    if let Some(agent) = key.agent() {
        task["agentId"] = json!(agent);
    }
    if let Some(owner) = &record.spawned_by {
        task["sessionKey"] = owner.as_str().into();
    }
    match run {
        Some(run) => {
            task["runId"] = json!(run.run);
            task["startedAt"] = run.accepted_at.into();
        }
        None => task["endedAt"] = record.updated_at.into(),
    }
    task
}

/// Returns active and queued runs by kind.
pub(crate) async fn lanes(mut call: RpcCall) -> Result<RpcResult, ErrorShape> {
    let LanesParams {} = call.params()?;
    let hub = &call.server.hub;
    let lanes = hub.runs().slots().loads().map(|load| {
        let blocked = (load.taken >= load.size && load.waiting > 0).then_some("capacity");
        json!({
            "lane": load.name, "maxConcurrent": load.size, "activeCount": load.taken, "queuedCount": load.waiting,
            "draining": false, "generation": 0, "blockedBy": blocked,
        })
    });
    Ok(json!({"ts": hub.ambient().now_ms(), "lanes": lanes, "dynamic": null}).into())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use homard_proto::{RunId, SessionId};

    use super::*;

    #[test]
    fn a_task_row_is_built_from_its_session_and_run() {
        let key = SessionKey::parse("agent:main:subagent:x", &AgentId::main()).unwrap();
        let mut record = Record::new(SessionId::parse("s").unwrap(), 7);
        record.spawned_by = Some("agent:main:main".to_owned());
        record.label = Some("Look it up".to_owned());
        let run = RunId::parse("r").unwrap();
        let live_run = LiveRunStatus {
            run,
            key: key.clone(),
            accepted_at: 3,
            idle: Duration::ZERO,
            progress: RunProgress::Queued,
        };
        let mut expected = json!({
            "id": "agent:main:subagent:x", "kind": "subagent", "runtime": "subagent", "status": "queued",
            "childSessionKey": "agent:main:subagent:x", "title": "Look it up", "updatedAt": 7, "agentId": "main",
            "sessionKey": "agent:main:main", "runId": "r", "startedAt": 3,
        });
        assert_eq!(task(&key, &record, Some(&live_run)), expected);
        expected["status"] = "completed".into();
        expected["endedAt"] = 7.into();
        expected.as_object_mut().unwrap().retain(|name, _| name != "runId" && name != "startedAt");
        assert_eq!(task(&key, &record, None), expected);
        record.aborted_last_run = Some(true);
        assert_eq!(task(&key, &record, None)["status"], "cancelled");
    }

    #[test]
    fn the_status_filter_matches_one_or_several_values() {
        let matches = |wanted: Value| is_in(&json!("running"), &wanted);
        assert!(matches(Value::Null) && matches(json!("running")) && matches(json!(["queued", "running"])));
        assert!(!matches(json!("queued")) && !matches(json!([])));
    }
}
