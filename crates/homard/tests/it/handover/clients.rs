//! Clients under load: some read the stream of one run after the other, and one keeps runs active that no client reads.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use homard_stdx::sync::Mutex;
use serde_json::{Value, json};
use tokio::{net::TcpStream, sync::watch, time::Instant};

use super::{ADMIN, paced_model::Pace};
use crate::socket::{Socket, next_text, try_connect_as, try_send_frame};

/// How long a client waits for the end of a run, in milliseconds.
const WAIT_MS: u64 = 600_000;

/// Gaps between two pieces of a stream beyond the model's own, of clients of one protocol.
#[derive(Debug, Default)]
pub(super) struct Gaps {
    /// Around a reconnection.
    pub(super) across: Vec<Duration>,
    /// On a connection.
    pub(super) steady: Vec<Duration>,
}

/// What the clients know about each other's runs and about time.
pub(super) struct Shared {
    pub(super) port: u16,
    pub(super) token: String,
    pub(super) is_over: AtomicBool,
    /// Number of runs that ended.
    ends: watch::Sender<usize>,
    /// Number of refused connections.
    pub(super) refused: AtomicUsize,
    pub(super) problems: Mutex<Vec<String>>,
    /// Gaps by protocol.
    pub(super) gaps: Mutex<BTreeMap<u64, Gaps>>,
}

impl Shared {
    pub(super) fn new(port: u16, token: String) -> Arc<Self> {
        Arc::new(Self {
            port,
            token,
            is_over: AtomicBool::new(false),
            ends: watch::Sender::new(0),
            refused: AtomicUsize::new(0),
            problems: Mutex::default(),
            gaps: Mutex::default(),
        })
    }

