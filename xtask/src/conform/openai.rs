//! OpenAI's official clients, in Python and in Node, against the gateway: complete and streamed answers with
//! client-side tools.
//!
//! The requests that they send are recorded in the gateway's tests, which replay them without the clients; here they
//! are compared.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::{
    install,
    model::{RuleAnswer, RuleModel},
    sdk,
};
use crate::{
    gateway::{self, RunningGateway},
    shell,
};

/// The Node client that is installed from npm.
const NODE_CLIENT: (&str, &str) = ("openai", "7.53.0");

/// The model's final answer.
const FINAL_ANSWER: &str = "It is 18 degrees in Paris.";

/// Environment of the clients.
#[derive(Debug, Clone, Copy)]
pub(super) struct OpenAiEnvironment<'a> {
    /// Where clients are installed.
    pub(super) folder: &'a Path,
    /// The gateway binary.
    pub(super) binary: &'a Path,
    /// Folder for its logs.
    pub(super) logs: &'a Path,
    /// True if the requests are to be recorded.
    pub(super) records: bool,
}

/// Runs both clients; returns whether each succeeded.
pub(super) fn check(environment: OpenAiEnvironment<'_>) -> Vec<bool> {
    let clients = [("python", python(environment.folder)), ("node", node(environment.folder))];
    let results = clients.map(|(name, client)| {
        let result = client.and_then(|client| run_client(client, name, environment));
        let verdict = match &result {
            Ok(count) => format!("pass ({count} requests)"),
            Err(why) => format!("FAIL: {why:#}"),
        };
        println!("{:>5}  {:<28} {name:<10} {verdict}", "http", "official OpenAI client");
        result.is_ok()
    });
    results.to_vec()
}

/// Returns the command that runs the Python client.
fn python(folder: &Path) -> Result<Command> {
    let mut python = Command::new(sdk::install(&folder.join("sdk"))?);
    python.arg(script("openai_client.py"));
    Ok(python)
}

/// Returns the command that runs the Node client.
fn node(folder: &Path) -> Result<Command> {
    let home = folder.join("openai");
    let node_package = install::node_package()?;
    let wanted = json!({"private": true, "dependencies": {NODE_CLIENT.0: NODE_CLIENT.1, &node_package: "22"}});
    install::npm(&home, &wanted)?;
    // Beside the client, where Node resolves it.
    let script = fs::read(script("openai_client.mjs"))?;
    fs::write(home.join("openai_client.mjs"), script)?;
    let mut node = Command::new(home.join("node_modules").join(node_package).join("bin").join("node"));
    node.arg(home.join("openai_client.mjs"));
    Ok(node)
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/conform").join(name)
}

/// Runs a client against a gateway of its own, and compares its requests with the recorded ones; returns their number.
fn run_client(mut client: Command, name: &str, environment: OpenAiEnvironment<'_>) -> Result<usize> {
    let model = RuleModel::start(answer)?;
    let mut config = model.config();
    // A local model would be offered only a few tools.
    config["gateway"] = json!({"http": {"endpoints": {
        "chatCompletions": {"enabled": true}, "responses": {"enabled": true},
    }}});
    let gateway = RunningGateway::start(
        environment.binary,
        &config,
        &environment.logs.join(format!("gateway-openai-{name}.log")),
    )?;
    client.args([&format!("http://127.0.0.1:{}/v1", gateway.port()), gateway::TOKEN]);
    let output = shell::output(&mut client)?;
    let sent: Value = serde_json::from_slice(&output).context("the client did not write JSON")?;
    let sent = normalize_ids(&format!("{sent:#}\n"));
    let record = shell::root().join("crates/gateway/tests/golden/openai").join(format!("{name}.json"));
    if environment.records {
        fs::write(&record, &sent).with_context(|| format!("cannot write {}", record.display()))?;
    }
    let recorded = fs::read_to_string(&record).with_context(|| format!("cannot read {}", record.display()))?;
    ensure!(
        sent == recorded,
        "the client's requests differ from {}; if that is intended, record them with conform --openai-only --record",
        record.display()
    );
    Ok(serde_json::from_str::<Vec<Value>>(&sent)?.len())
}

/// Replaces ids that differ every time.
fn normalize_ids(text: &str) -> String {
    let mut normalized = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("\"resp_") {
        let (before, id) = rest.split_at(at + "\"resp_".len());
        normalized.push_str(before);
        normalized.push_str("before");
        rest = id.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '-');
    }
    normalized + rest
}

/// Answers as the model: calls the client's tool if it is offered and has not been called yet; replies in JSON if the
/// request asks for it.
fn answer(request: &Value) -> RuleAnswer {
    let tools = request["tools"].as_array().into_iter().flatten();
    let has_tool = tools.into_iter().any(|tool| tool["function"]["name"] == "get_weather");
    let last = request["messages"].as_array().and_then(|messages| messages.last());
    let is_answered = last.is_some_and(|message| message["role"] == "tool");
    if has_tool && !is_answered {
        RuleAnswer::Call("get_weather", r#"{"city":"Paris"}"#)
    } else if request["messages"].to_string().contains("one JSON value") {
        RuleAnswer::Text(r#"{"city":"Paris","celsius":18}"#.to_owned())
    } else {
        RuleAnswer::Text(FINAL_ANSWER.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changing_ids_are_normalized() {
        assert_eq!(
            normalize_ids(r#"{"a": "resp_1f-2", "b": "resp_3"}"#),
            r#"{"a": "resp_before", "b": "resp_before"}"#
        );
    }
}
