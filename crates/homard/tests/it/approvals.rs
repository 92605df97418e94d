//! Commands that wait for approval, through the binary, both protocols and a restart.

use std::{fs, path::Path};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    home::{CommandOutput, Home, RunningGateway, until},
    socket::{Socket, connect_as, next_frame, send_frame},
};

const ADMIN: &[&str] = &["operator.admin"];

/// Returns the next frame that matches.
async fn next(socket: &mut Socket, matches: impl Fn(&Value) -> bool) -> Value {
    loop {
        let frame = next_frame(socket).await.unwrap();
        if matches(&frame) {
            return frame;
        }
    }
}

async fn event(socket: &mut Socket, name: &str) -> Value {
    next(socket, |frame| frame["event"] == name).await["payload"].take()
}

async fn send(socket: &mut Socket, method: &str, params: Value) {
    send_frame(socket, &json!({"type": "req", "id": method, "method": method, "params": params})).await;
}

async fn answer(socket: &mut Socket, method: &str) -> Value {
    next(socket, |frame| frame["type"] == "res" && frame["id"] == method).await
}

async fn call(socket: &mut Socket, method: &str, params: Value) -> Value {
    send(socket, method, params).await;
    answer(socket, method).await
}

#[tokio::test]
async fn an_approval_is_requested_shown_and_granted_in_both_protocols() {
    let home = Home::new();
    let gateway = home.gateway();
    for protocol in [3, 4] {
        let mut requester = connect_as(gateway.port, &gateway.token(), protocol, ADMIN, &[]).await;
        let mut approver = connect_as(gateway.port, &gateway.token(), 7 - protocol, ADMIN, &[]).await;
        let request = json!({"id": format!("ask-{protocol}"), "command": "rm -rf \u{202e}x", "cwd": "/w",
            "resolvedPath": "/bin/rm", "sessionKey": "agent:main:asks"});
        send(&mut requester, "exec.approval.request", request).await;
        let requested = event(&mut approver, "exec.approval.requested").await;
        assert_eq!((&requested["id"], &requested["request"]["cwd"]), (&json!(format!("ask-{protocol}")), &json!("/w")));
        assert_eq!(requested["request"]["command"], "rm -rf \\u{202e}x");
        assert_eq!(requested["request"]["resolvedPath"], "/bin/rm");
        assert_eq!(requested["request"]["sessionKey"], "agent:main:asks");
        let id = requested["id"].as_str().unwrap();
        let listed = gateway.run(&["approvals", "list"]).stdout;
        assert!(listed.contains(id) && listed.contains("rm -rf \\u{202e}x"), "{listed}");
        assert_eq!(gateway.run(&["approvals", "allow", id]).stdout, format!("allowed {id}, once\n"));
        let decided = answer(&mut requester, "exec.approval.request").await;
        assert_eq!(decided["payload"]["decision"], "allow-once", "{decided}");
        let resolved = event(&mut approver, "exec.approval.resolved").await;
        assert_eq!((&resolved["id"], &resolved["decision"]), (&json!(id), &json!("allow-once")));
        let late = call(&mut requester, "exec.approval.resolve", json!({"id": id, "decision": "deny"})).await;
        let code = if protocol == 3 { "INVALID_REQUEST" } else { "APPROVAL_NOT_FOUND" };
        assert_eq!((&late["ok"], &late["error"]["code"]), (&json!(false), &json!(code)), "{late}");
    }
    assert_eq!(gateway.run(&["approvals", "list"]).stdout, "no command waits for approval\n");
    let output = gateway.run(&["approvals", "deny", "nobody"]);
    assert_eq!(output.code, Some(1), "{output:?}");
}

