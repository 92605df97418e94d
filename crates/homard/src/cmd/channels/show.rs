//! Formats channels for the terminal.

use anyhow::Result;
use homard_agent::{Ambient, ambient::iso};
use serde_json::{Value, json};

use crate::{
    assemble::channels::CHANNEL_KINDS,
    config::channels::Account,
    paths::{self, Paths},
    render::{self, Table},
};

/// Lists the channels of the config.
pub(super) fn list(wants_json: bool) -> Result<()> {
    let paths = Paths::find()?;
    let chosen = crate::cmd::config_of(&paths)?;
    let mut rows = Vec::new();
    for (name, channel) in &chosen.loaded.config.channels {
        let name = name.trim().to_lowercase();
        let is_known = CHANNEL_KINDS.iter().any(|(known, _)| *known == name);
        let accounts = channel.resolved_accounts().into_iter();
        rows.extend(accounts.map(|(account, said)| (name.clone(), account, state(&name, &said, is_known))));
    }
    if wants_json {
        let rows: Vec<_> = rows
            .iter()
            .map(|(channel, account, state)| json!({"channel": channel, "accountId": account, "state": state}))
            .collect();
        return Ok(render::print_json(&json!({"channels": rows}))?);
    }
    if rows.is_empty() {
        return Ok(render::print("no channels; set one up with: homard channels add telegram --token TOKEN")?);
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
        (true, _, None, Some((_, to_do))) if channel == "telegram" => format!("no token: {to_do}"),
        (true, _, None, Some((_, to_do))) => format!("no secret: {to_do}"),
        (true, _, None, None) => "configured".to_owned(),
    }
}

/// Returns what a channel account lacks, and how to fix it.
pub(in crate::cmd) fn missing_credential(channel: &str, account: &Account) -> Option<(&'static str, &'static str)> {
    match channel {
        "telegram" => {
            let has_token = account.bot_token.is_some() || account.token_file.is_some();
            let has_any = has_token || paths::env("TELEGRAM_BOT_TOKEN").is_some();
            (!has_any).then_some(("there is no bot token", "homard channels add telegram --token TOKEN"))
        }
        _ => {
            let lack = ("there is no secret", "homard channels add webhook --secret TEXT");
            account.secret.is_none().then_some(lack)
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
            let told = |what: &str| format!("{channel} {account}: {what}");
            lines.extend(row["lastError"].as_str().map(told));
            lines.extend(undelivered(&row["outbox"]).into_iter().map(|what| told(&what)));
            let probe = &row["probe"];
            lines.extend(probe["error"].as_str().map(told));
            if probe["ok"] == true {
                let bot = &probe["bot"];
                let name = bot["username"].as_str().map_or_else(|| bot["name"].to_string(), |name| format!("@{name}"));
                lines.push(told(&format!("authenticated as {name}")));
            }
            lines.extend(probe["hints"].as_array().into_iter().flatten().filter_map(Value::as_str).map(told));
        }
    }
    if table.len() == 1 {
        return "no channels; set one up with: homard channels add telegram --token TOKEN".to_owned();
    }
    let mut once = Vec::with_capacity(lines.len());
    for line in lines {
        // A probe may report the account's last error again.
        if !once.contains(&line) {
            once.push(line);
        }
    }
    let lines = std::iter::once(Table::list(table).fit(render::width())).chain(once);
    render::strip_controls(&lines.collect::<Vec<_>>().join("\n"))
}

/// Formats the undelivered messages, if any.
fn undelivered(outbox: &Value) -> Vec<String> {
    let unknown = outbox["unknown"].as_array().cloned().unwrap_or_default();
    let mut people: Vec<_> = unknown.iter().filter_map(|row| row["to"].as_str()).collect();
    people.sort_unstable();
    people.dedup();
    let messages = |count: usize| render::count(count, "message");
    let waiting = usize::try_from(outbox["waiting"].as_u64().unwrap_or(0)).unwrap_or(usize::MAX);
    let waits = (waiting > 0).then(|| format!("{} waiting to be sent", messages(waiting)));
    let may_be = (!unknown.is_empty()).then(|| {
        let (count, places) = (messages(unknown.len()), people.join(", "));
        format!("{count} may not have been delivered; check these chats before you send again: {places}")
    });
    waits.into_iter().chain(may_be).collect()
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
        let shown = status(&json!({"channelAccounts": {"telegram": [row]}}));
        assert_eq!(shown.matches("telegram default: wrong token").count(), 1, "{shown}");
        assert!(shown.ends_with("\ntelegram default: check the token"), "{shown}");
    }
}
