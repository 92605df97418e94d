//! The config file: changed by commands and over the wire, broken and repaired, reloaded by a running gateway.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    home::{CommandOutput, Home, RunningGateway, run_command, until},
    socket::{Socket, connect_as, next_frame, send_frame},
};

/// A config as people write it: comments, an order of their own, keys that only OpenClaw has.
const WRITTEN: &str = "// Mine.
{
  meta: {lastTouchedVersion: '2026.2.9'},
  tools: { deny: [ 'exec' , ], exec: {ask: 'off'} }, // no commands
  \"agents\": {
    defaults: {
      maxConcurrent: 0x4, /* four */
      heartbeat: {every: \"0m\"}
    },
  },
  gateway: {auth: {token: 'hush-hush-hush'}},
}
";

/// The token in it.
const HUSH: &str = "hush-hush-hush";

fn file(home: &Home) -> PathBuf {
    home.state().join("homard.json")
}

fn text(home: &Home) -> String {
    fs::read_to_string(file(home)).unwrap()
}

/// Returns the files at the top of the state directory with their text, except the config's lock and the audit log's
/// key.
fn files(home: &Home) -> BTreeMap<String, String> {
    let entries = fs::read_dir(home.state()).unwrap().map(|entry| entry.unwrap().path());
    let named = entries.filter(|path| path.is_file()).map(|path| {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        (name, String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned())
    });
    named.filter(|(name, _)| !["homard.json.lock", "audit.key"].contains(&name.as_str())).collect()
}

fn output_parts(output: &CommandOutput) -> (Option<i32>, &str, &str) {
    (output.code, output.stdout.as_str(), output.stderr.as_str())
}

#[test]
fn a_value_is_set_and_every_other_byte_stays() {
    let home = Home::new();
    home.configure(WRITTEN);
    let path = file(&home).display().to_string();
    let output = home.run(&["config", "set", "agents.defaults.maxConcurrent", "2"]);
    let expected_text = format!(
        "set agents.defaults.maxConcurrent in {path}\nagents.defaults.maxConcurrent: applied by a running gateway immediately\n"
    );
    assert_eq!(output_parts(&output), (Some(0), expected_text.as_str(), ""));
    let changed = WRITTEN.replace("0x4", "2");
    let expected = [("homard.json", changed.as_str()), ("homard.json.bak", WRITTEN)];
    assert_eq!(files(&home), expected.map(|(name, text)| (name.to_owned(), text.to_owned())).into());
    let output = home.run(&["config", "set", "gateway.port", "19000", "--json"]);
    let report = output.json();
    assert_eq!(report["changed"], json!([{"path": "gateway.port", "effect": "restart"}]));
    assert_eq!(report["backup"], json!(format!("{path}.bak")));
    let output = home.run(&["config", "unset", "gateway.port"]);
    assert_eq!(output.code, Some(0), "{output:?}");
    assert_eq!(text(&home), changed);
    assert_eq!(home.run(&["config", "set", "agents.defaults.model", "openai/gpt-6.1-sol"]).code, Some(0));
    assert_eq!(home.run(&["config", "get", "agents.defaults.model"]).stdout, "openai/gpt-6.1-sol\n");
}

#[test]
fn unset_is_also_called_remove_and_rm() {
    let home = Home::new();
    for verb in ["unset", "remove", "rm"] {
        home.configure("{gateway: {port: 19000}}");
        assert_eq!(home.run(&["config", verb, "gateway.port"]).code, Some(0), "{verb}");
        assert!(!text(&home).contains("19000"), "{verb}");
    }
}

