//! The checklist: what a client has to do, and the expected result.

use std::{path::Path, thread, time::Duration};

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::Value;

use super::{
    client::{ClientHome, ClientOutput, OpenClawClient, ProtocolVersion},
    commands,
    messages::all_sessions,
    page::{self, BrowserAutomation},
    scripts, tui,
};
use crate::gateway::TOKEN;

/// A row of the checklist, by its number in the protocol's description.
#[derive(Debug)]
pub(super) struct ChecklistRow {
    pub(super) number: u8,
    pub(super) what: &'static str,
    pub(super) check: fn(&RowContext<'_>) -> Result<()>,
}

/// The rows that are checked.
pub(super) const ROWS: &[ChecklistRow] = &[
    ChecklistRow { number: 1, what: "health", check: health },
    ChecklistRow { number: 2, what: "status", check: status },
    ChecklistRow { number: 3, what: "agent run", check: agent_run },
    ChecklistRow { number: 4, what: "agent run, JSON", check: agent_json },
    ChecklistRow { number: 5, what: "agent run in a named session", check: named_session },
    ChecklistRow { number: 6, what: "tool call", check: commands::tool },
    ChecklistRow { number: 7, what: "model error", check: commands::model_error },
    ChecklistRow { number: 8, what: "wrong token", check: wrong_token },
    ChecklistRow { number: 9, what: "stale device token", check: commands::stale_token },
    ChecklistRow { number: 10, what: "agent call, repeated", check: repeated_call },
    ChecklistRow { number: 11, what: "logs, cron, nodes, devices …", check: commands::others },
    ChecklistRow { number: 12, what: "TUI start", check: tui::start },
    ChecklistRow { number: 13, what: "TUI message", check: tui::message },
    ChecklistRow { number: 14, what: "TUI abort", check: tui::abort },
    ChecklistRow { number: 15, what: "TUI /new", check: tui::new },
    ChecklistRow { number: 16, what: "TUI /model, /sessions", check: tui::pickers },
    ChecklistRow { number: 17, what: "Control UI load", check: page::load },
    ChecklistRow { number: 18, what: "Control UI chat", check: page::chat },
    ChecklistRow { number: 19, what: "Control UI tool", check: page::tool },
    ChecklistRow { number: 20, what: "Control UI stop", check: page::stop },
    ChecklistRow { number: 21, what: "Control UI pages", check: page::pages },
    ChecklistRow { number: 22, what: "Control UI reload", check: page::reload },
    ChecklistRow { number: 23, what: "script: dedupe", check: scripts::dedupe },
    ChecklistRow { number: 24, what: "script: agent.wait", check: scripts::agent_wait },
    ChecklistRow { number: 25, what: "script: busy session", check: scripts::busy_session },
    ChecklistRow { number: 26, what: "script: stop words", check: scripts::stop_words },
    ChecklistRow { number: 27, what: "script: bad frames", check: scripts::bad_frames },
    ChecklistRow { number: 28, what: "script: handshakes", check: scripts::handshakes },
    ChecklistRow { number: 29, what: "gap check", check: page::long },
    ChecklistRow { number: 30, what: "idle 2 min", check: idle },
    ChecklistRow { number: 31, what: "TUI across hand-overs", check: tui::hand_overs },
];

impl ChecklistRow {
    /// True if a row is selected: by its number, or by a part of its name.
    pub(super) fn is_selected(&self, name: &str) -> bool {
        match name.parse::<u8>() {
            Ok(number) => number == self.number,
            Err(_) => self.what.to_lowercase().contains(&name.to_lowercase()),
        }
    }
}

/// Environment of a row: the client and the gateway.
#[derive(Debug)]
pub(super) struct RowContext<'a> {
    pub(super) client: &'a OpenClawClient,
    pub(super) port: u16,
    /// The gateway's state directory.
    pub(super) state: &'a Path,
    /// The gateway's binary, for rows that need another instance.
    pub(super) binary: &'a Path,
    /// File for recorded frames.
    pub(super) record: &'a Path,
    /// A Node that can control a browser.
    pub(super) node: &'a Path,
    /// The browser automation, if it could be installed.
    pub(super) browser: &'a Result<BrowserAutomation>,
    /// Length of the long session.
    pub(super) long: Duration,
}

impl RowContext<'_> {
    /// Returns the browser automation.
    pub(super) fn browser(&self) -> Result<&BrowserAutomation> {
        self.browser.as_ref().map_err(|error| anyhow!("{error:#}"))
    }

    /// Runs a command in a fresh home that is configured with the token.
    pub(super) fn call(&self, name: &str, args: &[&str]) -> Result<ClientOutput> {
        self.client.call(name, &ClientHome::new(self.port, TOKEN)?, args)
    }

    /// Returns a message that no other row and client sends.
    pub(super) fn unique_message(&self, row: u8) -> String {
        format!("hi, this is row {row} of {}", self.client.version)
    }
}

fn health(context: &RowContext<'_>) -> Result<()> {
    let report = context.call("1-gateway-call-health", &["gateway", "call", "health", "--json"])?;
    let report = report.succeeded()?.json()?;
    ensure!(report["ok"] == true, "`ok` should be true: {report}");
    ensure!(report["agents"].is_array(), "`agents` should be a list: {report}");
    context.call("1-health", &["health"])?.succeeded()?;
    Ok(())
}

