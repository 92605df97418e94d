//! Many clients, and clients that do not read.

use std::sync::Arc;

use futures_util::{
    StreamExt,
    future::{join_all, try_join_all},
    stream,
};
use homard_model::ModelEvent;
use homard_proto::message::StopReason;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::{
    exchange::{check_invariants, is_end, text, until},
    support::{Script, TestClient, TestGateway, done},
};

/// Limited by the number of files that a test may open.
const CROWD: usize = 300;
/// Stays below the limit of unauthenticated connections.
const AT_ONCE: usize = 16;

/// Connects `count` clients, alternating between protocols 3 and 4.
async fn crowd(world: &TestGateway, count: usize) -> Vec<TestClient> {
    let mut crowd = Vec::new();
    while crowd.len() < count {
        let coming = crowd.len()..count.min(crowd.len() + AT_ONCE);
        crowd.extend(join_all(coming.map(|number| world.client(3 + number as u64 % 2, json!({})))).await);
    }
    crowd
}

fn message(run: &str) -> Value {
    json!({"sessionKey": run, "message": "x", "idempotencyKey": run})
}

/// Every answer is a single delta of this size.
fn says_much(bytes: usize) -> Script {
    Arc::new(move |_| stream::iter([ModelEvent::Text("x".repeat(bytes)), done(StopReason::Stop)]).boxed())
}

/// A client that stopped reading gets, when it resumes, everything queued before it was dropped, in order and without
/// gaps, and the reason.
async fn wakes(mut socket: TestClient) {
    let (frames, close) = socket.rest().await;
    check_invariants(&frames);
    // The close frame may be lost together with the socket's buffer.
    assert!(close.is_none_or(|close| close == (1008, "slow consumer".to_owned())));
}

#[tokio::test]
async fn r26_readers_that_stopped_are_given_up_on_and_those_who_read_hear_everything() {
    const STOPPED: usize = 40;
    const RUNS: usize = 10;
    const SIZE: usize = 400_000;
    let world = TestGateway::new(says_much(SIZE)).await;
    let mut stopped = crowd(&world, STOPPED).await;
    let mut reader = world.client(4, json!({})).await;
    let runs: Vec<_> = (0..RUNS).map(|run| format!("r{run}")).collect();
    let mut frames = Vec::new();
    for run in &runs {
        reader.send(run, "chat.send", message(run)).await;
        frames.extend(until(&mut reader, |frame| is_end(frame, run)).await);
    }
    let ends = check_invariants(&frames);
    let lengths: Vec<_> = runs.iter().map(|run| text(&ends[run]).map(str::len)).collect();
    assert_eq!(lengths, vec![Some(SIZE); RUNS]);
    // The total exceeds the send queue and the system's buffers.
    stopped.truncate(2);
    join_all(stopped.into_iter().map(wakes)).await;
    assert_eq!(reader.ask("h", "health", json!({})).await["ok"], true);
}

#[tokio::test]
async fn r27_a_reader_that_slept_hears_the_right_words_and_every_step() {
    const WORDS: usize = 8;
    const SIZE: usize = 16_000;
    for protocol in [3, 4] {
        let gate = Arc::new(Semaphore::new(0));
        let world = TestGateway::new(speaks(&gate, WORDS, SIZE)).await;
        let mut sleeper = world.client(protocol, json!({})).await;
        let mut reader = world.client(protocol, json!({})).await;
        reader.send("r", "chat.send", message("k")).await;
        let mut read = Vec::new();
        for word in 1..=WORDS {
            gate.add_permits(1);
            let told =
                |frame: &Value| frame["payload"]["data"]["text"].as_str().is_some_and(|text| text.len() == word * SIZE);
            read.extend(until(&mut reader, told).await);
        }
        read.extend(until(&mut reader, |frame| is_end(frame, "k")).await);
        let slept = until(&mut sleeper, |frame| is_end(frame, "k")).await;
        let (read_end, slept_end) = (&check_invariants(&read)["k"], &check_invariants(&slept)["k"]);
        assert_eq!(text(slept_end).map(str::len), Some(WORDS * SIZE));
        assert_eq!(slept_end, read_end);
        // Deltas may be skipped; `agent` events may not.
        let steps = |frames: &[Value]| -> Vec<Value> {
            let steps = frames.iter().filter(|frame| frame["event"] == "agent" && frame["payload"]["runId"] == "k");
            steps.map(|frame| frame["payload"].clone()).collect()
        };
        assert_eq!(steps(&slept), steps(&read));
    }
}

/// Streams a delta of this size for each permit.
fn speaks(gate: &Arc<Semaphore>, words: usize, size: usize) -> Script {
    let gate = gate.clone();
    Arc::new(move |_| {
        let gate = gate.clone();
        let words = stream::iter(0..words).then(move |_| {
            let gate = gate.clone();
            async move {
                gate.acquire().await.unwrap().forget();
                ModelEvent::Text("x".repeat(size))
            }
        });
        words.chain(stream::iter([done(StopReason::Stop)])).boxed()
    })
}

/// The full size, ten thousand clients: `cargo xtask bench sockets`.
#[tokio::test]
async fn r28_a_crowd_comes_in_hears_of_a_run_and_is_told_goodbye() {
    let world = TestGateway::new(says_much(10)).await;
    let mut crowd = crowd(&world, CROWD).await;
    let mut one = world.client(4, json!({})).await;
    one.send("r", "chat.send", message("k")).await;
    let heard = join_all(crowd.iter_mut().map(|socket| until(socket, |frame| is_end(frame, "k")))).await;
    let words: Vec<_> = heard.iter().map(|frames| text(&check_invariants(frames)["k"]).map(str::to_owned)).collect();
    assert_eq!(words, vec![Some("x".repeat(10)); CROWD]);
    assert_eq!(one.ask("h", "health", json!({})).await["ok"], true);
    world.stop.cancel();
    let goodbyes = crowd.into_iter().map(async |mut socket| socket.rest().await.1.ok_or("no goodbye"));
    let goodbyes = try_join_all(goodbyes).await.unwrap();
    assert_eq!(goodbyes, vec![(1012, "service restart".to_owned()); CROWD]);
    world.serving.await.unwrap();
}
