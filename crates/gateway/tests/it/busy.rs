//! Messages to an agent with an active run: their disposition, and that none is lost.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures_util::{StreamExt, stream};
use homard_agent::{HubRules, hub::QueueDefaults};
use homard_model::ModelEvent;
use homard_proto::message::StopReason;
use homard_queue::settings::{DropPolicy, QueueMode, QueueOverrides};
use homard_store::MemoryStore;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::{
    exchange::{check_invariants, is_end, lines, text, until},
    support::{Script, TestClient, TestGateway, done},
};

fn message(run: &str) -> Value {
    json!({"sessionKey": "main", "message": format!("message {run}"), "idempotencyKey": run})
}

/// Streams "one", then "more" when permitted; every later answer also waits for a permit and is "two".
fn pauses(gate: &Arc<Semaphore>) -> Script {
    let gate = gate.clone();
    Arc::new(move |answer| {
        let gate = gate.clone();
        let rest = stream::once(async move {
            gate.acquire().await.unwrap().forget();
            ModelEvent::Text(if answer == 0 { " more" } else { "two" }.to_owned())
        });
        let first = stream::iter((answer == 0).then(|| ModelEvent::Text("one".to_owned())));
        first.chain(rest).chain(stream::iter([done(StopReason::Stop)])).boxed()
    })
}

async fn with_queue(script: Script, all: QueueOverrides) -> TestGateway {
    let queue = QueueDefaults { all, ..QueueDefaults::default() };
    TestGateway::with_rules(Arc::new(MemoryStore::default()), script, HubRules { queue, ..HubRules::default() }).await
}

fn mode(mode: QueueMode) -> QueueOverrides {
    QueueOverrides { mode: Some(mode), debounce: Some(Duration::ZERO), cap: Some(100), drop: None }
}

/// Starts a run that waits at the gate.
async fn start_run(socket: &mut TestClient) -> Vec<Value> {
    socket.send("a", "chat.send", message("a")).await;
    until(socket, |frame| frame["event"] == "chat").await
}

/// Expected response to a message with this disposition.
fn queue_response(run: &str, disposition: &str, position: Option<u64>) -> Value {
    let mut answer = json!({"runId": run, "status": "started", "disposition": disposition});
    if let Some(position) = position {
        answer["position"] = position.into();
    }
    answer
}

#[tokio::test]
async fn a_message_to_a_busy_agent_is_steered_into_its_run() {
    for protocol in [3, 4] {
        let gate = Arc::new(Semaphore::new(0));
        let gateway = TestGateway::new(pauses(&gate)).await;
        let mut socket = gateway.client(protocol, json!({})).await;
        let mut frames = start_run(&mut socket).await;
        let sent = socket.ask("b", "chat.send", message("b")).await;
        assert_eq!(sent["payload"], queue_response("b", "steered", None));
        gate.add_permits(1);
        frames.extend(until(&mut socket, |frame| is_end(frame, "b")).await);
        gate.add_permits(1);
        frames.extend(until(&mut socket, |frame| is_end(frame, "a")).await);
        // How text is split into deltas depends on timing.
        let without_deltas =
            frames.iter().filter(|frame| frame["payload"]["state"] != "delta").cloned().collect::<Vec<_>>();
        assert_eq!(
            lines(&without_deltas),
            [
                "a true",
                "agent a 1 lifecycle start",
                "agent a 2 assistant +\"one\"",
                "agent a 3 assistant +\" more\"",
                "chat b 1 final",
                "agent a 4 assistant +\"two\"",
                "agent a 5 lifecycle end",
                "chat a 5 final =\"one more\\n\\ntwo\" because \"stop\"",
            ]
        );
        let waited = socket.ask("w", "agent.wait", json!({"runId": "b"})).await;
        assert_eq!(waited["payload"]["status"], "ok");
        // The end of its run was published, too, but there is no further `chat` event for it.
        socket.send("c", "chat.send", message("c")).await;
        gate.add_permits(1);
        frames.extend(until(&mut socket, |frame| is_end(frame, "c")).await);
        let chat = |frame: &&Value| frame["event"] == "chat" && frame["payload"]["runId"] == "b";
        assert_eq!(frames.iter().filter(chat).count(), 1);
        let history = socket.ask("h", "chat.history", json!({"sessionKey": "main"})).await;
        let roles: Vec<_> =
            history["payload"]["messages"].as_array().unwrap().iter().map(|message| &message["role"]).collect();
        assert_eq!(roles, ["user", "assistant", "user", "assistant", "user", "assistant"]);
    }
}

