//! `homard status`: shows the configuration, the gateway's state, and recent sessions.

use anyhow::Result;
use homard_agent::row::status_row;
use homard_prompt::shortening;
use homard_proto::AgentId;
use homard_runtime::Ambient;
use homard_settings::channel_kinds::is_hosted;
use homard_setup::status::ModelStatus;
use serde_json::{Value, json};

use super::{
    models,
    query::{Args, CommandContext},
    sessions,
};
use crate::render::{self, Table};

/// Maximum number of sessions in the report, as in the gateway's.
const MAX_RECENT: usize = 10;
/// Maximum number of sessions shown.
const RECENT: usize = 5;

/// Shows the locations, whether the gateway answers, and the newest sessions.
pub(super) async fn run(args: &Args) -> Result<()> {
    let (setup, unusable) = CommandContext::inspect()?;
    let answer = setup.query("status").await?;
    let reachable = answer.is_some();
    let mut status = match answer {
        Some(status) => status,
        None => offline(&setup).await?,
    };
    let paths = &setup.paths;
    status["gateway"] = json!({"url": setup.target.url, "reachable": reachable});
    status["stateDir"] = json!(paths.state);
    status["configPath"] = json!(paths.config);
    let file = paths.config.display();
    if let Some(why) = &unusable {
        // A running gateway does not know yet that it could not start again.
        status["notice"] =
            format!("{why}; the gateway cannot start with this config; see: homard config validate").into();
    } else if !reachable {
        // A gateway reports on its own config; without one, the file is checked here.
        let warnings = setup.loaded.warnings.iter().map(|warning| format!("config file {file}, {warning}"));
        let outages = homard_settings::outages(&setup.loaded);
        let notices: Vec<_> = setup.config_warning.iter().cloned().chain(outages).chain(warnings).collect();
        if !notices.is_empty() {
            status["notice"] = notices.join("; ").into();
        }
    }
    let model_status = models::model_status(&setup.loaded, paths, None);
    let (model, prompt) = match (&unusable, model_status) {
        (Some(_), _) => ("none: the config file is not valid".to_owned(), None),
        (None, Ok(model_status)) => (model_status.primary.clone(), shortened(&model_status)),
        (None, Err(error)) => (format!("none available: config file {}: {error:#}", paths.config.display()), None),
    };
    status["model"] = model.as_str().into();
    if let Some(prompt) = &prompt {
        status["prompt"] = prompt.as_str().into();
    }
    let hosts = if reachable { channel_hosts(&setup).await? } else { Vec::new() };
    if !hosts.is_empty() {
        status["channelHosts"] = hosts.iter().map(|(channel, bytes)| (channel.clone(), json!(bytes))).collect();
    }
    if args.json {
        return Ok(render::print_json(&status)?);
    }
    let answers = if reachable { "answers" } else { "does not answer; start it with: homard gateway" };
    let missing = if paths.config.exists() { "" } else { " (missing; using defaults)" };
    let count = status.pointer("/sessions/count").and_then(Value::as_u64).unwrap_or_default();
    let mut rows = vec![
        ["gateway".to_owned(), format!("{} {answers}", setup.target.url)],
        ["state".to_owned(), paths.state.display().to_string()],
        ["config".to_owned(), format!("{}{missing}", paths.config.display())],
        ["model".to_owned(), model],
        ["sessions".to_owned(), count.to_string()],
    ];
    if let Some(prompt) = prompt {
        rows.insert(4, ["prompt".to_owned(), render::strip_controls(&prompt)]);
    }
    if let Some(runs) = status.get("work").filter(|runs| !runs.is_null()) {
        rows.push(["runs".to_owned(), describe_runs(runs)]);
    }
    if !hosts.is_empty() {
        let uses = hosts.iter().map(|(channel, bytes)| format!("{channel} uses {} MB", bytes / 1_000_000));
        rows.push(["hosts".to_owned(), render::strip_controls(&uses.collect::<Vec<_>>().join(", "))]);
    }
    if let Some(notice) = status.get("notice").and_then(Value::as_str) {
        rows.insert(1, ["warning".to_owned(), render::strip_controls(notice)]);
    }
    for outage in render::outages(&status).into_iter().rev() {
        rows.insert(1, ["down".to_owned(), render::strip_controls(&outage)]);
    }
    render::print_table(&Table::fields(rows.into_iter().map(Vec::from).collect()))?;
    let recent = status.pointer("/sessions/recent").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    if !recent.is_empty() {
        let shown = &recent[..recent.len().min(RECENT)];
        render::print("")?;
        render::print_table(&sessions::table(shown, Ambient::system().now_ms()))?;
    }
    Ok(())
}

