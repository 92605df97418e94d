//! Cost of hooks: one call in Rust, through a process and through Node; a run with hooks at every point compared with
//! one without; and startup with many plugins compared with none.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    rc::Rc,
    thread,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::{
    client::BenchClient,
    exec::{self, Comparison},
    report::BenchReport,
};
use crate::{
    gateway::{self, GatewayHome, RunningGateway},
    setup, shell,
};

/// Runs of each kind, interleaved, after some warm-up runs.
const RUNS: usize = 100;
const WARM_UP: usize = 10;
/// Number of sessions that those runs use in turn, so that no history grows long.
const ROUND: usize = 20;
/// Chunks of a run.
const CHUNKS: usize = 20;
/// Number of starts of each kind.
const STARTS: usize = 10;
/// Number of plugins: half of them native, half of them OpenClaw's.
pub(super) const PLUGINS: usize = 50;
/// Time limit until the plugins' registrations are known.
const REGISTRATION_TIMEOUT: Duration = Duration::from_secs(60);
/// Polling interval meanwhile.
const POLL: Duration = Duration::from_millis(20);

/// All hook points.
const POINTS: [&str; 21] = [
    "gateway_start",
    "message_received",
    "before_reset",
    "session_end",
    "session_start",
    "before_agent_reply",
    "before_model_resolve",
    "before_prompt_build",
    "before_agent_start",
    "before_compaction",
    "after_compaction",
    "llm_input",
    "llm_output",
    "before_tool_call",
    "after_tool_call",
    "tool_result_persist",
    "before_message_write",
    "agent_end",
    "message_sending",
    "message_sent",
    "gateway_stop",
];

/// A plugin that answers nothing and finally reports the number of its calls.
const PYTHON: &str = r#"
import json, sys
count = 0
for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        count += message["method"] == "hook.invoke"
        print(json.dumps({"id": message["id"], "result": {"result": None}}), flush=True)
open("count", "w").write(str(count))
"#;

/// Minimum number of hook calls that a plain run waits for; with fewer, nothing was measured.
const MIN_CALLS: usize = 5;
/// Time limit for a plugin to report its number of calls.
const COUNT_TIMEOUT: Duration = Duration::from_secs(10);

/// Measures gateways of its own.
pub(super) async fn measure(binary: &Path, config: &Value, logs: &Path, report: &mut BenchReport) -> Result<()> {
    let node = setup::node().context("no sufficiently recent version of Node was found")?;
    let folder = tempfile::tempdir()?;
    let paths = HookBenchPaths { node: &node, folder: folder.path(), logs };
    let bare = runs(binary, config, paths, report).await?;
    for comparison in exec::run(Command::new(build(binary)?).arg(&node))? {
        report.hook(&comparison, &bare);
    }
    starts(binary, config, paths, report)
}

/// Builds `bench_hooks` beside the gateway's binary.
fn build(gateway: &Path) -> Result<PathBuf> {
    let folder = gateway.parent().context("the gateway's binary has no parent directory")?;
    let profile = folder.file_name().and_then(|name| name.to_str()).context("cannot determine the build profile")?;
    let args = ["build", "--package", "homard-plugins", "--example", "bench_hooks", "--profile", profile];
    shell::run(&mut shell::cargo(&args))?;
    Ok(folder.join("examples").join("bench_hooks"))
}

/// Where the benchmark of hooks finds and writes files.
#[derive(Clone, Copy)]
struct HookBenchPaths<'a> {
    node: &'a Path,
    /// Folder of the plugins.
    folder: &'a Path,
    logs: &'a Path,
}

/// Makes runs in three gateways, interleaved; returns the times of those without hooks.
async fn runs(
    binary: &Path,
    config: &Value,
    HookBenchPaths { node, folder, logs }: HookBenchPaths<'_>,
    report: &mut BenchReport,
) -> Result<Vec<Duration>> {
    write_python_plugin(&folder.join("python"), "python", &POINTS)?;
    write_javascript_plugin(&folder.join("javascript"), "javascript", &POINTS)?;
    let mut gateways = Vec::new();
    for (kind, ids, unknown) in
        [("none", &[][..], &[][..]), ("Python", &["python"], &[]), ("Node", &["javascript"], &["javascript"])]
    {
        let config = with_plugins(config, node, folder, ids);
        let home = Rc::new(GatewayHome::new(binary, &config, &logs.join(format!("hooks-{kind}.log")))?);
        let gateway = RunningGateway::start_at(home)?;
        wait_for_registrations(&gateway, unknown)?;
        let client = BenchClient::connect(gateway.port(), gateway::TOKEN).await?;
        gateways.push((kind, gateway, client, Vec::new()));
    }
    for run in 0..WARM_UP + RUNS {
        for (_, _, client, times) in &mut gateways {
            let time = client.run(&format!("agent:main:hooks-{}", run % ROUND), CHUNKS).await?;
            if run >= WARM_UP {
                times.push(time);
            }
        }
    }
    for (kind, gateway, ..) in &gateways {
        let output = gateway.output();
        ensure!(!output.contains("and was skipped"), "hooks in {kind} did not answer:\n{output}");
    }
    let times: Vec<_> = gateways.into_iter().map(|(kind, _, _, times)| (kind.to_owned(), times)).collect();
    // Their gateways have exited, so the plugins have, too.
    for id in ["python", "javascript"] {
        let count = count(&folder.join(id).join("count"))?;
        println!("hooks of the plugin {id} were called {count} times in {} runs", WARM_UP + RUNS);
        ensure!(count >= RUNS * MIN_CALLS, "the plugin {id} was called only {count} times in {RUNS} runs");
    }
    let bare = times.first().map(|(_, times)| times.clone()).unwrap_or_default();
    report.hooked(&Comparison { what: "run".to_owned(), times });
    Ok(bare)
}