#[test]
fn a_change_that_would_not_be_valid_changes_nothing() {
    let home = Home::new();
    home.configure(WRITTEN);
    let before = files(&home);
    let refused = |path: &str, value: &str| {
        let output = home.run(&["config", "set", path, value]);
        assert_eq!((output.code, output.stdout.as_str()), (Some(1), ""));
        output.stderr
    };
    let head = "error: nothing was changed, because the config would not be valid:\n";
    assert_eq!(
        refused("agents.defaults.maxConcurent", "2"),
        format!(
            "{head}  line 9, column 7: agents.defaults.maxConcurent is not a known key; did you mean \"maxConcurrent\"?\n"
        )
    );
    assert_eq!(
        refused("gateway.port", "often"),
        format!("{head}  line 11, column 54: gateway.port must be a whole number from 0 to 65535\n")
    );
    assert_eq!(
        refused("bindings", "[{agentId: 'nobody', match: {channel: 'telegram'}}]"),
        format!("{head}  line 14, column 18: bindings[0].agentId names an agent that is not in agents.list\n")
    );
    assert_eq!(
        refused("gateway.auth.token.x", "1"),
        "error: gateway.auth.token is a string and cannot contain other keys; unset it first\n"
    );
    assert_eq!(home.run(&["config", "set", "tools.deny", "exec", "--json"]).code, Some(2));
    assert_eq!(home.run(&["config", "unset", "nope"]).stderr, "error: Config path not found: nope\n");
    assert_eq!(files(&home), before);
}

// R72.
#[test]
fn the_config_is_shown_without_secrets() {
    let home = Home::new();
    let get = |path: &str| home.run(&["config", "get", path]);
    assert_eq!(home.run(&["config", "get"]).json(), json!({}));
    home.configure(WRITTEN);
    assert_eq!(get("agents.defaults.maxConcurrent").stdout, "4\n");
    assert_eq!(get("meta.lastTouchedVersion").stdout, "2026.2.9\n");
    assert_eq!(get("tools").json(), json!({"deny": ["exec"], "exec": {"ask": "off"}}));
    assert_eq!(get("gateway.auth").json(), json!({"token": "__OPENCLAW_REDACTED__"}));
    assert_eq!(home.run(&["config", "get", "tools.deny[0]", "--json"]).json(), json!("exec"));
    assert_eq!(
        output_parts(&get("tools.dney")),
        (Some(1), "", "error: Config path not found: tools.dney; did you mean \"deny\"?\n")
    );
    assert_eq!(output_parts(&get("gateway..port")).0, Some(2));
    let output = home.run(&["config", "get", "gateway.auth.token", "--show-secrets"]);
    assert_eq!((output.code, output.stdout.as_str()), (Some(2), ""), "a pipe is no place for a secret");
    let path = file(&home).display().to_string();
    for name in ["path", "file"] {
        assert_eq!(home.run(&["config", name]).stdout.trim(), path);
    }
}

#[test]
fn all_problems_are_reported_with_their_lines() {
    let home = Home::new();
    let path = file(&home).display().to_string();
    let none = home.run(&["config", "validate"]);
    assert_eq!(
        output_parts(&none),
        (Some(0), format!("config file {path} does not exist; the defaults apply\n").as_str(), "")
    );
    home.configure(WRITTEN);
    let valid = home.run(&["config", "validate"]);
    let expected = format!("config file {path} is valid\n");
    assert_eq!(output_parts(&valid), (Some(0), expected.as_str(), ""));
    home.configure("{\n  gateway: {prot: 1},\n  agents: {list: [{name: 'x'}]},\n  channels: {a: '${NOT_SET}'},\n}");
    let output = home.run(&["config", "validate"]);
    assert_eq!(
        output_parts(&output),
        (
            Some(1),
            "problem: line 2, column 13: gateway.prot is not a known key; did you mean \"port\"?\n\
             problem: line 3, column 19: agents.list[0] must have an id\n\
             problem: line 4, column 17: channels.a needs the environment variable NOT_SET, which is not set\n",
            format!("error: config file {path} is not valid: 3 problems\n").as_str()
        )
    );
    let output = home.run(&["config", "validate", "--json"]);
    assert_eq!(output.code, Some(1));
    let report = output.json();
    assert_eq!((&report["valid"], &report["exists"]), (&json!(false), &json!(true)));
    assert_eq!(
        report["issues"][0],
        json!({"path": "gateway.prot", "message": "is not a known key; did you mean \"port\"?", "line": 2, "column": 13})
    );
}

#[test]
fn a_misspelt_tool_name_is_a_warning() {
    let home = Home::new();
    let path = file(&home).display().to_string();
    home.configure("{tools: {deny: ['exce', 'github__anything']}}");
    let warning = "tools.deny[0] is \"exce\", which is not a tool; did you mean \"exec\"?";
    let output = home.run(&["config", "validate"]);
    let expected = format!("warning: line 1, column 17: {warning}\nconfig file {path} is valid\n");
    assert_eq!(output_parts(&output), (Some(0), expected.as_str(), ""));
    let status = home.run(&["status", "--json"]).json();
    assert_eq!(status["notice"], json!(format!("config file {path}, line 1, column 17: {warning}")));
    let gateway = home.gateway();
    let status = gateway.run(&["status", "--json"]).json();
    assert_eq!(status["notice"], json!(warning));
}

