//! What is said in conversations, for clients that follow it.

use serde_json::{Value, json};

use crate::{
    support::{Socket, World, says},
    tools::calls_a_tool,
};

async fn get(socket: &mut Socket, method: &str, params: Value) -> Value {
    let answer = socket.ask(method, method, params).await;
    assert_eq!(answer["ok"], true, "{answer}");
    answer["payload"].clone()
}

/// Has a run done, to its end.
async fn talk(socket: &mut Socket, key: &str, run: &str) {
    get(socket, "chat.send", json!({"sessionKey": key, "message": "hello", "idempotencyKey": run})).await;
    get(socket, "agent.wait", json!({"runId": run})).await;
}

/// The next messages that are told, so many.
async fn told(socket: &mut Socket, count: usize) -> Vec<Value> {
    let mut told = Vec::new();
    while told.len() < count {
        let frame = socket.next().await;
        if frame["event"] == "session.message" {
            told.push(frame["payload"].clone());
        }
    }
    told
}

/// Nothing was told before this answer, and whatever is told is told in order.
async fn hears_nothing(socket: &mut Socket) {
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
async fn who_follows_a_conversation_hears_each_message_as_its_history_has_it() {
    let world = World::new(calls_a_tool()).await;
    let mut reader = world.client(4, json!({})).await;
    let mut follower = world.client(4, json!({})).await;
    let mut other = world.client(4, json!({})).await;
    let mut older = world.client(3, json!({})).await;
    let key = json!({"key": "main"});
    let subscribed = json!({"subscribed": true, "key": "agent:main:main"});
    assert_eq!(get(&mut reader, "sessions.messages.subscribe", key.clone()).await, subscribed);
    for socket in [&mut follower, &mut older] {
        get(socket, "sessions.subscribe", json!({})).await;
    }
    talk(&mut other, "main", "k1").await;
    let heard = told(&mut reader, 4).await;
    let history = get(&mut other, "chat.history", json!({"sessionKey": "main"})).await;
    let said: Vec<_> = heard.iter().map(|payload| payload["message"].clone()).collect();
    assert_eq!(json!(said), history["messages"]);
    let roles: Vec<_> = said.iter().map(|message| message["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["user", "assistant", "toolResult", "assistant"]);
    for (seq, payload) in (1..).zip(&heard) {
        let place = json!({"id": payload["messageId"], "seq": seq, "runId": "k1"});
        assert_eq!((&payload["message"]["__openclaw"], &payload["messageSeq"]), (&place, &json!(seq)));
        assert_eq!((&payload["sessionKey"], &payload["agentId"]), (&json!("agent:main:main"), &json!("main")));
        let row = &payload["session"];
        assert_eq!((&payload["sessionId"], &payload["updatedAt"]), (&row["sessionId"], &row["updatedAt"]));
        assert_eq!((&payload["runId"], &row["key"]), (&json!("k1"), &payload["sessionKey"]));
        assert!(row["hasActiveRun"].is_boolean() && payload["sessionId"].is_string(), "{payload}");
    }
    assert_eq!(told(&mut follower, 4).await, heard);
    for socket in [&mut other, &mut older] {
        hears_nothing(socket).await;
    }

    // Another conversation is heard by who follows all; so is what nobody in particular said.
    talk(&mut other, "garden", "k2").await;
    told(&mut follower, 4).await;
    hears_nothing(&mut reader).await;
    let note = get(&mut other, "chat.inject", json!({"sessionKey": "main", "message": "a note"})).await;
    for socket in [&mut reader, &mut follower] {
        let payload = told(socket, 1).await.remove(0);
        assert_eq!((&payload["messageId"], &payload["messageSeq"]), (&note["messageId"], &json!(5)));
    }
    get(&mut reader, "sessions.messages.unsubscribe", key).await;
    talk(&mut other, "main", "k3").await;
    let places: Vec<_> = told(&mut follower, 4).await.iter().map(|payload| payload["messageSeq"].clone()).collect();
    assert_eq!(places, [6, 7, 8, 9]);
    hears_nothing(&mut reader).await;
}

#[tokio::test]
async fn a_connection_follows_a_bounded_number_of_conversations() {
    let world = World::new(says(&["hi"])).await;
    let mut socket = world.client(4, json!({})).await;
    for number in 0..256 {
        get(&mut socket, "sessions.messages.subscribe", json!({"key": format!("s{number}")})).await;
    }
    get(&mut socket, "sessions.messages.subscribe", json!({"key": "s0"})).await;
    let one_more = json!({"key": "more"});
    let refused = socket.ask("x", "sessions.messages.subscribe", one_more.clone()).await;
    let why = "this connection follows 256 conversations; end some with sessions.messages.unsubscribe";
    assert_eq!((&refused["error"]["code"], &refused["error"]["message"]), (&json!("INVALID_REQUEST"), &json!(why)));
    get(&mut socket, "sessions.messages.unsubscribe", json!({"key": "s0"})).await;
    get(&mut socket, "sessions.messages.subscribe", one_more).await;
}