#[tokio::test]
async fn pending_approvals_survive_a_restart() {
    let home = Home::new();
    let gateway = home.gateway();
    let mut socket = connect_as(gateway.port, &gateway.token(), 4, ADMIN, &[]).await;
    let request = json!({"id": "kept", "command": "ls", "twoPhase": true});
    let accepted = call(&mut socket, "exec.approval.request", request).await;
    assert_eq!(accepted["payload"]["status"], "accepted", "{accepted}");
    gateway.process.signal(Signal::KILL);
    gateway.end();
    let gateway = home.gateway();
    let mut socket = connect_as(gateway.port, &gateway.token(), 4, ADMIN, &[]).await;
    let view = call(&mut socket, "exec.approval.get", json!({"id": "kept"})).await;
    assert_eq!((&view["payload"]["commandText"], &view["ok"]), (&json!("ls"), &json!(true)), "{view}");
    send(&mut socket, "exec.approval.waitDecision", json!({"id": "kept"})).await;
    assert_eq!(gateway.run(&["approvals", "deny", "kept"]).stdout, "denied kept\n");
    assert_eq!(answer(&mut socket, "exec.approval.waitDecision").await["payload"]["decision"], "deny");
}

#[tokio::test]
async fn only_approvers_receive_requests_and_only_admins_see_the_rules() {
    let home = Home::new();
    let gateway = home.gateway();
    let mut reader = connect_as(gateway.port, &gateway.token(), 4, &["operator.read", "operator.write"], &[]).await;
    for (method, params) in [
        ("exec.approval.list", json!({})),
        ("exec.approval.get", json!({"id": "x"})),
        ("exec.approval.request", json!({"command": "ls"})),
        ("exec.approval.waitDecision", json!({"id": "x"})),
        ("exec.approval.resolve", json!({"id": "x", "decision": "allow-once"})),
        ("exec.approvals.get", json!({})),
        ("exec.approvals.set", json!({"file": {}})),
    ] {
        assert_eq!(call(&mut reader, method, params).await["error"]["code"], "FORBIDDEN", "{method}");
    }
    for protocol in [3, 4] {
        let id = format!("ask-{protocol}");
        let scopes = &["operator.approvals"];
        let mut client = connect_as(gateway.port, &gateway.token(), protocol, scopes, &[]).await;
        let mut guard = connect_as(gateway.port, &gateway.token(), protocol, scopes, &[]).await;
        send(&mut client, "exec.approval.request", json!({"id": id, "command": "ls"})).await;
        assert_eq!(event(&mut guard, "exec.approval.requested").await["id"], json!(id));
        let resolved = call(&mut guard, "exec.approval.resolve", json!({"id": id, "decision": "deny"})).await;
        assert_eq!(resolved["ok"], true, "{resolved}");
        assert_eq!(answer(&mut client, "exec.approval.request").await["payload"]["decision"], "deny");
        assert_eq!(call(&mut guard, "exec.approvals.get", json!({})).await["ok"], false);
    }
}

#[tokio::test]
async fn rules_are_read_and_replaced_without_their_secret() {
    let home = Home::new();
    let file = home.state().join("exec-approvals.json");
    fs::create_dir_all(home.state()).unwrap();
    fs::write(&file, r#"{"version": 1, "socket": {"path": "/s", "token": "hush"}, "by": "another"}"#).unwrap();
    let gateway = home.gateway();
    let mut socket = connect_as(gateway.port, &gateway.token(), 3, ADMIN, &[]).await;
    let mut snapshot = call(&mut socket, "exec.approvals.get", json!({})).await["payload"].take();
    assert_eq!(snapshot["file"], json!({"version": 1, "socket": {"path": "/s"}, "by": "another"}));
    snapshot["file"]["defaults"] = json!({"security": "allowlist"});
    let stale = json!({"file": snapshot["file"], "baseHash": "stale"});
    assert_eq!(call(&mut socket, "exec.approvals.set", stale).await["ok"], false);
    let set = json!({"file": snapshot["file"], "baseHash": snapshot["hash"]});
    let after = call(&mut socket, "exec.approvals.set", set).await;
    assert_eq!((&after["ok"], &after["payload"]["file"]), (&json!(true), &snapshot["file"]), "{after}");
    let stored: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    assert_eq!((&stored["socket"]["token"], &stored["by"]), (&json!("hush"), &json!("another")));
}

const GUARDED: &str = "{agents: {defaults: {model: 'homard/demo'}}, tools: {exec: {sandbox: {mode: 'guarded'}}}}";

fn guarded() -> Home {
    let home = Home::new();
    home.configure(GUARDED);
    home
}

/// Has a command run that waits for approval instead; returns the id of the approval.
fn request_approval(gateway: &RunningGateway<'_>, command: &str) -> String {
    approval_id(&gateway.run(&["agent", "-m", &format!("Run `{command}`")]))
}

fn approval_id(output: &CommandOutput) -> String {
    assert_eq!(output.code, Some(0), "{output:?}");
    let id = output.stdout.split_once("(approval ").and_then(|(_, rest)| rest.split_once(')')).map(|(id, _)| id);
    id.unwrap_or_else(|| panic!("{output:?}")).to_owned()
}

/// Returns true if a file below a directory whose name ends like this contains a text. Files may come and go meanwhile.
fn contains_text(folder: &Path, ending: &str, text: &str) -> bool {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).any(|path| {
        let matches = path.to_string_lossy().ends_with(ending);
        contains_text(&path, ending, text)
            || (matches && fs::read(&path).is_ok_and(|bytes| String::from_utf8_lossy(&bytes).contains(text)))
    })
}

