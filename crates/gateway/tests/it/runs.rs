//! Runs as clients see them: two responses, ordered events, duplicate requests, and clients that connect, disconnect
//! and do not read.

use std::{sync::Arc, time::Duration};

use futures_util::{StreamExt, stream};
use homard_agent::{Outcome, hub::WaitResult};
use homard_model::{Error as ModelError, ErrorKind, ModelEvent};
use homard_proto::{RunId, SessionId, SessionKey, message::StopReason, session::Record};
use homard_store::{Error as StoreError, Fence, MemoryStore, Rec, StoreWriter};
use serde_json::{Value, json};
use tokio::{sync::Semaphore, time::Instant};

use crate::{
    exchange::{is_end, until},
    support::{BatchCheck, FaultyMemoryStore, Script, TestClient, TestGateway, done, says, waits},
};

const PATIENCE: Duration = Duration::from_secs(20);

fn message(run: &str) -> Value {
    json!({"message": "x", "agentId": "main", "idempotencyKey": run})
}

/// Returns the frames up to and including the second response to `id`.
async fn until_response(socket: &mut TestClient, id: &str) -> Vec<Value> {
    let mut frames = Vec::new();
    loop {
        let frame = socket.next().await;
        let is_last = frame["type"] == "res" && frame["id"] == id;
        frames.push(frame);
        if is_last {
            return frames;
        }
    }
}

/// Content of `agent` events, without timestamps.
fn agent_events(frames: &[Value]) -> Vec<Value> {
    let events = frames.iter().filter(|frame| frame["event"] == "agent").map(|frame| &frame["payload"]);
    let summary = |payload: &Value| match payload["stream"].as_str().unwrap() {
        "lifecycle" => payload["data"]["phase"].clone(),
        _ => json!([payload["data"]["delta"], payload["data"]["text"]]),
    };
    events.map(summary).collect()
}

fn numbers(frames: &[Value], member: impl Fn(&Value) -> Option<u64>) -> Vec<u64> {
    frames.iter().filter(|frame| frame["type"] == "event").filter_map(member).collect()
}

#[tokio::test]
async fn a_run_is_accepted_streamed_and_answered_in_order() {
    for protocol in [3, 4] {
        let gate = Arc::new(Semaphore::new(0));
        let gateway = TestGateway::new(waits(&gate)).await;
        let mut socket = gateway.client(protocol, json!({})).await;
        let accepted = socket.ask("a", "agent", message("k")).await;
        let mut expected = json!({"runId": "k", "status": "accepted", "acceptedAt": accepted["payload"]["acceptedAt"]});
        if protocol == 4 {
            expected["sessionKey"] = "agent:main:main".into();
            expected["agentId"] = "main".into();
        }
        expected["disposition"] = "started".into();
        assert_eq!((&accepted["payload"], &accepted["ok"]), (&expected, &json!(true)));
        assert!(accepted["payload"]["acceptedAt"].is_u64());
        let mut frames = vec![socket.next().await, socket.next().await, socket.next().await];
        // The first text is published at once; only now may the model continue.
        assert_eq!(agent_events(&frames), [json!("start"), json!(["hello", "hello"])]);
        gate.add_permits(1);
        frames.extend(until_response(&mut socket, "a").await);
        assert_eq!(
            agent_events(&frames),
            [json!("start"), json!(["hello", "hello"]), json!([" world", "hello world"]), json!("end")]
        );
        // The `chat` events have the same sequence numbers.
        assert_eq!(numbers(&frames, |frame| frame["payload"]["seq"].as_u64()), [1, 2, 2, 3, 3, 4, 4]);
        assert_eq!(numbers(&frames, |frame| frame["seq"].as_u64()), [2, 3, 4, 5, 6, 7, 8]);
        let last = frames.last().unwrap();
        assert_eq!(last["ok"], true);
        assert_eq!(last["payload"]["status"], "ok");
        assert_eq!(last["payload"]["result"]["payloads"], json!([{"text": "hello world", "mediaUrl": null}]));
    }
}

#[tokio::test]
async fn a_failed_model_is_reported_per_protocol_version() {
    let fails: Script = Arc::new(|_| {
        let error = ModelError::new(ErrorKind::Rejected, "400 no such model");
        stream::iter([ModelEvent::Failed(error)]).boxed()
    });
    let gateway = TestGateway::new(fails).await;
    let mut old = gateway.client(3, json!({})).await;
    old.ask("a", "agent", message("k3")).await;
    let frames = until_response(&mut old, "a").await;
    assert_eq!(agent_events(&frames), ["start", "error"]);
    assert_eq!(frames.last().unwrap()["ok"], true);
    assert_eq!(frames.last().unwrap()["payload"]["result"]["payloads"][0]["isError"], true);
    let mut new = gateway.client(4, json!({})).await;
    new.ask("a", "agent", message("k4")).await;
    let frames = until_response(&mut new, "a").await;
    let last = frames.last().unwrap();
    assert_eq!((&last["ok"], &last["error"]["code"]), (&json!(false), &json!("UNAVAILABLE")));
    assert_eq!(last["payload"]["status"], "error");
    assert_eq!(last["payload"]["summary"], last["error"]["message"]);
}

