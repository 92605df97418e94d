//! Several processes on one state directory, one after the other: each one that opens a session finishes its unfinished
//! runs.

use std::{io::Read, process::Command};

use homard_testkit::fake_provider::{FakeAnswer, FakeToolCall, ProviderReply, ReceivedRequest};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    home::{Process, RunningGateway, until},
    scripted_model::ScriptedHome,
};

/// A turn whose command ends when the file `go` exists.
const SLOW: [&str; 5] = ["agent", "-m", "SLOW", "--verbose", "on"];

/// Starts a model that runs a slow command for SLOW, then asks for the working directory, and replies with the result.
pub(crate) async fn slow_model() -> ScriptedHome {
    ScriptedHome::answering(json!({}), |request: &ReceivedRequest| {
        let messages = request.json()["messages"].as_array().cloned().unwrap_or_default();
        let last_user = messages.iter().rposition(|message| message["role"] == "user").unwrap_or_default();
        let results: Vec<_> = messages[last_user..].iter().filter(|message| message["role"] == "tool").collect();
        let text = messages[last_user]["content"].to_string();
        let exec = |command: &str| {
            let id = format!("call_{}", request.number);
            let calls = vec![FakeToolCall { id, name: "exec".to_owned(), arguments: json!({"command": command}) }];
            ProviderReply { answer: FakeAnswer { calls, ..FakeAnswer::default() }, ..ProviderReply::default() }
        };
        match results.as_slice() {
            [] if text.contains("SLOW") => exec("until test -e go; do :; done"),
            [_] => exec("pwd"),
            [_, directory, ..] => {
                ProviderReply::text(format!("was in {}", directory["content"].as_str().unwrap_or_default()))
            }
            [] => ProviderReply::text("quick"),
        }
    })
    .await
}

/// Starts a turn and waits until its tool runs.
fn start(mut command: Command) -> Process {
    let mut process = Process(command.spawn().unwrap());
    let mut line = Vec::new();
    let stderr = process.0.stderr.as_mut().unwrap();
    // Byte by byte: what follows the line is left for other readers.
    while !line.ends_with(b"\n") {
        let mut byte = [0];
        stderr.read_exact(&mut byte).unwrap();
        line.extend(byte);
    }
    assert!(line.starts_with("· exec".as_bytes()), "{}", String::from_utf8_lossy(&line));
    process
}

