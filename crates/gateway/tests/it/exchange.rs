//! Helpers that turn the frames of a socket into comparable lines, and the invariants that all frames obey.

use std::collections::BTreeMap;

use serde_json::Value;
use tokio::time::timeout;

use crate::support::{PATIENCE, TestClient};

/// Returns the frames up to and including a matching one.
pub(crate) async fn until(socket: &mut TestClient, is_last: impl Fn(&Value) -> bool) -> Vec<Value> {
    let mut frames = Vec::new();
    let read_frames = async {
        while !frames.last().is_some_and(&is_last) {
            frames.push(socket.next().await);
        }
    };
    // Ticks never stop, so a timeout is needed.
    timeout(PATIENCE, read_frames).await.expect("it was not heard");
    frames
}

/// True if a frame is the final `chat` event of a run.
pub(crate) fn is_end(frame: &Value, run: &str) -> bool {
    frame["event"] == "chat" && frame["payload"]["runId"] == run && frame["payload"]["state"] != "delta"
}

/// Text of the message in an event.
pub(crate) fn text(payload: &Value) -> Option<&str> {
    payload["message"]["content"][0]["text"].as_str()
}

/// Formats frames, one line each, without timestamps.
pub(crate) fn lines(frames: &[Value]) -> Vec<String> {
    frames.iter().map(line).collect()
}

fn line(frame: &Value) -> String {
    let payload = &frame["payload"];
    let run = payload["runId"].as_str().unwrap_or_default();
    let seq = &payload["seq"];
    match frame["event"].as_str() {
        None => format!("{} {}", frame["id"].as_str().unwrap(), frame["ok"]),
        Some("agent") => {
            let data = &payload["data"];
            let detail = data["phase"].as_str().map_or_else(|| format!("+{}", data["delta"]), str::to_owned);
            format!("agent {run} {seq} {} {detail}", payload["stream"].as_str().unwrap())
        }
        Some("chat") => {
            let mut line = format!("chat {run} {seq} {}", payload["state"].as_str().unwrap());
            for (prefix, value) in [
                ("+", payload["deltaText"].as_str()),
                ("=", text(payload)),
                ("!", payload["errorMessage"].as_str()),
                ("because ", payload["stopReason"].as_str()),
            ] {
                if let Some(value) = value {
                    line += &format!(" {prefix}{value:?}");
                }
            }
            line
        }
        Some(other) => other.to_owned(),
    }
}

/// Checks the invariants: events are numbered without gaps; the `chat` events of a run match its `agent` events and the
/// sum of its deltas; and a run ends once. Returns the final event of each run.
pub(crate) fn check_invariants(frames: &[Value]) -> BTreeMap<String, Value> {
    let events: Vec<_> = frames.iter().filter(|frame| frame["type"] == "event").collect();
    let numbers: Vec<_> = events.iter().map(|frame| frame["seq"].as_u64().unwrap()).collect();
    assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "{numbers:?}");
    let (mut last_seqs, mut text_seqs) = (BTreeMap::new(), BTreeMap::new());
    let (mut texts, mut ends) = (BTreeMap::<_, String>::new(), BTreeMap::new());
    for frame in events {
        let (payload, name) = (&frame["payload"], frame["event"].as_str().unwrap());
        let run = payload["runId"].as_str().unwrap_or_default().to_owned();
        let seq = payload["seq"].as_u64().unwrap_or_default();
        if name == "agent" {
            // Tool events of other connections are not received here, but count in the sequence.
            assert!(last_seqs.insert(run.clone(), seq).is_none_or(|last| last < seq), "{frame}");
            assert_ne!(payload["stream"], "error", "a hole: {frame}");
            if payload["stream"] == "assistant" {
                text_seqs.insert(run, seq);
            }
        } else if name == "chat" {
            assert!(!ends.contains_key(&run), "after the end: {frame}");
            // An end without an `agent` event of its own has the next number.
            let last_seq = last_seqs.get(&run).copied().unwrap_or_default();
            let is_expected = match payload["state"].as_str() {
                Some("delta") => text_seqs.get(&run) == Some(&seq),
                _ => seq == last_seq || seq == last_seq + 1 || seq == 1,
            };
            assert!(is_expected, "{frame}");
            let text_so_far = texts.entry(run.clone()).or_default();
            if payload["state"] == "delta" {
                if payload["replace"] == true {
                    text_so_far.clear();
                }
                *text_so_far += payload["deltaText"].as_str().unwrap();
                assert_eq!(text(payload), Some(text_so_far.as_str()));
            } else {
                let is_command = text_so_far.is_empty();
                assert!(is_command || payload["state"] == "error" || text(payload) == Some(text_so_far), "{frame}");
                ends.insert(run, payload.clone());
            }
        }
    }
    ends
}
