//! Runs that a reboot interrupts: some wait for a command, others have not started. All are answered afterwards, once.

use std::{fmt, fs, path::Path};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::{systemd::Systemd, wait_for};

/// Number of runs: more than run at once.
const RUNS: usize = 6;
/// What each of them does. Takes longer than the test needs to get to the reboot.
const MESSAGE: &str = "run `sleep 20`";

/// The runs, and how many of them were active when they were interrupted.
pub(super) struct InterruptedRuns {
    names: Vec<String>,
    active: u64,
    waiting: u64,
}

impl fmt::Display for InterruptedRuns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} runs that were active and {} that were waiting", self.active, self.waiting)
    }
}

impl InterruptedRuns {
    /// Starts the runs. Returns when they are accepted and some of them are active.
    pub(super) fn start(systemd: &Systemd) -> Result<Self> {
        // A root that is used again has the runs of the last time.
        let names = (0..RUNS).map(|run| format!("reboot-{}-{run}", std::process::id())).collect();
        let mut runs = Self { names, active: 0, waiting: 0 };
        for run in &runs.names {
            send(systemd, run)?;
        }
        wait_for("active runs", || {
            let status = systemd.status()?;
            let count = |name: &str| status["gateway"]["runs"][name].as_u64().context("the status counts no runs");
            (runs.active, runs.waiting) = (count("active")?, count("waiting")?);
            Ok(runs.active > 1)
        })?;
        ensure!((runs.active + runs.waiting) == RUNS as u64 && runs.waiting > 0, "unexpected: {runs}");
        Ok(runs)
    }

    /// Waits for the ends of the runs and checks what is stored. Their clients send them again, which starts nothing.
    pub(super) fn check(&self, systemd: &Systemd, state: &Path) -> Result<()> {
        for run in &self.names {
            send(systemd, run)?;
            let end = call(systemd, "agent.wait", &json!({"runId": run, "timeoutMs": 100_000}))?;
            ensure!(end["status"] == "ok", "{run} ended with {end}");
        }
        let transcripts = transcripts(state)?;
        for run in &self.names {
            let key = format!("{run}:user");
            let is_its =
                |messages: &&Vec<Value>| messages.iter().any(|message| message["idempotencyKey"] == key.as_str());
            let found: Vec<_> = transcripts.iter().filter(is_its).collect();
            let [messages] = found[..] else { anyhow::bail!("{run} is in {} transcripts", found.len()) };
            let count = |role: &str| messages.iter().filter(|message| message["role"] == role).count();
            let answers = messages.iter().filter(|message| message["stopReason"] == "stop").count();
            // One call, its result, and the answer.
            let counts = [count("user"), count("toolResult"), count("assistant"), answers];
            ensure!(counts == [1, 1, 2, 1], "{run}: {counts:?} messages, results, answers and ends in {messages:?}");
        }
        Ok(())
    }
}

fn send(systemd: &Systemd, run: &str) -> Result<Value> {
    call(systemd, "agent", &json!({"message": MESSAGE, "sessionKey": run, "idempotencyKey": run}))
}

/// Calls a method of the service's gateway.
fn call(systemd: &Systemd, method: &str, params: &Value) -> Result<Value> {
    let params = params.to_string();
    let environment = ["env", "HOMARD_STATE_DIR=/var/lib/homard"];
    let command = ["homard", "gateway", "call", method, "--params", &params, "--timeout", "110s"];
    let output = systemd.run(&[&environment[..], &command[..]].concat())?;
    serde_json::from_str(&output).with_context(|| format!("{method} returned {output:?}"))
}

/// Returns the messages of every transcript of the default agent.
fn transcripts(state: &Path) -> Result<Vec<Vec<Value>>> {
    let folder = state.join("agents/main/sessions");
    let mut transcripts = Vec::new();
    for entry in fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == "jsonl") {
            let lines = fs::read_to_string(&path)?;
            let entries = lines.lines().map(serde_json::from_str::<Value>).collect::<Result<Vec<_>, _>>()?;
            let messages = entries.into_iter().filter(|entry| entry["type"] == "message");
            transcripts.push(messages.map(|mut entry| entry["message"].take()).collect());
        }
    }
    Ok(transcripts)
}
