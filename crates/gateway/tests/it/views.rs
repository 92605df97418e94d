//! What clients show beside sessions: models, commands, tools, the log, and session changes.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::{
    exchange::{is_end, until},
    support::{TestClient, TestGateway, connect, says, waits},
};

async fn get(socket: &mut TestClient, method: &str, params: Value) -> Value {
    let answer = socket.ask(method, method, params).await;
    assert_eq!(answer["ok"], true, "{answer}");
    answer["payload"].clone()
}

#[tokio::test]
async fn models_commands_and_tools_are_listed() {
    let gateway = TestGateway::new(says(&["hi"])).await;
    for protocol in [3, 4] {
        let mut socket = gateway.client(protocol, json!({})).await;
        let models = get(&mut socket, "models.list", json!({"view": "configured"})).await;
        assert_eq!(models["models"].as_array().unwrap().len(), 1);
        let model = &models["models"][0];
        assert_eq!((&model["id"], &model["provider"]), (&json!("scripted"), &json!("test")));
        for (provider, count) in [("test", 1), ("other", 0)] {
            let models = get(&mut socket, "models.list", json!({"provider": provider, "includeDetails": true})).await;
            assert_eq!(models["models"].as_array().unwrap().len(), count, "{provider}");
        }
        let commands = get(&mut socket, "commands.list", json!({"scope": "text", "includeArgs": true})).await;
        let names: Vec<_> =
            commands["commands"].as_array().unwrap().iter().map(|command| command["name"].as_str().unwrap()).collect();
        assert!(names.contains(&"stop") && names.contains(&"model") && names.contains(&"help"), "{names:?}");
        let tools = get(&mut socket, "tools.effective", json!({"sessionKey": "main"})).await;
        assert_eq!(tools["groups"][0]["tools"][0]["id"], "echo");
        assert_eq!(get(&mut socket, "tools.catalog", json!({})).await["groups"][0]["tools"][0]["id"], "echo");
        let unknown = socket.ask("u", "models.list", json!({"agentId": "nobody"})).await;
        assert_eq!(unknown["error"]["message"], "invalid models.list params: unknown agent id \"nobody\"");
    }
}

#[tokio::test]
async fn chat_startup_returns_history_and_metadata() {
    let gateway = TestGateway::new(says(&["hi"])).await;
    let mut socket = gateway.client(4, json!({})).await;
    get(&mut socket, "chat.send", json!({"sessionKey": "main", "message": "hello", "idempotencyKey": "k1"})).await;
    get(&mut socket, "agent.wait", json!({"runId": "k1"})).await;
    let startup =
        get(&mut socket, "chat.startup", json!({"sessionKey": "main", "limit": 80, "maxBytes": 262_144})).await;
    let positions: Vec<_> =
        startup["messages"].as_array().unwrap().iter().map(|message| message["__openclaw"].clone()).collect();
    assert_eq!((&positions[0]["seq"], &positions[1]["seq"]), (&json!(1), &json!(2)));
    assert!(positions.iter().all(|position| position["runId"] == "k1" && position["id"].is_string()), "{positions:?}");
    assert_eq!(startup["metadata"]["models"][0]["id"], "scripted");
    assert_eq!(startup["metadata"], get(&mut socket, "chat.metadata", json!({"sessionKey": "main"})).await);
}

#[tokio::test]
async fn session_changes_are_published_to_subscribers_only() {
    let gateway = TestGateway::new(says(&["hi"])).await;
    let mut follower = gateway.client(4, json!({})).await;
    let mut other = gateway.client(4, json!({})).await;
    assert_eq!(get(&mut follower, "sessions.subscribe", json!({})).await, json!({"subscribed": true}));
    get(&mut other, "sessions.create", json!({"key": "garden", "label": "Plants"})).await;
    let changed = loop {
        let frame = follower.next().await;
        if frame["event"] == "sessions.changed" {
            break frame["payload"].clone();
        }
    };
    assert_eq!(
        (&changed["sessionKey"], &changed["reason"], &changed["session"]["label"]),
        (&json!("agent:main:garden"), &json!("create"), &json!("Plants"))
    );
    assert_eq!(get(&mut follower, "sessions.unsubscribe", json!({})).await, json!({"subscribed": false}));
    get(&mut other, "sessions.delete", json!({"key": "garden"})).await;
    // Events are ordered: a change would have come before the end of this run.
    for socket in [&mut follower, &mut other] {
        socket.send("r", "agent", json!({"message": "x", "idempotencyKey": "k", "sessionKey": "main"})).await;
        loop {
            let frame = socket.next().await;
            assert_ne!(frame["event"], "sessions.changed");
            if frame["id"] == "r" && frame["payload"]["status"] == "ok" {
                break;
            }
        }
    }
}