fn status(context: &RowContext<'_>) -> Result<()> {
    let output = context.call("2-status", &["status"])?.succeeded()?;
    let text = output.stdout.to_lowercase();
    ensure!(!text.contains("unknown method"), "the client should not call unknown methods");
    ensure!(
        text.contains("reachable") && !text.contains("unreachable"),
        "the client should report the gateway as reachable"
    );
    Ok(())
}

fn agent_run(context: &RowContext<'_>) -> Result<()> {
    let message = context.unique_message(3);
    let output = context.call("3-agent", &["agent", "--agent", "main", "--message", &message])?.succeeded()?;
    ensure!(!output.all().contains("falling back to embedded"), "the client fell back to its embedded agent");
    let sessions = all_sessions(context.state)?;
    let reply =
        sessions.iter().find_map(|session| session.reply_to(&message)).context("the reply is in no transcript")?;
    let first_line = reply.lines().next().unwrap_or_default();
    ensure!(!first_line.is_empty() && output.stdout.contains(first_line), "stdout should contain {first_line:?}");
    Ok(())
}

fn agent_json(context: &RowContext<'_>) -> Result<()> {
    let message = context.unique_message(4);
    let output = context.call("4-agent-json", &["agent", "--agent", "main", "--message", &message, "--json"])?;
    is_final(&output.succeeded()?.json()?)
}

fn named_session(context: &RowContext<'_>) -> Result<()> {
    let (id, text) = (session_of(context.client.version), context.unique_message(5));
    for turn in ["first", "second"] {
        let message = format!("{text}, {turn} turn");
        let args = ["agent", "--session-id", &id, "--message", &message, "--thinking", "low"];
        context.call(&format!("5-agent-session-{turn}"), &args)?.succeeded()?;
    }
    let sessions = all_sessions(context.state)?;
    let session =
        sessions.iter().find(|session| session.session == id).with_context(|| format!("session {id} is missing"))?;
    ensure!(session.count(&text) == 2, "session {id} should contain both turns, but contains {}", session.count(&text));
    Ok(())
}

fn wrong_token(context: &RowContext<'_>) -> Result<()> {
    let home = ClientHome::new(context.port, "not-the-token")?;
    let output = context.client.call("8-wrong-token", &home, &["gateway", "call", "health", "--json"])?;
    ensure!(output.code == Some(1), "the exit code should be 1, but is {:?}", output.code);
    ensure!(output.all().contains("unauthorized: gateway token mismatch"), "the token mismatch should be reported");
    match context.client.protocol {
        ProtocolVersion::Three => ensure!(output.all().contains("(1008)"), "the socket should be closed with 1008"),
        ProtocolVersion::Four => {
            let code = output.json()?["error"]["details"]["code"].clone();
            ensure!(code == "AUTH_TOKEN_MISMATCH", "`error.details.code` should be AUTH_TOKEN_MISMATCH, but is {code}");
        }
    }
    Ok(())
}

fn repeated_call(context: &RowContext<'_>) -> Result<()> {
    let message = context.unique_message(10);
    let key = format!("conform-{}", context.client.version);
    let params = serde_json::json!({"message": message, "agentId": "main", "idempotencyKey": key}).to_string();
    let args = ["gateway", "call", "agent", "--expect-final", "--timeout", "60000", "--params", &params, "--json"];
    let first = context.call("10-agent-call-first", &args)?.succeeded()?.json()?;
    is_final(&first)?;
    let second = context.call("10-agent-call-second", &args)?.succeeded()?.json()?;
    ensure!(first == second, "the second response should equal the first one: {second}");
    let runs: usize = all_sessions(context.state)?.iter().map(|session| session.count(&message)).sum();
    ensure!(runs == 1, "expected one run, but there were {runs}");
    Ok(())
}

/// Both kinds of clients at once, for two minutes: ticks arrive every 30 s, and a client that misses them disconnects
/// after 60.
fn idle(context: &RowContext<'_>) -> Result<()> {
    let time = Duration::from_secs(125);
    thread::scope(|scope| {
        let page = scope.spawn(|| page::idle(context, time).context("page"));
        let screen = tui::idle(context, time).context("TUI");
        let page = page.join().unwrap_or_else(|_| Err(anyhow!("the page's thread panicked")));
        screen.and(page)
    })
}

/// Checks the final response to `agent`.
fn is_final(answer: &Value) -> Result<()> {
    ensure!(answer["runId"].is_string(), "`runId` should be a string: {answer}");
    ensure!(answer["status"] == "ok", "`status` should be `ok`: {answer}");
    let text = answer["result"]["payloads"][0]["text"].as_str().unwrap_or_default();
    ensure!(!text.is_empty(), "`result.payloads[0].text` should be a non-empty string: {answer}");
    Ok(())
}

/// Returns a session id for each client, in the format that clients expect.
fn session_of(version: &str) -> String {
    let digits: String = version.chars().filter(char::is_ascii_digit).collect();
    format!("11111111-2222-4333-8444-{digits:0>12}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_id_looks_like_a_uuid() {
        assert_eq!(session_of("2026.9.6"), "11111111-2222-4333-8444-000000202696");
    }
}
