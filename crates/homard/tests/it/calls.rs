//! A real gateway, and the commands that call it.

use std::{fs, os::unix::fs::PermissionsExt};

use rustix::process::Signal;
use serde_json::json;

use crate::home::{Home, run_command};

#[test]
fn a_gateway_needs_no_setup_and_prints_how_to_use_it() {
    let home = Home::new();
    let gateway = home.gateway();
    let (port, token) = (gateway.port, gateway.token());
    gateway.process.signal(Signal::TERM);
    let (code, stdout) = gateway.end();
    assert_eq!(code, Some(0));
    assert!(stdout.contains(&format!("ws://127.0.0.1:{port}")), "{stdout}");
    assert!(stdout.contains(&home.state().display().to_string()), "{stdout}");
    assert!(stdout.contains("homard/demo"), "{stdout}");
    assert!(!stdout.contains(&token), "a pipe is no place for a secret: {stdout}");
    let mode = |name: &str| fs::metadata(home.state().join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("gateway-token"), mode("workspace")), (0o600, 0o700));
}

#[test]
fn a_turn_runs_in_the_gateway_in_the_callers_directory() {
    let home = Home::new();
    let gateway = home.gateway();
    fs::write(home.work().join("elsewhere.txt"), "").unwrap();
    fs::write(home.state().join("workspace/in-the-workspace.txt"), "").unwrap();
    let mut elsewhere = gateway.command(&["agent", "-m", "What files are here?"]);
    let listed = elsewhere.current_dir(home.work()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&listed.stdout), "elsewhere.txt\n");
    let output = gateway.run(&["agent", "-m", "What files are here?"]);
    let files = "AGENTS.md\nBOOTSTRAP.md\nHEARTBEAT.md\nIDENTITY.md\nSOUL.md\nTOOLS.md\nUSER.md\nin-the-workspace.txt";
    assert_eq!((output.code, output.stdout), (Some(0), format!("{files}\n")), "{}", output.stderr);
    let document = gateway.run(&["agent", "-m", "What files are here?", "--json"]).json();
    assert_eq!((&document["status"], &document["summary"]), (&json!("ok"), &json!("completed")));
    assert_eq!(document["result"]["payloads"][0]["text"], files);
    let sessions = gateway.run(&["sessions", "--json"]).json();
    assert_eq!(sessions["sessions"][0]["key"], "agent:main:main");
}

#[test]
fn a_gateway_reports_its_health() {
    let home = Home::new();
    let gateway = home.gateway();
    let health = gateway.run(&["gateway", "call", "health", "--json"]).json();
    assert_eq!((&health["ok"], &health["defaultAgentId"]), (&json!(true), &json!("main")));
    let output = gateway.run(&["health"]);
    assert_eq!(output.code, Some(0));
    assert!(output.stdout.contains("agent    main (default), sessions: 0"), "{}", output.stdout);
    let status = gateway.run(&["status", "--json"]).json();
    assert_eq!((&status["gateway"]["reachable"], &status["model"]), (&json!(true), &json!("homard/demo")));
    assert_eq!(gateway.run(&["status"]).code, Some(0));
}

#[test]
fn a_method_can_be_called_repeatedly_with_its_final_result() {
    let home = Home::new();
    let gateway = home.gateway();
    let call = |extra: &[&str]| {
        let params = r#"{"message": "What time is it?", "idempotencyKey": "k1"}"#;
        gateway.run(&[&["gateway", "call", "agent", "--params", params], extra].concat()).json()
    };
    let (first, again) = (call(&["--expect-final"]), call(&[]));
    assert_eq!((&first["runId"], &first["status"]), (&json!("k1"), &json!("ok")));
    assert_eq!(first["result"]["payloads"], again["result"]["payloads"]);
}

#[test]
fn a_rejection_shows_the_gateways_message() {
    let home = Home::new();
    let gateway = home.gateway();
    let rejected = |args: &[&str]| {
        let mut command = gateway.command(args);
        command.env("HOMARD_GATEWAY_TOKEN", "wrong");
        run_command(command)
    };
    let message = "unauthorized: gateway token mismatch (provide gateway auth token)";
    let output = rejected(&["health"]);
    assert_eq!((output.code, output.stderr.as_str()), (Some(1), format!("error: {message}\n").as_str()));
    let output = rejected(&["agent", "-m", "hi", "--json"]);
    assert_eq!(output.code, Some(1));
    assert_eq!(
        output.json(),
        json!({"ok": false, "error": {"type": "INVALID_REQUEST", "message": message}, "origin": "gateway"})
    );
    let output = gateway.run(&["gateway", "call", "no.such.method"]);
    assert_eq!((output.code, output.stderr.as_str()), (Some(1), "error: unknown method: no.such.method\n"));
    let url = format!("ws://127.0.0.1:{}", gateway.port);
    let output = gateway.run(&["gateway", "call", "health", "--url", &url, "--token", &gateway.token(), "--json"]);
    assert_eq!(output.json()["ok"], json!(true));
    let output = gateway.run(&["gateway", "call", "health", "--url", &url]);
    assert_eq!(output.code, Some(2), "a secret must not follow to another address: {output:?}");
}

#[test]
fn a_missing_session_is_named() {
    let home = Home::new();
    let gateway = home.gateway();
    let expected = "error: session agent:main:nosuch not found; list sessions with: homard sessions\n";
    for args in [&["compact", "nosuch"][..], &["compactions", "nosuch"], &["compactions", "nosuch", "undo"]] {
        let output = gateway.run(&[&["sessions"], args].concat());
        assert_eq!((output.code, output.stdout.as_str(), output.stderr.as_str()), (Some(1), "", expected), "{args:?}");
    }
}

// Case 41.
#[test]
fn a_local_turn_is_rejected_while_a_gateway_owns_the_state() {
    let home = Home::new();
    let gateway = home.gateway();
    let output = gateway.run(&["agent", "-m", "hi", "--local"]);
    let expected =
        format!("error: state directory {} is in use by process {}", home.state().display(), gateway.process.0.id());
    assert_eq!((output.code, output.stdout.as_str()), (Some(1), ""));
    assert!(output.stderr.starts_with(&expected), "{}", output.stderr);
    assert!(output.stderr.ends_with("\nto send the message through the gateway, omit --local\n"), "{}", output.stderr);
    let second = gateway.run(&["gateway", "run", "--port", "0"]);
    assert_eq!(second.code, Some(1));
    assert!(second.stderr.starts_with(&expected), "{}", second.stderr);
}
