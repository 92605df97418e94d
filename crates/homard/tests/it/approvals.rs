//! Commands that wait until somebody allows them, through the binary, both protocols and a restart.

use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    home::Home,
    socket::{Socket, connect_as, hear, tell},
};

const ADMIN: (&[&str], &[&str]) = (&["operator.admin"], &[]);

/// The next frame that is this.
async fn next(socket: &mut Socket, is_meant: impl Fn(&Value) -> bool) -> Value {
    loop {
        let frame = hear(socket).await.unwrap();
        if is_meant(&frame) {
            return frame;
        }
    }
}

async fn event(socket: &mut Socket, name: &str) -> Value {
    next(socket, |frame| frame["event"] == name).await["payload"].take()
}

async fn send(socket: &mut Socket, method: &str, params: Value) {
    tell(socket, &json!({"type": "req", "id": method, "method": method, "params": params})).await;
}

async fn answer(socket: &mut Socket, method: &str) -> Value {
    next(socket, |frame| frame["type"] == "res" && frame["id"] == method).await
}

async fn call(socket: &mut Socket, method: &str, params: Value) -> Value {
    send(socket, method, params).await;
    answer(socket, method).await
}

#[tokio::test]
async fn a_command_is_asked_about_shown_and_allowed_in_both_protocols() {
    let home = Home::new();
    let gateway = home.gateway();
    for protocol in [3, 4] {
        let mut asker = connect_as(gateway.port, &gateway.token(), protocol, ADMIN).await;
        let mut watcher = connect_as(gateway.port, &gateway.token(), 7 - protocol, ADMIN).await;
        let request = json!({"id": format!("ask-{protocol}"), "command": "rm -rf \u{202e}x", "cwd": "/w"});
        send(&mut asker, "exec.approval.request", request).await;
        let asked = event(&mut watcher, "exec.approval.requested").await;
        assert_eq!((&asked["id"], &asked["request"]["cwd"]), (&json!(format!("ask-{protocol}")), &json!("/w")));
        assert_eq!(asked["request"]["command"], "rm -rf \\u{202e}x");
        let id = asked["id"].as_str().unwrap();
        let listed = gateway.run(&["approvals", "list"]).stdout;
        assert!(listed.contains(id) && listed.contains("rm -rf \\u{202e}x"), "{listed}");
        assert_eq!(gateway.run(&["approvals", "allow", id]).stdout, format!("allowed {id}, once\n"));
        let decided = answer(&mut asker, "exec.approval.request").await;
        assert_eq!(decided["payload"]["decision"], "allow-once", "{decided}");
        let resolved = event(&mut watcher, "exec.approval.resolved").await;
        assert_eq!((&resolved["id"], &resolved["decision"]), (&json!(id), &json!("allow-once")));
        let late = call(&mut asker, "exec.approval.resolve", json!({"id": id, "decision": "deny"})).await;
        let code = if protocol == 3 { "INVALID_REQUEST" } else { "APPROVAL_NOT_FOUND" };
        assert_eq!((&late["ok"], &late["error"]["code"]), (&json!(false), &json!(code)), "{late}");
    }
    assert_eq!(gateway.run(&["approvals", "list"]).stdout, "no command waits for approval\n");
    let gone = gateway.run(&["approvals", "deny", "nobody"]);
    assert_eq!(gone.code, Some(1), "{gone:?}");
}

#[tokio::test]
async fn what_waits_outlives_the_gateway() {
    let home = Home::new();
    let gateway = home.gateway();
    let mut socket = connect_as(gateway.port, &gateway.token(), 4, ADMIN).await;
    let request = json!({"id": "kept", "command": "ls", "twoPhase": true});
    let accepted = call(&mut socket, "exec.approval.request", request).await;
    assert_eq!(accepted["payload"]["status"], "accepted", "{accepted}");
    gateway.process.signal(Signal::KILL);
    gateway.end();
    let gateway = home.gateway();
    let mut socket = connect_as(gateway.port, &gateway.token(), 4, ADMIN).await;
    let view = call(&mut socket, "exec.approval.get", json!({"id": "kept"})).await;
    assert_eq!((&view["payload"]["commandText"], &view["ok"]), (&json!("ls"), &json!(true)), "{view}");
    send(&mut socket, "exec.approval.waitDecision", json!({"id": "kept"})).await;
    assert_eq!(gateway.run(&["approvals", "deny", "kept"]).stdout, "denied kept\n");
    assert_eq!(answer(&mut socket, "exec.approval.waitDecision").await["payload"]["decision"], "deny");
}

#[tokio::test]
async fn only_admins_hear_of_commands_and_answer() {
    let home = Home::new();
    let gateway = home.gateway();
    let mut reader = connect_as(gateway.port, &gateway.token(), 4, (&["operator.read", "operator.write"], &[])).await;
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
}

#[tokio::test]
async fn rules_are_read_and_replaced_without_their_secret() {
    let home = Home::new();
    let file = home.state().join("exec-approvals.json");
    fs::create_dir_all(home.state()).unwrap();
    fs::write(&file, r#"{"version": 1, "socket": {"path": "/s", "token": "hush"}, "by": "another"}"#).unwrap();
    let gateway = home.gateway();
    let mut socket = connect_as(gateway.port, &gateway.token(), 3, ADMIN).await;
    let mut shown = call(&mut socket, "exec.approvals.get", json!({})).await["payload"].take();
    assert_eq!(shown["file"], json!({"version": 1, "socket": {"path": "/s"}, "by": "another"}));
    shown["file"]["defaults"] = json!({"security": "allowlist"});
    let stale = json!({"file": shown["file"], "baseHash": "stale"});
    assert_eq!(call(&mut socket, "exec.approvals.set", stale).await["ok"], false);
    let set = json!({"file": shown["file"], "baseHash": shown["hash"]});
    let after = call(&mut socket, "exec.approvals.set", set).await;
    assert_eq!((&after["ok"], &after["payload"]["file"]), (&json!(true), &shown["file"]), "{after}");
    let kept: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    assert_eq!((&kept["socket"]["token"], &kept["by"]), (&json!("hush"), &json!("another")));
}
