//! `chat.send` to an idle agent, its events, and aborts.

use std::{sync::Arc, time::Duration};

use futures_util::{StreamExt, stream};
use homard_model::{Error as ModelError, ErrorKind, ModelEvent, stream::CallDelta};
use homard_proto::{AgentId, SessionId, SessionKey, message::StopReason, session::Record};
use homard_store::{Fence, MemoryStore, Rec, StoreWriter};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::{
    exchange::{check_invariants, is_end, lines, text, until},
    support::{Script, TestClient, TestGateway, done, says, waits},
};

/// Every delta repeats the whole text, so these exceed all buffers between gateway and client.
const ROUNDS: usize = 24;
const ROUND: usize = 64 << 10;

fn message(run: &str, text: &str) -> Value {
    json!({"sessionKey": "main", "message": text, "idempotencyKey": run})
}

/// Expected response to a message that starts at once.
fn started(run: &str) -> Value {
    json!({"runId": run, "status": "started", "disposition": "started"})
}

/// OpenClaw's TUI must have processed the response before it receives the run's end.
#[tokio::test]
async fn older_clients_and_the_tui_get_run_events_after_a_short_pause() {
    let tui = json!({"id": "openclaw-tui", "mode": "ui", "version": "1", "platform": "linux"});
    for (protocol, change) in [(3, json!({})), (4, json!({"client": tui}))] {
        let gateway = TestGateway::new(says(&["at once"])).await;
        let mut socket = gateway.client(protocol, change).await;
        let sent_at = tokio::time::Instant::now();
        socket.send("r1", "chat.send", message("k", "hello")).await;
        let frames = until(&mut socket, |frame| frame["event"] == "agent").await;
        assert_eq!(lines(&frames), ["r1 true", "agent k 1 lifecycle start"]);
        assert!(sent_at.elapsed() >= Duration::from_millis(50), "its run was told after {:?}", sent_at.elapsed());
    }
}

#[tokio::test]
async fn a_message_below_a_replaced_transcript_is_rejected() {
    let gateway = TestGateway::new(says(&["hello"])).await;
    let mut socket = gateway.client(4, json!({})).await;
    let load_history = async |socket: &mut TestClient| {
        let history = socket.ask("h", "chat.history", json!({"sessionKey": "main"})).await["payload"].clone();
        (history["sessionId"].clone(), history["sessionInfo"]["activeLeafEntryId"].clone(), history["messages"].clone())
    };
    let send_below = |run: &str, session: &Value, leaf: &Value| {
        let mut params = message(run, "go on");
        params["sessionId"] = session.clone();
        params["expectedLeafEntryId"] = leaf.clone();
        params
    };
    socket.send("r1", "chat.send", message("k1", "hello")).await;
    until(&mut socket, |frame| is_end(frame, "k1")).await;
    let (first, leaf, messages) = load_history(&mut socket).await;
    assert_eq!(leaf, messages[1]["__openclaw"]["id"]);
    // Newer entries may exist below the one that the sender saw.
    for (run, leaf) in [("k2", &leaf), ("k3", &leaf), ("k4", &Value::Null)] {
        let sent = socket.ask(run, "chat.send", send_below(run, &first, leaf)).await;
        assert_eq!(sent["payload"], started(run));
        until(&mut socket, |frame| is_end(frame, run)).await;
    }
    socket.ask("r2", "sessions.reset", json!({"key": "main"})).await;
    for (run, leaf) in [("k5", &leaf), ("k6", &Value::Null)] {
        let refused = socket.ask(run, "chat.send", send_below(run, &first, leaf)).await;
        assert_eq!(refused["error"]["details"], json!({"reason": "active-leaf-changed"}), "{refused}");
    }
    let (second, leaf, messages) = load_history(&mut socket).await;
    assert_eq!((&leaf, &messages), (&Value::Null, &json!([])));
    let sent = socket.ask("r3", "chat.send", send_below("k5", &second, &leaf)).await;
    assert_eq!(sent["payload"], started("k5"));
    let wrong = socket.ask("r4", "chat.send", send_below("k7", &second, &json!(7))).await;
    assert_eq!(wrong["error"]["message"], "invalid chat.send params: at /expectedLeafEntryId: must be string,null");
}

