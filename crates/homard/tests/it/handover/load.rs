//! Hand-overs under load: runs in the background, clients that read streams, and a channel. No connection is refused, no
//! run fails, and no message is lost or doubled.
//!
//! `GRID=all` makes a hundred hand-overs with two hundred runs and fifty streaming clients, and prints the longest gaps
//! between the pieces that clients received.

use std::{
    collections::BTreeMap,
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::future::join_all;
use homard_runtime::task;
use homard_stdx::{SeededRng, sync::Mutex};
use homard_testkit::FakeWebhook;
use serde_json::{Value, json};
use tokio::{net::TcpStream, time::Instant};

use super::{
    ADMIN,
    paced_model::{PacedModel, TICK, text},
    process, report, try_process,
};
use crate::{
    channels::setup::{SECRET, post_signed, webhook_message, within_timeout},
    chaos::gateway::{GatewayUnderTest, is_long, messages_of, transcripts},
    home::{Home, Process},
    socket::{Socket, next_frame, try_connect_as, try_send_frame},
};

/// How much load there is.
#[derive(Clone, Copy)]
struct HandoverLoad {
    handovers: usize,
    /// Concurrent runs without a client that reads their events.
    background: usize,
    /// Clients that read the stream of one run after the other.
    streaming: usize,
    /// Messages that the channel receives around each hand-over.
    channel: usize,
}

/// What the clients know about each other's runs and about time.
struct Shared {
    port: u16,
    token: String,
    is_over: AtomicBool,
    ended: AtomicUsize,
    refused: AtomicUsize,
    problems: Mutex<Vec<String>>,
    /// Longest gaps between two pieces of a stream around a reconnection, by protocol.
    gaps: Mutex<BTreeMap<u64, Vec<Duration>>>,
}

impl Shared {
    fn problem(&self, text: String) {
        self.problems.lock().push(text);
    }

    /// Connects; a connection that the old process cut off during the handshake is tried again.
    async fn connect(&self, protocol: u64) -> Socket {
        loop {
            match TcpStream::connect(("127.0.0.1", self.port)).await {
                Ok(stream) => {
                    if let Some((socket, _)) = try_connect_as(stream, &self.token, protocol, ADMIN).await {
                        return socket;
                    }
                }
                Err(_) => drop(self.refused.fetch_add(1, Ordering::Relaxed)),
            }
        }
    }
}

/// A client that sends one run after the other and reads its events.
struct Client {
    shared: Arc<Shared>,
    name: String,
    protocol: u64,
    sent: usize,
}

/// What a client received about its current run.
struct CurrentRun {
    id: String,
    last_piece: Option<Instant>,
    /// True if the connection was lost since the last piece.
    is_cut: bool,
    /// True if a response or an event has ended it.
    has_ended: bool,
}

impl Client {
    async fn run(mut self) {
        let mut socket = self.shared.connect(self.protocol).await;
        while !self.shared.is_over.load(Ordering::Relaxed) {
            let id = format!("{}-{}", self.name, self.sent);
            self.sent += 1;
            let mut run = CurrentRun { id, last_piece: None, is_cut: false, has_ended: false };
            while !run.has_ended {
                self.request(&mut socket, &run).await;
                while !run.has_ended {
                    let Some(frame) = next_frame(&mut socket).await else { break };
                    self.process(&mut run, &frame);
                }
                if !run.has_ended {
                    run.is_cut = true;
                    socket = self.shared.connect(self.protocol).await;
                }
            }
            self.shared.ended.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Sends the run, again after each connection, and asks for its events and its end.
    async fn request(&self, socket: &mut Socket, run: &CurrentRun) {
        let (id, session) = (&run.id, &self.name);
        let params = json!({"message": id, "sessionKey": session, "idempotencyKey": id, "timeout": 120});
        let requests = [
            ("send", "agent", params),
            ("resume", "chat.resume", json!({"sessionKey": session, "runId": id, "afterSeq": 0})),
            ("wait", "agent.wait", json!({"runId": id, "timeoutMs": 120_000})),
        ];
        for (kind, method, params) in requests {
            try_send_frame(
                socket,
                &json!({"type": "req", "id": format!("{kind} {id}"), "method": method, "params": params}),
            )
            .await;
        }
    }

    fn process(&self, run: &mut CurrentRun, frame: &Value) {
        if frame["type"] == "event" && frame["event"] == "agent" && frame["payload"]["runId"] == run.id.as_str() {
            if frame["payload"]["stream"] == "assistant" {
                let now = Instant::now();
                if let Some(last) = run.last_piece.replace(now).filter(|_| run.is_cut) {
                    let gap = now.duration_since(last).saturating_sub(TICK);
                    self.shared.gaps.lock().entry(self.protocol).or_default().push(gap);
                    run.is_cut = false;
                }
            }
            return;
        }
        let is_end = frame["id"].as_str().is_some_and(|id| id == format!("wait {}", run.id));
        match (&frame["payload"]["status"], is_end) {
            (status, true) if status == "ok" => run.has_ended = true,
            (status, true) if status == "error" => {
                self.shared.problem(format!("{} failed: {frame}", run.id));
                run.has_ended = true;
            }
            _ => {}
        }
    }
}

/// Sends messages to the channel until each is accepted.
async fn bring(shared: Arc<Shared>, range: std::ops::Range<usize>) {
    let bringing = move || {
        let mut open: Vec<_> = range.collect();
        while !open.is_empty() {
            open.retain(|n| {
                let message = webhook_message(&format!("m{n}"), &format!("user{n}"), &format!("n{n}"));
                post_signed(shared.port, "/channels/webhook", &message, SECRET).is_none_or(|(status, _)| status != 200)
            });
        }
    };
    tokio::task::spawn_blocking(bringing).await.unwrap();
}

async fn start(home: &Home) -> GatewayUnderTest {
    let command = home.command(&["gateway", "run", "--port", "0"]);
    let mut command = command;
    let process = Process(command.stderr(Stdio::null()).spawn().unwrap());
    GatewayUnderTest::of(home, process).await.ok().expect("it ended before it listened")
}

#[tokio::test(flavor = "multi_thread")]
async fn hand_overs_under_load_lose_and_double_nothing() {
    let load = match is_long() {
        true => HandoverLoad { handovers: 100, background: 200, streaming: 50, channel: 3 },
        false => HandoverLoad { handovers: 3, background: 6, streaming: 4, channel: 2 },
    };
    let (model, peer, home) = (PacedModel::start().await, FakeWebhook::start().await.unwrap(), Home::new());
    let config = json!({
        "models": {"providers": model.providers()},
        "agents": {"defaults": {"model": "paced/m", "maxConcurrent": load.background + load.streaming + 10}},
        "channels": {"webhook": {"allowFrom": ["*"], "dmPolicy": "open", "url": peer.url(), "secret": SECRET}},
    });
    home.configure(&config.to_string());
    let mut gateway = start(&home).await;
    let shared = Arc::new(Shared {
        port: gateway.port,
        token: super::token(&home),
        is_over: AtomicBool::new(false),
        ended: AtomicUsize::new(0),
        refused: AtomicUsize::new(0),
        problems: Mutex::new(Vec::new()),
        gaps: Mutex::new(BTreeMap::new()),
    });
    let names = (0..load.background).map(|n| format!("b{n}")).chain((0..load.streaming).map(|n| format!("s{n}")));
    let clients: Vec<_> = names
        .enumerate()
        .map(|(n, name)| {
            let client = Client { shared: shared.clone(), name, protocol: 3 + (n % 2) as u64, sent: 0 };
            task::spawn("test", client.run())
        })
        .collect();
    let mut rng = SeededRng::new(28);
    for handover in 0..load.handovers {
        // Something has ended since the last one, so that it hits runs at all stages.
        let target =
            shared.ended.load(Ordering::Relaxed) + 1 + rng.below((load.background + load.streaming) as u64) as usize;
        let ended = async {
            while shared.ended.load(Ordering::Relaxed) < target {
                tokio::task::yield_now().await
            }
        };
        within_timeout("runs end", ended).await;
        let wait = *rng.pick(&[0, 200, 5_000]);
        let channel = handover * load.channel..(handover + 1) * load.channel;
        let (replaced, ()) = tokio::join!(replace(&mut gateway, &shared, wait), bring(shared.clone(), channel));
        report_progress(handover, wait, replaced, &shared, &model);
    }
    shared.is_over.store(true, Ordering::Relaxed);
    within_timeout("all runs end", join_all(clients)).await.into_iter().for_each(|client| client.unwrap());
    let expected: Vec<_> = (0..load.handovers * load.channel).map(|n| format!("n{n}")).collect();
    let is_answered = |peer: &FakeWebhook| replies(peer).len() >= expected.len();
    within_timeout("all replies", peer.until(is_answered)).await;
    drop(gateway);
    check(&home, &shared, &peer, &expected);
}

/// Hands over and returns when the new process answers, and after which time.
async fn replace(gateway: &mut GatewayUnderTest, shared: &Shared, wait: u64) -> Duration {
    gateway.socket = shared.connect(4).await;
    let before = process(gateway).await;
    let started_at = Instant::now();
    let answer = super::restart(gateway, &json!({"waitMs": wait})).await;
    assert_eq!(answer["ok"], true, "{answer}");
    loop {
        while next_frame(&mut gateway.socket).await.is_some() {}
        gateway.socket = shared.connect(4).await;
        let now = try_process(gateway).await;
        if let Some(now) = now.filter(|now| now["startedAtMs"] != before["startedAtMs"]) {
            assert_eq!(now["pid"], before["pid"]);
            return started_at.elapsed().saturating_sub(Duration::from_millis(wait));
        }
    }
}

fn report_progress(handover: usize, wait: u64, replaced: Duration, shared: &Shared, model: &PacedModel) {
    if is_long() && handover % 10 == 9 {
        let (ended, requests) = (shared.ended.load(Ordering::Relaxed), model.requests());
        let number = handover + 1;
        report(&format!(
            "{number} hand-overs, {ended} runs, {requests} model requests; the last took {replaced:?} beyond {wait} ms"
        ));
    }
}

fn replies(peer: &FakeWebhook) -> Vec<String> {
    let messages = peer.visible_messages().into_iter().filter(|seen| seen["type"] == "message");
    messages.map(|seen| seen["text"].as_str().unwrap().to_owned()).collect()
}

/// Compares what is stored and what was delivered with what was sent.
fn check(home: &Home, shared: &Shared, peer: &FakeWebhook, expected: &[String]) {
    assert_eq!(*shared.problems.lock(), Vec::<String>::new());
    assert_eq!(shared.refused.load(Ordering::Relaxed), 0, "connections were refused");
    let messages = transcripts(home).concat();
    let (mut inputs, answers) = (BTreeMap::<String, usize>::new(), messages_of("assistant", &messages));
    for message in messages_of("user", &messages) {
        *inputs.entry(message["idempotencyKey"].as_str().unwrap_or_default().to_owned()).or_default() += 1;
    }
    let doubled: Vec<_> = inputs.iter().filter(|(_, count)| **count != 1).collect();
    assert!(doubled.is_empty(), "{doubled:?}");
    let sent = shared.ended.load(Ordering::Relaxed) + expected.len();
    assert_eq!((inputs.len(), answers.len()), (sent, sent));
    let mut delivered = replies(peer);
    delivered.sort_unstable();
    let mut wanted: Vec<_> = expected.iter().map(|message| text(message)).collect();
    wanted.sort_unstable();
    assert_eq!(delivered, wanted);
    for (protocol, gaps) in shared.gaps.lock().iter_mut() {
        gaps.sort_unstable();
        let (median, longest) = (gaps[gaps.len() / 2], gaps[gaps.len() - 1]);
        report(&format!("protocol {protocol}: {} gaps, median {median:?}, longest {longest:?}", gaps.len()));
    }
}
