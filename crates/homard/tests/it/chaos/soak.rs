//! `homard trace` after a soak: every millisecond of every run has a step, and the steps match the events that clients
//! received.
//!
//! Messages with everything that can happen to them (tools, failures, retries, steers, aborts, compactions) go to a
//! gateway that is killed repeatedly. `GRID=all` sends five hundred and kills twenty-five times.

mod check;
mod model;

use std::collections::{BTreeMap, BTreeSet};

use homard_testkit::rng::SeededRng;
use rustix::process::Signal;
use serde_json::{Value, json};

use self::{
    check::Report,
    model::{KINDS, SoakModel},
};
use crate::{
    chaos::gateway::{GatewayUnderTest, is_long},
    home::Home,
    socket::next_frame,
};

/// Number of messages sent before events are read.
const AT_ONCE: usize = 10;
/// Events are read until at most this many runs are unfinished.
const LEFT: usize = 6;
/// Maximum number of frames read before a kill.
const FRAMES: u64 = 80;
/// Timeout for a run in milliseconds.
const PATIENCE_MS: u64 = 120_000;

/// Returns milliseconds since the epoch by the client's clock.
#[allow(clippy::disallowed_methods, reason = "what the gateway tells is compared with the clock of the machine")]
fn now() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    u64::try_from(since.as_millis()).unwrap()
}

/// A message as its sender knows it.
#[derive(Debug)]
struct SentMessage {
    method: &'static str,
    params: Value,
    /// When it was sent.
    at: u64,
    is_accepted: bool,
    /// The response of `agent.wait`, and when it came.
    end: Option<(Value, u64)>,
}

/// What was received about a run from one process of the gateway.
#[derive(Debug, Default)]
struct Tape {
    /// Payloads of `agent` events by sequence number; `heard_at` is when the last one came.
    told: BTreeMap<u64, Value>,
    heard_at: u64,
    /// True if the client received tool events.
    has_tools: bool,
}

impl Tape {
    fn is_over(&self) -> bool {
        let is_end = |payload: &Value| matches!(payload["data"]["phase"].as_str(), Some("end" | "error"));
        self.told.values().next_back().is_some_and(|last| last["stream"] == "lifecycle" && is_end(last))
    }
}

/// The purpose of a request.
enum RequestPurpose {
    Message(String),
    End(String),
    Missed(String),
    Other,
}

/// Everything the clients know.
struct SoakClients {
    dice: SeededRng,
    sent: BTreeMap<String, SentMessage>,
    /// By run and process.
    tapes: BTreeMap<(String, usize), Tape>,
    life: usize,
    /// When the gateway was down: from, to.
    gone: Vec<(u64, u64)>,
    open: BTreeMap<String, RequestPurpose>,
    /// Runs that have to be aborted by a client.
    held: BTreeSet<String>,
    steered: usize,
    stopped: usize,
}

impl SoakClients {
    fn new(seed: u64) -> Self {
        Self {
            dice: SeededRng::new(seed),
            sent: BTreeMap::new(),
            tapes: BTreeMap::new(),
            life: 0,
            gone: Vec::new(),
            open: BTreeMap::new(),
            held: BTreeSet::new(),
            steered: 0,
            stopped: 0,
        }
    }

    async fn begin(home: &Home) -> GatewayUnderTest {
        GatewayUnderTest::begin_with(home, &["tool-events"]).await
    }

    /// Returns one more message: to a session of its own now and then, else to one that may be busy.
    fn next(&mut self) -> (String, &'static str, Value) {
        let run = format!("r{}", self.sent.len());
        let kind = *self.dice.pick(KINDS);
        let session = match kind {
            "long" => "long".to_owned(),
            _ => format!("s{}", self.dice.below(12)),
        };
        let mut params = json!({"message": format!("soak {run} {kind}"), "sessionKey": session, "idempotencyKey": run});
        if kind == "long" && self.dice.percent(40) {
            params["message"] = "/compact".into();
            return (run, "chat.send", params);
        }
        if kind == "hold" && self.dice.percent(50) {
            params["timeout"] = 1.into();
            return (run, "agent", params);
        }
        if kind == "hold" {
            self.held.insert(run.clone());
        }
        if self.dice.percent(50) {
            return (run, "agent", params);
        }
        params["queueMode"] =
            (*self.dice.pick(&["steer", "steer", "steer", "followup", "collect", "interrupt"])).into();
        (run, "chat.send", params)
    }

