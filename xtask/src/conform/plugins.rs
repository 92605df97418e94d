//! Plugins that OpenClaw 2026.2.9 ships, unmodified, in Homard: they are loaded, and their tools answer or fail with
//! their own error messages.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{Ipv4Addr, TcpStream},
    path::Path,
    process::Command,
    thread,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    client::{OpenClawClient, PATH},
    model::{RuleAnswer, RuleModel},
};
use crate::{
    gateway::{RunningGateway, TOKEN},
    shell,
};

/// The plugins, and what each registers.
const PLUGINS: [(&str, &[&str]); 3] = [
    ("llm-task", &["tool llm-task"]),
    ("lobster", &["tool lobster"]),
    (
        "memory-lancedb",
        &[
            "tool memory_recall",
            "tool memory_store",
            "tool memory_forget",
            "hook before_agent_start",
            "hook agent_end",
            "service memory-lancedb",
        ],
    ),
];

/// Time limit for loading them. The gateway does not wait for them: they are TypeScript, and one has a database.
const LOAD_TIMEOUT: Duration = Duration::from_secs(60);
/// Polling interval meanwhile.
const POLL: Duration = Duration::from_millis(200);
/// Time limit of a tool call.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);

/// Loads the plugins of a client's package in a gateway of their own, and calls their tools.
pub(super) fn check(client: &OpenClawClient, binary: &Path) -> Result<()> {
    let model = RuleModel::start(|_| RuleAnswer::Text(r#"{"n": 1}"#.to_owned()))?;
    let mut config = model.config();
    let database = tempfile::tempdir()?;
    let folders = PLUGINS.map(|(id, _)| client.package().join("extensions").join(id));
    let embedding = json!({"apiKey": "none", "model": "text-embedding-3-small"});
    config["plugins"] = json!({
        "node": client.node, "load": {"paths": folders}, "slots": {"memory": "memory-lancedb"},
        "entries": {
            "llm-task": {"enabled": true}, "lobster": {"enabled": true},
            "memory-lancedb": {"enabled": true, "config": {"embedding": embedding, "dbPath": database.path()}},
        },
    });
    // Both are optional, and both may have side effects.
    config["tools"] = json!({"alsoAllow": ["llm-task", "lobster"]});
    config["gateway"] = json!({"tools": {"allow": ["llm-task", "lobster"]}});
    let gateway = RunningGateway::start(binary, &config, &client.logs.join("plugins-gateway.log"))?;
    wait_until_loaded(binary, &gateway, client)?;
    let call = |tool: &str, args: Value| invoke(gateway.port(), &json!({"tool": tool, "args": args}));
    let answer = call("llm-task", json!({"prompt": "How many lighthouses are there?"}))?;
    let details = &answer["result"]["details"];
    ensure!(answer["ok"] == true && details["json"] == json!({"n": 1}), "llm-task should answer: {answer}");
    let requests = model.requests();
    ensure!(
        requests.iter().any(|request| request["messages"].to_string().contains("How many lighthouses")),
        "llm-task should send a request to the agent's model, which received {} requests",
        requests.len()
    );
    let fails = |tool: &str, args: Value, why: &str| {
        let answer = call(tool, args)?;
        let message = answer["error"]["message"].as_str().unwrap_or_default();
        ensure!(answer["ok"] == false && message.contains(why), "{tool} should fail with {why:?}: {answer}");
        Ok(())
    };
    let schema = json!({"type": "object", "required": ["m"]});
    fails("llm-task", json!({"prompt": "Again.", "schema": schema}), "LLM JSON did not match schema")?;
    fails("lobster", json!({"action": "run"}), "pipeline required")?;
    // Its program is not installed.
    fails("lobster", json!({"action": "run", "pipeline": "x"}), "ENOENT")
}

/// Waits until all plugins are loaded, and checks their registrations.
fn wait_until_loaded(binary: &Path, gateway: &RunningGateway, client: &OpenClawClient) -> Result<()> {
    let started_at = Instant::now();
    loop {
        let listed = list(binary, gateway)?;
        fs::write(client.logs.join("plugins-list.log"), format!("{listed:#}\n"))?;
        let plugin = |id: &str| listed["plugins"].as_array().and_then(|all| all.iter().find(|one| one["id"] == id));
        let mut waiting = Vec::new();
        for (id, registered) in PLUGINS {
            let status = plugin(id).with_context(|| format!("the plugin {id} should be listed"))?;
            ensure!(status["error"].is_null(), "the plugin {id} could not be loaded: {}", status["error"]);
            if status["registered"].is_null() {
                waiting.push(id);
                continue;
            }
            ensure!(status["registered"] == json!(registered), "{id} registers {}", status["registered"]);
            ensure!(status["denied"] == json!([]), "{id} was denied {}", status["denied"]);
        }
        if waiting.is_empty() {
            return Ok(());
        }
        if started_at.elapsed() > LOAD_TIMEOUT {
            bail!("{} not loaded after {LOAD_TIMEOUT:?}:\n{}", waiting.join(", "), gateway.output());
        }
        thread::sleep(POLL);
    }
}

fn list(binary: &Path, gateway: &RunningGateway) -> Result<Value> {
    let mut command = Command::new(binary);
    command.args(["plugins", "list", "--json"]).env_clear().env("PATH", PATH).env("HOME", gateway.state());
    command.env("HOMARD_STATE_DIR", gateway.state());
    serde_json::from_slice(&shell::output(&mut command)?).context("the output of homard plugins list is not JSON")
}

/// Calls a tool over HTTP.
fn invoke(port: u16, body: &Value) -> Result<Value> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(CALL_TIMEOUT))?;
    let body = body.to_string();
    write!(
        stream,
        "POST /tools/invoke HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {TOKEN}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).context("the gateway did not answer in time")?;
    let (_, body) = answer.split_once("\r\n\r\n").context("the answer should have a body")?;
    serde_json::from_str(body).with_context(|| format!("the answer should be JSON: {answer}"))
}