/// Waits until the session is woken with a system event, and until that run has ended.
fn until_reported(home: &Home, gateway: &RunningGateway<'_>, text: &str) {
    until(text, || contains_text(&home.state(), ".jsonl", &format!("System event: {text}")));
    assert_eq!(gateway.run(&["agent", "-m", "hello"]).code, Some(0));
}

#[test]
fn a_command_waits_for_approval_while_its_run_continues_and_runs_once() {
    let home = guarded();
    let gateway = home.gateway();
    let created = home.state().join("workspace/made");
    let id = request_approval(&gateway, "mkdir made");
    let listed = gateway.run(&["approvals", "list"]).stdout;
    assert!(listed.contains(&id) && listed.contains("mkdir made") && listed.contains("guarded"), "{listed}");
    assert!(!created.exists());
    assert_eq!(gateway.run(&["approvals", "allow", &id]).code, Some(0));
    until_reported(&home, &gateway, &format!("Exec finished (approval {id}): mkdir made"));
    fs::remove_dir(&created).unwrap();
    assert_ne!(request_approval(&gateway, "mkdir made"), id);
    assert!(!created.exists());
}

#[test]
fn an_approved_command_is_confined_by_the_sandbox() {
    let home = guarded();
    let gateway = home.gateway();
    let outside_path = home.work().join("made");
    let id = request_approval(&gateway, &format!("mkdir {}", outside_path.display()));
    assert_eq!(gateway.run(&["approvals", "allow", &id]).code, Some(0));
    until_reported(&home, &gateway, &format!("Exec finished (approval {id}, Command exited with code 1)"));
    assert!(!outside_path.exists());
}

#[test]
fn a_command_that_is_always_allowed_needs_no_further_approval() {
    let home = guarded();
    let gateway = home.gateway();
    let created = home.state().join("workspace/made");
    let id = request_approval(&gateway, "mkdir made");
    assert_eq!(gateway.run(&["approvals", "always", &id]).code, Some(0));
    until_reported(&home, &gateway, &format!("Exec finished (approval {id}): mkdir made"));
    fs::remove_dir(&created).unwrap();
    assert_eq!(gateway.run(&["agent", "-m", "Run `mkdir made`"]).stdout, "(no output)\n");
    assert!(created.exists());
    request_approval(&gateway, "mkdir other");
}

#[test]
fn a_command_that_is_denied_does_not_run() {
    let home = guarded();
    let gateway = home.gateway();
    let id = request_approval(&gateway, "mkdir made");
    assert_eq!(gateway.run(&["approvals", "deny", &id]).code, Some(0));
    until_reported(&home, &gateway, &format!("Exec denied (approval {id}): mkdir made"));
    assert!(!home.state().join("workspace/made").exists());
}

