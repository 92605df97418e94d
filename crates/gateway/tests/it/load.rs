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
const CLIENTS: usize = 300;
/// Stays below the limit of unauthenticated connections.
const AT_ONCE: usize = 16;

/// Connects `count` clients, alternating between protocols 3 and 4.
async fn connect_many(gateway: &TestGateway, count: usize) -> Vec<TestClient> {
    let mut clients = Vec::new();
    while clients.len() < count {
        let batch = clients.len()..count.min(clients.len() + AT_ONCE);
        clients.extend(join_all(batch.map(|number| gateway.client(3 + number as u64 % 2, json!({})))).await);
    }
    clients
}

fn message(run: &str) -> Value {
    json!({"sessionKey": run, "message": "x", "idempotencyKey": run})
}

/// Every answer is a single delta of this size.
fn large_answer(bytes: usize) -> Script {
    Arc::new(move |_| stream::iter([ModelEvent::Text("x".repeat(bytes)), done(StopReason::Stop)]).boxed())
}

/// A client that stopped reading gets, when it resumes, everything queued before it was dropped, in order and without
/// gaps, and the reason.
async fn read_until_closed(mut socket: TestClient) {
    let (frames, close) = socket.read_to_close().await;
    check_invariants(&frames);
    // The close frame may be lost together with the socket's buffer.
    assert!(close.is_none_or(|close| close == (1008, "slow consumer".to_owned())));
}

// Pitfall 65.
#[tokio::test]
async fn r26_stalled_readers_are_disconnected_and_others_get_everything() {
    const STOPPED: usize = 40;
    const RUNS: usize = 10;
    const SIZE: usize = 400_000;
    let gateway = TestGateway::new(large_answer(SIZE)).await;
    let mut stopped = connect_many(&gateway, STOPPED).await;
    let mut reader = gateway.client(4, json!({})).await;
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
    join_all(stopped.into_iter().map(read_until_closed)).await;
    assert_eq!(reader.ask("h", "health", json!({})).await["ok"], true);
}

#[tokio::test]
async fn r27_a_reader_that_paused_gets_the_full_text_and_every_step() {
    const WORDS: usize = 8;
    const SIZE: usize = 16_000;
    for protocol in [3, 4] {
        let gate = Arc::new(Semaphore::new(0));
        let gateway = TestGateway::new(gated_words(&gate, WORDS, SIZE)).await;
        let mut idle_client = gateway.client(protocol, json!({})).await;
        let mut reader = gateway.client(protocol, json!({})).await;
        reader.send("r", "chat.send", message("k")).await;
        let mut read = Vec::new();
        for word in 1..=WORDS {
            gate.add_permits(1);
            let is_text_complete =
                |frame: &Value| frame["payload"]["data"]["text"].as_str().is_some_and(|text| text.len() == word * SIZE);
            read.extend(until(&mut reader, is_text_complete).await);
        }
        read.extend(until(&mut reader, |frame| is_end(frame, "k")).await);
        let idle_frames = until(&mut idle_client, |frame| is_end(frame, "k")).await;
        let (read_end, idle_end) = (&check_invariants(&read)["k"], &check_invariants(&idle_frames)["k"]);
        assert_eq!(text(idle_end).map(str::len), Some(WORDS * SIZE));
        assert_eq!(idle_end, read_end);
        // Deltas may be skipped; `agent` events may not.
        let steps = |frames: &[Value]| -> Vec<Value> {
            let steps = frames.iter().filter(|frame| frame["event"] == "agent" && frame["payload"]["runId"] == "k");
            steps.map(|frame| frame["payload"].clone()).collect()
        };
        assert_eq!(steps(&idle_frames), steps(&read));
    }
}

/// Streams a delta of this size for each permit.
fn gated_words(gate: &Arc<Semaphore>, words: usize, size: usize) -> Script {
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
async fn r28_many_clients_get_a_run_and_the_close_frame() {
    let gateway = TestGateway::new(large_answer(10)).await;
    let mut clients = connect_many(&gateway, CLIENTS).await;
    let mut sender = gateway.client(4, json!({})).await;
    sender.send("r", "chat.send", message("k")).await;
    let received = join_all(clients.iter_mut().map(|socket| until(socket, |frame| is_end(frame, "k")))).await;
    let texts: Vec<_> = received.iter().map(|frames| text(&check_invariants(frames)["k"]).map(str::to_owned)).collect();
    assert_eq!(texts, vec![Some("x".repeat(10)); CLIENTS]);
    assert_eq!(sender.ask("h", "health", json!({})).await["ok"], true);
    gateway.stop.cancel();
    let closes = clients.into_iter().map(async |mut socket| socket.read_to_close().await.1.ok_or("no goodbye"));
    let closes = try_join_all(closes).await.unwrap();
    assert_eq!(closes, vec![(1012, "service restart".to_owned()); CLIENTS]);
    gateway.serving.await.unwrap();
}
