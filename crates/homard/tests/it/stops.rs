//! SIGINT and SIGTERM in the middle of a turn.

use std::{
    io::{BufRead, BufReader, Read},
    process::Command,
};

use rustix::process::Signal;
use serde_json::json;

use crate::home::{Home, Process};

/// Starts a slow turn, signals it once its tool runs, and returns exit code and stderr.
fn stop_in_the_middle(mut command: Command, signal: Signal) -> (Option<i32>, String) {
    let mut process = Process(command.spawn().unwrap());
    let mut stderr = BufReader::new(process.0.stderr.take().unwrap());
    let mut line = String::new();
    stderr.read_line(&mut line).unwrap();
    assert_eq!(line, "· exec sleep 30\n");
    process.signal(signal);
    let mut rest = String::new();
    stderr.read_to_string(&mut rest).unwrap();
    (process.0.wait().unwrap().code(), rest)
}

const SLOW: [&str; 5] = ["agent", "-m", "run `sleep 30`", "--verbose", "on"];

/// Returns the run in `error: stopped by SIGINT: run <id> was stopped`.
fn run_in(stderr: &str, signal: &str) -> String {
    let last = stderr.lines().last().and_then(|line| line.strip_prefix(&format!("error: stopped by {signal}: run ")));
    let run = last.and_then(|rest| rest.strip_suffix(" was stopped"));
    run.unwrap_or_else(|| panic!("{stderr}")).to_owned()
}

#[test]
fn an_interrupted_turn_is_stopped_and_recorded() {
    let home = Home::new();
    let (code, stdout) = stop_in_the_middle(home.command(&SLOW), Signal::INT);
    assert_eq!(code, Some(130), "{stdout}");
    run_in(&stdout, "SIGINT");
    let sessions = home.run(&["sessions", "--json"]).json();
    assert_eq!(sessions["sessions"][0]["abortedLastRun"], json!(true));
}

// R82.
#[test]
fn a_second_process_is_refused_while_the_first_works() {
    let home = Home::new();
    let mut first = Process(home.command(&SLOW).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(first.0.stderr.take().unwrap()).read_line(&mut line).unwrap();
    let second = home.run(&["agent", "-m", "hi"]);
    let state = home.state();
    let expected = format!("error: state directory {} is in use by process {}", state.display(), first.0.id());
    assert_eq!(second.code, Some(1));
    assert!(second.stderr.starts_with(&expected), "{}", second.stderr);
    first.signal(Signal::TERM);
    assert_eq!(first.0.wait().unwrap().code(), Some(143));
}

#[test]
fn an_interrupted_turn_in_a_gateway_is_aborted_there() {
    let home = Home::new();
    let gateway = home.gateway();
    let (code, stdout) = stop_in_the_middle(gateway.command(&SLOW), Signal::INT);
    assert_eq!(code, Some(130), "{stdout}");
    let params = json!({"runId": run_in(&stdout, "SIGINT"), "timeoutMs": 0}).to_string();
    let waited = gateway.run(&["gateway", "call", "agent.wait", "--params", &params]).json();
    assert_eq!((&waited["status"], &waited["error"]), (&json!("error"), &json!("aborted")));
    let (code, stdout) = stop_in_the_middle(gateway.command(&SLOW), Signal::TERM);
    assert_eq!(code, Some(143), "{stdout}");
}

/// Starts a gateway with an active turn whose tool runs a command.
fn busy<'a>(home: &'a Home, message: &str) -> (crate::home::RunningGateway<'a>, Process) {
    let gateway = home.gateway();
    let mut turn =
        Process(gateway.command(&["agent", "-m", message, "--verbose", "on", "--reconnect", "0"]).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(turn.0.stderr.take().unwrap()).read_line(&mut line).unwrap();
    (gateway, turn)
}

// Case 90 (D15): after Ctrl-C the state directory is free at once.
#[test]
fn an_interrupted_gateway_leaves_its_turn_to_the_next_process() {
    let home = Home::new();
    let (gateway, mut turn) = busy(&home, "run `sleep 30`");
    gateway.process.signal(Signal::INT);
    assert_eq!(gateway.end().0, Some(0));
    assert_eq!(turn.0.wait().unwrap().code(), Some(1));
    // The turn was not aborted, it is unfinished: the next gateway resumes it.
    let sessions = home.run(&["sessions", "--json"]).json();
    assert_eq!(sessions["sessions"][0]["abortedLastRun"], json!(null));
    let gateway = home.gateway();
    gateway.run(&["agent", "-m", "help"]);
    let history = gateway.run(&["gateway", "call", "chat.history", "--params", r#"{"sessionKey":"main"}"#]).json();
    assert!(history.to_string().contains("That did not work"), "{history}");
}

// Case 172, R91: active runs end first, and new ones are rejected.
#[test]
fn a_terminated_gateway_lets_its_turn_end() {
    let home = Home::new();
    let file = home.work().join("go");
    let (gateway, mut turn) = busy(&home, &format!("run `until test -e {}; do :; done`", file.display()));
    gateway.process.signal(Signal::TERM);
    let refused = loop {
        let output = gateway.run(&["agent", "-m", "hi", "--session-id", "other", "--reconnect", "0"]);
        if output.code != Some(0) {
            break output.stderr;
        }
    };
    assert!(refused.contains("gateway_draining"), "{refused}");
    std::fs::write(file, "").unwrap();
    assert_eq!(turn.0.wait().unwrap().code(), Some(0));
    assert_eq!(gateway.end().0, Some(0));
}
