//! Rows of the checklist that are commands of a client, besides those that every client has.

use std::fs;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::{
    client::{ClientHome, ProtocolVersion},
    messages::all_sessions,
    model_rule::{FAIL, FAILED, TOOL, TOOL_SAYS},
    rows::RowContext,
};
use crate::gateway::TOKEN;

pub(super) fn tool(context: &RowContext<'_>) -> Result<()> {
    let message = format!("{}, {TOOL}", context.unique_message(6));
    let output = context.call("6-agent-tool", &["agent", "--agent", "main", "--message", &message])?.succeeded()?;
    ensure!(output.stdout.contains("The tool answered"), "the answer after the tool should be on stdout");
    let sessions = all_sessions(context.state)?;
    let session =
        sessions.iter().find(|session| session.count(&message) == 1).context("the message is in no transcript")?;
    let has_result = session.messages.iter().any(|(role, text)| role == "toolResult" && text.contains(TOOL_SAYS));
    ensure!(has_result, "the transcript should contain the tool result");
    Ok(())
}

pub(super) fn model_error(context: &RowContext<'_>) -> Result<()> {
    let message = format!("{}, {FAIL}", context.unique_message(7));
    let output = context.call("7-agent-error", &["agent", "--agent", "main", "--message", &message])?;
    ensure!(!output.all().contains("falling back to embedded"), "the client fell back to its embedded agent");
    ensure!(output.all().contains(FAILED), "the model's error message should be printed");
    match context.client.protocol {
        ProtocolVersion::Three => {
            ensure!(output.code == Some(0), "the exit code should be 0, but is {:?}", output.code)
        }
        ProtocolVersion::Four => ensure!(output.code == Some(1), "the exit code should be 1, but is {:?}", output.code),
    }
    Ok(())
}

/// A home that was paired elsewhere: the older client sends the token of that gateway first, is rejected, and forgets
/// it.
pub(super) fn stale_token(context: &RowContext<'_>) -> Result<()> {
    let home = ClientHome::new(context.port, TOKEN)?;
    let args = ["gateway", "call", "health", "--json"];
    // The first call creates the device identity.
    context.client.call("9-first", &home, &args)?.succeeded()?;
    let identity = home.state().join("identity");
    if !identity.join("device.json").exists() {
        // The newer client needs no identity if it has a token.
        return Ok(());
    }
    let device: Value = serde_json::from_str(&fs::read_to_string(identity.join("device.json"))?)?;
    let tokens = json!({"operator": {
        "token": "0123456789abcdef0123456789abcdef", "role": "operator", "scopes": ["operator.admin"], "updatedAtMs": 1,
    }});
    let auth = json!({"version": 1, "deviceId": device["deviceId"], "tokens": tokens});
    fs::write(identity.join("device-auth.json"), auth.to_string())?;
    let second = context.client.call("9-second", &home, &args)?;
    if matches!(context.client.protocol, ProtocolVersion::Three) {
        ensure!(second.code == Some(1), "a token of another gateway should be rejected");
    }
    context.client.call("9-third", &home, &args)?.succeeded().context("after the rejection")?;
    Ok(())
}

pub(super) fn others(context: &RowContext<'_>) -> Result<()> {
    let commands: [(&str, &[&str]); 9] = [
        ("logs", &["logs", "--limit", "5", "--json"]),
        ("cron-list", &["cron", "list", "--json"]),
        ("nodes-status", &["nodes", "status", "--json"]),
        ("devices-list", &["devices", "list", "--json"]),
        ("nodes-list", &["nodes", "list"]),
        ("models-list", &["models", "list"]),
        ("usage-cost", &["gateway", "usage-cost"]),
        ("channels-status", &["channels", "status"]),
        ("system-event", &["system", "event", "--text", "hello from conform", "--mode", "now"]),
    ];
    for (name, args) in commands {
        let output = context.call(&format!("11-{name}"), args)?.succeeded().with_context(|| args.join(" "))?;
        ensure!(!output.all().contains("unknown method"), "`{}` calls an unknown method", args.join(" "));
    }
    Ok(())
}
