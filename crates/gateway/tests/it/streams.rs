//! Streaming of runs: throttling, tool events, and all kinds of clients.

use std::sync::Arc;

use futures_util::{StreamExt, stream};
use homard_model::{ModelEvent, stream::CallDelta};
use homard_proto::message::StopReason;
use serde_json::{Value, json};
use tokio::{
    sync::Semaphore,
    time::{Duration, Instant},
};

use crate::{
    exchange::{check_invariants, is_end, text, until},
    support::{Script, TestGateway, done, says, waits},
};

fn message(run: &str) -> Value {
    json!({"sessionKey": "main", "message": "x", "idempotencyKey": run})
}

fn deltas(frames: &[Value]) -> Vec<&Value> {
    let chats = frames.iter().filter(|frame| frame["event"] == "chat").map(|frame| &frame["payload"]);
    chats.filter(|payload| payload["state"] == "delta").collect()
}

/// Streams a text for each permit and ends after the last.
fn gated_words(gate: &Arc<Semaphore>, count: usize) -> Script {
    let gate = gate.clone();
    Arc::new(move |_| {
        let gate = gate.clone();
        let count = stream::iter(0..count).then(move |number| {
            let gate = gate.clone();
            async move {
                gate.acquire().await.unwrap().forget();
                ModelEvent::Text(format!(" {number}"))
            }
        });
        count.chain(stream::iter([done(StopReason::Stop)])).boxed()
    })
}

/// Case 183, pitfalls 63 and 64.
#[tokio::test]
async fn chat_deltas_are_throttled_per_protocol_and_complete_at_the_end() {
    let gate = Arc::new(Semaphore::new(0));
    let gateway = TestGateway::new(gated_words(&gate, 40)).await;
    let mut old = gateway.client(3, json!({})).await;
    let mut new = gateway.client(4, json!({})).await;
    let started_at = Instant::now();
    new.send("r", "chat.send", message("k")).await;
    let mut frames = Vec::new();
    for number in 0..40 {
        gate.add_permits(1);
        let is_published = |frame: &Value| {
            frame["payload"]["data"]["text"].as_str().is_some_and(|text| text.ends_with(&number.to_string()))
        };
        frames.extend(until(&mut new, is_published).await);
    }
    frames.extend(until(&mut new, |frame| is_end(frame, "k")).await);
    let elapsed = started_at.elapsed();
    let older = until(&mut old, |frame| is_end(frame, "k")).await;
    let full_text: String = (0..40).map(|number| format!(" {number}")).collect();
    for (frames, interval_ms) in [(&frames, 75), (&older, 150)] {
        let deltas = deltas(frames);
        // One at once, one per interval, and the rest before the end.
        let max = 2 + (elapsed.as_millis() / interval_ms) as usize;
        assert!((2..=max).contains(&deltas.len()), "{} deltas in {elapsed:?}", deltas.len());
        assert_eq!(text(deltas.last().unwrap()), Some(full_text.trim()));
        assert_eq!(text(&check_invariants(frames)["k"]), Some(full_text.trim()));
    }
    assert!(elapsed > Duration::from_millis(150), "the words came too fast to say anything: {elapsed:?}");
}

/// Case 183: ten deltas at once.
#[tokio::test]
async fn text_that_arrives_together_is_sent_together() {
    let script: Script = Arc::new(|_| {
        let script = (0..10).map(|number| ModelEvent::Text(format!(" {number}")));
        stream::iter(script.chain([done(StopReason::Stop)])).boxed()
    });
    for protocol in [3, 4] {
        let gateway = TestGateway::new(script.clone()).await;
        let mut socket = gateway.client(protocol, json!({})).await;
        socket.send("r", "chat.send", message("k")).await;
        let frames = until(&mut socket, |frame| is_end(frame, "k")).await;
        assert!(deltas(&frames).len() <= 2, "{:?}", deltas(&frames));
        assert_eq!(text(&check_invariants(&frames)["k"]), Some("0 1 2 3 4 5 6 7 8 9"));
    }
}

#[tokio::test]
async fn the_last_text_is_sent_although_no_more_follows() {
    for protocol in [3, 4] {
        let gate = Arc::new(Semaphore::new(2));
        let gateway = TestGateway::new(gated_words(&gate, 3)).await;
        let mut socket = gateway.client(protocol, json!({})).await;
        socket.send("r", "chat.send", message("k")).await;
        let frames = until(&mut socket, |frame| text(&frame["payload"]) == Some("0 1")).await;
        assert!(deltas(&frames).len() <= 2);
    }
}

#[tokio::test]
async fn a_late_client_gets_the_full_text_with_its_first_delta() {
    let gate = Arc::new(Semaphore::new(1));
    let gateway = TestGateway::new(gated_words(&gate, 2)).await;
    let mut socket = gateway.client(4, json!({})).await;
    socket.send("r", "chat.send", message("k")).await;
    let mut frames = until(&mut socket, |frame| text(&frame["payload"]) == Some("0")).await;
    let mut late = gateway.client(4, json!({})).await;
    gate.add_permits(1);
    let late_frames = until(&mut late, |frame| is_end(frame, "k")).await;
    let first = deltas(&late_frames)[0];
    assert_eq!((&first["deltaText"], &first["replace"], text(first)), (&json!("0 1"), &json!(true), Some("0 1")));
    frames.extend(until(&mut socket, |frame| is_end(frame, "k")).await);
    check_invariants(&frames);
    let next = deltas(&frames)[1];
    assert_eq!((&next["deltaText"], next.get("replace")), (&json!(" 1"), None));
}