// Pitfall 100.
#[tokio::test]
async fn the_same_request_never_runs_twice() {
    for protocol in [3, 4] {
        let gate = Arc::new(Semaphore::new(0));
        let gateway = TestGateway::new(waits(&gate)).await;
        let mut socket = gateway.client(protocol, json!({})).await;
        let mut other = gateway.client(protocol, json!({})).await;
        let first = socket.ask("a", "agent", message("k")).await;
        let again = other.ask("b", "agent", message("k")).await;
        if protocol == 3 {
            // Only the first response contains the disposition.
            let mut expected = first["payload"].clone();
            assert_eq!(expected.as_object_mut().unwrap().remove("disposition"), Some(json!("started")));
            assert_eq!(again["payload"], expected);
        } else {
            let in_flight =
                json!({"runId": "k", "status": "in_flight", "sessionKey": "agent:main:main", "agentId": "main"});
            assert_eq!(again["payload"], in_flight);
        }
        let mut changed = message("k");
        changed["message"] = "y".into();
        let conflict = other.ask("c", "agent", changed).await;
        assert_eq!(conflict["error"]["code"], "INVALID_REQUEST");
        assert!(conflict["error"]["message"].as_str().unwrap().contains('k'));
        gate.add_permits(1);
        let last = socket.answer("a").await;
        if protocol == 3 {
            assert_eq!(other.answer("b").await["payload"], last["payload"]);
        }
        let later = other.ask("d", "agent", message("k")).await;
        assert_eq!((&later["ok"], &later["payload"]), (&json!(true), &last["payload"]));
        let history = other.ask("e", "chat.history", json!({"sessionKey": "main"})).await;
        assert_eq!(history["payload"]["messages"].as_array().unwrap().len(), 2);
    }
}

#[tokio::test]
async fn invalid_agent_params_are_named() {
    let gateway = TestGateway::new(says(&["hi"])).await;
    let mut socket = gateway.client(3, json!({})).await;
    for (params, why) in [
        (json!({"message": "x"}), "must have required property 'idempotencyKey'"),
        (json!({"idempotencyKey": "a"}), "must have required property 'message'"),
        (json!({"message": "", "idempotencyKey": "a"}), "at /message: must NOT have fewer than 1 characters"),
        (json!({"message": "x", "agentId": "ghost", "idempotencyKey": "a"}), "unknown agent id \"ghost\""),
        (json!({"message": "x", "channel": "pigeon", "idempotencyKey": "a"}), "unknown channel: pigeon"),
        (json!({"message": "x", "foo": 1, "idempotencyKey": "a"}), "at root: unexpected property 'foo'"),
        (
            json!({"message": "x", "agentId": "main", "sessionKey": "agent:other:main", "idempotencyKey": "a"}),
            "agent \"main\" does not match session key agent \"other\"",
        ),
    ] {
        let answer = socket.ask("a", "agent", params).await;
        assert_eq!(
            answer["error"],
            json!({"code": "INVALID_REQUEST", "message": format!("invalid agent params: {why}")})
        );
    }
}

#[tokio::test]
async fn a_session_with_a_deny_policy_rejects_messages() {
    let store = MemoryStore::default();
    let key = SessionKey::parse("shut", &homard_proto::AgentId::main()).unwrap();
    let mut record = Record::new(SessionId::parse("s").unwrap(), 1);
    record.send_policy = Some("deny".to_owned());
    let patch = Rec::Patch { run: None, key, expect: None, record: Box::new(record) };
    store.commit(&Fence::default(), vec![patch]).await.unwrap();
    let gateway = TestGateway::with_store(Arc::new(store), says(&["hi"])).await;
    let mut socket = gateway.client(4, json!({})).await;
    let params = json!({"message": "x", "sessionKey": "shut", "idempotencyKey": "k"});
    assert_eq!(
        socket.ask("a", "agent", params).await["error"],
        json!({"code": "INVALID_REQUEST", "message": "send blocked by session policy"})
    );
}

