//! Message subscriptions (`session.message`).

use std::sync::{Arc, atomic::Ordering};

use futures_util::{StreamExt, stream};
use homard_agent::HubRules;
use homard_model::{ModelEvent, stream::CallDelta};
use homard_proto::message::StopReason;
use homard_store::{MemoryStore, ToolClass};
use serde_json::{Value, json};
use tokio::{sync::Semaphore, time::timeout};

use crate::{
    support::{FaultyMemoryStore, PATIENCE, TestClient, TestGateway, done, says, waits},
    tools::calls_a_tool,
};

async fn get(socket: &mut TestClient, method: &str, params: Value) -> Value {
    let answer = socket.ask(method, method, params).await;
    assert_eq!(answer["ok"], true, "{answer}");
    answer["payload"].clone()
}

/// Runs a message to its end.
async fn run_message(socket: &mut TestClient, key: &str, run: &str) {
    get(socket, "chat.send", json!({"sessionKey": key, "message": "hello", "idempotencyKey": run})).await;
    get(socket, "agent.wait", json!({"runId": run})).await;
}

/// Returns the next `count` messages published to a client.
async fn next_messages(socket: &mut TestClient, count: usize) -> Vec<Value> {
    let mut messages = Vec::new();
    let reading = async {
        while messages.len() < count {
            let frame = socket.next().await;
            if frame["event"] == "session.message" {
                messages.push(frame["payload"].clone());
            }
        }
    };
    let is_done = timeout(PATIENCE, reading).await.is_ok();
    assert!(is_done, "{} of {count} messages were told", messages.len());
    messages
}

/// Checks that no message was published before this response; events and responses are ordered.
async fn assert_no_messages(socket: &mut TestClient) {
    socket.send("silence", "health", json!({})).await;
    loop {
        let frame = socket.next().await;
        assert_ne!(frame["event"], "session.message", "{frame}");
        if frame["id"] == "silence" {
            return;
        }
    }
}

