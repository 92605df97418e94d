//! Many concurrent sessions: every client receives every run, complete and in order.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::{
    home::Home,
    socket::{Socket, connect, next_frame, send_frame},
};

const SESSIONS: usize = 1_000;
const SOCKETS: usize = 4;

/// What a socket received about one run.
#[derive(Debug, Default, PartialEq, Eq)]
struct ReceivedRun {
    seqs: Vec<u64>,
    starts: usize,
    ends: usize,
    text: String,
}

/// Starts this socket's share of the runs, and reads until all runs have ended and all its requests are answered.
async fn listen(mut socket: Socket, share: usize) -> BTreeMap<String, ReceivedRun> {
    let own_sessions = (0..SESSIONS).filter(|number| number % SOCKETS == share);
    for number in own_sessions.clone() {
        let params = json!({
            "message": "help", "sessionKey": format!("s-{number}"), "idempotencyKey": format!("run-{number}"),
        });
        send_frame(&mut socket, &json!({"type": "req", "id": number.to_string(), "method": "agent", "params": params}))
            .await;
    }
    let mut runs: BTreeMap<String, ReceivedRun> = BTreeMap::new();
    let (mut unanswered, mut unended, mut last_seq) = (own_sessions.count(), SESSIONS, None::<u64>);
    while unanswered > 0 || unended > 0 {
        let frame = next_frame(&mut socket).await.expect("the gateway closed the connection");
        if frame["type"] == "res" {
            assert_eq!(frame["ok"], json!(true), "{frame}");
            unanswered -= usize::from(frame["payload"]["status"] == "ok");
            continue;
        }
        let seq = frame["seq"].as_u64().unwrap();
        assert_eq!(seq, last_seq.map_or(seq, |last| last + 1), "a gap in the frames");
        last_seq = Some(seq);
        if frame["event"] == "agent" {
            let run = runs.entry(frame["payload"]["runId"].as_str().unwrap().to_owned()).or_default();
            unended -= note(run, &frame["payload"]);
        }
    }
    runs
}

/// Records an event; returns 1 if it was the end of its run.
fn note(run: &mut ReceivedRun, payload: &Value) -> usize {
    run.seqs.push(payload["seq"].as_u64().unwrap());
    let data = &payload["data"];
    match (payload["stream"].as_str().unwrap(), data["phase"].as_str()) {
        ("assistant", _) => run.text.push_str(data["delta"].as_str().unwrap()),
        ("lifecycle", Some("start")) => run.starts += 1,
        ("lifecycle", Some("end" | "error")) => {
            run.ends += 1;
            return 1;
        }
        _ => {}
    }
    0
}

// R19.
#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_sessions_lose_no_event() {
    let home = Home::new();
    let gateway = home.gateway();
    let mut sockets = Vec::new();
    for _ in 0..SOCKETS {
        sockets.push(connect(gateway.port, &gateway.token()).await);
    }
    let shares = sockets.into_iter().enumerate().map(|(share, socket)| listen(socket, share));
    let received = futures_util::future::join_all(shares).await;
    for runs in &received {
        assert_eq!(runs.len(), SESSIONS);
        for (run, received) in runs {
            let expected_seqs: Vec<_> = (1..=received.seqs.len() as u64).collect();
            assert_eq!((&received.seqs, received.starts, received.ends), (&expected_seqs, 1, 1), "{run}");
            assert!(!received.text.is_empty(), "{run}");
        }
    }
    assert!(received.windows(2).all(|pair| pair[0] == pair[1]), "all sockets hear the same");
    let sessions = gateway.run(&["gateway", "call", "sessions.list", "--params", r#"{"limit": 2000}"#]).json();
    assert_eq!(sessions["sessions"].as_array().unwrap().len(), SESSIONS);
}