#[tokio::test]
async fn a_message_is_acknowledged_streamed_and_finished() {
    for protocol in [3, 4] {
        let gate = Arc::new(Semaphore::new(0));
        let gateway = TestGateway::new(waits(&gate)).await;
        let mut socket = gateway.client(protocol, json!({})).await;
        let mut other = gateway.client(protocol, json!({})).await;
        socket.send("r1", "chat.send", message("k", "hello")).await;
        let mut frames = until(&mut socket, |frame| frame["event"] == "chat").await;
        assert_eq!(frames[0]["payload"], started("k"));
        let again = other.ask("r2", "chat.send", message("k", "hello")).await;
        assert_eq!(again["payload"], json!({"runId": "k", "status": "in_flight"}));
        gate.add_permits(1);
        frames.extend(until(&mut socket, |frame| is_end(frame, "k")).await);
        assert_eq!(
            lines(&frames),
            [
                "r1 true",
                "agent k 1 lifecycle start",
                "agent k 2 assistant +\"hello\"",
                "chat k 2 delta +\"hello\" =\"hello\"",
                "agent k 3 assistant +\" world\"",
                "chat k 3 delta +\" world\" =\"hello world\"",
                "agent k 4 lifecycle end",
                "chat k 4 final =\"hello world\" because \"stop\"",
            ]
        );
        let last = check_invariants(&frames).remove("k").unwrap();
        let timestamp = &last["message"]["timestamp"];
        assert!(timestamp.is_u64());
        assert_eq!(
            last,
            json!({
                "runId": "k", "sessionKey": "agent:main:main", "agentId": "main", "seq": 4, "state": "final",
                "stopReason": "stop",
                "message": {
                    "role": "assistant", "content": [{"type": "text", "text": "hello world"}], "timestamp": timestamp,
                },
            })
        );
        let later = other.ask("r3", "chat.send", message("k", "hello")).await;
        assert_eq!((&later["ok"], &later["payload"]), (&json!(true), &json!({"runId": "k", "status": "ok"})));
        let waited = other.ask("r4", "agent.wait", json!({"runId": "k", "timeoutMs": 500})).await;
        assert_eq!(waited["payload"]["status"], "ok");
        let blank = other.ask("r5", "chat.send", message("e", "  ")).await;
        assert_eq!(blank["error"], json!({"code": "INVALID_REQUEST", "message": "message or attachment required"}));
    }
}

#[tokio::test]
async fn the_end_of_an_agent_run_is_published_before_its_final_response() {
    for protocol in [3, 4] {
        let gateway = TestGateway::new(says(&["hi"])).await;
        let mut socket = gateway.client(protocol, json!({})).await;
        let params = json!({"message": "x", "sessionKey": "main", "idempotencyKey": "k"});
        let accepted = socket.ask("a", "agent", params).await;
        assert_eq!(accepted["payload"]["disposition"], "started");
        let frames = until(&mut socket, |frame| frame["id"] == "a").await;
        check_invariants(&frames);
        assert_eq!(
            lines(&frames),
            [
                "agent k 1 lifecycle start",
                "agent k 2 assistant +\"hi\"",
                "chat k 2 delta +\"hi\" =\"hi\"",
                "agent k 3 lifecycle end",
                "chat k 3 final =\"hi\" because \"stop\"",
                "a true",
            ]
        );
    }
}

#[tokio::test]
async fn text_before_a_tool_call_is_kept() {
    let script: Script = Arc::new(|answer| {
        if answer > 0 {
            return stream::iter([ModelEvent::Text("Done.".to_owned()), done(StopReason::Stop)]).boxed();
        }
        let (id, name) = (Some("call-1".to_owned()), Some("echo".to_owned()));
        let call = CallDelta { index: 0, id, name, arguments: "{}".to_owned() };
        let text_event = ModelEvent::Text("Let me look.".to_owned());
        stream::iter([text_event, ModelEvent::Call(call), done(StopReason::ToolUse)]).boxed()
    });
    for protocol in [3, 4] {
        let gateway = TestGateway::new(script.clone()).await;
        let mut socket = gateway.client(protocol, json!({})).await;
        socket.send("r", "chat.send", message("k", "x")).await;
        let frames = until(&mut socket, |frame| is_end(frame, "k")).await;
        let chat: Vec<_> =
            frames.iter().filter(|frame| frame["event"] == "chat").map(|frame| &frame["payload"]).collect();
        let states: Vec<_> =
            chat.iter().map(|payload| (payload["state"].as_str().unwrap(), text(payload).unwrap())).collect();
        assert_eq!(
            states,
            [("delta", "Let me look."), ("delta", "Let me look.\n\nDone."), ("final", "Let me look.\n\nDone."),]
        );
        check_invariants(&frames);
        // The client that starts a run receives its tool events, as with `agent`.
        let tools = frames.iter().filter(|frame| frame["payload"]["stream"] == "tool").count();
        assert_eq!(tools, if protocol == 4 { 3 } else { 0 });
    }
}