#[tokio::test]
async fn messages_to_a_busy_agent_are_collected_into_one_turn() {
    for protocol in [3, 4] {
        let gate = Arc::new(Semaphore::new(0));
        let gateway = with_queue(pauses(&gate), mode(QueueMode::Collect)).await;
        let mut socket = gateway.client(protocol, json!({})).await;
        let mut frames = start_run(&mut socket).await;
        for (run, position) in [("b", 1), ("c", 2)] {
            let sent = socket.ask(run, "chat.send", message(run)).await;
            assert_eq!(sent["payload"], queue_response(run, "collected", Some(position)));
        }
        gate.add_permits(2);
        frames.extend(until(&mut socket, |frame| is_end(frame, "b")).await);
        assert_eq!(
            lines(&frames)[4..],
            [
                "agent a 3 assistant +\" more\"",
                "chat a 3 delta +\" more\" =\"one more\"",
                "agent a 4 lifecycle end",
                "chat a 4 final =\"one more\" because \"stop\"",
                "agent c 1 lifecycle start",
                "agent c 2 assistant +\"two\"",
                "chat c 2 delta +\"two\" =\"two\"",
                "agent c 3 lifecycle end",
                "chat c 3 final =\"two\" because \"stop\"",
                "agent b 1 lifecycle end",
                "chat b 1 final because \"stop\"",
            ]
        );
        assert_eq!(check_invariants(&frames).len(), 3);
        let again = socket.ask("d", "chat.send", message("b")).await;
        assert_eq!(again["payload"], json!({"runId": "b", "status": "ok"}));
    }
}

#[tokio::test]
async fn queued_messages_know_their_position_and_are_aborted_with_the_run() {
    let gate = Arc::new(Semaphore::new(0));
    let gateway = with_queue(pauses(&gate), mode(QueueMode::Followup)).await;
    let mut socket = gateway.client(4, json!({})).await;
    let mut frames = start_run(&mut socket).await;
    let sent = socket.ask("b", "chat.send", message("b")).await;
    assert_eq!(sent["payload"], queue_response("b", "queued", Some(1)));
    let accepted = socket.ask("c", "agent", message("c")).await;
    assert_eq!(json!([accepted["payload"]["disposition"], accepted["payload"]["position"]]), json!(["queued", 2]));
    let health = socket.ask("h", "health", json!({})).await;
    assert_eq!(
        health["payload"]["work"],
        json!({"queued": 2, "running": 1, "longRunning": 0, "stalled": 0, "stuck": 0, "slow": []})
    );
    socket.send("x", "chat.abort", json!({"sessionKey": "main"})).await;
    let ending = until(&mut socket, |frame| frame["id"] == "x").await;
    assert_eq!(ending.last().unwrap()["payload"], json!({"ok": true, "aborted": true, "runIds": ["b", "c", "a"]}));
    frames.extend(ending);
    let ends = check_invariants(&frames);
    let outcomes: Vec<_> =
        ends.iter().map(|(run, end)| (run.as_str(), end["state"].as_str().unwrap(), text(end))).collect();
    assert_eq!(outcomes, [("a", "aborted", Some("one")), ("b", "aborted", None), ("c", "aborted", None)]);
    assert!(ends.values().all(|end| end["stopReason"] == "rpc"));
}

#[tokio::test]
async fn a_message_is_rejected_when_the_queue_is_full() {
    for protocol in [3, 4] {
        let gate = Arc::new(Semaphore::new(0));
        let rules = QueueOverrides { cap: Some(1), drop: Some(DropPolicy::New), ..mode(QueueMode::Followup) };
        let gateway = with_queue(pauses(&gate), rules).await;
        let mut socket = gateway.client(protocol, json!({})).await;
        let mut frames = start_run(&mut socket).await;
        assert_eq!(socket.ask("b", "chat.send", message("b")).await["ok"], true);
        socket.send("c", "chat.send", message("c")).await;
        frames.extend(until(&mut socket, |frame| is_end(frame, "c")).await);
        let why =
            "queue_full: too many messages are queued in this session; send it again later with a new idempotency key";
        let refused = frames.iter().find(|frame| frame["id"] == "c").unwrap();
        assert_eq!(refused["error"], json!({"code": "UNAVAILABLE", "message": why}));
        assert_eq!(refused["payload"], json!({"runId": "c", "status": "error", "summary": why}));
        let again = socket.ask("d", "chat.send", message("c")).await;
        assert_eq!((&again["ok"], &again["error"]["code"]), (&json!(false), &json!("UNAVAILABLE")));
        gate.add_permits(2);
        frames.extend(until(&mut socket, |frame| is_end(frame, "b")).await);
        let states: Vec<_> = check_invariants(&frames).into_values().map(|end| end["state"].clone()).collect();
        assert_eq!(states, ["final", "final", "aborted"]);
    }
}

