//! How soon a killed gateway is ready again, with many sessions and many unfinished runs.

use std::{fs, path::Path, rc::Rc};

use anyhow::{Result, ensure};
use serde_json::{Map, Value, json};

use super::{client::BenchClient, report::BenchReport};
use crate::gateway::{self, GatewayHome, RunningGateway};

/// Number of sessions on disk, and of unfinished runs, each in another session.
pub(super) const SESSIONS: usize = 10_000;
const UNFINISHED_RUNS: usize = 1_000;

/// R20: measures a gateway of its own, whose model never answers.
pub(super) async fn measure(binary: &Path, config: &Value, logs: &Path, report: &mut BenchReport) -> Result<()> {
    let home = GatewayHome::new(binary, config, &logs.join("recovery.log"))?;
    create_sessions(&home.state())?;
    let first = RunningGateway::start_at(Rc::new(home))?;
    let gateway = first.kill_and_start_again()?;
    report.ready("10,000 sessions", gateway.ready_after(), 50.0);
    let mut client = BenchClient::connect(gateway.port(), gateway::TOKEN).await?;
    for number in 0..UNFINISHED_RUNS {
        client.send(&key(number), "hang").await?;
    }
    let gateway = gateway.kill_and_start_again()?;
    let output = gateway.output();
    ensure!(
        output.contains(&format!("{UNFINISHED_RUNS} unfinished")),
        "the gateway's log does not report {UNFINISHED_RUNS} unfinished runs:\n{output}"
    );
    report.ready("1,000 open runs", gateway.ready_after(), 1_000.0);
    Ok(())
}

fn key(number: usize) -> String {
    format!("agent:main:session-{number}")
}

/// Creates sessions as OpenClaw leaves them.
pub(super) fn create_sessions(state: &Path) -> Result<()> {
    let folder = state.join("agents/main/sessions");
    fs::create_dir_all(&folder)?;
    let mut records = Map::new();
    for number in 0..SESSIONS {
        let id = format!("00000000-0000-4000-8000-{number:012}");
        let lines = [
            json!({"type": "session", "version": 3, "id": id, "timestamp": "2026-01-01T00:00:00.000Z", "cwd": "/"}),
            json!({
                "type": "message", "id": "00000001", "parentId": null, "timestamp": "2026-01-01T00:00:00.000Z",
                "message": {"role": "user", "content": "hello", "timestamp": 1_767_225_600_000u64},
            }),
        ];
        fs::write(folder.join(format!("{id}.jsonl")), format!("{}\n{}\n", lines[0], lines[1]))?;
        records.insert(key(number), json!({"sessionId": id, "updatedAt": 1_767_225_600_000u64}));
    }
    Ok(fs::write(folder.join("sessions.json"), Value::Object(records).to_string())?)
}