/// Calls `echo`, then answers.
fn calls_a_tool() -> Script {
    let final_answer = says(&["done"]);
    Arc::new(move |answer| {
        if answer % 2 == 1 {
            return final_answer(answer);
        }
        let (id, name) = (Some("call-1".to_owned()), Some("echo".to_owned()));
        let call = CallDelta { index: 0, id, name, arguments: "{}".to_owned() };
        stream::iter([ModelEvent::Call(call), done(StopReason::ToolUse)]).boxed()
    })
}

/// Cases 118 and 125: hidden events count in the sequence, and no gap is reported to clients.
#[tokio::test]
async fn events_are_numbered_without_gaps_although_some_are_not_sent() {
    for protocol in [3, 4] {
        let gateway = TestGateway::new(calls_a_tool()).await;
        let mut starter = gateway.client(4, json!({})).await;
        let mut other = gateway.client(protocol, json!({})).await;
        starter.send("r", "chat.send", message("k")).await;
        let steps = |frames: &[Value]| -> Vec<(u64, String)> {
            let events = frames.iter().filter(|frame| frame["event"] == "agent").map(|frame| &frame["payload"]);
            events
                .map(|payload| (payload["seq"].as_u64().unwrap(), payload["stream"].as_str().unwrap().to_owned()))
                .collect()
        };
        let all_frames = until(&mut starter, |frame| is_end(frame, "k")).await;
        check_invariants(&all_frames);
        let names = ["lifecycle", "tool", "tool", "tool", "assistant", "lifecycle"];
        let all: Vec<_> = (1..).zip(names.map(str::to_owned)).collect();
        assert_eq!(steps(&all_frames), all);
        let other_frames = until(&mut other, |frame| is_end(frame, "k")).await;
        check_invariants(&other_frames);
        assert_eq!(steps(&other_frames), [all[0].clone(), all[4].clone(), all[5].clone()]);
    }
}

/// Case 122: a provider that does not stream.
#[tokio::test]
async fn an_unstreamed_answer_is_one_event_and_one_delta() {
    let gateway = TestGateway::new(says(&["all of it"])).await;
    let mut socket = gateway.client(4, json!({})).await;
    socket.send("r", "chat.send", message("k")).await;
    let frames = until(&mut socket, |frame| is_end(frame, "k")).await;
    let text_events = frames.iter().filter(|frame| frame["payload"]["stream"] == "assistant");
    let text_events: Vec<_> = text_events.map(|frame| &frame["payload"]["data"]).collect();
    assert_eq!(text_events, [&json!({"text": "all of it", "delta": "all of it"})]);
    assert_eq!(deltas(&frames).len(), 1);
}

/// Case 126: a subscriber that disconnects.
#[tokio::test]
async fn a_client_that_disconnects_does_not_affect_others() {
    let gate = Arc::new(Semaphore::new(0));
    let gateway = TestGateway::new(waits(&gate)).await;
    let mut socket = gateway.client(4, json!({})).await;
    let mut broken = gateway.client(4, json!({})).await;
    socket.send("r", "chat.send", message("k")).await;
    let mut frames = until(&mut socket, |frame| frame["event"] == "chat").await;
    until(&mut broken, |frame| frame["event"] == "chat").await;
    drop(broken);
    gate.add_permits(1);
    frames.extend(until(&mut socket, |frame| is_end(frame, "k")).await);
    assert_eq!(text(&check_invariants(&frames)["k"]), Some("hello world"));
}

/// Pitfall 51: text that may become the silent-reply token is held back until it is certain.
#[tokio::test]
async fn the_beginning_of_a_silent_reply_is_never_sent() {
    let gate = Arc::new(Semaphore::new(0));
    let waiting = gate.clone();
    let silent: Script = Arc::new(move |_| {
        let gate = waiting.clone();
        let rest = stream::once(async move {
            gate.acquire().await.unwrap().forget();
            ModelEvent::Text("_REPLY".to_owned())
        });
        let first = stream::iter([ModelEvent::Text("NO".to_owned())]);
        first.chain(rest).chain(stream::iter([done(StopReason::Stop)])).boxed()
    });
    for protocol in [3, 4] {
        let gateway = TestGateway::new(silent.clone()).await;
        let mut socket = gateway.client(protocol, json!({})).await;
        socket.send("r", "chat.send", message("k")).await;
        let mut frames = until(&mut socket, |frame| frame["payload"]["data"]["phase"] == "start").await;
        // Several more model requests follow a silent reply.
        gate.add_permits(10);
        frames.extend(until(&mut socket, |frame| is_end(frame, "k")).await);
        let is_visible = |frame: &Value| {
            let shown_text = frame["payload"]["data"]["text"].as_str().or_else(|| text(&frame["payload"]));
            shown_text.unwrap_or_default().starts_with("NO")
        };
        assert!(!frames.iter().any(is_visible), "{frames:?}");
        gate.forget_permits(10);
    }
}
