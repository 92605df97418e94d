//! A plugin that hangs, exits or is killed affects nothing else, and leaves no process behind.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
};

use homard_hooks::HookPoint;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::{Probe, fixtures, mind, node};
use crate::{
    home::{Process, RunningGateway, until},
    scripted_model::{ScriptedHome, call},
};

/// The session in which plugins hang.
const VICTIM: &str = "agent:main:victim";

/// The deadline of hooks.
const DEADLINE_MS: u64 = 1_000;

/// The deadline of the hook that hangs before a run: long enough for a run of another session in the meantime.
const LONG_MS: u64 = 8_000;

/// A home with a plugin for each hook point, which hangs there.
struct HangingPlugins {
    puppet: ScriptedHome,
    folder: tempfile::TempDir,
}

impl HangingPlugins {
    /// `install` creates a plugin that hangs at a point in the given directory; it returns the plugin's config entry.
    async fn new(node: &Path, install: impl Fn(&Path, HookPoint, &Path) -> Value) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let began = folder.path().join("began");
        let entry = |point: HookPoint| {
            let at = folder.path().join("plugins").join(id(point));
            fs::create_dir_all(&at).unwrap();
            let mut entry = install(&at, point, &began);
            entry["enabled"] = json!(true);
            entry["hooks"]["timeoutMs"] = json!(DEADLINE_MS);
            (id(point), entry)
        };
        let entries: serde_json::Map<_, _> = HookPoint::ALL.into_iter().map(entry).collect();
        let config = json!({
            "agents": {"defaults": {"compaction": {"keepRecentTokens": 200}}},
            "plugins": {"node": node, "load": {"paths": [folder.path().join("plugins")]}, "entries": entries},
        });
        let puppet = ScriptedHome::answering(config, mind).await;
        Self { puppet, folder }
    }

    /// Returns the points at which a plugin hung.
    fn began(&self) -> String {
        fs::read_to_string(self.folder.path().join("began")).unwrap_or_default()
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    fn gateway(&self) -> RunningGateway<'_> {
        self.puppet.home.gateway_with_log(File::create(self.log()).unwrap(), "warn")
    }

    /// Triggers all points that a plain run does not, ends the gateway, and checks that each point was passed although
    /// a plugin hung there; `passed` is the expected log line.
    fn finish(&self, gateway: RunningGateway<'_>, passed: impl Fn(HookPoint) -> String) {
        let long = format!("Keep this: {}", "all about the sea. ".repeat(200));
        for words in [&long, &long, "/compact", "/new"] {
            let said = gateway.run(&["agent", "--session-key", VICTIM, "-m", words]);
            assert_eq!(said.code, Some(0), "{words}: {said:?}");
        }
        gateway.process.signal(Signal::TERM);
        assert_eq!(gateway.end().0, Some(0));
        let (began, log) = (self.began(), fs::read_to_string(self.log()).unwrap());
        for point in HookPoint::ALL {
            assert!(began.lines().any(|line| line == point.name()), "none hung in {}: {began}\n{log}", point.name());
            let told = passed(point);
            assert!(log.lines().any(|line| line.contains(&told)), "{told} is not in the log:\n{log}");
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
    let mut said = String::new();
    std::io::Read::read_to_string(&mut process.0.stdout.take().unwrap(), &mut said).unwrap();
    assert_eq!(process.0.wait().unwrap().code(), Some(0), "{said}");
    assert!(said.contains("AGENTS.md"), "{said}");
    said
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_never_answers_in_any_hook_holds_up_its_run_for_a_while_and_no_other() {
    let Some(node) = node("plugins that never answer") else { return };
    let hanging = HangingPlugins::new(&node, |at, point, began| {
        fs::write(at.join("openclaw.plugin.json"), json!({"id": id(point), "configSchema": {}}).to_string()).unwrap();
        fs::copy(fixtures().join("hangs/index.mjs"), at.join("index.mjs")).unwrap();
        let config = json!({"point": point.name(), "session": VICTIM, "out": began});
        json!({"config": config, "hooks": {"timeouts": {"before_agent_start": LONG_MS}}})
    })
    .await;
    let gateway = hanging.gateway();
    until("the plugins are there", || hanging.began().contains("gateway_start"));
    let mut victim = run(&gateway, VICTIM);
    until("the run is held up", || hanging.began().contains("before_agent_start"));
    let other = answer(run(&gateway, "agent:main:other"));
    assert!(victim.0.try_wait().unwrap().is_none(), "the other one was held up as long");
    assert_eq!(answer(victim), other);
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
async fn one_whose_process_hangs_in_any_hook_is_passed_over() {
    let hanging = HangingPlugins::new(Path::new("node"), |at, point, began| {
        let run = json!(["sh", "plugin.sh", VICTIM, point.name(), began]);
        let rights = json!({"hooks": [point.name()]});
        let manifest = json!({"id": id(point), "configSchema": {}, "run": run, "rights": rights});
        fs::write(at.join("homard.plugin.json"), manifest.to_string()).unwrap();
        fs::copy(fixtures().join("hangs/plugin.sh"), at.join("plugin.sh")).unwrap();
        json!({})
    })
    .await;
    let gateway = hanging.gateway();
    let runs = [VICTIM, "agent:main:other"].map(|session| run(&gateway, session));
    let [victim, other] = runs.map(answer);
    assert_eq!(victim, other);
    hanging.finish(gateway, late);
    until("none of their processes is left", || living(hanging.folder.path()).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guard_that_hangs_or_ends_lets_nothing_happen() {
    for how in ["while :; do sleep 1000; done", "exit 1"] {
        let folder = tempfile::tempdir().unwrap();
        let manifest =
            json!({"id": "guard", "configSchema": {}, "run": ["sh", "guard.sh"], "guard": ["before_tool_call"]});
        fs::write(folder.path().join("homard.plugin.json"), manifest.to_string()).unwrap();
        let script = format!("read -r line; printf '{{\"id\":1,\"result\":{{}}}}\\n'; read -r line; {how}\n");
        fs::write(folder.path().join("guard.sh"), script).unwrap();
        let entry = json!({"enabled": true, "hooks": {"timeoutMs": DEADLINE_MS}});
        let plugins = json!({"load": {"paths": [folder.path()]}, "entries": {"guard": entry}});
        let puppet = ScriptedHome::with(json!({"plugins": plugins})).await;
        let gateway = puppet.home.gateway();
        for _ in 0..4 {
            let said = call(&gateway, "write", &json!({"path": "written.txt", "content": "x"}));
            assert!(said.contains("the guard guard failed"), "{how}: {said}");
        }
        assert!(!puppet.home.state().join("workspace/written.txt").exists(), "{how}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_killed_ends_its_call_and_comes_back_and_nothing_is_left_of_it() {
    let Some(node) = node("a plugin that is killed") else { return };
    let probe = Probe::ours(&node).await;
    let gateway = probe.puppet.home.gateway();
    until("the gateway's start was told", || probe.count("gateway_start") == 1);
    let run = Process(gateway.command(&["agent", "-m", "CALL probe_wait {}"]).spawn().unwrap());
    until("its tool is at work", || !probe.of("waits").is_empty());
    let waits = probe.of("waits").remove(0);
    let [host, child] = ["pid", "child"].map(|name| i32::try_from(waits[name].as_i64().unwrap()).unwrap());
    assert!(is_alive(host) && is_alive(child));
    kill_process(Pid::from_raw(host).unwrap(), Signal::KILL).unwrap();
    let mut run = run;
    let mut said = String::new();
    std::io::Read::read_to_string(&mut run.0.stdout.take().unwrap(), &mut said).unwrap();
    assert_eq!(run.0.wait().unwrap().code(), Some(0), "{said}");
    assert!(!said.trim().is_empty(), "the model was told what became of its call");
    until("what it had started is gone", || !is_alive(child));
    until("it is back", || call(&gateway, "probe_tool", &json!({"x": "y"})) == "probe:{\"x\":\"y\"}");
    until("its services run again", || probe.of("service-start").len() == 4);
    assert_ne!(probe.of("tool-exec")[0]["pid"], waits["pid"]);
    // Another process that would stay. After SIGINT the gateway does not wait for it.
    let run = Process(gateway.command(&["agent", "-m", "CALL probe_wait {}"]).spawn().unwrap());
    until("its tool is at work again", || probe.of("waits").len() == 2);
    gateway.process.signal(Signal::INT);
    gateway.end();
    drop(run);
    let pids = probe.heard().into_iter().flat_map(|line| [line["pid"].clone(), line["child"].clone()]);
    let left: Vec<_> =
        pids.filter_map(|pid| pid.as_i64()).filter(|pid| is_alive(i32::try_from(*pid).unwrap())).collect();
    assert_eq!(left, Vec::<i64>::new());
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