#[tokio::test]
async fn a_subscriber_gets_each_message_as_in_the_history() {
    let gateway = TestGateway::new(calls_a_tool()).await;
    let mut reader = gateway.client(4, json!({})).await;
    let mut follower = gateway.client(4, json!({})).await;
    let mut other = gateway.client(4, json!({})).await;
    let mut older = gateway.client(3, json!({})).await;
    let key = json!({"key": "main"});
    let subscribed = json!({"subscribed": true, "key": "agent:main:main"});
    assert_eq!(get(&mut reader, "sessions.messages.subscribe", key.clone()).await, subscribed);
    for socket in [&mut follower, &mut older] {
        get(socket, "sessions.subscribe", json!({})).await;
    }
    run_message(&mut other, "main", "k1").await;
    let received = next_messages(&mut reader, 4).await;
    let history = get(&mut other, "chat.history", json!({"sessionKey": "main"})).await;
    let messages: Vec<_> = received.iter().map(|payload| payload["message"].clone()).collect();
    assert_eq!(json!(messages), history["messages"]);
    let roles: Vec<_> = messages.iter().map(|message| message["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["user", "assistant", "toolResult", "assistant"]);
    for (seq, payload) in (1..).zip(&received) {
        let position = json!({"id": payload["messageId"], "seq": seq, "runId": "k1"});
        assert_eq!((&payload["message"]["__openclaw"], &payload["messageSeq"]), (&position, &json!(seq)));
        assert_eq!((&payload["sessionKey"], &payload["agentId"]), (&json!("agent:main:main"), &json!("main")));
        let row = &payload["session"];
        assert_eq!((&payload["sessionId"], &payload["updatedAt"]), (&row["sessionId"], &row["updatedAt"]));
        assert_eq!((&payload["runId"], &row["key"]), (&json!("k1"), &payload["sessionKey"]));
        assert!(row["hasActiveRun"].is_boolean() && payload["sessionId"].is_string(), "{payload}");
    }
    assert_eq!(next_messages(&mut follower, 4).await, received);
    for socket in [&mut other, &mut older] {
        assert_no_messages(socket).await;
    }

    // Messages of another session reach the client subscribed to all; so do injected messages.
    run_message(&mut other, "garden", "k2").await;
    next_messages(&mut follower, 4).await;
    assert_no_messages(&mut reader).await;
    let note = get(&mut other, "chat.inject", json!({"sessionKey": "main", "message": "a note"})).await;
    for socket in [&mut reader, &mut follower] {
        let payload = next_messages(socket, 1).await.remove(0);
        assert_eq!((&payload["messageId"], &payload["messageSeq"]), (&note["messageId"], &json!(5)));
    }
    get(&mut reader, "sessions.messages.unsubscribe", key).await;
    run_message(&mut other, "main", "k3").await;
    let seqs: Vec<_> =
        next_messages(&mut follower, 4).await.iter().map(|payload| payload["messageSeq"].clone()).collect();
    assert_eq!(seqs, [6, 7, 8, 9]);
    assert_no_messages(&mut reader).await;
}

#[tokio::test]
async fn a_connection_has_a_limited_number_of_subscriptions() {
    let gateway = TestGateway::new(says(&["hi"])).await;
    let mut socket = gateway.client(4, json!({})).await;
    for number in 0..256 {
        get(&mut socket, "sessions.messages.subscribe", json!({"key": format!("s{number}")})).await;
    }
    get(&mut socket, "sessions.messages.subscribe", json!({"key": "s0"})).await;
    let one_more = json!({"key": "more"});
    let refused = socket.ask("x", "sessions.messages.subscribe", one_more.clone()).await;
    let why = "this connection is subscribed to 256 sessions, which is the limit; unsubscribe from some with \
         sessions.messages.unsubscribe";
    assert_eq!((&refused["error"]["code"], &refused["error"]["message"]), (&json!("INVALID_REQUEST"), &json!(why)));
    get(&mut socket, "sessions.messages.unsubscribe", json!({"key": "s0"})).await;
    get(&mut socket, "sessions.messages.subscribe", one_more).await;
}

fn text(message: &Value) -> &str {
    let content = &message["content"];
    content.as_str().or(content[0]["text"].as_str()).unwrap()
}

fn texts(messages: &[Value]) -> Vec<&str> {
    messages.iter().map(|payload| text(&payload["message"])).collect()
}

#[tokio::test]
async fn no_message_is_lost_while_reads_are_blocked() {
    let store = FaultyMemoryStore::default();
    let reads = store.reads.clone();
    let gateway = TestGateway::with_store(Arc::new(store), says(&["hi"])).await;
    let mut follower = gateway.client(4, json!({})).await;
    let mut other = gateway.client(4, json!({})).await;
    get(&mut follower, "sessions.subscribe", json!({})).await;
    run_message(&mut other, "main", "k1").await;
    next_messages(&mut follower, 2).await;
    // Transcript reads are blocked until all messages are stored.
    let permits = reads.forget_permits(Semaphore::MAX_PERMITS);
    let count = 1_100;
    for number in 0..count {
        let note = json!({"sessionKey": "main", "message": format!("note {number}")});
        get(&mut other, "chat.inject", note).await;
    }
    reads.add_permits(permits);
    let received = next_messages(&mut follower, count).await;
    let expected: Vec<_> = (0..count).map(|number| format!("note {number}")).collect();
    assert_eq!(texts(&received), expected);
    let seqs: Vec<_> = received.iter().map(|payload| payload["messageSeq"].as_u64().unwrap()).collect();
    assert_eq!(seqs, (3..count as u64 + 3).collect::<Vec<_>>());
}

/// Calls `gate` and `echo`, then answers.
fn calls_two_tools() -> crate::support::Script {
    let final_answer = says(&["done"]);
    Arc::new(move |answer| {
        if answer > 0 {
            return final_answer(answer);
        }
        let call = |(index, name): (usize, &str)| {
            ModelEvent::Call(CallDelta {
                index,
                id: Some(format!("call-{name}")),
                name: Some(name.to_owned()),
                arguments: "{}".to_owned(),
            })
        };
        let calls = [(0, "gate"), (1, "echo")].map(call);
        stream::iter(calls.into_iter().chain([done(StopReason::ToolUse)])).boxed()
    })
}

#[tokio::test]
async fn a_tool_result_is_published_when_it_is_stored() {
    let tools = [("gate", ToolClass::Read), ("echo", ToolClass::Read)];
    let store = Arc::new(MemoryStore::default());
    let gateway =
        TestGateway::with_tools(store, calls_two_tools(), HubRules::default(), &tools, |gateway| gateway).await;
    let mut follower = gateway.client(4, json!({})).await;
    let mut other = gateway.client(4, json!({})).await;
    get(&mut follower, "sessions.subscribe", json!({})).await;
    get(&mut other, "chat.send", json!({"sessionKey": "main", "message": "go", "idempotencyKey": "k1"})).await;
    let role = |payload: &Value| payload["message"]["role"].as_str().unwrap().to_owned();
    assert_eq!(next_messages(&mut follower, 2).await.iter().map(role).collect::<Vec<_>>(), ["user", "assistant"]);
    loop {
        let frame = other.next().await;
        let data = &frame["payload"]["data"];
        if (&data["phase"], &data["name"]) == (&json!("result"), &json!("echo")) {
            break;
        }
    }
    // Messages of another session are published after all those reported before.
    run_message(&mut other, "garden", "k2").await;
    assert_eq!(next_messages(&mut follower, 2).await.iter().map(role).collect::<Vec<_>>(), ["user", "assistant"]);
    gateway.gate.add_permits(1);
    let received = next_messages(&mut follower, 3).await;
    assert_eq!(received.iter().map(role).collect::<Vec<_>>(), ["toolResult", "toolResult", "assistant"]);
    let calls: Vec<_> = received.iter().map(|payload| payload["message"]["toolCallId"].clone()).collect();
    assert_eq!(calls, [json!("call-gate"), json!("call-echo"), Value::Null]);
}

#[tokio::test]
async fn a_run_in_a_replaced_transcript_is_published_to_its_end() {
    let gate = Arc::new(Semaphore::new(0));
    let gateway = TestGateway::new(waits(&gate)).await;
    let mut follower = gateway.client(4, json!({})).await;
    let mut other = gateway.client(4, json!({})).await;
    get(&mut follower, "sessions.messages.subscribe", json!({"key": "main"})).await;
    get(&mut other, "chat.send", json!({"sessionKey": "main", "message": "go", "idempotencyKey": "k1"})).await;
    let first = next_messages(&mut follower, 1).await.remove(0);
    get(&mut other, "sessions.reset", json!({"key": "main"})).await;
    gate.add_permits(1);
    let last = next_messages(&mut follower, 1).await.remove(0);
    assert_eq!(texts(std::slice::from_ref(&last)), ["hello world"]);
    assert_eq!((&last["sessionId"], &last["messageSeq"]), (&first["sessionId"], &json!(2)));
    assert_ne!(last["session"]["sessionId"], last["sessionId"]);
}

#[tokio::test]
async fn messages_are_published_after_failed_reads_are_retried() {
    let store = FaultyMemoryStore::default();
    let failing_reads = store.failing_reads.clone();
    let gateway = TestGateway::with_store(Arc::new(store), says(&["hi"])).await;
    let mut follower = gateway.client(4, json!({})).await;
    let mut other = gateway.client(4, json!({})).await;
    get(&mut follower, "sessions.subscribe", json!({})).await;
    failing_reads.store(2, Ordering::SeqCst);
    // From here on time advances as soon as all tasks are idle.
    tokio::time::pause();
    get(&mut other, "chat.send", json!({"sessionKey": "main", "message": "hello", "idempotencyKey": "k1"})).await;
    assert_eq!(texts(&next_messages(&mut follower, 2).await), ["hello", "hi"]);
    assert_eq!(failing_reads.load(Ordering::SeqCst), 0);
}