    pub(super) fn problem(&self, text: String) {
        self.problems.lock().push(text);
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Connects; a connection that the old process cut off during the handshake is tried again.
    pub(super) async fn connect(&self, protocol: u64) -> Socket {
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

    /// Returns the number of runs that ended.
    pub(super) fn ended(&self) -> usize {
        *self.ends.borrow()
    }

    /// Waits for the ends of this number of further runs.
    pub(super) async fn wait_for_ends(&self, count: usize) {
        let target = self.ended() + count;
        self.ends.subscribe().wait_for(|ended| *ended >= target).await.unwrap();
    }

    /// Counts a run whose end a client received.
    fn run_ended(&self, run: &str, response: &Value) {
        if response["payload"]["status"] != "ok" {
            self.problem(format!("{run} failed: {response}"));
        }
        self.ends.send_modify(|ends| *ends += 1);
    }
}

/// Returns the text of a message's content.
pub(super) fn text_of(content: &Value) -> String {
    content.as_array().into_iter().flatten().filter_map(|block| block["text"].as_str()).collect()
}

/// Sends a request; its id is the method and the run.
async fn request(socket: &mut Socket, method: &str, run: &str, params: &Value) {
    let id = format!("{method} {run}");
    try_send_frame(socket, &json!({"type": "req", "id": id, "method": method, "params": params})).await;
}

async fn send_run(socket: &mut Socket, session: &str, run: &str) {
    let params = json!({"message": run, "sessionKey": session, "idempotencyKey": run, "timeout": 600});
    request(socket, "agent", run, &params).await;
}

async fn wait_for_run(socket: &mut Socket, run: &str) {
    request(socket, "agent.wait", run, &json!({"runId": run, "timeoutMs": WAIT_MS})).await;
}

/// A client that sends one run after the other and reads its events.
pub(super) struct StreamingClient {
    pub(super) shared: Arc<Shared>,
    /// Name of its session, and of its runs with a number.
    pub(super) name: String,
    pub(super) protocol: u64,
    pub(super) pace: Pace,
}

/// What a client received about its current run.
#[derive(Default)]
struct CurrentRun {
    id: String,
    text: String,
    seq: u64,
    last_piece: Option<Instant>,
    /// True if the connection was lost since the last piece.
    is_cut: bool,
    /// True if the gateway answered that it has ended.
    has_ended: bool,
    /// True if its last event was received.
    is_complete: bool,
}

impl CurrentRun {
    fn is_over(&self) -> bool {
        self.has_ended && self.is_complete
    }
}

impl StreamingClient {
    pub(super) async fn run(self) {
        let mut socket = self.shared.connect(self.protocol).await;
        let mut sent = 0;
        while !self.shared.is_over() {
            let mut run = CurrentRun { id: format!("{}-{sent}", self.name), ..CurrentRun::default() };
            // The gateway sends the events of all runs to all clients.
            let own = format!("{}\"", run.id);
            sent += 1;
            while !run.is_over() {
                self.request(&mut socket, &run).await;
                while !run.is_over() {
                    let Some(text) = next_text(&mut socket).await else { break };
                    if text.contains(&own) {
                        self.process(&mut run, &serde_json::from_str(&text).unwrap());
                    }
                }
                if !run.is_over() {
                    run.is_cut = true;
                    socket = self.shared.connect(self.protocol).await;
                }
            }
            let expected = self.pace.text(&run.id);
            if run.text != expected {
                self.shared.problem(format!("{} was streamed as {:?}", run.id, run.text));
            }
        }
    }

    /// Asks for the events that it missed, sends the run, again after each connection, and asks for its end.
    async fn request(&self, socket: &mut Socket, run: &CurrentRun) {
        if run.is_cut {
            let params = json!({"sessionKey": self.name, "runId": run.id, "afterSeq": run.seq});
            request(socket, "chat.resume", &run.id, &params).await;
        }
        send_run(socket, &self.name, &run.id).await;
        wait_for_run(socket, &run.id).await;
    }

    fn process(&self, run: &mut CurrentRun, frame: &Value) {
        if frame["event"] == "agent" {
            return self.step(run, &frame["payload"]);
        }
        let Some((method, _)) = frame["id"].as_str().and_then(|id| id.split_once(' ')) else { return };
        match method {
            "chat.resume" => {
                // The events of another process are counted anew.
                run.seq = 0;
                let known = &frame["payload"]["runs"][0];
                known["events"].as_array().into_iter().flatten().for_each(|event| self.step(run, event));
                if known["state"] == "ended" {
                    run.is_complete = true;
                    run.text = text_of(&known["message"]["content"]);
                }
            }
            // Asked again on a new connection.
            "agent.wait" if !run.has_ended => {
                self.shared.run_ended(&run.id, frame);
                run.has_ended = true;
            }
            _ => {}
        }
    }

    fn step(&self, run: &mut CurrentRun, event: &Value) {
        run.seq = event["seq"].as_u64().unwrap_or(run.seq);
        run.is_complete |= event["stream"] == "lifecycle" && event["data"]["phase"] == "end";
        let Some(text) = event["data"]["text"].as_str().filter(|_| event["stream"] == "assistant") else { return };
        if run.text == text {
            return;
        }
        text.clone_into(&mut run.text);
        let (now, was_cut) = (Instant::now(), std::mem::take(&mut run.is_cut));
        let Some(last) = run.last_piece.replace(now) else { return };
        let gap = now.duration_since(last).saturating_sub(self.pace.tick);
        let mut gaps = self.shared.gaps.lock();
        let gaps = gaps.entry(self.protocol).or_default();
        match was_cut {
            true => gaps.across.push(gap),
            false => gaps.steady.push(gap),
        }
    }
}

/// A client that keeps one run active in each of its sessions, and reads only how they end.
pub(super) struct BackgroundClient {
    pub(super) shared: Arc<Shared>,
    pub(super) sessions: Vec<String>,
}

impl BackgroundClient {
    pub(super) async fn run(self) {
        let mut sent = 0;
        let mut active = HashMap::new();
        for session in &self.sessions {
            active.insert(format!("{session}-{sent}"), session.as_str());
        }
        while !active.is_empty() {
            let mut socket = self.shared.connect(3).await;
            for (run, session) in &active {
                send_run(&mut socket, session, run).await;
                wait_for_run(&mut socket, run).await;
            }
            while let Some(text) = next_text(&mut socket).await {
                if !text.contains("\"agent.wait ") {
                    continue;
                }
                let frame: Value = serde_json::from_str(&text).unwrap();
                let Some((_, run)) = frame["id"].as_str().and_then(|id| id.split_once(' ')) else { continue };
                let Some(session) = active.remove(run) else { continue };
                self.shared.run_ended(run, &frame);
                if !self.shared.is_over() {
                    sent += 1;
                    let run = format!("{session}-{sent}");
                    send_run(&mut socket, session, &run).await;
                    wait_for_run(&mut socket, &run).await;
                    active.insert(run, session);
                } else if active.is_empty() {
                    return;
                }
            }
        }
    }
}
