//! Owner tools, and the vision tool: `cron`, `gateway`, `image`.

use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    home::{RunningGateway, until},
    scripted_model::{SEEN, ScriptedHome, call},
};

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_creates_changes_runs_and_removes_jobs() {
    let fixture = ScriptedHome::with(json!({})).await;
    let gateway = fixture.home.gateway();
    let cron = |arguments: Value| call(&gateway, "cron", &arguments);
    let job = json!({
        "name": "Tea", "schedule": {"kind": "every", "everyMs": 3_600_000},
        "payload": {"kind": "agentTurn", "message": "Is the tea ready?"}, "sessionTarget": "isolated",
    });
    let created = parsed(&cron(json!({"action": "add", "job": job})));
    let id = created["id"].as_str().unwrap();
    assert_eq!((&created["name"], &created["agentId"]), (&json!("Tea"), &json!("main")));
    assert_eq!(gateway.run(&["cron", "list", "--json"]).json()["jobs"][0]["id"], id);
    let changed = parsed(&cron(json!({"action": "update", "jobId": id, "patch": {"enabled": false}})));
    assert_eq!(changed["enabled"], false);
    assert_eq!(parsed(&cron(json!({"action": "list"}))), json!({"jobs": []}));
    assert_eq!(parsed(&cron(json!({"action": "list", "includeDisabled": true})))["jobs"][0]["id"], id);
    assert_eq!(parsed(&cron(json!({"action": "run", "id": id})))["ran"], true);
    assert_eq!(parsed(&cron(json!({"action": "status"})))["jobs"], 1);
    assert!(parsed(&cron(json!({"action": "runs", "jobId": id})))["entries"].is_array());
    assert_eq!(parsed(&cron(json!({"action": "wake", "text": "Tea!"}))), json!({"ok": true}));
    assert_eq!(parsed(&cron(json!({"action": "remove", "jobId": id}))), json!({"ok": true, "removed": true}));
    assert_eq!(cron(json!({"action": "run", "jobId": id})), format!("unknown cron job id: {id}"));
    assert!(cron(json!({"action": "remove"})).contains("needs a jobId"));
    // R31.
    assert!(cron(json!({"action": "status", "gatewayUrl": "ws://127.0.0.1:1"})).contains("omit gatewayUrl"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_may_change_its_model_but_not_its_restrictions() {
    let fixture = ScriptedHome::with(json!({"tools": {"deny": ["write"]}})).await;
    let gateway = fixture.home.gateway();
    let call_gateway = |arguments: Value| call(&gateway, "gateway", &arguments);
    let config = parsed(&call_gateway(json!({"action": "config.get"})));
    assert_eq!(config["result"]["config"]["models"]["providers"]["puppet"]["apiKey"], "__OPENCLAW_REDACTED__");
    let hash = config["result"]["hash"].as_str().unwrap();
    let raw = "{agents: {defaults: {thinkingDefault: 'off'}}}";
    let stale = call_gateway(json!({"action": "config.patch", "raw": raw, "baseHash": "abc"}));
    assert!(stale.starts_with("the config has changed since you read it"), "{stale}");
    let done = parsed(&call_gateway(json!({"action": "config.patch", "raw": raw, "baseHash": hash})));
    assert_eq!(done["result"]["changedPaths"], json!(["agents.defaults.thinkingDefault"]));
    let file = fixture.home.state().join("homard.json");
    let stored = fs::read_to_string(&file).unwrap();
    for raw in
        ["{tools: {deny: []}}", "{tools: {exec: {sandbox: {mode: 'full'}}}}", "{mcp: {servers: {x: {command: 'sh'}}}}"]
    {
        let refused = call_gateway(json!({"action": "config.patch", "raw": raw}));
        assert!(refused.starts_with("nothing was changed, because an agent may not change "), "{raw}: {refused}");
    }
    let refused = call_gateway(json!({"action": "config.apply", "raw": "{}"}));
    assert!(refused.contains("tools.deny") || refused.contains("may not change"), "{refused}");
    let refused = call_gateway(json!({"action": "config.patch", "raw": "{agents: {defaults: {promptStyle: 'odd'}}}"}));
    assert!(refused.contains("promptStyle"), "{refused}");
    assert!(call_gateway(json!({"action": "restart"})).contains("ask the owner"));
    assert_eq!(fs::read_to_string(&file).unwrap(), stored);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workspace_image_is_described_by_a_vision_model() {
    let fixture =
        ScriptedHome::with(json!({"agents": {"defaults": {"imageModel": "puppet/eyes", "models": {"puppet/m": {}}}}}))
            .await;
    let gateway = fixture.home.gateway();
    let gif = b"GIF87a\x01\x00\x01\x00\x80\x00\x00\xff\xff\xff\xff\xff\xff,\x00\x00\x00\x00\x01\x00\x01\x00\x00\x02\x02D\x01\x00;";
    fs::write(fixture.home.state().join("workspace/dot.gif"), gif).unwrap();
    fs::write(fixture.home.state().join("dot.gif"), gif).unwrap();
    assert_eq!(call(&gateway, "image", &json!({"image": "dot.gif", "prompt": "What is it?"})), SEEN);
    let request = fixture.provider.requests().into_iter().find(|request| request.model == "eyes").unwrap().json();
    assert!(request["messages"].to_string().contains("What is it?") && request.get("tools").is_none(), "{request}");
    let refused = call(&gateway, "image", &json!({"image": "../dot.gif"}));
    assert!(refused.contains("leads outside the workspace"), "{refused}");
    let refused = call(&gateway, "image", &json!({"image": "https://x.example/dot.gif"}));
    assert!(refused.contains("the path of a file"), "{refused}");
    let refused = call(&gateway, "image", &json!({"image": "dot.gif", "model": "puppet/other"}));
    assert!(refused.contains("the model is not listed in"), "{refused}");
}

/// Returns the only pending approval.
fn waiting(gateway: &RunningGateway<'_>) -> (String, Value) {
    let list = gateway.run(&["approvals", "list", "--json"]).json();
    let entry = list.as_array().and_then(|list| list.first()).cloned().unwrap_or_else(|| panic!("{list}"));
    (entry["id"].as_str().unwrap().to_owned(), entry["request"].clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_protected_file_changes_when_the_owner_allows_it() {
    let fixture = ScriptedHome::with(json!({})).await;
    let home = &fixture.home;
    let gateway = home.gateway();
    let (file, hook) = (home.state().join("workspace/AGENTS.md"), home.state().join("workspace/.git/hooks/pre-commit"));
    fs::write(&file, "old\n").unwrap();
    let change = json!({"path": "AGENTS.md", "content": "new\n"});
    assert!(call(&gateway, "write", &change).contains("waits for the owner's approval"));
    let (id, request) = waiting(&gateway);
    assert_eq!(request["diff"], "write\n--- AGENTS.md\n+++ AGENTS.md\n@@ -1 +1 @@\n-old\n+new\n");
    assert_eq!(gateway.run(&["approvals", "deny", &id]).code, Some(0));
    assert_eq!(fs::read_to_string(&file).unwrap(), "old\n");

    // An approval is valid only for the file as it was shown.
    call(&gateway, "write", &change);
    let (id, _) = waiting(&gateway);
    fs::write(&file, "mine\n").unwrap();
    assert_eq!(gateway.run(&["approvals", "allow", &id]).code, Some(0));

    // Also after a restart.
    call(&gateway, "write", &json!({"path": ".git/hooks/pre-commit", "content": "#!/bin/sh\n"}));
    let (id, _) = waiting(&gateway);
    gateway.process.signal(Signal::KILL);
    gateway.end();
    let gateway = home.gateway();
    assert!(!hook.exists());
    assert_eq!(gateway.run(&["approvals", "allow", &id]).code, Some(0));
    until("the hook is written", || hook.exists());
    assert_eq!(fs::read_to_string(&hook).unwrap(), "#!/bin/sh\n");
    assert_eq!(fs::read_to_string(&file).unwrap(), "mine\n");
}
