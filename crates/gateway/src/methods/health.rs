//! `health`, `status` and `system-presence`: the state of the gateway. None of them reads a transcript.

use std::sync::Arc;

use homard_agent::{
    hub::{LiveRunStatus, RunProgress},
    row::{newest_first, status_row},
};
use homard_proto::{
    AgentId, ErrorShape, SessionKey,
    method::gateway::{HealthParams, StatusParams},
    session::Record,
};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{sessions, unavailable};
use crate::{
    router::{RpcCall, RpcResult},
    server::ServerState,
};

/// Number of sessions listed by `health`.
const HEALTH_SESSIONS: usize = 5;
/// Number of sessions listed by `status`.
const STATUS_SESSIONS: usize = 10;
/// Maximum number of slow runs listed.
const MAX_SLOW_RUNS: usize = 20;

/// Returns the health report.
pub(crate) async fn health(mut call: RpcCall) -> Result<RpcResult, ErrorShape> {
    let HealthParams {} = call.params()?;
    Ok(report(&call.server).await?.into())
}

/// Builds the health report, as used by `health`, `hello-ok` and the `health` event.
pub(crate) async fn report(server: &ServerState) -> Result<Value, ErrorShape> {
    let started_at = Instant::now();
    let hub = &server.hub;
    let all = hub.sessions().unsorted().await.map_err(unavailable)?;
    let now = hub.ambient().now_ms();
    let row = |(key, record): &SessionRow| json!({"key": key, "updatedAt": record.updated_at, "age": now.saturating_sub(record.updated_at)});
    let rows =
        |sessions: Vec<&SessionRow>| -> Vec<_> { newest(sessions, HEALTH_SESSIONS).into_iter().map(row).collect() };
    let summary = |agent: &AgentId| {
        let sessions: Vec<_> = all.iter().filter(|(key, _)| key.agent() == Some(agent)).collect();
        json!({"path": sessions::path(server, agent), "count": sessions.len(), "recent": rows(sessions)})
    };
    let agents = hub.agents();
    let default = agents.default_id();
    let agent = |id: &AgentId| {
        json!({
            "agentId": id, "isDefault": id == default, "sessions": summary(id),
            "heartbeat": heartbeat(server, id),
        })
    };
    let agents: Vec<_> = agents.iter().map(|profile| agent(&profile.id)).collect();
    let recent = rows(all.iter().collect());
    let mut report = json!({
        "ok": true, "ts": now, "durationMs": started_at.elapsed().as_millis() as u64,
        "channels": {}, "channelOrder": [], "channelLabels": {}, "heartbeatSeconds": heartbeat(server, default)["everyMs"].as_u64().unwrap_or_default() / 1000,
        "defaultAgentId": default, "agents": agents,
        "sessions": {"path": sessions::path(server, default), "count": all.len(), "recent": recent},
    });
    add_run_counts(server, &mut report);
    Ok(report)
}

/// A session key and its record.
type SessionRow = (SessionKey, Arc<Record>);

/// Returns the newest rows, newest first. Only these are sorted: there may be thousands, and every client asks.
fn newest(mut rows: Vec<&SessionRow>, limit: usize) -> Vec<&SessionRow> {
    if rows.len() > limit {
        rows.select_nth_unstable_by(limit, |(a_key, a), (b_key, b)| newest_first(a_key, a, b_key, b));
        rows.truncate(limit);
    }
    rows.sort_by(|(a_key, a), (b_key, b)| newest_first(a_key, a, b_key, b));
    rows
}

/// Heartbeat settings of an agent.
fn heartbeat(server: &ServerState, agent: &AgentId) -> Value {
    let configs = server.schedule.as_ref().map(|schedule| schedule.heartbeats().configs()).unwrap_or_default();
    let config = configs.iter().find(|config| config.agent == *agent).filter(|config| !config.every.is_zero());
    let every = config.map(|config| config.every).unwrap_or_default();
    json!({
        "enabled": config.is_some(), "every": format!("{}m", every.as_secs() / 60), "everyMs": every.as_millis() as u64,
        "prompt": config.and_then(|config| config.prompt.clone()).unwrap_or_default(), "target": config.map_or("none", |config| config.target.as_str()),
        "ackMaxChars": config.map(|config| config.ack_max).unwrap_or_default(),
    })
}

