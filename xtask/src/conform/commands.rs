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

pub(super) fn tool(scene: &RowContext<'_>) -> Result<()> {
    let words = format!("{}, {TOOL}", scene.unique_message(6));
    let said = scene.call("6-agent-tool", &["agent", "--agent", "main", "--message", &words])?.succeeded()?;
    ensure!(said.stdout.contains("The tool answered"), "the answer after the tool should be on stdout");
    let heard = all_sessions(scene.state)?;
    let talk = heard.iter().find(|talk| talk.count(&words) == 1).context("the message is in no transcript")?;
    let told = talk.messages.iter().any(|(role, text)| role == "toolResult" && text.contains(TOOL_SAYS));
    ensure!(told, "the transcript should contain the tool result");
    Ok(())
}

pub(super) fn model_error(scene: &RowContext<'_>) -> Result<()> {
    let words = format!("{}, {FAIL}", scene.unique_message(7));
    let said = scene.call("7-agent-error", &["agent", "--agent", "main", "--message", &words])?;
    ensure!(!said.all().contains("falling back to embedded"), "the client fell back to its embedded agent");
    ensure!(said.all().contains(FAILED), "the model's error message should be printed");
    match scene.client.protocol {
        ProtocolVersion::Three => ensure!(said.code == Some(0), "the exit code should be 0, but is {:?}", said.code),
        ProtocolVersion::Four => ensure!(said.code == Some(1), "the exit code should be 1, but is {:?}", said.code),
    }
    Ok(())
}

/// A home that was paired elsewhere: the older client sends the token of that gateway first, is rejected, and forgets
/// it.
pub(super) fn stale_token(scene: &RowContext<'_>) -> Result<()> {
    let home = ClientHome::new(scene.port, TOKEN)?;
    let ask = ["gateway", "call", "health", "--json"];
    // The first call creates the device identity.
    scene.client.call("9-first", &home, &ask)?.succeeded()?;
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
    let second = scene.client.call("9-second", &home, &ask)?;
    if matches!(scene.client.protocol, ProtocolVersion::Three) {
        ensure!(second.code == Some(1), "a token of another gateway should be rejected");
    }
    scene.client.call("9-third", &home, &ask)?.succeeded().context("after the rejection")?;
    Ok(())
}

pub(super) fn others(scene: &RowContext<'_>) -> Result<()> {
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
        let said = scene.call(&format!("11-{name}"), args)?.succeeded().with_context(|| args.join(" "))?;
        ensure!(!said.all().contains("unknown method"), "`{}` calls an unknown method", args.join(" "));
    }
    Ok(())
}