#[tokio::test]
async fn a_failed_model_ends_the_conversation_with_an_error() {
    let fails: Script = Arc::new(|_| {
        let error = ModelError::new(ErrorKind::Rejected, "400 no such model");
        stream::iter([ModelEvent::Failed(error)]).boxed()
    });
    for protocol in [3, 4] {
        let gateway = TestGateway::new(fails.clone()).await;
        let mut socket = gateway.client(protocol, json!({})).await;
        socket.send("r", "chat.send", message("k", "x")).await;
        let frames = until(&mut socket, |frame| is_end(frame, "k")).await;
        let last = check_invariants(&frames).remove("k").unwrap();
        assert_eq!((&last["state"], &last["seq"], last.get("message")), (&json!("error"), &json!(2), None));
        let why = last["errorMessage"].clone();
        assert!(why.as_str().unwrap().contains("no such model"), "{why}");
        let again = socket.ask("r2", "chat.send", message("k", "x")).await;
        if protocol == 3 {
            assert_eq!(again["payload"], json!({"runId": "k", "status": "ok"}));
        } else {
            assert_eq!(again["payload"], json!({"runId": "k", "status": "error", "summary": why}));
            assert_eq!(again["error"], json!({"code": "UNAVAILABLE", "message": why}));
        }
    }
}

/// Case 169, case 170, pitfall 66.
#[tokio::test]
async fn the_end_of_an_aborted_run_is_published_before_the_abort_response() {
    for protocol in [3, 4] {
        let gateway = TestGateway::new(waits(&Arc::new(Semaphore::new(0)))).await;
        let mut socket = gateway.client(protocol, json!({})).await;
        let abort = |key: &str| json!({"sessionKey": key, "runId": "k"});
        socket.send("r1", "chat.send", message("k", "x")).await;
        let mut frames = until(&mut socket, |frame| frame["event"] == "chat").await;
        if protocol == 3 {
            let mismatch = socket.ask("r2", "chat.abort", abort("other")).await;
            assert_eq!(
                mismatch["error"],
                json!({"code": "INVALID_REQUEST", "message": "runId does not match sessionKey"})
            );
        }
        let key = if protocol == 3 { "main" } else { "other" };
        socket.send("r3", "chat.abort", abort(key)).await;
        let ending = until(&mut socket, |frame| frame["id"] == "r3").await;
        assert_eq!(
            lines(&ending),
            ["agent k 3 lifecycle end", "chat k 3 aborted =\"hello\" because \"rpc\"", "r3 true"]
        );
        assert_eq!(ending.last().unwrap()["payload"], json!({"ok": true, "aborted": true, "runIds": ["k"]}));
        frames.extend(ending);
        check_invariants(&frames);
        let not_aborted = json!({"ok": true, "aborted": false, "runIds": []});
        assert_eq!(socket.ask("r4", "chat.abort", abort("main")).await["payload"], not_aborted);
        let again = socket.ask("r5", "chat.send", message("k", "x")).await;
        let ended_at = again["payload"]["endedAt"].clone();
        if protocol == 3 {
            assert_eq!(again["payload"], json!({"runId": "k", "status": "ok"}));
        } else {
            assert!(ended_at.is_u64());
            assert_eq!(
                again["payload"],
                json!({
                    "runId": "k", "status": "timeout", "summary": "aborted", "stopReason": "rpc", "endedAt": ended_at,
                })
            );
        }
        let waited = socket.ask("r6", "agent.wait", json!({"runId": "k", "timeoutMs": 500})).await;
        assert_eq!((&waited["payload"]["status"], &waited["payload"]["error"]), (&json!("error"), &json!("aborted")));
    }
}

