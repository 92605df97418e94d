//! `homard health`: whether the gateway is well.

use anyhow::Result;
use serde_json::Value;

use super::ask::{Args, Setup};
use crate::render;

/// Asks the gateway; without one that is a failure.
pub(super) async fn run(args: &Args) -> Result<()> {
    let setup = Setup::find()?;
    let health = setup.ask("health").await?.ok_or_else(|| setup.nobody())?;
    if args.json {
        return Ok(render::print_json(&health)?);
    }
    let took = health.get("durationMs").and_then(Value::as_u64).unwrap_or_default();
    let word = if health.get("ok") == Some(&Value::Bool(false)) { "not well" } else { "well" };
    let mut rows = vec![vec!["gateway".to_owned(), format!("{}  {word} ({took} ms)", setup.target.url)]];
    for agent in health.get("agents").and_then(Value::as_array).into_iter().flatten() {
        let id = agent.get("agentId").and_then(Value::as_str).unwrap_or("?");
        let mark = if agent.get("isDefault") == Some(&Value::Bool(true)) { " (default)" } else { "" };
        let count = agent.pointer("/sessions/count").and_then(Value::as_u64).unwrap_or_default();
        rows.push(vec!["agent".to_owned(), render::harmless(&format!("{id}{mark}, sessions: {count}"))]);
    }
    if let Some(notice) = health.get("notice").and_then(Value::as_str) {
        rows.push(vec!["notice".to_owned(), render::harmless(notice)]);
    }
    Ok(render::print(&render::table(&rows))?)
}
