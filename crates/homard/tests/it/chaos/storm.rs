//! R6: half of the requests are repetitions, some of them with other content, and the gateway dies meanwhile.
//!
//! `GRID=all` sends ten thousand requests and kills twenty times.

use std::collections::{BTreeMap, BTreeSet};

use homard_stdx::SeededRng;
use serde_json::{Value, json};

use crate::{
    chaos::gateway::{GatewayUnderTest, is_long, messages_of, run, transcripts},
    home::Home,
    socket::next_frame,
};

/// Number of requests sent before their responses are read.
const AT_ONCE: usize = 25;

/// The requests of the clients, and what they know.
struct Clients {
    rng: SeededRng,
    /// Number of keys.
    keys: usize,
    /// Acknowledged keys.
    known: Vec<usize>,
    conflicts: usize,
    /// Number of repetitions that were rejected because the same key was in flight with other content. Harmless: they
    /// are sent again.
    mistaken: usize,
}

/// A request.
#[derive(Clone, Copy)]
struct StormRequest {
    key: usize,
    /// True if its content differs from the first request with this key.
    is_changed: bool,
}

impl StormRequest {
    fn params(self) -> Value {
        let message = if self.is_changed { "What time is it?" } else { "help" };
        run(&format!("k{}", self.key), &format!("s{}", self.key % 40), message)
    }
}

impl Clients {
    fn next(&mut self) -> StormRequest {
        if self.keys > 0 && self.rng.percent(50) {
            if !self.known.is_empty() && self.rng.percent(20) {
                return StormRequest { key: *self.rng.pick(&self.known), is_changed: true };
            }
            return StormRequest { key: self.rng.below(self.keys as u64) as usize, is_changed: false };
        }
        self.keys += 1;
        StormRequest { key: self.keys - 1, is_changed: false }
    }

    /// Reads responses until every request has one, or the gateway is gone; returns what has to be sent again.
    async fn read(
        &mut self,
        gateway: &mut GatewayUnderTest,
        mut open: BTreeMap<String, StormRequest>,
    ) -> Vec<StormRequest> {
        let mut again = Vec::new();
        while !open.is_empty() {
            let Some(frame) = next_frame(&mut gateway.socket).await else { break };
            let Some(request) = frame["id"].as_str().and_then(|id| open.remove(id)) else { continue };
            if request.is_changed {
                assert!(is_conflict(&frame), "{frame}");
                self.conflicts += 1;
            } else if is_conflict(&frame) {
                self.mistaken += 1;
                again.push(request);
            } else {
                assert_eq!((&frame["ok"], frame["error"].is_null()), (&json!(true), true), "{frame}");
                self.known.push(request.key);
            }
        }
        again.extend(open.into_values());
        again
    }
}

fn is_conflict(frame: &Value) -> bool {
    frame["error"]["message"].as_str().is_some_and(|message| message.starts_with("idempotency_conflict"))
}

#[tokio::test]
async fn r6_no_key_causes_two_runs_despite_repetitions_and_kills() {
    let home = Home::new();
    let (requests, kills) = if is_long() { (10_000, 20) } else { (300, 3) };
    let mut clients = Clients { rng: SeededRng::new(6), keys: 0, known: Vec::new(), conflicts: 0, mistaken: 0 };
    let mut gateway = GatewayUnderTest::begin(&home, &[]).await;
    let (mut sent, mut killed, mut again) = (0, 0, Vec::new());
    while sent < requests || !again.is_empty() {
        let mut open = BTreeMap::new();
        for _ in 0..AT_ONCE {
            let request = again.pop().unwrap_or_else(|| clients.next());
            open.insert(gateway.ask("agent", &request.params()).await, request);
            sent += 1;
        }
        if killed < kills && sent * (kills + 1) >= requests * (killed + 1) {
            killed += 1;
            // Some of them are in flight, some are being stored, some are active.
            gateway.kill();
            again = open.into_values().collect();
            gateway = GatewayUnderTest::begin(&home, &[]).await;
        } else {
            again = clients.read(&mut gateway, open).await;
        }
    }
    let mut ends = BTreeMap::<String, usize>::new();
    for key in 0..clients.keys {
        let end = gateway.wait(&format!("k{key}")).await;
        *ends.entry(end["status"].as_str().unwrap_or("none").to_owned()).or_default() += 1;
    }
    let stored_keys: Vec<_> = messages_of("user", &transcripts(&home).concat())
        .iter()
        .map(|message| message["idempotencyKey"].as_str().unwrap().to_owned())
        .collect();
    let distinct: BTreeSet<_> = stored_keys.iter().cloned().collect();
    let Clients { keys, conflicts, mistaken, .. } = clients;
    println!(
        "{sent} requests, {killed} kills, {keys} keys ({ends:?}), {conflicts} conflicts, {mistaken} mistaken ones"
    );
    assert_eq!((stored_keys.len(), distinct.len()), (keys, keys));
    assert_eq!(ends, [("ok".to_owned(), keys)].into());
    assert!(conflicts > 0 && killed == kills);
}
