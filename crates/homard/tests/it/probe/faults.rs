//! A plugin that hangs, exits or is killed affects nothing else, and leaves no process behind.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
};

use homard_hooks::HookPoint;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::{Probe, fixtures, node, probe_model};
use crate::{
    home::{Process, RunningGateway, until},
    scripted_model::{ScriptedHome, call},
};

/// The session in which plugins hang.
const AFFECTED: &str = "agent:main:victim";

/// The deadline of hooks.
const DEADLINE_MS: u64 = 1_000;

/// The deadline of the hook that hangs before a run: long enough for a run of another session in the meantime.
const LONG_MS: u64 = 8_000;

/// A home with a plugin for each hook point, which hangs there.
struct HangingPlugins {
    scripted: ScriptedHome,
    folder: tempfile::TempDir,
}

impl HangingPlugins {
    /// `install` creates a plugin that hangs at a point in the given directory; it returns the plugin's config entry.
    async fn new(node: &Path, install: impl Fn(&Path, HookPoint, &Path) -> Value) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let started_hooks = folder.path().join("began");
        let entry = |point: HookPoint| {
            let at = folder.path().join("plugins").join(id(point));
            fs::create_dir_all(&at).unwrap();
            let mut entry = install(&at, point, &started_hooks);
            entry["enabled"] = json!(true);
            entry["hooks"]["timeoutMs"] = json!(DEADLINE_MS);
            (id(point), entry)
        };
        let entries: serde_json::Map<_, _> = HookPoint::ALL.into_iter().map(entry).collect();
        let config = json!({
            "agents": {"defaults": {"compaction": {"keepRecentTokens": 200}}},
            "plugins": {"node": node, "load": {"paths": [folder.path().join("plugins")]}, "entries": entries},
        });
        let fixture = ScriptedHome::answering(config, probe_model).await;
        Self { scripted: fixture, folder }
    }

    /// Returns the points at which a plugin hung.
    fn started_hooks(&self) -> String {
        fs::read_to_string(self.folder.path().join("began")).unwrap_or_default()
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    fn gateway(&self) -> RunningGateway<'_> {
        self.scripted.home.gateway_with_log(File::create(self.log()).unwrap(), "warn")
    }

    /// Triggers all points that a plain run does not, ends the gateway, and checks that each point was passed although
    /// a plugin hung there; `passed` is the expected log line.
    fn finish(&self, gateway: RunningGateway<'_>, expected_log: impl Fn(HookPoint) -> String) {
        let long = format!("Keep this: {}", "all about the sea. ".repeat(200));
        for message in [&long, &long, "/compact", "/new"] {
            let output = gateway.run(&["agent", "--session-key", AFFECTED, "-m", message]);
            assert_eq!(output.code, Some(0), "{message}: {output:?}");
        }
        gateway.process.signal(Signal::TERM);
        assert_eq!(gateway.end().0, Some(0));
        let (started_hooks, log) = (self.started_hooks(), fs::read_to_string(self.log()).unwrap());
        for point in HookPoint::ALL {
            assert!(
                started_hooks.lines().any(|line| line == point.name()),
                "none hung in {}: {started_hooks}\n{log}",
                point.name()
            );
            let expected_line = expected_log(point);
            assert!(log.lines().any(|line| line.contains(&expected_line)), "{expected_line} is not in the log:\n{log}");
        }
    }
}

/// Returns the log line for a hook that timed out.
fn late(point: HookPoint) -> String {
    let (id, name) = (id(point), point.name());
    format!("failed (no answer within {DEADLINE_MS} ms) and was skipped hook=\"{id}\" point=\"{name}\"")
}

fn id(point: HookPoint) -> String {
    point.name().replace('_', "-")
}

fn run(gateway: &RunningGateway<'_>, session: &str) -> Process {
    let order = "CALL ls {\"path\": \".\"}";
    Process(gateway.command(&["agent", "--session-key", session, "-m", order]).spawn().unwrap())
}

/// Returns the reply of a successful run.
fn answer(mut process: Process) -> String {
    let mut output = String::new();
    std::io::Read::read_to_string(&mut process.0.stdout.take().unwrap(), &mut output).unwrap();
    assert_eq!(process.0.wait().unwrap().code(), Some(0), "{output}");
    assert!(output.contains("AGENTS.md"), "{output}");
    output
}