    async fn send(&mut self, life: &mut GatewayUnderTest) {
        let (run, method, params) = self.next();
        let at = now();
        let id = life.ask(method, &params).await;
        self.open.insert(id, RequestPurpose::Message(run.clone()));
        self.tapes.entry((run.clone(), self.life)).or_default().has_tools = true;
        self.sent.insert(run, SentMessage { method, params, at, is_accepted: false, end: None });
    }

    /// Aborts some active runs.
    async fn stop_some(&mut self, life: &mut GatewayUnderTest) {
        let open: Vec<_> = self.unfinished().cloned().collect();
        let mut wanted: Vec<_> = self.held.iter().cloned().collect();
        if !open.is_empty() && self.dice.percent(40) {
            wanted.push(self.dice.pick(&open).clone());
        }
        for run in wanted {
            let params = json!({"sessionKey": self.sent[&run].params["sessionKey"], "runId": run});
            self.open.insert(life.ask("chat.abort", &params).await, RequestPurpose::Other);
            self.stopped += 1;
        }
    }

    /// Returns the unfinished runs.
    fn unfinished(&self) -> impl Iterator<Item = &String> {
        self.sent.iter().filter(|(_, sent)| sent.end.is_none()).map(|(run, _)| run)
    }

    /// Processes the next frame.
    async fn listen(&mut self, life: &mut GatewayUnderTest) {
        let frame = next_frame(&mut life.socket).await.expect("the gateway went away");
        if frame["event"] == "agent" {
            self.note(&frame["payload"]);
        } else if frame["type"] == "res" {
            let id = frame["id"].as_str().unwrap_or_default();
            match self.open.get(id) {
                Some(RequestPurpose::Message(run)) => self.answered(life, run.clone(), &frame).await,
                Some(RequestPurpose::End(run)) => {
                    let run = run.clone();
                    self.open.remove(id);
                    assert_ne!(frame["payload"]["status"], "timeout", "{run} has no end: {frame}");
                    self.held.remove(&run);
                    self.sent.get_mut(&run).unwrap().end = Some((frame["payload"].clone(), now()));
                }
                Some(RequestPurpose::Missed(run)) => {
                    let run = run.clone();
                    self.open.remove(id);
                    self.catch_up(&run, &frame["payload"]["runs"][0]);
                }
                Some(RequestPurpose::Other) => drop(self.open.remove(id)),
                None => {}
            }
        }
    }

    fn note(&mut self, payload: &Value) {
        let run = payload["runId"].as_str().unwrap().to_owned();
        let tape = self.tapes.entry((run, self.life)).or_default();
        tape.told.insert(payload["seq"].as_u64().unwrap(), payload.clone());
        tape.heard_at = now();
    }

    /// Records the events of a run from before the subscription. Those of a run that had ended by then are not
    /// available.
    fn catch_up(&mut self, run: &str, missed: &Value) {
        let Some(events) = missed["events"].as_array() else { return };
        self.tapes.entry((run.to_owned(), self.life)).or_default().has_tools = true;
        events.iter().for_each(|payload| self.note(payload));
    }

    /// Handles the first response to a message, and waits for the end of its run.
    async fn answered(&mut self, life: &mut GatewayUnderTest, run: String, frame: &Value) {
        let sent = self.sent.get_mut(&run).unwrap();
        if sent.is_accepted {
            return;
        }
        // A repeated message may have failed by now.
        let is_known = frame["ok"] == true || frame["payload"]["runId"] == run.as_str();
        assert!(is_known, "{frame}");
        sent.is_accepted = true;
        self.steered += usize::from(frame["payload"]["disposition"] == "steered");
        let id = self.wait(life, &run).await;
        self.open.insert(id, RequestPurpose::End(run));
    }