/// Returns the memory of the processes of hosted channels in bytes. Nothing is asked if none is configured.
async fn channel_hosts(setup: &CommandContext) -> Result<Vec<(String, u64)>> {
    if !setup.loaded.config.channels.keys().any(|name| is_hosted(&name.trim().to_lowercase())) {
        return Ok(Vec::new());
    }
    let answer = setup.query("channels.status").await?.unwrap_or_default();
    let memory = |(channel, rows): (&String, &Value)| {
        let bytes = rows.as_array()?.iter().find_map(|row| row["hostMemoryBytes"].as_u64())?;
        Some((channel.clone(), bytes))
    };
    Ok(answer["channelAccounts"].as_object().into_iter().flatten().filter_map(memory).collect())
}

/// Builds the gateway's report from the state directory. What only a gateway knows is null or empty.
async fn offline(setup: &CommandContext) -> Result<Value> {
    let (sessions, now) = (setup.sessions().await?, Ambient::system().now_ms());
    let recent = |agent: Option<&AgentId>| -> Vec<Value> {
        let agent_sessions = sessions.iter().filter(|(key, _)| agent.is_none() || key.agent() == agent);
        agent_sessions.take(MAX_RECENT).map(|(key, record)| status_row(key, record, now)).collect()
    };
    let ids: Vec<AgentId> = setup.loaded.config.agents.members().into_iter().map(|agent| agent.id).collect();
    let ids = if ids.is_empty() { vec![AgentId::main()] } else { ids };
    let by_agent = |id: &AgentId| {
        let count = sessions.iter().filter(|(key, _)| key.agent() == Some(id)).count();
        json!({"agentId": id, "path": sessions::sessions_path(setup, id), "count": count, "recent": recent(Some(id))})
    };
    let defaults = sessions::defaults(setup);
    Ok(json!({
        "runtimeVersion": env!("CARGO_PKG_VERSION"),
        "heartbeat": {"defaultAgentId": sessions::default_agent(setup), "agents": []},
        "channelSummary": [], "queuedSystemEvents": [],
        "sessions": {
            "paths": ids.iter().map(|id| sessions::sessions_path(setup, id)).collect::<Vec<_>>(),
            "count": sessions.len(),
            "defaults": {"model": defaults["model"], "contextTokens": defaults["contextTokens"]},
            "recent": recent(None), "byAgent": ids.iter().map(by_agent).collect::<Vec<_>>(),
        },
        "work": null, "degraded": [],
    }))
}

/// Describes how the prompt for the primary model is shortened, why, and which setting changes that.
fn shortened(status: &ModelStatus) -> Option<String> {
    let (model, shortened) = status.shortened.iter().find(|(model, _)| *model == status.primary)?;
    Some(format!("{}; {}", shortening::explain(shortened, model), shortening::remedy(shortened, model)))
}

/// Describes the number of runs by state, and names the slow ones.
fn describe_runs(runs: &Value) -> String {
    let count = |name: &str| runs.get(name).and_then(Value::as_u64).unwrap_or_default();
    let slow_count = ["longRunning", "stalled", "stuck"].map(count).iter().sum::<u64>();
    let mut line = format!("{} active, {} queued", count("running") + slow_count, count("queued"));
    for row in runs.get("slow").and_then(Value::as_array).into_iter().flatten() {
        let text = |name: &str| render::strip_controls(row.get(name).and_then(Value::as_str).unwrap_or_default());
        let idle = render::duration_ms(row.get("quietMs").and_then(Value::as_u64).unwrap_or_default());
        line.push_str(&format!("; {} in {} has been {} for {idle}", text("runId"), text("sessionKey"), text("pace")));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn active_runs_are_counted_and_slow_ones_are_named() {
        let quiet = json!({"running": 2, "queued": 1, "longRunning": 0, "stalled": 0, "stuck": 0, "slow": []});
        assert_eq!(describe_runs(&quiet), "2 active, 1 queued");
        let row = json!({"runId": "r", "sessionKey": "agent:main:main", "pace": "stalled", "quietMs": 420_000});
        let stalled = json!({"running": 0, "queued": 0, "stalled": 1, "slow": [row]});
        assert_eq!(describe_runs(&stalled), "1 active, 0 queued; r in agent:main:main has been stalled for 7m");
    }
}