// R68.
#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_that_never_answers_delays_only_its_own_run() {
    let Some(node) = node("plugins that never answer") else { return };
    let hanging = HangingPlugins::new(&node, |at, point, started_hooks| {
        fs::write(at.join("openclaw.plugin.json"), json!({"id": id(point), "configSchema": {}}).to_string()).unwrap();
        fs::copy(fixtures().join("hangs/index.mjs"), at.join("index.mjs")).unwrap();
        let config = json!({"point": point.name(), "session": AFFECTED, "out": started_hooks});
        json!({"config": config, "hooks": {"timeouts": {"before_agent_start": LONG_MS}}})
    })
    .await;
    let gateway = hanging.gateway();
    until("the plugins are there", || hanging.started_hooks().contains("gateway_start"));
    let mut affected = run(&gateway, AFFECTED);
    until("the run is held up", || hanging.started_hooks().contains("before_agent_start"));
    let other = answer(run(&gateway, "agent:main:other"));
    assert!(affected.0.try_wait().unwrap().is_none(), "the other one was held up as long");
    assert_eq!(answer(affected), other);
    hanging.finish(gateway, |point| {
        // As in OpenClaw, promises are not awaited there.
        if matches!(point, HookPoint::ToolResultPersist | HookPoint::BeforeMessageWrite) {
            format!("a handler of {} returned a promise", point.name())
        } else if point == HookPoint::BeforeAgentStart {
            late(point).replace(&DEADLINE_MS.to_string(), &LONG_MS.to_string())
        } else {
            late(point)
        }
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_whose_process_hangs_in_any_hook_is_skipped() {
    let hanging = HangingPlugins::new(Path::new("node"), |at, point, started_hooks| {
        let run = json!(["sh", "plugin.sh", AFFECTED, point.name(), started_hooks]);
        let rights = json!({"hooks": [point.name()]});
        let manifest = json!({"id": id(point), "configSchema": {}, "run": run, "rights": rights});
        fs::write(at.join("homard.plugin.json"), manifest.to_string()).unwrap();
        fs::copy(fixtures().join("hangs/plugin.sh"), at.join("plugin.sh")).unwrap();
        json!({})
    })
    .await;
    let gateway = hanging.gateway();
    let runs = [AFFECTED, "agent:main:other"].map(|session| run(&gateway, session));
    let [affected, other] = runs.map(answer);
    assert_eq!(affected, other);
    hanging.finish(gateway, late);
    until("none of their processes is left", || living(hanging.folder.path()).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guard_that_hangs_or_exits_blocks_the_operation() {
    for fault in ["while :; do sleep 1000; done", "exit 1"] {
        let folder = tempfile::tempdir().unwrap();
        let manifest =
            json!({"id": "guard", "configSchema": {}, "run": ["sh", "guard.sh"], "guard": ["before_tool_call"]});
        fs::write(folder.path().join("homard.plugin.json"), manifest.to_string()).unwrap();
        let script = format!("read -r line; printf '{{\"id\":1,\"result\":{{}}}}\\n'; read -r line; {fault}\n");
        fs::write(folder.path().join("guard.sh"), script).unwrap();
        let entry = json!({"enabled": true, "hooks": {"timeoutMs": DEADLINE_MS}});
        let plugins = json!({"load": {"paths": [folder.path()]}, "entries": {"guard": entry}});
        let fixture = ScriptedHome::with(json!({"plugins": plugins})).await;
        let gateway = fixture.home.gateway();
        for _ in 0..4 {
            let output = call(&gateway, "write", &json!({"path": "written.txt", "content": "x"}));
            assert!(output.contains("the guard guard failed"), "{fault}: {output}");
        }
        assert!(!fixture.home.state().join("workspace/written.txt").exists(), "{fault}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_plugin_fails_its_call_restarts_and_leaves_no_process() {
    let Some(node) = node("a plugin that is killed") else { return };
    let probe = Probe::ours(&node).await;
    let gateway = probe.scripted.home.gateway();
    until("the gateway's start was told", || probe.count("gateway_start") == 1);
    let run = Process(gateway.command(&["agent", "-m", "CALL probe_wait {}"]).spawn().unwrap());
    until("its tool is at work", || !probe.of("waits").is_empty());
    let waiting = probe.of("waits").remove(0);
    let [host, child] = ["pid", "child"].map(|name| i32::try_from(waiting[name].as_i64().unwrap()).unwrap());
    assert!(is_alive(host) && is_alive(child));
    kill_process(Pid::from_raw(host).unwrap(), Signal::KILL).unwrap();
    let mut run = run;
    let mut output = String::new();
    std::io::Read::read_to_string(&mut run.0.stdout.take().unwrap(), &mut output).unwrap();
    assert_eq!(run.0.wait().unwrap().code(), Some(0), "{output}");
    assert!(!output.trim().is_empty(), "the model was told what became of its call");
    until("what it had started is gone", || !is_alive(child));
    until("it is back", || call(&gateway, "probe_tool", &json!({"x": "y"})) == "probe:{\"x\":\"y\"}");
    until("its services run again", || probe.of("service-start").len() == 4);
    assert_ne!(probe.of("tool-exec")[0]["pid"], waiting["pid"]);
    // Another process that would stay. After SIGINT the gateway does not wait for it.
    let run = Process(gateway.command(&["agent", "-m", "CALL probe_wait {}"]).spawn().unwrap());
    until("its tool is at work again", || probe.of("waits").len() == 2);
    gateway.process.signal(Signal::INT);
    gateway.end();
    drop(run);
    let pids = probe.heard().into_iter().flat_map(|line| [line["pid"].clone(), line["child"].clone()]);
    let leftover: Vec<_> =
        pids.filter_map(|pid| pid.as_i64()).filter(|pid| is_alive(i32::try_from(*pid).unwrap())).collect();
    assert_eq!(leftover, Vec::<i64>::new());
}

/// Returns true if the process exists and is not a zombie.
fn is_alive(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z') && !rest.starts_with('X'))
}

/// Returns the working directories of processes below a directory.
fn living(folder: &Path) -> Vec<PathBuf> {
    let folder = fs::canonicalize(folder).unwrap();
    let all = fs::read_dir("/proc").unwrap().filter_map(|entry| fs::read_link(entry.ok()?.path().join("cwd")).ok());
    all.filter(|cwd| cwd.starts_with(&folder)).collect()
}