#[test]
fn a_file_that_cannot_be_written_is_reported_and_unchanged() {
    let home = Home::new();
    fs::create_dir_all(file(&home)).unwrap();
    let set = |home: &Home| home.run(&["config", "set", "gateway.port", "1"]);
    assert_eq!(
        output_parts(&set(&home)),
        (Some(1), "", "error: the config cannot be changed: the file is a directory\n")
    );
    fs::remove_dir(file(&home)).unwrap();
    symlink("homard.json", file(&home)).unwrap();
    let output_of_loop = set(&home);
    assert_eq!(output_of_loop.code, Some(1));
    assert!(
        output_of_loop.stderr.starts_with("error: the config cannot be changed: the file cannot be read: "),
        "{output_of_loop:?}"
    );
    fs::remove_file(file(&home)).unwrap();
    // A symlink to the real file stays one.
    fs::write(home.work().join("real.json"), "{}").unwrap();
    symlink(home.work().join("real.json"), file(&home)).unwrap();
    assert_eq!(set(&home).code, Some(0));
    assert!(fs::symlink_metadata(file(&home)).unwrap().is_symlink());
    assert_eq!(fs::read_to_string(home.work().join("real.json")).unwrap(), text(&home));
    // No file may grow, as on a full disk.
    let before = text(&home);
    let plain = home.command(&["config", "set", "gateway.port", "2"]);
    let mut full = Command::new("sh");
    full.args(["-c", "trap '' XFSZ; ulimit -f 0; exec \"$0\" \"$@\""]).arg(plain.get_program()).args(plain.get_args());
    full.env_clear().envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
    full.current_dir(home.work()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = run_command(full);
    let real = home.work().join("real.json");
    assert_eq!(output.code, Some(1));
    let expected =
        format!("error: cannot write a temporary file next to {}; the config was not changed: ", real.display());
    assert!(output.stderr.starts_with(&expected), "{}", output.stderr);
    assert_eq!(text(&home), before);
}

#[test]
fn concurrent_changes_are_all_applied() {
    let home = Home::new();
    home.configure("{}");
    thread::scope(|scope| {
        for number in 0..8 {
            let home = &home;
            let path = format!("skills.entries.s{number}.enabled");
            scope.spawn(move || assert_eq!(home.run(&["config", "set", &path, "false"]).code, Some(0)));
        }
    });
    let entries = home.run(&["config", "get", "skills.entries"]).json();
    assert_eq!(entries.as_object().unwrap().len(), 8);
}

#[test]
fn an_invalid_edit_keeps_the_running_config_and_is_reported_until_fixed() {
    let home = Home::new();
    let good = "{agents: {list: [{id: 'main', name: 'Ada'}]}}";
    home.configure(good);
    let gateway = home.gateway();
    let name = || gateway.run(&["gateway", "call", "agents.list"]).json()["agents"][0]["name"].clone();
    let notice = || gateway.run(&["health", "--json"]).json()["notice"].as_str().unwrap_or_default().to_owned();
    assert_eq!((name(), notice()), (json!("Ada"), String::new()));
    let broken = "{agents: {list: [{id: 'main', name: 'Bob'}]}, gatway: {}}";
    home.configure(broken);
    until("the trouble is told", || !notice().is_empty());
    let expected = "line 1, column 47: gatway is not a known key; did you mean \"gateway\"?";
    assert!(notice().contains(expected) && notice().contains("homard config validate"), "{}", notice());
    assert!(gateway.run(&["status"]).stdout.contains(expected));
    assert_eq!((name(), text(&home).as_str()), (json!("Ada"), broken));
    home.configure(&good.replace("Ada", "Cleo"));
    until("it is mended", || notice().is_empty());
    assert_eq!(name(), "Cleo");
}

#[test]
fn an_invalid_first_config_prevents_the_start_and_can_be_repaired() {
    for (text, position) in [
        ("{\n  gateway: {port: 1}\n  agents: {}\n}", "line 2, column 21: expected comma"),
        ("{\n  gateway: {port: 'x'},\n}", "line 2, column 19: gateway.port must be a whole number from 0 to 65535"),
        ("{\n  gatewy: {},\n}", "line 2, column 3: gatewy is not a known key; did you mean \"gateway\"?"),
        ("", "the file is empty; write {} for an empty config"),
    ] {
        let home = Home::new();
        home.configure(text);
        let expected = format!(
            "error: config file {} is not valid: {position}\nnothing was started; correct the file, then check it with: homard \
             config validate\n",
            file(&home).display()
        );
        for args in [&["agent", "-m", "hi"][..], &["agent", "-m", "hi", "--local"], &["models", "status"], &["health"]]
        {
            assert_eq!(output_parts(&home.run(args)), (Some(78), "", expected.as_str()), "{args:?}");
        }
        let json = home.run(&["agent", "-m", "hi", "--json"]);
        assert_eq!((json.code, &json.json()["error"]["type"]), (Some(78), &json!("config")));
        assert_eq!(home.refused_start(), (Some(78), expected));
        assert_eq!(files(&home).into_keys().collect::<Vec<_>>(), ["homard.json"]);
        let validate = home.run(&["config", "validate"]);
        assert!(validate.code == Some(1) && validate.stdout.contains(position), "{validate:?}");
        let doctor = home.run(&["doctor"]);
        assert!(doctor.code == Some(1) && doctor.stdout.contains(position), "{doctor:?}");
        let status = home.run(&["status"]);
        assert!(status.code == Some(0) && status.stdout.contains(position), "{status:?}");
        assert!(!status.stdout.contains("homard/demo"), "{status:?}");
    }
    let home = Home::new();
    home.configure("{gateway: {port: 'x'}}");
    assert_eq!(home.run(&["config", "set", "gateway.port", "18790"]).code, Some(0));
    assert_eq!(home.run(&["agent", "-m", "What time is it?"]).code, Some(0));
}

#[test]
fn prompts_of_requests_are_kept_within_the_limit_of_the_config() {
    let kept = |config: &str| {
        let home = Home::new();
        home.configure(config);
        assert_eq!(home.run(&["agent", "-m", "hi"]).code, Some(0));
        fs::read_dir(home.state().join("prompts")).map_or(0, Iterator::count)
    };
    assert!(kept("{}") > 0);
    assert_eq!(kept("{trace: {keepPromptBytes: 0}}"), 0);
}

#[test]
fn a_start_with_an_invalid_file_uses_the_last_valid_config_and_reports_it() {
    let home = Home::new();
    home.configure("{agents: {list: [{id: 'main', name: 'Ada'}]}}");
    let gateway = home.gateway();
    gateway.process.signal(Signal::TERM);
    assert_eq!(gateway.end().0, Some(0));
    home.configure("{agents: {list: [{id: 'main', name: 'Bob'},]}, gateway: {port: ");
    let settings = |home: &Home| {
        let mut files = files(home);
        files.retain(|name, _| name.contains("homard.json") || name.contains("last-good"));
        files
    };
    let before = settings(&home);
    assert_eq!(before.len(), 2, "{before:?}");
    let log = home.work().join("log");
    let gateway = home.gateway_with_log(File::create(&log).unwrap(), "warn");
    let agents = gateway.run(&["gateway", "call", "agents.list"]).json();
    assert_eq!(agents["agents"][0]["name"], "Ada");
    let path = file(&home).display().to_string();
    let expected = format!("config file {path} is not valid: line 1, column 64: ");
    let copy = home.state().join("config.last-good.json").display().to_string();
    let copy = format!("the last valid config is used instead ({copy}, saved at 20");
    let health = gateway.run(&["health", "--json"]).json();
    for reported in [
        health["notice"].as_str().unwrap().to_owned(),
        gateway.run(&["status"]).stdout,
        fs::read_to_string(&log).unwrap(),
        gateway.run(&["agent", "-m", "What time is it?"]).stderr,
    ] {
        assert!(reported.contains(&expected) && reported.contains(&copy), "{reported}");
    }
    assert_eq!(settings(&home), before);
    let answer = gateway.run(&["gateway", "call", "config.get"]).json();
    assert_eq!((&answer["valid"], &answer["raw"], &answer["parsed"]), (&json!(false), &Value::Null, &json!({})));
    assert_eq!(answer["config"], json!({"agents": {"list": [{"id": "main", "name": "Ada"}]}}));
    assert_eq!(answer["runtimeConfig"], answer["config"]);
    assert_eq!(answer["issues"].as_array().unwrap().len(), 1);
}

#[test]
fn a_start_with_an_empty_file_uses_the_last_valid_config() {
    let home = Home::new();
    home.configure("{agents: {list: [{id: 'main', name: 'Ada'}]}}");
    let gateway = home.gateway();
    gateway.process.signal(Signal::TERM);
    assert_eq!(gateway.end().0, Some(0));
    home.configure("");
    let gateway = home.gateway();
    let agents = gateway.run(&["gateway", "call", "agents.list"]).json();
    assert_eq!(agents["agents"][0]["name"], "Ada");
    let notice = gateway.run(&["health", "--json"]).json()["notice"].clone();
    assert!(notice.as_str().unwrap().contains("the file is empty; write {} for an empty config"), "{notice}");
    gateway.process.signal(Signal::TERM);
    assert_eq!(gateway.end().0, Some(0));
    // A start without a file does not invalidate the copy either.
    fs::remove_file(file(&home)).unwrap();
    let gateway = home.gateway();
    gateway.process.signal(Signal::TERM);
    assert_eq!(gateway.end().0, Some(0));
    home.configure("{");
    let gateway = home.gateway();
    let agents = gateway.run(&["gateway", "call", "agents.list"]).json();
    assert_eq!(agents["agents"][0]["name"], "Ada");
}

/// A client that sends requests and records all events.
struct EventClient {
    socket: Socket,
    request_count: usize,
    events: Vec<Value>,
}

impl EventClient {
    async fn new(gateway: &RunningGateway<'_>, token: &str, protocol: u64, scopes: &[&str]) -> Self {
        let socket = connect_as(gateway.port, token, protocol, scopes, &["tool-events"]).await;
        Self { socket, request_count: 0, events: Vec::new() }
    }

    async fn send(&mut self, method: &str, params: Value) -> String {
        self.request_count += 1;
        let id = self.request_count.to_string();
        send_frame(&mut self.socket, &json!({"type": "req", "id": id, "method": method, "params": params})).await;
        id
    }

    async fn next(&mut self) -> Value {
        let frame = next_frame(&mut self.socket).await.expect("the gateway closed the connection");
        if frame["type"] == "event" {
            self.events.push(frame.clone());
        }
        frame
    }

    /// Returns the first response, or the final one of two.
    async fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params).await;
        loop {
            let frame = self.next().await;
            if frame["id"] == id && frame["payload"]["status"] != "accepted" {
                return frame;
            }
        }
    }

    /// Sends a message in a session of its own and returns the reply.
    async fn say(&mut self, session: &str, message: &str) -> String {
        self.request_count += 1;
        let params =
            json!({"message": message, "sessionKey": session, "idempotencyKey": format!("say-{}", self.request_count)});
        let answer = self.ask("agent", params).await;
        answer["payload"]["result"]["payloads"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
    }

    /// Starts a run and waits until it is accepted.
    async fn begin(&mut self, run: &str, message: &str) {
        let params = json!({"message": message, "sessionKey": run, "idempotencyKey": run});
        let id = self.send("agent", params).await;
        while self.next().await["id"] != id {}
    }

    /// Returns true if a run has reached this phase, by its events.
    fn is_at(&self, run: &str, phase: &str) -> bool {
        self.events.iter().any(|frame| frame["payload"]["runId"] == run && frame["payload"]["data"]["phase"] == phase)
    }

    async fn wait_for(&mut self, run: &str, phase: &str) {
        while !self.is_at(run, phase) {
            self.next().await;
        }
    }

    /// Changes the config with its current hash.
    async fn patch(&mut self, patch: Value) -> Value {
        let hash = self.ask("config.get", json!({})).await["payload"]["hash"].clone();
        let answer = self.ask("config.patch", json!({"raw": patch.to_string(), "baseHash": hash})).await;
        assert_eq!(answer["ok"], json!(true), "{answer}");
        answer["payload"].clone()
    }

    fn count(&self, event: &str) -> usize {
        self.events.iter().filter(|frame| frame["event"] == event).count()
    }

    /// Checks that no sequence number is missing, neither of this client nor of a run.
    fn check(&self, run: &str) {
        let is_dense = |seqs: Vec<u64>| {
            let first = seqs.first().copied().unwrap_or_default();
            assert_eq!(seqs, (first..).take(seqs.len()).collect::<Vec<_>>());
        };
        is_dense(self.events.iter().filter_map(|frame| frame["seq"].as_u64()).collect());
        let run_events =
            self.events.iter().filter(|frame| frame["event"] == "agent" && frame["payload"]["runId"] == run);
        let seqs: Vec<_> = run_events.map(|frame| frame["payload"]["seq"].as_u64().unwrap()).collect();
        assert_eq!(seqs.first(), Some(&1));
        is_dense(seqs);
    }
}

