//! The checklist: what a client is asked to do, and what must be seen.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{
    client::{Client, Home, Protocol, Said},
    talk::conversations,
};
use crate::gateway::TOKEN;

/// A line of the checklist, by its number in the protocol's description.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) number: u8,
    pub(super) what: &'static str,
    pub(super) check: fn(&Scene<'_>) -> Result<()>,
}

/// The lines that are checked.
pub(super) const ROWS: &[Row] = &[
    Row { number: 1, what: "health", check: health },
    Row { number: 2, what: "status", check: status },
    Row { number: 3, what: "agent run", check: agent_run },
    Row { number: 4, what: "agent run, JSON", check: agent_json },
    Row { number: 5, what: "agent run in a named session", check: named_session },
    Row { number: 8, what: "wrong token", check: wrong_token },
    Row { number: 10, what: "agent call, repeated", check: repeated_call },
];

/// Who asks, and whom.
#[derive(Debug)]
pub(super) struct Scene<'a> {
    pub(super) client: &'a Client,
    pub(super) port: u16,
    /// The gateway's state directory.
    pub(super) state: &'a Path,
}

impl Scene<'_> {
    /// Runs a command in a fresh home that knows the token.
    fn call(&self, name: &str, args: &[&str]) -> Result<Said> {
        self.client.call(name, &Home::new(self.port, TOKEN)?, args)
    }

    /// Words that no other row and client says.
    fn words(&self, row: u8) -> String {
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
    if matches!(scene.client.protocol, Protocol::Three) {
        // FIXME: the old client also asks for `config.get`, which comes with the config.
        ensure!(text.contains("unknown method: config."), "the want of `config.get` should be the only complaint");
        return Ok(());
    }
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

/// The last answer to `agent`.
fn is_final(answer: &Value) -> Result<()> {
    ensure!(answer["runId"].is_string(), "`runId` should be a text: {answer}");
    ensure!(answer["status"] == "ok", "`status` should be `ok`: {answer}");
    let text = answer["result"]["payloads"][0]["text"].as_str().unwrap_or_default();
    ensure!(!text.is_empty(), "`result.payloads[0].text` should be a text: {answer}");
    Ok(())
}

/// A session's id for each client, in the form that clients expect.
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