#[tokio::test]
async fn waiting_does_not_block_other_requests() {
    for protocol in [3, 4] {
        let gate = Arc::new(Semaphore::new(0));
        let gateway = TestGateway::new(waits(&gate)).await;
        let mut socket = gateway.client(protocol, json!({})).await;
        let timeout = |run: &str| json!({"runId": run, "status": "timeout"});
        let unknown = socket.ask("w0", "agent.wait", json!({"runId": "nope", "timeoutMs": 1})).await;
        assert_eq!(unknown["payload"], timeout("nope"));
        socket.ask("a", "agent", message("k")).await;
        assert_eq!(socket.next().await["payload"]["data"]["phase"], "start");
        socket.send("w1", "agent.wait", json!({"runId": "k"})).await;
        let now = socket.ask("w2", "agent.wait", json!({"runId": "k", "timeoutMs": 0})).await;
        assert_eq!(now["payload"], timeout("k"));
        assert_eq!(socket.ask("h", "health", json!({})).await["ok"], true);
        gate.add_permits(1);
        let ended = socket.answer("w1").await["payload"].take();
        // Again, now from the store.
        let later = socket.ask("w3", "agent.wait", json!({"runId": "k", "timeoutMs": 1000})).await;
        assert_eq!(later["payload"], ended);
        let result = json!({"payloads": [{"text": "hello world", "mediaUrl": null}]});
        let (started_at, ended_at) = (&ended["startedAt"], &ended["endedAt"]);
        assert!(started_at.is_u64() && ended_at.is_u64(), "{ended}");
        let mut expected =
            json!({"runId": "k", "status": "ok", "startedAt": started_at, "endedAt": ended_at, "result": result});
        if protocol == 4 {
            expected["stopReason"] = "stop".into();
        }
        assert_eq!(ended, expected);
    }
}

#[tokio::test]
async fn a_run_that_waits_for_its_turn_is_pending_for_protocol_four() {
    let gate = Arc::new(Semaphore::new(0));
    let gateway = TestGateway::new(waits(&gate)).await;
    let mut new = gateway.client(4, json!({})).await;
    let mut old = gateway.client(3, json!({})).await;
    new.ask("a", "agent", message("first")).await;
    new.ask("b", "agent", message("second")).await;
    let wait = json!({"runId": "second", "timeoutMs": 0});
    let pending = json!({"runId": "second", "status": "pending", "timeoutPhase": "queue", "providerStarted": false});
    assert_eq!(new.ask("w", "agent.wait", wait.clone()).await["payload"], pending);
    assert_eq!(old.ask("w", "agent.wait", wait).await["payload"], json!({"runId": "second", "status": "timeout"}));
    gate.add_permits(2);
    assert_eq!(new.answer("a").await["payload"]["status"], "ok");
    assert_eq!(new.answer("b").await["payload"]["status"], "ok");
}

#[tokio::test]
async fn too_many_open_requests_are_refused_one_by_one() {
    let gateway = TestGateway::new(says(&["hi"])).await;
    let mut socket = gateway.client(4, json!({})).await;
    for n in 0..256 {
        socket.send(&format!("w{n}"), "agent.wait", json!({"runId": "nope", "timeoutMs": 60_000})).await;
    }
    let refused = socket.ask("h", "health", json!({})).await;
    assert_eq!((&refused["error"]["code"], &refused["error"]["retryable"]), (&json!("UNAVAILABLE"), &json!(true)));
    let mut other = gateway.client(4, json!({})).await;
    assert_eq!(other.ask("h", "health", json!({})).await["ok"], true);
}

#[tokio::test]
async fn all_clients_receive_the_same_events() {
    let gateway = TestGateway::new(says(&["one ", "two ", "three"])).await;
    let mut starter = gateway.client(4, json!({})).await;
    let mut other = gateway.client(4, json!({})).await;
    let mut old = gateway.client(3, json!({})).await;
    starter.ask("a", "agent", message("k")).await;
    let frames = until_response(&mut starter, "a").await;
    let events = &frames[..frames.len() - 1];
    let mut received = Vec::new();
    for _ in events {
        received.push(other.next().await);
    }
    assert_eq!(received, events);
    // `chat` deltas are throttled differently per protocol version; `agent` events are not.
    let older = until(&mut old, |frame| is_end(frame, "k")).await;
    assert_eq!(agent_events(&older), agent_events(events));
    assert_eq!(older.last().unwrap()["payload"], events.last().unwrap()["payload"]);
    assert_eq!(agent_events(events).last(), Some(&json!("end")));
}

/// Streams a hundred texts at once for each of four permits.
fn bursts(gate: &Arc<Semaphore>) -> Script {
    let gate = gate.clone();
    Arc::new(move |_| {
        let gate = gate.clone();
        let bursts = stream::iter(0..4).then(move |round| {
            let gate = gate.clone();
            async move {
                gate.acquire().await.unwrap().forget();
                stream::iter((round * 100..(round + 1) * 100).map(|n| ModelEvent::Text(format!(" {n}"))))
            }
        });
        bursts.flatten().chain(stream::iter([done(StopReason::Stop)])).boxed()
    })
}