#[test]
fn a_command_that_changed_after_its_request_does_not_run() {
    let home = guarded();
    let gateway = home.gateway();
    let script = home.state().join("workspace/go.sh");
    fs::create_dir_all(script.parent().unwrap()).unwrap();
    fs::write(&script, "true").unwrap();
    let id = request_approval(&gateway, "sh go.sh");
    fs::write(&script, "mkdir made").unwrap();
    assert_eq!(gateway.run(&["approvals", "allow", &id]).code, Some(0));
    until_reported(&home, &gateway, &format!("Exec denied (approval {id}): sh go.sh"));
    assert!(!home.state().join("workspace/made").exists());
}

#[test]
fn a_command_can_be_approved_after_a_restart() {
    let home = guarded();
    let gateway = home.gateway();
    let id = request_approval(&gateway, "mkdir made");
    gateway.process.signal(Signal::KILL);
    gateway.end();
    let gateway = home.gateway();
    assert_eq!(gateway.run(&["approvals", "allow", &id]).code, Some(0));
    until_reported(&home, &gateway, &format!("Exec finished (approval {id}): mkdir made"));
    assert!(home.state().join("workspace/made").exists());
}

#[test]
fn a_command_without_a_decision_in_time_does_not_run() {
    let home = guarded();
    let gateway = home.gateway();
    let id = request_approval(&gateway, "mkdir made");
    gateway.process.signal(Signal::KILL);
    gateway.end();
    let file = home.state().join("approvals/pending.json");
    let mut stored: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    stored["approvals"][0]["expiresAtMs"] = stored["approvals"][0]["createdAtMs"].clone();
    fs::write(&file, stored.to_string()).unwrap();
    let gateway = home.gateway();
    until_reported(&home, &gateway, &format!("Exec denied (approval {id}, no decision in time): mkdir made"));
    assert_eq!(gateway.run(&["approvals", "allow", &id]).code, Some(1));
    assert!(!home.state().join("workspace/made").exists());
}

#[test]
fn the_owner_approves_in_the_chat() {
    let home = guarded();
    let gateway = home.gateway();
    let id = request_approval(&gateway, "mkdir made");
    let unclear = gateway.run(&["agent", "-m", &format!("/approve {id} perhaps")]);
    assert!(unclear.stdout.contains("Usage: /approve"), "{unclear:?}");
    let output = gateway.run(&["agent", "-m", &format!("/approve {id} allow-once")]);
    assert_eq!(output.stdout, format!("Approval {id}: allowed-once.\n"), "{output:?}");
    until_reported(&home, &gateway, &format!("Exec finished (approval {id}): mkdir made"));
    let late = gateway.run(&["agent", "-m", &format!("/approve {id} deny")]);
    assert_eq!(
        late.stdout,
        format!("The decision was not accepted: approval {id} is already allowed-once.\n"),
        "{late:?}"
    );
}

#[test]
fn without_a_gateway_a_command_waits_for_approval_and_the_user_is_told_how_to_approve() {
    let home = guarded();
    let output = home.run(&["agent", "--local", "-m", "Run `mkdir made`"]);
    let id = approval_id(&output);
    let advice = format!("homard agent --local -m \"/approve {id} allow-once\"");
    assert!(output.stderr.contains("mkdir made") && output.stderr.contains(&advice), "{output:?}");
    assert!(!home.work().join("made").exists());
    let output = home.run(&["agent", "--local", "-m", &format!("/approve {id} allow-once")]);
    assert_eq!(output.stdout, format!("Approval {id}: allowed-once.\n"), "{output:?}");
    assert!(home.work().join("made").exists());
}

#[test]
fn a_command_runs_at_once_where_no_approval_is_required() {
    let home = Home::new();
    home.configure("{agents: {defaults: {model: 'homard/demo'}}}");
    let gateway = home.gateway();
    assert_eq!(gateway.run(&["agent", "-m", "Run `mkdir made`"]).stdout, "(no output)\n");
    assert!(home.state().join("workspace/made").exists());
    fs::write(home.state().join("exec-approvals.json"), r#"{"version": 1, "defaults": {"security": "allowlist"}}"#)
        .unwrap();
    request_approval(&gateway, "mkdir other");
}