    async fn wait(&self, life: &mut GatewayUnderTest, run: &str) -> String {
        life.ask("agent.wait", &json!({"runId": run, "timeoutMs": PATIENCE_MS})).await
    }

    /// Kills the gateway and starts it again; unfinished runs are requested again.
    async fn kill(&mut self, home: &Home, life: GatewayUnderTest) -> GatewayUnderTest {
        life.kill();
        let dead = now();
        let mut life = Self::begin_noting(home, &mut self.gone, dead).await;
        self.life += 1;
        self.open.clear();
        let open: Vec<_> = self.unfinished().cloned().collect();
        for run in open {
            let sent = &self.sent[&run];
            let (id, asked) = match sent.is_accepted {
                true => (self.wait(&mut life, &run).await, RequestPurpose::End(run.clone())),
                false => (life.ask(sent.method, &sent.params).await, RequestPurpose::Message(run.clone())),
            };
            let params = json!({"sessionKey": sent.params["sessionKey"], "runId": run, "afterSeq": 0});
            self.open.insert(id, asked);
            self.open.insert(life.ask("chat.resume", &params).await, RequestPurpose::Missed(run));
        }
        life
    }

    async fn begin_noting(home: &Home, gone: &mut Vec<(u64, u64)>, dead: u64) -> GatewayUnderTest {
        // It is certainly down until it is started.
        gone.push((dead, now()));
        Self::begin(home).await
    }

    /// Reads events until every run has ended, and every run that started in this process was reported to its end.
    async fn finish(&mut self, life: &mut GatewayUnderTest) {
        loop {
            let is_told =
                self.tapes.iter().all(|((_, of), tape)| *of != self.life || tape.told.is_empty() || tape.is_over());
            if self.unfinished().next().is_none() && is_told {
                return;
            }
            self.stop_held(life).await;
            self.listen(life).await;
        }
    }

    async fn stop_held(&mut self, life: &mut GatewayUnderTest) {
        // A queued run may start after its abort was requested, if that was before a kill.
        let spoke = |run: &String| {
            self.tapes
                .get(&(run.clone(), self.life))
                .is_some_and(|tape| tape.told.values().any(|told| told["stream"] == "assistant"))
        };
        let due: Vec<_> = self.held.iter().filter(|run| spoke(run)).cloned().collect();
        for run in due {
            self.held.remove(&run);
            let params = json!({"sessionKey": self.sent[&run].params["sessionKey"], "runId": run});
            self.open.insert(life.ask("chat.abort", &params).await, RequestPurpose::Other);
            self.stopped += 1;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_moment_of_a_soak_has_a_name_and_is_what_was_heard() {
    let (runs, kills) = if is_long() { (520, 25) } else { (60, 3) };
    let home = Home::new();
    let model = SoakModel::start();
    home.configure(&model.config().to_string());
    let mut soak = SoakClients::new(13);
    let mut life = SoakClients::begin(&home).await;
    let mut killed = 0;
    while soak.sent.len() < runs {
        for _ in 0..AT_ONCE {
            soak.send(&mut life).await;
        }
        let is_due = killed < kills && soak.sent.len() * kills >= runs * (killed + 1);
        let mut patience = is_due.then(|| soak.dice.below(FRAMES));
        if soak.dice.percent(30) {
            soak.stop_some(&mut life).await;
        }
        while soak.unfinished().count() > LEFT {
            if patience == Some(0) {
                killed += 1;
                life = soak.kill(&home, life).await;
                patience = None;
            }
            patience = patience.map(|left| left - 1);
            soak.stop_held(&mut life).await;
            soak.listen(&mut life).await;
        }
        if is_long() && soak.sent.len() % 100 < AT_ONCE {
            println!("{} messages, {killed} kills", soak.sent.len());
        }
    }
    soak.finish(&mut life).await;
    let report = Report::of(&soak, &model, &home, &mut life).await;
    assert_eq!(life.end(Signal::TERM), Some(0));
    report.same_without_gateway(&home);
    println!("{report}; {killed} kills, {} steers, {} wishes to stop", soak.steered, soak.stopped);
    report.judge(&soak, (runs, kills));
}