/// Returns the messages of the main session: role and text.
fn transcript(gateway: &RunningGateway<'_>) -> Vec<(String, String)> {
    let history = gateway.run(&["gateway", "call", "chat.history", "--params", r#"{"sessionKey":"main"}"#]).json();
    let messages = history["messages"].as_array().cloned().unwrap_or_default();
    let text = |message: &Value| {
        let blocks = message["content"].as_array().into_iter().flatten();
        blocks.filter_map(|block| block["text"].as_str()).collect::<String>()
    };
    let visible = messages.iter().filter(|message| message["role"] != "toolResult");
    let visible = visible.map(|message| (message["role"].as_str().unwrap_or_default().to_owned(), text(message)));
    visible.filter(|(_, text)| !text.is_empty()).collect()
}

/// Returns the statuses of all runs, oldest first.
fn statuses(gateway: &RunningGateway<'_>) -> Vec<String> {
    let listed = gateway.run(&["runs", "--json"]).json();
    let runs = listed["runs"].as_array().cloned().unwrap_or_default();
    runs.iter().rev().map(|run| run["status"].as_str().unwrap_or_default().to_owned()).collect()
}

fn pairs(messages: &[(&str, &str)]) -> Vec<(String, String)> {
    messages.iter().map(|(role, text)| ((*role).to_owned(), (*text).to_owned())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_local_turn_finishes_runs_of_a_killed_gateway() {
    for signal in [Signal::KILL, Signal::INT] {
        let fixture = slow_model().await;
        let home = &fixture.home;
        let gateway = home.gateway();
        let turn = start(gateway.command(&SLOW));
        gateway.process.signal(signal);
        gateway.end();
        drop(turn);
        let status = home.run(&["trace", "last", "--json"]).json()["run"].clone();
        let expected = (&json!("interrupted"), &json!("resumes when the gateway starts"));
        assert_eq!((&status["status"], &status["next"]), expected, "{signal:?}");
        let output = home.run(&["agent", "-m", "hi"]);
        assert_eq!(output.stdout, "quick\n", "{signal:?}: {output:?}");
        assert!(output.stderr.contains("(finishing 1 unfinished run of this session first)"), "{output:?}");
        let gateway = home.gateway();
        assert_eq!(statuses(&gateway), ["ok", "ok"], "{signal:?}");
        let workspace = format!("was in {}\n", home.state().join("workspace").display());
        let expected = [("user", "SLOW"), ("assistant", workspace.trim_end()), ("user", "hi"), ("assistant", "quick")];
        let messages: Vec<_> =
            transcript(&gateway).into_iter().map(|(role, text)| (role, text.trim_end().to_owned())).collect();
        assert_eq!(messages, pairs(&expected), "{signal:?}");
    }
}

// A killed local turn is resumed in the directory that it was started in, by whichever process comes next.
#[tokio::test(flavor = "multi_thread")]
async fn the_next_process_finishes_a_killed_local_turn_where_it_worked() {
    for is_gateway in [true, false] {
        let fixture = slow_model().await;
        let home = &fixture.home;
        let turn = start(home.command(&SLOW));
        turn.signal(Signal::KILL);
        drop(turn);
        if !is_gateway {
            let second = home.run(&["agent", "-m", "hi"]);
            assert_eq!(second.stdout, "quick\n", "{second:?}");
        }
        let gateway = home.gateway();
        let work_dir = home.work().canonicalize().unwrap();
        let is_there = || {
            let messages = transcript(&gateway);
            messages.iter().any(|(_, text)| text.trim_end() == format!("was in {}", work_dir.display()))
        };
        until("the killed turn is finished in its directory", is_there);
    }
}

/// Lets a command find the gateway through the state directory, also if it comes back on another port.
fn anywhere(mut command: Command) -> Command {
    command.env_remove("HOMARD_GATEWAY_PORT");
    command
}

// R87.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_whose_gateway_dies_reconnects_and_prints_the_answer() {
    for (signal, format) in [(Signal::KILL, None), (Signal::INT, Some("--json"))] {
        let fixture = slow_model().await;
        let home = &fixture.home;
        let gateway = home.gateway();
        let args = SLOW.into_iter().chain(format).collect::<Vec<_>>();
        let mut turn = Process(anywhere(home.command(&args)).spawn().unwrap());
        until("the run is active", || gateway.run(&["runs", "--json"]).json()["runs"][0]["status"] == "running");
        gateway.process.signal(signal);
        gateway.end();
        let _second = home.gateway();
        let output = turn.output();
        // It resumes in its original directory.
        let expected = format!("was in {}", home.work().canonicalize().unwrap().display());
        assert_eq!(output.code, Some(0), "{output:?}");
        assert!(output.stdout.contains(&expected), "{output:?}");
        assert!(output.stderr.contains("reconnecting for up to 1m)"), "{output:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_whose_gateway_does_not_return_explains_what_happens_to_the_run() {
    let fixture = slow_model().await;
    let home = &fixture.home;
    let gateway = home.gateway();
    let mut turn = start(anywhere(home.command(&[&SLOW[..], &["--reconnect", "1"]].concat())));
    gateway.process.signal(Signal::KILL);
    gateway.end();
    let output = turn.output();
    assert_eq!(output.code, Some(1), "{output:?}");
    let listed = home.run(&["runs", "--json"]).json();
    let run = listed["runs"][0]["runId"].as_str().unwrap();
    let text = format!("run {run} was accepted and continues in the gateway; see: homard trace {run}");
    assert!(output.stderr.contains("was not reachable again within 1s") && output.stderr.contains(&text), "{output:?}");
}

/// Starts a model that runs a command for POISON until one succeeds.
async fn poisoned() -> ScriptedHome {
    ScriptedHome::answering(json!({}), |request: &ReceivedRequest| {
        let messages = request.json()["messages"].as_array().cloned().unwrap_or_default();
        let last_user = messages.iter().rposition(|message| message["role"] == "user").unwrap_or_default();
        let mut results = messages[last_user..].iter().filter(|message| message["role"] == "tool");
        let is_done = results.any(|result| result["content"].to_string().contains("went well"));
        if is_done || !messages[last_user]["content"].to_string().contains("POISON") {
            return ProviderReply::text(if is_done { "survived" } else { "quick" });
        }
        let command = "echo x >> started; until test -e go; do :; done; echo went well";
        let id = format!("call_{}", request.number);
        let calls = vec![FakeToolCall { id, name: "exec".to_owned(), arguments: json!({"command": command}) }];
        ProviderReply { answer: FakeAnswer { calls, ..FakeAnswer::default() }, ..ProviderReply::default() }
    })
    .await
}

// D72.
#[tokio::test(flavor = "multi_thread")]
async fn only_a_run_that_was_active_at_three_crashes_is_held() {
    let fixture = poisoned().await;
    let home = &fixture.home;
    let workspace = home.state().join("workspace");
    let starts = || std::fs::read_to_string(workspace.join("started")).unwrap_or_default().lines().count();
    let mut gateway = home.gateway();
    let turn = start(gateway.command(&["agent", "-m", "POISON", "--verbose", "on"]));
    for count in 1..=3 {
        until("the command was started", || starts() == count);
        gateway.process.signal(Signal::KILL);
        gateway.end();
        gateway = home.gateway();
    }
    drop(turn);
    let held = gateway.run(&["runs", "held", "--json"]).json()["runs"].clone();
    let run = held[0]["runId"].as_str().unwrap().to_owned();
    assert_eq!((held.as_array().unwrap().len(), &held[0]["message"]), (1, &json!("POISON")), "{held}");
    assert_eq!(starts(), 3, "a held run is not resumed");
    // Everything else is served, also in its session.
    assert_eq!(gateway.run(&["agent", "-m", "hi"]).stdout, "quick\n");
    let output = gateway.run(&["trace", &run]).stdout;
    assert!(output.contains(&format!("continue it with: homard runs release {run}")), "{output}");
    let status = gateway.run(&["status"]).stdout;
    assert!(status.contains(&format!("run {run}")) && status.contains("several crashes in a row"), "{status}");
    let health = gateway.run(&["health"]);
    assert_eq!(health.code, Some(1), "{health:?}");
    assert!(health.stdout.contains(&format!("homard runs drop {run}")), "{health:?}");
    // A clean restart does not release it.
    gateway.process.signal(Signal::TERM);
    gateway.end();
    assert_eq!(home.run(&["runs", "held", "--json"]).json()["runs"], held);
    let gateway = home.gateway();
    assert_eq!(gateway.run(&["runs", "held", "--json"]).json()["runs"], held);
    std::fs::write(workspace.join("go"), "").unwrap();
    let released = gateway.run(&["runs", "release", &run]);
    assert_eq!(released.code, Some(0), "{released:?}");
    until("the released run is done", || statuses(&gateway) == ["ok", "ok"]);
    let last = told_last(&gateway);
    assert_eq!(last, ("assistant".to_owned(), "survived".to_owned()));
    assert_eq!(gateway.run(&["health"]).code, Some(0));
    let again = gateway.run(&["runs", "release", &run]);
    assert_eq!(again.code, Some(1));
    assert!(again.stderr.contains("is not held"), "{again:?}");
}

fn told_last(gateway: &RunningGateway<'_>) -> (String, String) {
    transcript(gateway).pop().unwrap()
}

// D72: without a gateway, too.
#[tokio::test(flavor = "multi_thread")]
async fn a_held_run_is_dropped_where_no_gateway_is_running() {
    let fixture = poisoned().await;
    let home = &fixture.home;
    for count in 1..=3 {
        // Each local turn first recovers what the previous one left.
        let turn = Process(home.command(&["agent", "-m", "POISON", "--verbose", "on"]).spawn().unwrap());
        let starts = || std::fs::read_to_string(home.work().join("started")).unwrap_or_default().lines().count();
        until("the command was started", || starts() == count);
        turn.signal(Signal::KILL);
    }
    std::fs::write(home.work().join("go"), "").unwrap();
    let turn = home.run(&["agent", "-m", "hi", "--session-key", "other"]);
    assert!(turn.stderr.contains("3 unfinished runs in other sessions"), "{turn:?}");
    let turn = home.run(&["agent", "-m", "hi"]);
    assert!(
        turn.stderr.contains("(1 unfinished run held after several crashes in a row; list: homard runs held)"),
        "{turn:?}"
    );
    assert_eq!(turn.stdout, "quick\n");
    let dropped = home.run(&["runs", "drop", "--all"]);
    assert_eq!(dropped.code, Some(0), "{dropped:?}");
    assert_eq!(home.run(&["runs", "held"]).stdout, "no run is held\n");
    let runs = home.run(&["runs", "--json"]).json()["runs"].clone();
    let failed: Vec<_> = runs.as_array().unwrap().iter().filter(|run| run["status"] == "error").collect();
    let [dropped] = failed[..] else { panic!("{runs}") };
    assert_eq!(
        dropped["error"],
        "INTERRUPTED: the run was active at several crashes in a row, was held, and was dropped"
    );
}