#[tokio::test]
async fn streamed_text_is_throttled_and_none_is_lost() {
    let gate = Arc::new(Semaphore::new(0));
    let gateway = TestGateway::new(bursts(&gate)).await;
    let mut socket = gateway.client(4, json!({})).await;
    socket.ask("a", "agent", message("k")).await;
    let started_at = Instant::now();
    let mut text_frames = Vec::new();
    for last in [" 99", " 199", " 299", " 399"] {
        // All text so far is published although the model has not continued yet.
        gate.add_permits(1);
        loop {
            let frame = socket.next().await;
            let text = frame["payload"]["data"]["text"].as_str().unwrap_or_default().to_owned();
            text_frames.extend(Some(frame).filter(|frame| frame["payload"]["stream"] == "assistant"));
            if text.ends_with(last) {
                break;
            }
        }
    }
    // At most every 50 ms, besides the first ones and those before the end.
    let intervals = started_at.elapsed().as_millis() as usize / 50;
    assert!(text_frames.len() <= intervals + 2, "{} in {intervals} beats", text_frames.len());
    let text_received: String =
        text_frames.iter().map(|frame| frame["payload"]["data"]["delta"].as_str().unwrap()).collect();
    assert_eq!(text_received, (0..400).map(|n| format!(" {n}")).collect::<String>().trim_start());
    assert_eq!(text_frames.last().unwrap()["payload"]["data"]["text"], text_received);
    let frames = until_response(&mut socket, "a").await;
    assert_eq!(agent_events(&frames), ["end"]);
    assert_eq!(frames.last().unwrap()["payload"]["result"]["payloads"][0]["text"], text_received);
}

#[tokio::test]
async fn a_run_continues_when_its_client_disconnects() {
    let gate = Arc::new(Semaphore::new(0));
    let gateway = TestGateway::new(waits(&gate)).await;
    let mut socket = gateway.client(4, json!({})).await;
    socket.ask("a", "agent", message("k")).await;
    drop(socket);
    let mut other = gateway.client(4, json!({})).await;
    other.send("w", "agent.wait", json!({"runId": "k"})).await;
    gate.add_permits(1);
    assert_eq!(other.answer("w").await["payload"]["status"], "ok");
    assert_eq!(other.ask("b", "agent", message("k")).await["payload"]["status"], "ok");
}

// Pitfall 65.
#[tokio::test]
async fn a_client_that_does_not_read_is_disconnected_and_its_run_finishes() {
    // More than all buffers between gateway and client hold.
    let script: Script =
        Arc::new(|_| stream::iter([ModelEvent::Text("x".repeat(12 << 20)), done(StopReason::Stop)]).boxed());
    let gateway = TestGateway::new(script).await;
    let mut other_client = gateway.client(3, json!({"scopes": ["operator.pairing"]})).await;
    let mut socket = gateway.client(3, json!({})).await;
    socket.send("a", "agent", message("k")).await;
    let run = RunId::parse("k").unwrap();
    let waited = gateway.hub.runs().wait(&run, PATIENCE).await.unwrap();
    let WaitResult::Ended(report) = waited else { panic!("{waited:?}") };
    assert_eq!(report.outcome(), &Outcome::Done);
    let (frames, close) = socket.read_to_close().await;
    assert!(!agent_events(&frames).contains(&json!("end")));
    assert!(close.is_none_or(|close| close == (1008, "slow consumer".to_owned())));
    assert_eq!(other_client.ask("h", "health", json!({})).await["error"]["message"], "missing scope: operator.read");
}

#[tokio::test]
async fn an_end_that_was_not_stored_is_not_published_but_the_caller_is_answered() {
    let full: BatchCheck = |batch| {
        let ends = batch.iter().any(|rec| matches!(rec, Rec::Terminal { .. }));
        if ends { Err(StoreError::Disk("the disk is full".to_owned())) } else { Ok(()) }
    };
    let store = FaultyMemoryStore { before: full, ..FaultyMemoryStore::default() };
    let gateway = TestGateway::with_store(Arc::new(store), says(&["hi"])).await;
    let mut socket = gateway.client(3, json!({})).await;
    socket.ask("a", "agent", message("k")).await;
    let frames = until_response(&mut socket, "a").await;
    assert_eq!(agent_events(&frames), [json!("start"), json!(["hi", "hi"])]);
    let last = frames.last().unwrap();
    assert_eq!(last["error"], json!({"code": "UNAVAILABLE", "message": "the disk is full"}));
    assert_eq!(last["payload"], json!({"runId": "k", "status": "error", "summary": "the disk is full"}));
}