#[tokio::test]
async fn a_run_that_times_out_is_reported_as_such() {
    let gateway = TestGateway::new(waits(&Arc::new(Semaphore::new(0)))).await;
    let mut socket = gateway.client(4, json!({})).await;
    let mut params = message("k", "x");
    params["timeoutMs"] = 50.into();
    socket.send("r", "chat.send", params).await;
    let frames = until(&mut socket, |frame| is_end(frame, "k")).await;
    let last = check_invariants(&frames).remove("k").unwrap();
    assert_eq!((&last["state"], &last["stopReason"]), (&json!("aborted"), &json!("timeout")));
}

#[tokio::test]
async fn stop_commands_start_no_run() {
    for (protocol, stop_command) in [(3, "/stop"), (3, "stop"), (4, " /STOP"), (4, "Esc")] {
        let gateway = TestGateway::new(waits(&Arc::new(Semaphore::new(0)))).await;
        let mut socket = gateway.client(protocol, json!({})).await;
        socket.send("r1", "chat.send", message("k", "x")).await;
        let mut frames = until(&mut socket, |frame| frame["event"] == "chat").await;
        socket.send("r2", "chat.send", message("s", stop_command)).await;
        let ending = until(&mut socket, |frame| frame["id"] == "r2").await;
        assert_eq!(
            lines(&ending),
            ["agent k 3 lifecycle end", "chat k 3 aborted =\"hello\" because \"stop\"", "r2 true"]
        );
        assert_eq!(ending.last().unwrap()["payload"], json!({"ok": true, "aborted": true, "runIds": ["k"]}));
        frames.extend(ending);
        assert_eq!(check_invariants(&frames).into_keys().collect::<Vec<_>>(), ["k"]);
        let waited = socket.ask("r3", "agent.wait", json!({"runId": "s", "timeoutMs": 0})).await;
        assert_eq!(waited["payload"], json!({"runId": "s", "status": "timeout"}));
    }
}

#[tokio::test]
async fn a_stop_word_is_a_message_when_no_run_is_active() {
    for protocol in [3, 4] {
        let gateway = TestGateway::new(says(&["ok"])).await;
        let mut socket = gateway.client(protocol, json!({})).await;
        let not_aborted = json!({"ok": true, "aborted": false, "runIds": []});
        assert_eq!(socket.ask("r1", "chat.send", message("s", "/stop")).await["payload"], not_aborted);
        socket.send("r2", "chat.send", message("w", "wait")).await;
        let frames = until(&mut socket, |frame| is_end(frame, "w")).await;
        assert_eq!(frames[0]["payload"], started("w"));
        assert_eq!(text(&check_invariants(&frames)["w"]), Some("ok"));
        let history = socket.ask("r3", "chat.history", json!({"sessionKey": "main"})).await;
        assert_eq!(history["payload"]["messages"][0]["content"][0]["text"], "wait");
    }
}

#[tokio::test]
async fn a_repeated_stop_word_does_not_stop_its_own_run() {
    let gate = Arc::new(Semaphore::new(0));
    let gateway = TestGateway::new(waits(&gate)).await;
    let mut socket = gateway.client(4, json!({})).await;
    socket.ask("r1", "chat.send", message("w", "wait")).await;
    let again = socket.ask("r2", "chat.send", message("w", "wait")).await;
    assert_eq!(again["payload"], json!({"runId": "w", "status": "in_flight"}));
    gate.add_permits(1);
    assert_eq!(socket.ask("r3", "agent.wait", json!({"runId": "w"})).await["payload"]["status"], "ok");
}

#[tokio::test]
async fn a_session_with_a_deny_policy_rejects_stop_too() {
    let store = MemoryStore::default();
    let key = SessionKey::parse("shut", &AgentId::main()).unwrap();
    let mut record = Record::new(SessionId::parse("s").unwrap(), 1);
    record.send_policy = Some("deny".to_owned());
    let patch = Rec::Patch { run: None, key, expect: None, record: Box::new(record) };
    store.commit(&Fence::default(), vec![patch]).await.unwrap();
    let gateway = TestGateway::with_store(Arc::new(store), says(&["hi"])).await;
    let mut socket = gateway.client(3, json!({})).await;
    for text in ["hello", "/stop"] {
        let params = json!({"sessionKey": "shut", "message": text, "idempotencyKey": text});
        assert_eq!(
            socket.ask("r", "chat.send", params).await["error"],
            json!({"code": "INVALID_REQUEST", "message": "send blocked by session policy"})
        );
    }
}

