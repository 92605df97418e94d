//! Scopes of a connection limit the runs and commands that it starts.

use std::sync::Arc;

use homard_agent::{HubRules, hub::QueueDefaults};
use homard_queue::settings::{QueueMode, QueueOverrides};
use homard_store::{MemoryStore, ToolClass};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::{
    exchange::{is_end, until},
    support::{Script, TestClient, TestGateway, says, waits},
};

const TOOLS: [(&str, ToolClass); 3] =
    [("cron", ToolClass::Effect), ("gateway", ToolClass::Effect), ("echo", ToolClass::Read)];

async fn gateway(script: Script) -> TestGateway {
    let all = QueueOverrides { mode: Some(QueueMode::Steer), ..QueueOverrides::default() };
    let rules = HubRules { queue: QueueDefaults { all, ..QueueDefaults::default() }, ..HubRules::default() };
    TestGateway::with_tools(Arc::new(MemoryStore::default()), script, rules, &TOOLS, |gateway| gateway).await
}

/// A connection with the write scope only.
async fn writer(gateway: &TestGateway, protocol: u64) -> TestClient {
    gateway.client(protocol, json!({"scopes": ["operator.read", "operator.write"]})).await
}

fn message(run: &str, text: &str) -> Value {
    json!({"sessionKey": "main", "message": text, "idempotencyKey": run})
}

/// Names of the tools offered to the model, per request.
fn offered(gateway: &TestGateway) -> Vec<Vec<String>> {
    let requests = gateway.requests.lock().unwrap();
    requests.iter().map(|request| request.tools.iter().map(|tool| tool.name.clone()).collect()).collect()
}

#[tokio::test]
async fn a_run_requested_without_admin_has_no_owner_tools() {
    for protocol in [3, 4] {
        let gateway = gateway(says(&["hi"])).await;
        let mut writer = writer(&gateway, protocol).await;
        for (run, method) in [("a", "chat.send"), ("b", "agent")] {
            writer.send(run, method, message(run, "hello")).await;
            until(&mut writer, |frame| is_end(frame, run)).await;
        }
        let mut admin = gateway.client(protocol, json!({})).await;
        admin.send("c", "chat.send", message("c", "hello")).await;
        until(&mut admin, |frame| is_end(frame, "c")).await;
        let all = vec!["cron", "echo", "gateway"];
        assert_eq!(offered(&gateway), [vec!["echo"], vec!["echo"], all], "protocol {protocol}");
        let effective = |tools: &Value| tools["payload"]["groups"][0]["tools"].as_array().unwrap().len();
        assert_eq!(effective(&writer.ask("d", "tools.effective", json!({})).await), 1);
        assert_eq!(effective(&admin.ask("e", "tools.effective", json!({})).await), 3);
    }
}

#[tokio::test]
async fn a_command_needs_the_scope_of_the_equivalent_method() {
    let gateway = gateway(says(&["hi"])).await;
    let mut writer = writer(&gateway, 4).await;
    writer.send("a", "chat.send", message("a", "hello")).await;
    until(&mut writer, |frame| is_end(frame, "a")).await;
    let before = writer.ask("b", "sessions.describe", json!({"key": "main"})).await["payload"].clone();
    let commands = [
        "/new",
        "/reset",
        "/new once more",
        "/compact",
        "/model test/scripted",
        "/verbose full",
        "/reasoning on",
        "/usage full",
        "/queue collect",
    ];
    for (number, command) in commands.iter().enumerate() {
        for method in ["chat.send", "agent"] {
            let run = format!("{method}-{number}");
            let refused = writer.ask(&run, method, message(&run, command)).await;
            assert_eq!(refused["error"]["message"], "missing scope: operator.admin", "{method} {command}: {refused}");
            assert_eq!(refused["error"]["details"]["code"], "MISSING_SCOPE", "{method} {command}");
        }
    }
    let after = writer.ask("c", "sessions.describe", json!({"key": "main"})).await["payload"].clone();
    for unchanged in ["sessionId", "updatedAt", "model", "verboseLevel", "reasoningLevel", "responseUsage", "queueMode"]
    {
        assert_eq!(after["session"][unchanged], before["session"][unchanged], "{unchanged}");
    }
    assert!(after["session"]["sessionId"].is_string(), "{after}");
    for (number, command) in ["/status", "/help", "/model", "/think low", "/queue", "/stop"].iter().enumerate() {
        let run = format!("ok-{number}");
        let accepted = writer.ask(&run, "chat.send", message(&run, command)).await;
        assert_eq!(accepted["ok"], true, "{command}: {accepted}");
    }
    let mut admin = gateway.client(4, json!({})).await;
    let accepted = admin.ask("new", "chat.send", message("new", "/new")).await;
    assert_eq!(accepted["ok"], true, "{accepted}");
}

#[tokio::test]
async fn a_message_without_admin_does_not_join_a_run_of_the_owner() {
    let gate = Arc::new(Semaphore::new(0));
    let gateway = gateway(waits(&gate)).await;
    let (mut admin, mut writer) = (gateway.client(4, json!({})).await, writer(&gateway, 4).await);
    admin.send("a", "chat.send", message("a", "hello")).await;
    until(&mut admin, |frame| frame["event"] == "chat").await;
    let sent = writer.ask("b", "chat.send", message("b", "make a job")).await;
    assert_eq!(sent["payload"]["disposition"], "queued", "{sent}");
    let steered = admin.ask("c", "chat.send", message("c", "and this")).await;
    assert_eq!(steered["ok"], true, "{steered}");
    gate.add_permits(8);
    until(&mut writer, |frame| is_end(frame, "b")).await;
    let of_writer = |tools: &Vec<String>| *tools == ["echo"];
    assert_eq!(offered(&gateway).iter().filter(|tools| of_writer(tools)).count(), 1, "{:?}", offered(&gateway));
}

#[tokio::test]
async fn a_heartbeat_that_a_writer_woke_has_no_owner_tools() {
    let gateway = gateway(says(&["HEARTBEAT_OK"])).await;
    let (mut admin, mut writer) = (gateway.client(4, json!({})).await, writer(&gateway, 4).await);
    let wake = |text: &str| json!({"mode": "now", "text": text});
    let is_heartbeat = |frame: &Value| frame["event"] == "heartbeat";
    assert_eq!(writer.ask("1", "wake", wake("make a job")).await["ok"], true);
    until(&mut writer, is_heartbeat).await;
    until(&mut admin, is_heartbeat).await;
    assert_eq!(admin.ask("2", "wake", wake("the post came")).await["ok"], true);
    until(&mut admin, is_heartbeat).await;
    // A text queued for the next heartbeat keeps its restricted authority, whichever request triggers the wake-up.
    let later = json!({"mode": "next-heartbeat", "text": "make a job"});
    assert_eq!(writer.ask("3", "wake", later).await["ok"], true);
    assert_eq!(admin.ask("4", "wake", wake("the post came")).await["ok"], true);
    until(&mut admin, is_heartbeat).await;
    assert_eq!(offered(&gateway).iter().map(Vec::len).collect::<Vec<_>>(), [1, 3, 1]);
}
