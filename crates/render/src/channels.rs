//! Formats the channels of a gateway.

use homard_runtime::{Ambient, ambient::iso};
use serde_json::Value;

use crate::{Table, age, count, strip_controls, width};

/// Formats the state of the gateway's channels.
pub fn status(answer: &Value) -> String {
    let now = Ambient::system().now_ms();
    let mut lines = Vec::new();
    let titles = ["CHANNEL", "ACCOUNT", "STATE", "LAST IN", "LAST OUT"].map(str::to_owned).to_vec();
    let mut table = vec![titles];
    for (channel, accounts) in answer["channelAccounts"].as_object().into_iter().flatten() {
        for row in accounts.as_array().into_iter().flatten() {
            let ago = |name: &str| row[name].as_u64().map_or_else(|| "-".to_owned(), |at| age(now, at));
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
            let since = row["downSince"].as_u64().map(|at| format!(" (down since {})", iso(at))).unwrap_or_default();
            lines.extend(row["lastError"].as_str().map(|why| prefixed(&format!("{why}{since}"))));
            let memory = row["hostMemoryBytes"].as_u64();
            lines.extend(memory.map(|bytes| prefixed(&format!("its process uses {} MB", bytes / 1_000_000))));
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
    let lines = std::iter::once(Table::list(table).fit(width())).chain(unique_lines);
    strip_controls(&lines.collect::<Vec<_>>().join("\n"))
}

/// Formats the undelivered messages, if any.
fn undelivered(outbox: &Value) -> Vec<String> {
    let unknown = outbox["unknown"].as_array().cloned().unwrap_or_default();
    let mut recipients: Vec<_> = unknown.iter().filter_map(|row| row["to"].as_str()).collect();
    recipients.sort_unstable();
    recipients.dedup();
    let messages = |number: usize| count(number, "message");
    let waiting = usize::try_from(outbox["waiting"].as_u64().unwrap_or(0)).unwrap_or(usize::MAX);
    let waiting_line = (waiting > 0).then(|| format!("{} waiting to be sent", messages(waiting)));
    let unknown_line = (!unknown.is_empty()).then(|| {
        let (count, recipient_list) = (messages(unknown.len()), recipients.join(", "));
        format!("{count} may not have been delivered; check these chats before you send again: {recipient_list}")
    });
    waiting_line.into_iter().chain(unknown_line).collect()
}

/// Formats recent incidents of a channel.
pub fn logs(answer: &Value) -> String {
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
    if lines.is_empty() { "no events yet".to_owned() } else { strip_controls(&lines.join("\n")) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

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