/// Adds the numbers of active and queued runs, slow runs, outages and warnings to a report.
fn add_run_counts(server: &ServerState, report: &mut Value) {
    let run = server.hub.runs().live();
    let count = |progress: RunProgress| run.iter().filter(|run| run.progress == progress).count();
    let slow_runs = run
        .iter()
        .filter(|run| !matches!(run.progress, RunProgress::Queued | RunProgress::Running))
        .take(MAX_SLOW_RUNS);
    let row = |run: &LiveRunStatus| {
        json!({
            "runId": run.run, "sessionKey": run.key, "pace": run.progress.name(), "acceptedAt": run.accepted_at,
            "quietMs": run.idle.as_millis() as u64,
        })
    };
    report["work"] = json!({
        "queued": count(RunProgress::Queued), "running": count(RunProgress::Running), "longRunning": count(RunProgress::LongRunning),
        "stalled": count(RunProgress::Stalled), "stuck": count(RunProgress::Stuck), "slow": slow_runs.map(row).collect::<Vec<_>>(),
    });
    // `ok` stays true, as OpenClaw's clients expect of a gateway that responds.
    report["degraded"] = json!(server.monitoring.outages.as_ref().map(|outages| outages()).unwrap_or_default());
    if let Some(warning) = server.warnings.text() {
        report["notice"] = warning.into();
    }
}

/// Returns the presence list.
pub(crate) async fn presence(mut call: RpcCall) -> Result<RpcResult, ErrorShape> {
    let HealthParams {} = call.params()?;
    let (rows, _) = call.server.presence.list(call.server.hub.ambient().now_ms());
    Ok(json!(rows).into())
}

/// Returns an overview for operators.
pub(crate) async fn status(mut call: RpcCall) -> Result<RpcResult, ErrorShape> {
    let StatusParams {} = call.params()?;
    let (server, hub) = (&call.server, &call.server.hub);
    let all = hub.sessions().unsorted().await.map_err(unavailable)?;
    let now = hub.ambient().now_ms();
    let recent = |sessions: Vec<&SessionRow>| -> Vec<_> {
        newest(sessions, STATUS_SESSIONS).into_iter().map(|(key, record)| status_row(key, record, now)).collect()
    };
    let by_agent = |id: &AgentId| {
        let sessions: Vec<_> = all.iter().filter(|(key, _)| key.agent() == Some(id)).collect();
        json!({"agentId": id, "path": sessions::path(server, id), "count": sessions.len(), "recent": recent(sessions)})
    };
    let agents = hub.agents();
    let ids = || agents.iter().map(|profile| &profile.id);
    let heartbeat_row = |id: &AgentId| {
        let config = heartbeat(server, id);
        json!({"agentId": id, "enabled": config["enabled"], "every": config["every"], "everyMs": config["everyMs"]})
    };
    let defaults = sessions::defaults(server);
    let mut report = json!({
        "runtimeVersion": env!("CARGO_PKG_VERSION"),
        "heartbeat": {
            "defaultAgentId": hub.agents().default_id(), "agents": ids().map(heartbeat_row).collect::<Vec<_>>(),
        },
        "channelSummary": [], "queuedSystemEvents": [],
        "sessions": {
            "paths": ids().map(|id| sessions::path(server, id)).collect::<Vec<_>>(), "count": all.len(),
            "defaults": {"model": defaults["model"], "contextTokens": defaults["contextTokens"]},
            "recent": recent(all.iter().collect()), "byAgent": ids().map(by_agent).collect::<Vec<_>>(),
        },
    });
    add_run_counts(server, &mut report);
    Ok(report.into())
}
