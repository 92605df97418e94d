//! The checklist: what a client has to do, and the expected result.

use std::{path::Path, thread, time::Duration};

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::Value;

use super::{
    client::{Client, Home, Protocol, Said},
    commands,
    page::{self, Stage},
    scripts,
    talk::conversations,
    tui,
};
use crate::gateway::TOKEN;

/// A row of the checklist, by its number in the protocol's description.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) number: u8,
    pub(super) what: &'static str,
    pub(super) check: fn(&Scene<'_>) -> Result<()>,
}

/// The rows that are checked.
pub(super) const ROWS: &[Row] = &[
    Row { number: 1, what: "health", check: health },
    Row { number: 2, what: "status", check: status },
    Row { number: 3, what: "agent run", check: agent_run },
    Row { number: 4, what: "agent run, JSON", check: agent_json },
    Row { number: 5, what: "agent run in a named session", check: named_session },
    Row { number: 6, what: "tool call", check: commands::tool },
    Row { number: 7, what: "model error", check: commands::model_error },
    Row { number: 8, what: "wrong token", check: wrong_token },
    Row { number: 9, what: "stale device token", check: commands::stale_token },
    Row { number: 10, what: "agent call, repeated", check: repeated_call },
    Row { number: 11, what: "logs, cron, nodes, devices …", check: commands::others },
    Row { number: 12, what: "TUI start", check: tui::start },
    Row { number: 13, what: "TUI message", check: tui::message },
    Row { number: 14, what: "TUI abort", check: tui::abort },
    Row { number: 15, what: "TUI /new", check: tui::new },
    Row { number: 16, what: "TUI /model, /sessions", check: tui::pickers },
    Row { number: 17, what: "Control UI load", check: page::load },
    Row { number: 18, what: "Control UI chat", check: page::chat },
    Row { number: 19, what: "Control UI tool", check: page::tool },
    Row { number: 20, what: "Control UI stop", check: page::stop },
    Row { number: 21, what: "Control UI pages", check: page::pages },
    Row { number: 22, what: "Control UI reload", check: page::reload },
    Row { number: 23, what: "script: dedupe", check: scripts::dedupe },
    Row { number: 24, what: "script: agent.wait", check: scripts::agent_wait },
    Row { number: 25, what: "script: busy session", check: scripts::busy_session },
    Row { number: 26, what: "script: stop words", check: scripts::stop_words },
    Row { number: 27, what: "script: bad frames", check: scripts::bad_frames },
    Row { number: 28, what: "script: handshakes", check: scripts::handshakes },
    Row { number: 29, what: "gap check", check: page::long },
    Row { number: 30, what: "idle 2 min", check: idle },
];

impl Row {
    /// True if a row is selected: by its number, or by a part of its name.
    pub(super) fn is_meant(&self, name: &str) -> bool {
        match name.parse::<u8>() {
            Ok(number) => number == self.number,
            Err(_) => self.what.to_lowercase().contains(&name.to_lowercase()),
        }
    }
}

/// Environment of a row: the client and the gateway.
#[derive(Debug)]
pub(super) struct Scene<'a> {
    pub(super) client: &'a Client,
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
    pub(super) stage: &'a Result<Stage>,
    /// Length of the long session.
    pub(super) long: Duration,
}

impl Scene<'_> {
    /// Returns the browser automation.
    pub(super) fn stage(&self) -> Result<&Stage> {
        self.stage.as_ref().map_err(|error| anyhow!("{error:#}"))
    }

    /// Runs a command in a fresh home that is configured with the token.
    pub(super) fn call(&self, name: &str, args: &[&str]) -> Result<Said> {
        self.client.call(name, &Home::new(self.port, TOKEN)?, args)
    }

    /// Returns a message that no other row and client sends.
    pub(super) fn words(&self, row: u8) -> String {
        format!("hi, this is row {row} of {}", self.client.version)
    }
}

fn health(scene: &Scene<'_>) -> Result<()> {
    let report = scene.call("1-gateway-call-health", &["gateway", "call", "health", "--json"])?;
    let report = report.succeeded()?.json()?;
    ensure!(report["ok"] == true, "`ok` should be true: {report}");
    ensure!(report["agents"].is_array(), "`agents` should be a list: {report}");
    scene.call("1-health", &["health"])?.succeeded()?;
    Ok(())
}