const ADMIN: &[&str] = &["operator.admin"];

fn tool_names(context: &str) -> Vec<String> {
    let context: Value = serde_json::from_str(context).unwrap();
    let tools = context["tools"]["entries"].as_array().unwrap().iter();
    tools.map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn config_changes_during_a_run_apply_and_lose_no_event() {
    let home = Home::new();
    home.configure("{\n  // One at a time.\n  agents: {defaults: {maxConcurrent: 1}},\n}\n");
    let gateway = home.gateway();
    let mut client = EventClient::new(&gateway, &gateway.token(), 4, ADMIN).await;
    let go = home.work().join("go");
    client.begin("busy", &format!("run `until test -e {}; do sleep 0.05; done`", go.display())).await;
    client.wait_for("busy", "start").await;
    client.begin("waits", "help").await;
    let slots = client.patch(json!({"agents": {"defaults": {"maxConcurrent": 2}}})).await;
    assert_eq!(slots["changedPaths"], json!(["agents.defaults.maxConcurrent"]));
    client.wait_for("waits", "end").await;

    assert!(client.say("q", "/queue").await.starts_with("Queue: steer"));
    client.patch(json!({"messages": {"queue": {"mode": "collect"}}})).await;
    assert!(client.say("q", "/queue").await.starts_with("Queue: collect"));

    let names = tool_names(&client.say("c", "/context json").await);
    assert!(names.contains(&"exec".to_owned()), "{names:?}");
    client.patch(json!({"tools": {"deny": ["exec"]}})).await;
    let remaining: Vec<_> = names.into_iter().filter(|name| name != "exec").collect();
    assert_eq!(tool_names(&client.say("c", "/context json").await), remaining);

    let skill = home.work().join("more/tides");
    fs::create_dir_all(&skill).unwrap();
    fs::write(skill.join("SKILL.md"), "---\nname: tides\ndescription: Tells when the water is high.\n---\nLook.\n")
        .unwrap();
    client.patch(json!({"skills": {"load": {"extraDirs": [home.work().join("more")]}}})).await;
    let skills = client.ask("skills.status", json!({})).await;
    let found = skills["payload"]["skills"].as_array().unwrap().iter().any(|skill| skill["name"] == "tides");
    assert!(found, "{skills}");

    let provider = json!({"baseUrl": "http://127.0.0.1:9/v1", "apiKey": "none", "api": "openai-completions",
        "models": [{"id": "m", "contextWindow": 40_000, "maxTokens": 4_096}]});
    let model = json!({"agents": {"defaults": {"model": "mine/m"}}, "models": {"providers": {"mine": provider}}});
    let patched = client.patch(model).await;
    assert_eq!(patched["config"]["models"]["providers"]["mine"]["apiKey"], "__OPENCLAW_REDACTED__");
    let agents = client.ask("agents.list", json!({})).await;
    assert_eq!(agents["payload"]["agents"][0]["model"]["primary"], "mine/m");

    let restart_required = client.patch(json!({"gateway": {"port": 1}})).await;
    assert_eq!(restart_required["restart"], json!({"required": true, "paths": ["gateway.port"]}));
    let health = client.ask("health", json!({})).await;
    assert!(health["payload"]["notice"].as_str().unwrap().contains("restart the gateway to apply gateway.port"));

    assert!(!client.is_at("busy", "end"), "what is at work goes on");
    fs::write(go, "").unwrap();
    client.wait_for("busy", "end").await;
    client.check("busy");
    client.check("waits");
    assert_eq!(client.count("config.changed"), 6);
    assert!(
        text(&home)
            .starts_with("{\n  // One at a time.\n  agents: {defaults: {maxConcurrent: 2, \"model\": \"mine/m\"}},\n")
    );
}

#[tokio::test]
async fn of_two_concurrent_config_writes_one_is_rejected() {
    let home = Home::new();
    let gateway = home.gateway();
    let mut client = EventClient::new(&gateway, &gateway.token(), 4, ADMIN).await;
    // Without a file no base hash is needed.
    let created = client.ask("config.set", json!({"raw": "{gateway: {auth: {token: 'hush'}}, /* mine */}"})).await;
    assert_eq!(
        (&created["ok"], created["payload"]["config"]["gateway"]["auth"]["token"].as_str()),
        (&json!(true), Some("__OPENCLAW_REDACTED__"))
    );
    let read = client.ask("config.get", json!({})).await["payload"].clone();
    assert_eq!(read["raw"], "{gateway: {auth: {token: '__OPENCLAW_REDACTED__'}}, /* mine */}");
    assert_eq!(
        (&read["exists"], &read["valid"], &read["hash"]),
        (&json!(true), &json!(true), &created["payload"]["hash"])
    );
    let expected =
        json!({"code": "INVALID_REQUEST", "message": "config base hash required; re-run config.get and retry"});
    for method in ["config.set", "config.apply", "config.patch"] {
        assert_eq!(client.ask(method, json!({"raw": "{}"})).await["error"], expected, "{method}");
    }
    let set = |raw: &str| json!({"raw": raw, "baseHash": read["hash"]});
    let edited = read["raw"].as_str().unwrap().replace("/* mine */", "tools: {deny: ['exec']}, /* both */");
    let done = client.ask("config.apply", set(&format!("{edited}\n"))).await;
    assert_eq!(done["payload"]["changedPaths"], json!(["tools.deny"]), "{done}");
    assert_eq!(client.ask("config.set", set("{}")).await["error"], expected);
    assert_eq!(text(&home), "{gateway: {auth: {token: \"hush\"}}, tools: {deny: ['exec']}, /* both */}\n");
}

#[tokio::test]
async fn a_client_receives_problems_with_their_paths() {
    let home = Home::new();
    home.configure(WRITTEN);
    let gateway = home.gateway();
    let mut client = EventClient::new(&gateway, HUSH, 4, ADMIN).await;
    let hash = client.ask("config.get", json!({})).await["payload"]["hash"].clone();
    let refused = async |client: &mut EventClient, method: &str, raw: &str| {
        let answer = client.ask(method, json!({"raw": raw, "baseHash": hash})).await;
        assert_eq!(answer["error"]["code"], "INVALID_REQUEST", "{answer}");
        answer["error"].clone()
    };
    let error = refused(&mut client, "config.patch", "{gateway: {prot: 1}}").await;
    let message = "is not a known key; did you mean \"port\"?";
    assert_eq!(error["message"], format!("invalid config: line 11, column 46: gateway.prot {message}"));
    let issue = json!({"path": "gateway.prot", "message": message, "line": 11, "column": 46});
    assert_eq!(error["details"], json!({"issues": [issue]}));
    let error = refused(&mut client, "config.set", "{gateway: {auth: {password: '__OPENCLAW_REDACTED__'}}}").await;
    assert_eq!(error["details"]["issues"][0]["path"], "gateway.auth.password");
    let error = refused(&mut client, "config.set", "{gateway: ").await;
    assert!(error["message"].as_str().unwrap().starts_with("invalid config.set params: raw cannot be read: line 1"));
    assert_eq!(text(&home), WRITTEN);
    // A patch with the same values is no change.
    let same = client.ask("config.patch", json!({"raw": "{tools: {deny: ['exec']}}", "baseHash": hash})).await;
    assert_eq!((&same["payload"]["noop"], &same["payload"]["hash"]), (&json!(true), &hash));
}

#[tokio::test]
async fn each_protocol_version_gets_its_own_fields() {
    let home = Home::new();
    home.configure(WRITTEN);
    let gateway = home.gateway();
    let old = EventClient::new(&gateway, HUSH, 3, ADMIN).await.ask("config.get", json!({})).await["payload"].clone();
    let mut names: Vec<_> = old.as_object().unwrap().keys().map(String::as_str).collect();
    names.sort_unstable();
    assert_eq!(
        names,
        ["config", "exists", "hash", "issues", "legacyIssues", "parsed", "path", "raw", "valid", "warnings"]
    );
    let refused = EventClient::new(&gateway, HUSH, 3, &["operator.read"]).await.ask("config.get", json!({})).await;
    assert_eq!(refused["error"]["message"], "missing scope: operator.admin");
    let mut reader = EventClient::new(&gateway, HUSH, 4, &["operator.read"]).await;
    let new = reader.ask("config.get", json!({})).await["payload"].clone();
    assert_eq!(new["runtimeConfig"], new["sourceConfig"]);
    // Only clients that may change the config receive comments.
    assert_eq!(old["raw"], WRITTEN.replace(HUSH, "__OPENCLAW_REDACTED__"));
    assert_eq!(new["raw"], format!("{:#}\n", new["parsed"]));
    assert_eq!(new["parsed"], old["parsed"]);
    assert!(!new.to_string().contains(HUSH));
    let schema = reader.ask("config.schema", json!({})).await["payload"].clone();
    assert_eq!(
        schema["schema"]["properties"]["gateway"]["description"],
        "Network address, authentication and HTTP endpoints of the gateway."
    );
    assert_eq!(schema["uiHints"]["gateway.auth.token"]["sensitive"], json!(true));
    assert!(schema["version"].is_string() && schema["generatedAt"].is_string());
    let found = reader.ask("config.schema.lookup", json!({"path": "agents.list[].id"})).await["payload"].clone();
    assert_eq!((&found["hintPath"], &found["children"]), (&json!("agents.list[].id"), &json!([])));
    let found = reader.ask("config.schema.lookup", json!({"path": "nope"})).await;
    assert_eq!(found["error"]["message"], "config schema path not found: nope");
    let refused = reader.ask("config.set", json!({"raw": "{}"})).await;
    assert_eq!(refused["error"]["code"], "FORBIDDEN");
}

#[test]
fn a_channel_that_is_not_supported_is_a_warning_at_every_start() {
    let home = Home::new();
    home.configure(
        "{channels: {imessage: {enabled: true}, slack: {accounts: {work: {}}}, signal: {enabled: false}, \
         defaults: {}, telegram: {enabled: false}}}",
    );
    let warning_for = |name: &str| {
        format!("channels.{name} is not supported by this version of Homard: nothing is received or sent there")
    };
    let validate = home.run(&["config", "validate"]);
    assert_eq!(validate.code, Some(0), "{validate:?}");
    let doctor = home.run(&["doctor"]);
    for _ in 0..2 {
        let log = home.work().join("log");
        let gateway = home.gateway_with_log(File::create(&log).unwrap(), "warn");
        let status = gateway.run(&["status"]).stdout;
        gateway.process.signal(Signal::TERM);
        let table = gateway.end().1;
        let log = fs::read_to_string(&log).unwrap();
        for text in [&validate.stdout, &doctor.stdout, &status, &table, &log] {
            assert!(text.contains(&warning_for("imessage")) && text.contains(&warning_for("slack")), "{text}");
            assert!(!text.contains("channels.signal") && !text.contains("channels.defaults is not"), "{text}");
        }
    }
}

#[test]
fn openclaw_configs_are_valid() {
    let manifest_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    let samples = manifest_dir.join("../../../shared/samples/state");
    let recorded = ["2026.2.9", "2026.2.9-onboarded"].map(|name| samples.join(name).join("openclaw.json"));
    let golden = manifest_dir.join("tests/golden/openclaw-state/openclaw.json");
    for file in [golden].into_iter().chain(recorded.into_iter().filter(|file| file.exists())) {
        let home = Home::new();
        let mut command = home.command(&["config", "validate", "--json"]);
        command.env("HOMARD_CONFIG_PATH", &file);
        let output = run_command(command);
        assert_eq!((output.code, &output.json()["issues"]), (Some(0), &json!([])), "{}: {output:?}", file.display());
    }
}
