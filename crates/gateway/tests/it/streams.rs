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
fn speaks(gate: &Arc<Semaphore>, words: usize) -> Script {
    let gate = gate.clone();
    Arc::new(move |_| {
        let gate = gate.clone();
        let words = stream::iter(0..words).then(move |word| {
            let gate = gate.clone();
            async move {
                gate.acquire().await.unwrap().forget();
                ModelEvent::Text(format!(" {word}"))
            }
        });
        words.chain(stream::iter([done(StopReason::Stop)])).boxed()
    })
}

/// Case 183, pitfalls 63 and 64.
#[tokio::test]
async fn a_conversation_is_paced_by_its_generation_and_all_of_it_is_told_before_the_end() {
    let gate = Arc::new(Semaphore::new(0));
    let world = TestGateway::new(speaks(&gate, 40)).await;
    let mut old = world.client(3, json!({})).await;
    let mut new = world.client(4, json!({})).await;
    let before = Instant::now();
    new.send("r", "chat.send", message("k")).await;
    let mut frames = Vec::new();
    for word in 0..40 {
        gate.add_permits(1);
        let told = |frame: &Value| {
            frame["payload"]["data"]["text"].as_str().is_some_and(|text| text.ends_with(&word.to_string()))
        };
        frames.extend(until(&mut new, told).await);
    }
    frames.extend(until(&mut new, |frame| is_end(frame, "k")).await);
    let took = before.elapsed();
    let older = until(&mut old, |frame| is_end(frame, "k")).await;
    let whole: String = (0..40).map(|word| format!(" {word}")).collect();
    for (frames, pace) in [(&frames, 75), (&older, 150)] {
        let deltas = deltas(frames);
        // One at once, one per interval, and the rest before the end.
        let most = 2 + (took.as_millis() / pace) as usize;
        assert!((2..=most).contains(&deltas.len()), "{} deltas in {took:?}", deltas.len());
        assert_eq!(text(deltas.last().unwrap()), Some(whole.trim()));
        assert_eq!(text(&check_invariants(frames)["k"]), Some(whole.trim()));
    }
    assert!(took > Duration::from_millis(150), "the words came too fast to say anything: {took:?}");
}

/// Case 183: ten deltas at once.
#[tokio::test]
async fn words_that_come_together_are_told_together() {
    let words: Script = Arc::new(|_| {
        let words = (0..10).map(|word| ModelEvent::Text(format!(" {word}")));
        stream::iter(words.chain([done(StopReason::Stop)])).boxed()
    });
    for protocol in [3, 4] {
        let world = TestGateway::new(words.clone()).await;
        let mut socket = world.client(protocol, json!({})).await;
        socket.send("r", "chat.send", message("k")).await;
        let frames = until(&mut socket, |frame| is_end(frame, "k")).await;
        assert!(deltas(&frames).len() <= 2, "{:?}", deltas(&frames));
        assert_eq!(text(&check_invariants(&frames)["k"]), Some("0 1 2 3 4 5 6 7 8 9"));
    }
}

#[tokio::test]
async fn the_last_words_are_told_although_nothing_more_is_said() {
    for protocol in [3, 4] {
        let gate = Arc::new(Semaphore::new(2));
        let world = TestGateway::new(speaks(&gate, 3)).await;
        let mut socket = world.client(protocol, json!({})).await;
        socket.send("r", "chat.send", message("k")).await;
        let frames = until(&mut socket, |frame| text(&frame["payload"]) == Some("0 1")).await;
        assert!(deltas(&frames).len() <= 2);
    }
}

#[tokio::test]
async fn whoever_comes_late_hears_all_of_a_conversation_with_its_first_delta() {
    let gate = Arc::new(Semaphore::new(1));
    let world = TestGateway::new(speaks(&gate, 2)).await;
    let mut socket = world.client(4, json!({})).await;
    socket.send("r", "chat.send", message("k")).await;
    let mut frames = until(&mut socket, |frame| text(&frame["payload"]) == Some("0")).await;
    let mut late = world.client(4, json!({})).await;
    gate.add_permits(1);
    let heard = until(&mut late, |frame| is_end(frame, "k")).await;
    let first = deltas(&heard)[0];
    assert_eq!((&first["deltaText"], &first["replace"], text(first)), (&json!("0 1"), &json!(true), Some("0 1")));
    frames.extend(until(&mut socket, |frame| is_end(frame, "k")).await);
    check_invariants(&frames);
    let next = deltas(&frames)[1];
    assert_eq!((&next["deltaText"], next.get("replace")), (&json!(" 1"), None));
}