fn status(scene: &Scene<'_>) -> Result<()> {
    let said = scene.call("2-status", &["status"])?.succeeded()?;
    let text = said.stdout.to_lowercase();
    ensure!(!text.contains("unknown method"), "the gateway should know all that is asked");
    ensure!(text.contains("reachable") && !text.contains("unreachable"), "the gateway should be called reachable");
    Ok(())
}

fn agent_run(scene: &Scene<'_>) -> Result<()> {
    let words = scene.words(3);
    let said = scene.call("3-agent", &["agent", "--agent", "main", "--message", &words])?.succeeded()?;
    ensure!(!said.all().contains("falling back to embedded"), "the client answered in the gateway's place");
    let heard = conversations(scene.state)?;
    let reply = heard.iter().find_map(|talk| talk.reply_to(&words)).context("the gateway kept no reply")?;
    let first_line = reply.lines().next().unwrap_or_default();
    ensure!(!first_line.is_empty() && said.stdout.contains(first_line), "stdout should hold {first_line:?}");
    Ok(())
}

fn agent_json(scene: &Scene<'_>) -> Result<()> {
    let words = scene.words(4);
    let said = scene.call("4-agent-json", &["agent", "--agent", "main", "--message", &words, "--json"])?;
    is_final(&said.succeeded()?.json()?)
}

fn named_session(scene: &Scene<'_>) -> Result<()> {
    let (id, words) = (session_of(scene.client.version), scene.words(5));
    for turn in ["first", "second"] {
        let message = format!("{words}, {turn} turn");
        let args = ["agent", "--session-id", &id, "--message", &message, "--thinking", "low"];
        scene.call(&format!("5-agent-session-{turn}"), &args)?.succeeded()?;
    }
    let heard = conversations(scene.state)?;
    let talk = heard.iter().find(|talk| talk.session == id).with_context(|| format!("there is no session {id}"))?;
    ensure!(talk.count(&words) == 2, "session {id} should hold both turns, but holds {}", talk.count(&words));
    Ok(())
}

fn wrong_token(scene: &Scene<'_>) -> Result<()> {
    let home = Home::new(scene.port, "not-the-token")?;
    let said = scene.client.call("8-wrong-token", &home, &["gateway", "call", "health", "--json"])?;
    ensure!(said.code == Some(1), "the exit code should be 1, but is {:?}", said.code);
    ensure!(said.all().contains("unauthorized: gateway token mismatch"), "the mismatch should be told");
    match scene.client.protocol {
        Protocol::Three => ensure!(said.all().contains("(1008)"), "the socket should be closed with 1008"),
        Protocol::Four => {
            let code = said.json()?["error"]["details"]["code"].clone();
            ensure!(code == "AUTH_TOKEN_MISMATCH", "`error.details.code` should be AUTH_TOKEN_MISMATCH, but is {code}");
        }
    }
    Ok(())
}

fn repeated_call(scene: &Scene<'_>) -> Result<()> {
    let words = scene.words(10);
    let key = format!("conform-{}", scene.client.version);
    let params = serde_json::json!({"message": words, "agentId": "main", "idempotencyKey": key}).to_string();
    let args = ["gateway", "call", "agent", "--expect-final", "--timeout", "60000", "--params", &params, "--json"];
    let first = scene.call("10-agent-call-first", &args)?.succeeded()?.json()?;
    is_final(&first)?;
    let second = scene.call("10-agent-call-second", &args)?.succeeded()?.json()?;
    ensure!(first == second, "the second answer should be the first one again: {second}");
    let runs: usize = conversations(scene.state)?.iter().map(|talk| talk.count(&words)).sum();
    ensure!(runs == 1, "there should have been one run, but there were {runs}");
    Ok(())
}

/// Both kinds of clients at once, for two minutes: ticks arrive every 30 s, and a client that misses them disconnects
/// after 60.
fn idle(scene: &Scene<'_>) -> Result<()> {
    let time = Duration::from_secs(125);
    thread::scope(|scope| {
        let page = scope.spawn(|| page::idle(scene, time).context("page"));
        let screen = tui::idle(scene, time).context("TUI");
        let page = page.join().unwrap_or_else(|_| Err(anyhow!("the page's thread broke")));
        screen.and(page)
    })
}

/// Checks the final response to `agent`.
fn is_final(answer: &Value) -> Result<()> {
    ensure!(answer["runId"].is_string(), "`runId` should be a text: {answer}");
    ensure!(answer["status"] == "ok", "`status` should be `ok`: {answer}");
    let text = answer["result"]["payloads"][0]["text"].as_str().unwrap_or_default();
    ensure!(!text.is_empty(), "`result.payloads[0].text` should be a text: {answer}");
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
