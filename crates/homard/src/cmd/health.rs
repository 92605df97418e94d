//! `homard health`: checks the running gateway.

use anyhow::Result;
use serde_json::Value;

use super::query::{Args, CommandContext};
use crate::{
    cli_error::CliError,
    render::{self, Table},
};

/// Queries the gateway. Fails without one, and if a model, a channel or the config is down.
pub(super) async fn run(args: &Args) -> Result<()> {
    let setup = CommandContext::load()?;
    let health = setup.query("health").await?.ok_or_else(|| setup.not_running())?;
    let outages = render::outages(&health);
    let is_healthy = outages.is_empty() && health.get("ok") != Some(&Value::Bool(false));
    if args.json {
        render::print_json(&health)?;
    } else {
        render::print_table(&table(&setup, &health, is_healthy))?;
    }
    if is_healthy {
        return Ok(());
    }
    let text = match outages.len() {
        0 => "the gateway is unhealthy".to_owned(),
        count => render::count_of(count, "component is down", "components are down"),
    };
    Err(CliError { is_reported: args.json, ..CliError::new("degraded", text) }.into())
}

fn table(setup: &CommandContext, health: &Value, is_healthy: bool) -> Table {
    let duration = health.get("durationMs").and_then(Value::as_u64).unwrap_or_default();
    let status = if is_healthy { "healthy" } else { "unhealthy" };
    let mut rows =
        vec![vec!["gateway".to_owned(), format!("{}  {status} ({})", setup.target.url, render::duration_ms(duration))]];
    rows.extend(render::outages(health).into_iter().map(|text| vec!["down".to_owned(), render::strip_controls(&text)]));
    for agent in health.get("agents").and_then(Value::as_array).into_iter().flatten() {
        let id = agent.get("agentId").and_then(Value::as_str).unwrap_or("?");
        let suffix = if agent.get("isDefault") == Some(&Value::Bool(true)) { " (default)" } else { "" };
        let count = agent.pointer("/sessions/count").and_then(Value::as_u64).unwrap_or_default();
        rows.push(vec!["agent".to_owned(), render::strip_controls(&format!("{id}{suffix}, sessions: {count}"))]);
    }
    if let Some(notice) = health.get("notice").and_then(Value::as_str) {
        rows.push(vec!["warning".to_owned(), render::strip_controls(notice)]);
    }
    Table::fields(rows)
}