#[tokio::test]
async fn an_interrupting_message_replaces_the_active_run() {
    let gate = Arc::new(Semaphore::new(0));
    let gateway = TestGateway::new(pauses(&gate)).await;
    let mut socket = gateway.client(4, json!({})).await;
    let mut frames = start_run(&mut socket).await;
    let mut params = message("b");
    params["queueMode"] = "interrupt".into();
    socket.send("b", "chat.send", params).await;
    frames.extend(until(&mut socket, |frame| is_end(frame, "a")).await);
    gate.add_permits(1);
    frames.extend(until(&mut socket, |frame| is_end(frame, "b")).await);
    let sent = frames.iter().find(|frame| frame["id"] == "b").unwrap();
    assert_eq!(sent["payload"], queue_response("b", "interrupted", None));
    let ends = check_invariants(&frames);
    let end = |run: &str| (ends[run]["state"].clone(), ends[run]["stopReason"].clone());
    assert_eq!(end("a"), (json!("aborted"), json!("interrupted")));
    assert_eq!(end("b"), (json!("final"), json!("stop")));
}

// R19.
#[tokio::test]
async fn fifty_messages_to_a_busy_agent_drain_and_none_is_lost() {
    for (protocol, queue_mode) in
        [(3, QueueMode::Followup), (4, QueueMode::Followup), (3, QueueMode::Collect), (4, QueueMode::Collect)]
    {
        let gate = Arc::new(Semaphore::new(0));
        let gateway = with_queue(pauses(&gate), mode(queue_mode)).await;
        let mut socket = gateway.client(protocol, json!({})).await;
        let mut frames = start_run(&mut socket).await;
        let names: Vec<_> = (0..50).map(|n| format!("m{n:02}")).collect();
        for name in &names {
            socket.send(name, "chat.send", message(name)).await;
        }
        let mut waiting: BTreeSet<_> = names.iter().map(String::as_str).collect();
        while !waiting.is_empty() {
            let frame = socket.next().await;
            if frame["type"] == "res" {
                assert_eq!(frame["payload"]["status"], "started", "{frame}");
                assert!(waiting.remove(frame["id"].as_str().unwrap()), "{frame}");
            }
            frames.push(frame);
        }
        gate.add_permits(51);
        let mut unfinished: BTreeSet<_> = names.iter().map(String::as_str).chain(["a"]).collect();
        while !unfinished.is_empty() {
            let frame = socket.next().await;
            if let Some(run) = frame["payload"]["runId"].as_str()
                && is_end(&frame, run)
            {
                assert!(unfinished.remove(run), "{frame}");
            }
            frames.push(frame);
        }
        let ends = check_invariants(&frames);
        assert!(ends.values().all(|end| end["state"] == "final"));
        let answered = ends.values().filter(|end| text(end).is_some()).count();
        assert_eq!(answered, if queue_mode == QueueMode::Followup { 51 } else { 2 });
        let history = socket.ask("h", "chat.history", json!({"sessionKey": "main"})).await;
        let messages = history["payload"]["messages"].as_array().unwrap();
        let user_text: String = messages
            .iter()
            .filter(|user_text| user_text["role"] == "user")
            .map(|user_text| user_text["content"].to_string())
            .collect();
        // Each exactly once, in the order in which they were sent.
        let positions: Vec<_> = names
            .iter()
            .map(|name| user_text.match_indices(name.as_str()).map(|(at, _)| at).collect::<Vec<_>>())
            .collect();
        assert!(positions.iter().all(|positions| positions.len() == 1), "{user_text}");
        assert!(positions.is_sorted(), "{user_text}");
    }
}

#[tokio::test]
async fn stopping_the_gateway_fails_waiting_requests() {
    let gateway = with_queue(pauses(&Arc::new(Semaphore::new(0))), mode(QueueMode::Followup)).await;
    let mut socket = gateway.client(4, json!({})).await;
    let mut frames = start_run(&mut socket).await;
    socket.ask("b", "chat.send", message("b")).await;
    socket.send("w", "agent.wait", json!({"runId": "b"})).await;
    // Requests are read in order, so this one follows the wait.
    socket.ask("h", "health", json!({})).await;
    gateway.hub.lifecycle().drain(Duration::ZERO).await;
    let mut ended = BTreeSet::new();
    let mut waited = None;
    while ended.len() < 2 || waited.is_none() {
        let frame = socket.next().await;
        if frame["event"] == "chat" && frame["payload"]["state"] != "delta" {
            ended.insert(frame["payload"]["runId"].as_str().unwrap().to_owned());
        }
        if frame["id"] == "w" {
            waited = Some(frame["payload"].clone());
        }
        frames.push(frame);
    }
    let why = "gateway_draining: the gateway is stopping; the run continues after the restart";
    assert_eq!(waited, Some(json!({"runId": "b", "status": "error", "error": why})));
    let ends = check_invariants(&frames);
    assert!(ends.values().all(|end| end["state"] == "error" && end["errorMessage"] == why), "{ends:?}");
    let refused = socket.ask("c", "chat.send", message("c")).await;
    assert_eq!((&refused["error"]["code"], &refused["error"]["retryable"]), (&json!("UNAVAILABLE"), &json!(true)));
    assert!(refused["error"]["message"].as_str().unwrap().starts_with("gateway_draining"), "{refused}");
}