/// Calls `echo`, then answers.
fn calls_a_tool() -> Script {
    let words = says(&["done"]);
    Arc::new(move |answer| {
        if answer % 2 == 1 {
            return words(answer);
        }
        let (id, name) = (Some("call-1".to_owned()), Some("echo".to_owned()));
        let call = CallDelta { index: 0, id, name, arguments: "{}".to_owned() };
        stream::iter([ModelEvent::Call(call), done(StopReason::ToolUse)]).boxed()
    })
}

/// Cases 118 and 125: hidden events count in the sequence, and no gap is reported to clients.
#[tokio::test]
async fn steps_are_numbered_from_one_without_holes_and_those_that_are_not_told_raise_no_alarm() {
    for protocol in [3, 4] {
        let world = TestGateway::new(calls_a_tool()).await;
        let mut starter = world.client(4, json!({})).await;
        let mut other = world.client(protocol, json!({})).await;
        starter.send("r", "chat.send", message("k")).await;
        let steps = |frames: &[Value]| -> Vec<(u64, String)> {
            let told = frames.iter().filter(|frame| frame["event"] == "agent").map(|frame| &frame["payload"]);
            told.map(|payload| (payload["seq"].as_u64().unwrap(), payload["stream"].as_str().unwrap().to_owned()))
                .collect()
        };
        let whole = until(&mut starter, |frame| is_end(frame, "k")).await;
        check_invariants(&whole);
        let names = ["lifecycle", "tool", "tool", "tool", "assistant", "lifecycle"];
        let all: Vec<_> = (1..).zip(names.map(str::to_owned)).collect();
        assert_eq!(steps(&whole), all);
        let part = until(&mut other, |frame| is_end(frame, "k")).await;
        check_invariants(&part);
        assert_eq!(steps(&part), [all[0].clone(), all[4].clone(), all[5].clone()]);
    }
}

/// Case 122: a provider that does not stream.
#[tokio::test]
async fn an_answer_that_comes_at_once_is_one_step_and_one_delta() {
    let world = TestGateway::new(says(&["all of it"])).await;
    let mut socket = world.client(4, json!({})).await;
    socket.send("r", "chat.send", message("k")).await;
    let frames = until(&mut socket, |frame| is_end(frame, "k")).await;
    let words = frames.iter().filter(|frame| frame["payload"]["stream"] == "assistant");
    let words: Vec<_> = words.map(|frame| &frame["payload"]["data"]).collect();
    assert_eq!(words, [&json!({"text": "all of it", "delta": "all of it"})]);
    assert_eq!(deltas(&frames).len(), 1);
}

/// Case 126: a subscriber that disconnects.
#[tokio::test]
async fn a_client_that_breaks_off_disturbs_nobody() {
    let gate = Arc::new(Semaphore::new(0));
    let world = TestGateway::new(waits(&gate)).await;
    let mut socket = world.client(4, json!({})).await;
    let mut broken = world.client(4, json!({})).await;
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
async fn the_beginning_of_a_silent_answer_is_never_told() {
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
        let world = TestGateway::new(silent.clone()).await;
        let mut socket = world.client(protocol, json!({})).await;
        socket.send("r", "chat.send", message("k")).await;
        let mut frames = until(&mut socket, |frame| frame["payload"]["data"]["phase"] == "start").await;
        // The model is asked again several times after a silent reply.
        gate.add_permits(10);
        frames.extend(until(&mut socket, |frame| is_end(frame, "k")).await);
        let told = |frame: &Value| {
            let words = frame["payload"]["data"]["text"].as_str().or_else(|| text(&frame["payload"]));
            words.unwrap_or_default().starts_with("NO")
        };
        assert!(!frames.iter().any(told), "{frames:?}");
        gate.forget_permits(10);
    }
}
