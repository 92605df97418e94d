//! Formats channels for the terminal.

use anyhow::Result;
use homard_runtime::{Ambient, ambient::iso};
use homard_settings::{
    channel_kinds::CHANNEL_KINDS,
    channels::Account,
    paths::{self, Paths},
};
use serde_json::{Value, json};

use crate::render::{self, Table};

/// Lists the channels of the config.
pub(super) fn list(wants_json: bool) -> Result<()> {
    let paths = Paths::find()?;
    let chosen = crate::cmd::config_of(&paths)?;
    let mut rows = Vec::new();
    for (name, channel) in &chosen.loaded.config.channels {
        let name = name.trim().to_lowercase();
        let is_known = CHANNEL_KINDS.iter().any(|(known, _)| *known == name);
        let accounts = channel.resolved_accounts().into_iter();
        rows.extend(accounts.map(|(account, config)| (name.clone(), account, state(&name, &config, is_known))));
    }
    if wants_json {
        let rows: Vec<_> = rows
            .iter()
            .map(|(channel, account, state)| json!({"channel": channel, "accountId": account, "state": state}))
            .collect();
        return Ok(render::print_json(&json!({"channels": rows}))?);
    }
    if rows.is_empty() {
        return Ok(render::print("no channels configured; add one with: homard channels add telegram --token TOKEN")?);
    }
    let titles = ["CHANNEL", "ACCOUNT", "STATE"].map(str::to_owned).to_vec();
    let lines = rows
        .into_iter()
        .map(|(channel, account, state)| [channel, account, state].map(|cell| render::strip_controls(&cell)).to_vec());
    Ok(render::print_table(&Table::list(std::iter::once(titles).chain(lines).collect()))?)
}

fn state(channel: &str, account: &Account, is_known: bool) -> String {
    match (is_known, account.enabled, &account.fault, missing_credential(channel, account)) {
        (false, ..) => "not supported yet".to_owned(),
        (true, Some(false), ..) => "off".to_owned(),
        (true, _, Some(fault), _) => format!("down: {fault}"),
        (true, _, None, Some((_, remedy))) if channel == "telegram" => format!("no token: {remedy}"),
        (true, _, None, Some((_, remedy))) => format!("no secret: {remedy}"),
        (true, _, None, None) => "configured".to_owned(),
    }
}

/// Returns what a channel account lacks, and how to fix it.
pub(in crate::cmd) fn missing_credential(channel: &str, account: &Account) -> Option<(&'static str, &'static str)> {
    match channel {
        "telegram" => {
            let has_token = account.bot_token.is_some() || account.token_file.is_some();
            let has_any = has_token || paths::env("TELEGRAM_BOT_TOKEN").is_some();
            (!has_any).then_some(("the bot token is missing", "homard channels add telegram --token TOKEN"))
        }
        _ => {
            let missing_secret = ("the secret is missing", "homard channels add webhook --secret TEXT");
            account.secret.is_none().then_some(missing_secret)
        }
    }
}

/// Formats the state of the gateway's channels.
pub(super) fn status(answer: &Value) -> String {
    let now = Ambient::system().now_ms();
    let mut lines = Vec::new();
    let titles = ["CHANNEL", "ACCOUNT", "STATE", "LAST IN", "LAST OUT"].map(str::to_owned).to_vec();
    let mut table = vec![titles];
    for (channel, accounts) in answer["channelAccounts"].as_object().into_iter().flatten() {
        for row in accounts.as_array().into_iter().flatten() {
            let ago = |name: &str| row[name].as_u64().map_or_else(|| "-".to_owned(), |at| render::age(now, at));
            let account = row["accountId"].as_str().unwrap_or_default();
            let state = match (row["configured"] == true, row["running"] == true, row["connected"] == true) {
                (false, ..) => "not configured",
                (true, false, _) => "stopped",
                (true, true, false) => "not connected",
                (true, true, true) => "connected",
            };
            table.push(vec![
                channel.clone(),
                account.to_owned(),
                state.to_owned(),
                ago("lastInboundAt"),
                ago("lastOutboundAt"),
            ]);
            let prefixed = |text: &str| format!("{channel} {account}: {text}");
            lines.extend(row["lastError"].as_str().map(prefixed));
            lines.extend(undelivered(&row["outbox"]).into_iter().map(|text| prefixed(&text)));
            let probe = &row["probe"];
            lines.extend(probe["error"].as_str().map(prefixed));
            if probe["ok"] == true {
                let bot = &probe["bot"];
                let name = bot["username"].as_str().map_or_else(|| bot["name"].to_string(), |name| format!("@{name}"));
                lines.push(prefixed(&format!("authenticated as {name}")));
            }
            lines.extend(probe["hints"].as_array().into_iter().flatten().filter_map(Value::as_str).map(prefixed));
        }
    }
    if table.len() == 1 {
        return "no channels configured; add one with: homard channels add telegram --token TOKEN".to_owned();
    }
    let mut unique_lines = Vec::with_capacity(lines.len());
    for line in lines {
        // A probe may report the account's last error again.
        if !unique_lines.contains(&line) {
            unique_lines.push(line);
        }
    }
    let lines = std::iter::once(Table::list(table).fit(render::width())).chain(unique_lines);
    render::strip_controls(&lines.collect::<Vec<_>>().join("\n"))
}

/// Formats the undelivered messages, if any.
fn undelivered(outbox: &Value) -> Vec<String> {
    let unknown = outbox["unknown"].as_array().cloned().unwrap_or_default();
    let mut recipients: Vec<_> = unknown.iter().filter_map(|row| row["to"].as_str()).collect();
    recipients.sort_unstable();
    recipients.dedup();
    let messages = |count: usize| render::count(count, "message");
    let waiting = usize::try_from(outbox["waiting"].as_u64().unwrap_or(0)).unwrap_or(usize::MAX);
    let waiting_line = (waiting > 0).then(|| format!("{} waiting to be sent", messages(waiting)));
    let unknown_line = (!unknown.is_empty()).then(|| {
        let (count, recipient_list) = (messages(unknown.len()), recipients.join(", "));
        format!("{count} may not have been delivered; check these chats before you send again: {recipient_list}")
    });
    waiting_line.into_iter().chain(unknown_line).collect()
}

/// Formats recent incidents of a channel.
pub(super) fn logs(answer: &Value) -> String {
    let lines = answer["lines"].as_array().into_iter().flatten().map(|line| {
        let at = line["ts"].as_u64().unwrap_or(0);
        format!(
            "{} {} {}",
            iso(at),
            line["accountId"].as_str().unwrap_or_default(),
            line["text"].as_str().unwrap_or_default()
        )
    });
    let lines: Vec<_> = lines.collect();
    if lines.is_empty() { "no events yet".to_owned() } else { render::strip_controls(&lines.join("\n")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_shown_once() {
        let row = json!({
            "accountId": "default", "configured": true, "running": true, "connected": false,
            "lastError": "wrong token", "probe": {"ok": false, "error": "wrong token", "hints": ["check the token"]},
        });
        let output = status(&json!({"channelAccounts": {"telegram": [row]}}));
        assert_eq!(output.matches("telegram default: wrong token").count(), 1, "{output}");
        assert!(output.ends_with("\ntelegram default: check the token"), "{output}");
    }
}