#[tokio::test]
async fn queries_of_the_control_ui_are_answered() {
    let gate = Arc::new(Semaphore::new(0));
    let gateway = TestGateway::new(waits(&gate)).await;
    let mut socket = gateway.client(4, json!({})).await;
    let key = "agent:main:subagent:x";
    let params = json!({"message": "x", "idempotencyKey": "k", "sessionKey": key});
    socket.send("r", "agent", params).await;
    until(&mut socket, |frame| frame["event"] == "chat").await;
    let task = get(&mut socket, "tasks.list", json!({"status": ["queued", "running"]})).await["tasks"][0].clone();
    assert_eq!((&task["id"], &task["status"], &task["runId"]), (&json!(key), &json!("running"), &json!("k")));
    let ended = json!({"status": "completed", "agentId": "main", "limit": 1});
    assert_eq!(get(&mut socket, "tasks.list", ended.clone()).await, json!({"tasks": []}));
    let lanes = get(&mut socket, "diagnostics.lanes", json!({})).await;
    let counts: Vec<_> = lanes["lanes"].as_array().unwrap().iter().map(|lane| &lane["activeCount"]).collect();
    assert_eq!(counts, [0, 1, 0, 0, 0]);
    gate.add_permits(1);
    until(&mut socket, |frame| is_end(frame, "k")).await;
    assert_eq!(get(&mut socket, "tasks.list", ended).await["tasks"][0]["id"], key);
    let wrong = socket.ask("w", "tasks.list", json!({"status": "lost"})).await;
    assert_eq!(wrong["error"]["code"], "INVALID_REQUEST");

    let auth_status = get(&mut socket, "models.authStatus", json!({"agentId": "main"})).await;
    let provider = json!({
        "provider": "test", "authProvider": "test", "displayName": "test", "status": "static", "profiles": [],
    });
    assert_eq!(auth_status["providers"], json!([provider]));
    let unknown = socket.ask("u", "models.authStatus", json!({"agentId": "nobody"})).await;
    assert_eq!(unknown["error"]["message"], "invalid models.authStatus params: unknown agent id \"nobody\"");
    let memory = get(&mut socket, "doctor.memory.status", json!({})).await;
    assert_eq!((&memory["provider"], &memory["embedding"]["ok"]), (&json!("none"), &json!(false)));
    assert_eq!(get(&mut socket, "webSearch.status", json!({})).await["route"]["kind"], "unavailable");
    let github = json!({"agentId": "main", "selectedScope": "system"});
    assert_eq!(get(&mut socket, "tools.github.status", github).await["selected"]["configured"], false);
    assert_eq!(get(&mut socket, "migrations.memory.plan", json!({"agentId": "main"})).await["providers"], json!([]));
}

#[tokio::test]
async fn lists_of_unsupported_features_are_empty() {
    let gateway = TestGateway::new(says(&["hi"])).await;
    let (mut socket, _) = gateway.open().await;
    let mut params = connect(4);
    params["scopes"] = json!(["operator.admin"]);
    socket.ask("c", "connect", params).await;
    assert_eq!(get(&mut socket, "question.list", json!({})).await, json!({"questions": []}));
    assert_eq!(get(&mut socket, "plugin.approval.list", json!({})).await, json!([]));
    assert_eq!(get(&mut socket, "node.list", json!({})).await["nodes"], json!([]));
    for (method, list) in [
        ("sessions.branches.list", "branches"),
        ("sessions.companion.state", "exchanges"),
        ("transcripts.list", "sessions"),
        ("skills.library.list", "entries"),
        ("skills.proposals.list", "proposals"),
    ] {
        assert_eq!(get(&mut socket, method, json!({"sessionKey": "main"})).await[list], json!([]), "{method}");
    }
    assert_eq!(get(&mut socket, "progressCard.get", json!({})).await, json!({"card": null}));
    assert_eq!(get(&mut socket, "sessions.observer.visibility", json!({"visible": true})).await, json!({"ok": true}));
    assert_eq!(get(&mut socket, "talk.catalog", json!({})).await["speech"]["providers"], json!([]));
    assert_eq!(get(&mut socket, "environments.list", json!({})).await["environments"][0]["id"], "gateway");
    let update = json!({"sentinel": null, "updateAvailable": null});
    assert_eq!(get(&mut socket, "update.status", json!({})).await, update);
    let log = get(&mut socket, "logs.tail", json!({"limit": 5})).await;
    assert_eq!((&log["lines"], &log["cursor"]), (&json!([]), &json!(0)));
    let wrong = socket.ask("w", "logs.tail", json!({"limit": 5001})).await;
    assert_eq!(wrong["error"]["message"], "invalid logs.tail params: at /limit: must be <= 5000");
}