#[tokio::test]
async fn commands_are_answered_while_a_run_streams() {
    for protocol in [3, 4] {
        let gate = Arc::new(Semaphore::new(0));
        let gateway = TestGateway::new(waits(&gate)).await;
        let mut socket = gateway.client(protocol, json!({})).await;
        socket.send("r", "chat.send", message("k", "x")).await;
        let mut frames = until(&mut socket, |frame| frame["event"] == "chat").await;
        for (command, fragment) in [("/status", "scripted"), ("/queue", "steer"), ("/help", "/stop")] {
            socket.send(command, "chat.send", message(command, command)).await;
            let answer = until(&mut socket, |frame| is_end(frame, command)).await;
            assert_eq!(answer[0]["payload"], started(command));
            let chat: Vec<_> = answer.iter().filter(|frame| frame["event"] == "chat").collect();
            assert_eq!(chat.len(), 1);
            let last = &chat[0]["payload"];
            assert_eq!((&last["state"], &last["seq"]), (&json!("final"), &json!(1)));
            assert_eq!(
                (&last["message"]["stopReason"], &last["message"]["usage"]["totalTokens"]),
                (&json!("stop"), &json!(0))
            );
            assert!(text(last).unwrap().contains(fragment), "{last}");
            frames.extend(answer);
        }
        gate.add_permits(1);
        frames.extend(until(&mut socket, |frame| is_end(frame, "k")).await);
        let ends = check_invariants(&frames);
        assert_eq!(ends.keys().collect::<Vec<_>>(), ["/help", "/queue", "/status", "k"]);
        assert_eq!(text(&ends["k"]), Some("hello world"));
        let history = socket.ask("h", "chat.history", json!({"sessionKey": "main"})).await;
        assert_eq!(history["payload"]["messages"].as_array().unwrap().len(), 2);
    }
}

/// Case 171.
#[tokio::test]
async fn a_chat_run_continues_when_its_client_disconnects() {
    let gate = Arc::new(Semaphore::new(0));
    let gateway = TestGateway::new(waits(&gate)).await;
    let mut socket = gateway.client(4, json!({})).await;
    socket.ask("r", "chat.send", message("k", "x")).await;
    drop(socket);
    let mut other = gateway.client(4, json!({})).await;
    other.send("w", "agent.wait", json!({"runId": "k"})).await;
    gate.add_permits(1);
    assert_eq!(other.answer("w").await["payload"]["status"], "ok");
    let again = other.ask("r", "chat.send", message("k", "x")).await;
    assert_eq!(again["payload"], json!({"runId": "k", "status": "ok"}));
}

#[tokio::test]
async fn a_client_that_does_not_read_does_not_block_others() {
    let gate = Arc::new(Semaphore::new(0));
    let model_gate = gate.clone();
    let script: Script = Arc::new(move |_| {
        let gate = model_gate.clone();
        let texts = stream::iter(0..ROUNDS).then(move |_| {
            let gate = gate.clone();
            async move {
                gate.acquire().await.unwrap().forget();
                ModelEvent::Text("x".repeat(ROUND))
            }
        });
        texts.chain(stream::iter([done(StopReason::Stop)])).boxed()
    });
    let gateway = TestGateway::new(script).await;
    let mut idle = gateway.client(4, json!({})).await;
    let mut socket = gateway.client(4, json!({})).await;
    socket.send("r", "chat.send", message("k", "x")).await;
    let mut frames = Vec::new();
    for round in 1..ROUNDS {
        gate.add_permits(1);
        let is_received = |frame: &Value| text(&frame["payload"]).is_some_and(|text| text.len() == round * ROUND);
        frames.extend(until(&mut socket, is_received).await);
    }
    gate.add_permits(1);
    frames.extend(until(&mut socket, |frame| is_end(frame, "k")).await);
    assert_eq!(text(&check_invariants(&frames)["k"]).unwrap().len(), ROUNDS * ROUND);
    let (frames, close) = idle.read_to_close().await;
    assert!(!frames.iter().any(|frame| is_end(frame, "k")));
    assert!(close.is_none_or(|close| close == (1008, "slow consumer".to_owned())));
}