/// Starts gateways without plugins and with many, interleaved: with unknown and with known registrations.
fn starts(
    binary: &Path,
    config: &Value,
    HookBenchPaths { node, folder, logs }: HookBenchPaths<'_>,
    report: &mut BenchReport,
) -> Result<()> {
    let many = folder.join("many");
    let ids: Vec<String> = (0..PLUGINS).map(|number| format!("plugin-{number}")).collect();
    for (number, id) in ids.iter().enumerate() {
        let write_plugin = if number % 2 == 0 { write_python_plugin } else { write_javascript_plugin };
        write_plugin(&many.join(id), id, &["agent_end"])?;
    }
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let unknown: Vec<&str> = ids.iter().skip(1).step_by(2).copied().collect();
    let config_with_plugins = with_plugins(config, node, &many, &ids);
    let home = |config: &Value| GatewayHome::new(binary, config, &logs.join("starts.log")).map(Rc::new);
    let (mut none, mut new) = (Vec::new(), Vec::new());
    for _ in 0..STARTS {
        none.push(RunningGateway::start_at(home(config)?)?.ready_after());
        new.push(RunningGateway::start_at(home(&config_with_plugins)?)?.ready_after());
    }
    report.start_with(&format!("{PLUGINS} new plugins"), &none, &new);
    let (bare_home, full_home) = (home(config)?, home(&config_with_plugins)?);
    RunningGateway::start_at(bare_home.clone())?;
    wait_for_registrations(&RunningGateway::start_at(full_home.clone())?, &unknown)?;
    let (mut none, mut known) = (Vec::new(), Vec::new());
    for _ in 0..STARTS {
        none.push(RunningGateway::start_at(bare_home.clone())?.ready_after());
        known.push(RunningGateway::start_at(full_home.clone())?.ready_after());
    }
    report.start_with(&format!("{PLUGINS} known plugins"), &none, &known);
    Ok(())
}

/// Returns the config with these plugins of a folder.
pub(super) fn with_plugins(config: &Value, node: &Path, folder: &Path, ids: &[&str]) -> Value {
    let mut config = config.clone();
    if !ids.is_empty() {
        let entries: Map<String, Value> = ids.iter().map(|id| ((*id).to_owned(), json!({"enabled": true}))).collect();
        let paths: Vec<_> = ids.iter().map(|id| folder.join(id)).collect();
        config["plugins"] = json!({"node": node, "load": {"paths": paths}, "entries": entries});
    }
    config
}

/// Writes a native plugin, in Python, that counts the calls of its hooks.
pub(super) fn write_python_plugin(folder: &Path, id: &str, points: &[&str]) -> Result<()> {
    let manifest = json!({"id": id, "configSchema": {}, "run": ["python3", "plugin.py"], "rights": {"hooks": points}});
    fs::create_dir_all(folder)?;
    fs::write(folder.join("homard.plugin.json"), manifest.to_string())?;
    Ok(fs::write(folder.join("plugin.py"), PYTHON)?)
}

/// Writes an OpenClaw plugin that counts the calls of its hooks.
pub(super) fn write_javascript_plugin(folder: &Path, id: &str, points: &[&str]) -> Result<()> {
    let (points, file) = (json!(points), json!(folder.join("count")));
    let script = format!(
        "import fs from 'node:fs';\nlet count = 0;\nprocess.on('exit', () => fs.writeFileSync({file}, `${{count}}`));\n\
         export default {{ register: (api) => {points}.forEach((point) => api.on(point, () => {{ count += 1; }})) }};\n"
    );
    fs::create_dir_all(folder)?;
    fs::write(folder.join("openclaw.plugin.json"), json!({"id": id, "configSchema": {}}).to_string())?;
    Ok(fs::write(folder.join("index.mjs"), script)?)
}

/// Waits until the gateway knows the registrations of plugins whose manifests do not declare them.
pub(super) fn wait_for_registrations(gateway: &RunningGateway, ids: &[&str]) -> Result<()> {
    let file = gateway.state().join("plugins").join("registrations.json");
    let started_at = Instant::now();
    let is_known = |known: &Value| ids.iter().all(|id| known.get(id).is_some());
    while !is_known(&serde_json::from_slice(&fs::read(&file).unwrap_or_default()).unwrap_or_default()) {
        ensure!(
            started_at.elapsed() < REGISTRATION_TIMEOUT,
            "plugins are not registered after {REGISTRATION_TIMEOUT:?}:\n{}",
            gateway.output()
        );
        thread::sleep(POLL);
    }
    Ok(())
}

/// Returns how often a plugin was called, which it reports when it exits.
fn count(file: &Path) -> Result<usize> {
    let started_at = Instant::now();
    loop {
        if let Some(count) = fs::read_to_string(file).ok().and_then(|text| text.parse().ok()) {
            return Ok(count);
        }
        ensure!(started_at.elapsed() < COUNT_TIMEOUT, "{} is missing after {COUNT_TIMEOUT:?}", file.display());
        thread::sleep(POLL);
    }
}
