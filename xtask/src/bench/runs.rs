//! Lists and searches 100,000 runs, and opens a session of 5,000 messages, as the web page does.

use std::{path::Path, process::Command, rc::Rc, time::Duration};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::{client::BenchClient, report::BenchReport};
use crate::{
    gateway::{self, GatewayHome, RunningGateway},
    shell,
};

/// Number of stored runs, and of messages of the long session.
const RUNS: usize = 100_000;
const MESSAGES: usize = 5_000;

/// Number of requests of each kind.
const TIMES: usize = 50;

/// Size of a page of the list, as the web page requests it.
const PAGE: usize = 200;

/// Maximum time of a response in milliseconds.
const LIMIT_MS: f64 = 100.0;

/// Measures a gateway of its own.
pub(super) async fn measure(binary: &Path, config: &Value, logs: &Path, report: &mut BenchReport) -> Result<()> {
    let home = GatewayHome::new(binary, config, &logs.join("runs.log"))?;
    seed(binary, &home.state())?;
    let gateway = RunningGateway::start_at(Rc::new(home))?;
    let mut client = BenchClient::connect(gateway.port(), gateway::TOKEN).await?;
    let list = |conditions: Value| {
        let mut params = json!({"limit": PAGE});
        if let (Some(params), Value::Object(conditions)) = (params.as_object_mut(), conditions) {
            params.extend(conditions);
        }
        params
    };
    let requests = [
        ("runs.list of 100,000 runs", "runs.list", list(json!({})), r#""runId":"#, PAGE),
        ("… those that failed", "runs.list", list(json!({"status": "error"})), r#""runId":"#, PAGE),
        ("… one of them, by its error", "runs.list", list(json!({"search": "request 100"})), r#""runId":"#, 112),
        ("… search without a result", "runs.list", list(json!({"search": "nothing like this"})), r#""runId":"#, 0),
        (
            "… those of a session",
            "runs.list",
            list(json!({"sessionKey": "agent:main:telegram:direct:1007"})),
            r#""runId":"#,
            PAGE,
        ),
        (
            "chat.history of 5,000 messages",
            "chat.history",
            json!({"sessionKey": "agent:main:long"}),
            r#""role":"#,
            PAGE,
        ),
    ];
    for (name, method, params, part, rows) in requests {
        let mut times: Vec<Duration> = Vec::new();
        for _ in 0..TIMES {
            let (time, answer) = client.call(method, params.clone()).await?;
            let count = answer.matches(part).count();
            ensure!(count == rows, "{name} should have returned {rows} rows, but returned {count}");
            times.push(time);
        }
        report.response(name, &times, LIMIT_MS);
    }
    Ok(())
}

/// Fills the state directory with the example `seed_runs` of the journal, which is built like the gateway.
fn seed(gateway: &Path, state: &Path) -> Result<()> {
    let folder = gateway.parent().context("the gateway's binary has no parent directory")?;
    let profile = match folder.file_name().and_then(|name| name.to_str()) {
        Some("debug") => "dev",
        Some(profile) => profile,
        None => "dev",
    };
    shell::run(&mut shell::cargo(&[
        "build",
        "--package",
        "homard-journal",
        "--example",
        "seed_runs",
        "--profile",
        profile,
    ]))?;
    let counts = [RUNS.to_string(), MESSAGES.to_string()];
    shell::run(Command::new(folder.join("examples").join("seed_runs")).arg(state).args(counts))
}
