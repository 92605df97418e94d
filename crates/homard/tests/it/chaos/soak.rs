//! `homard trace` after a soak: every millisecond of every run has a step, and the steps match the events that clients
//! received.
//!
//! Messages with everything that can happen to them (tools, failures, retries, steers, aborts, compactions) go to a
//! gateway that is killed repeatedly. `GRID=all` sends five hundred and kills twenty-five times.

mod check;
mod model;

use std::collections::{BTreeMap, BTreeSet};

use homard_stdx::SeededRng;
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
const TIMEOUT_MS: u64 = 120_000;

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
    events: BTreeMap<u64, Value>,
    last_at: u64,
    /// True if the client received tool events.
    has_tools: bool,
}

impl Tape {
    fn is_over(&self) -> bool {
        let is_end = |payload: &Value| matches!(payload["data"]["phase"].as_str(), Some("end" | "error"));
        self.events.values().next_back().is_some_and(|last| last["stream"] == "lifecycle" && is_end(last))
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
    rng: SeededRng,
    sent: BTreeMap<String, SentMessage>,
    /// By run and process.
    tapes: BTreeMap<(String, usize), Tape>,
    process_index: usize,
    /// When the gateway was down: from, to.
    downtimes: Vec<(u64, u64)>,
    open: BTreeMap<String, RequestPurpose>,
    /// Runs that have to be aborted by a client.
    held: BTreeSet<String>,
    steered: usize,
    stopped: usize,
}

impl SoakClients {
    fn new(seed: u64) -> Self {
        Self {
            rng: SeededRng::new(seed),
            sent: BTreeMap::new(),
            tapes: BTreeMap::new(),
            process_index: 0,
            downtimes: Vec::new(),
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
        let kind = *self.rng.pick(KINDS);
        let session = match kind {
            "long" => "long".to_owned(),
            _ => format!("s{}", self.rng.below(12)),
        };
        let mut params = json!({"message": format!("soak {run} {kind}"), "sessionKey": session, "idempotencyKey": run});
        if kind == "long" && self.rng.percent(40) {
            params["message"] = "/compact".into();
            return (run, "chat.send", params);
        }
        if kind == "hold" && self.rng.percent(50) {
            params["timeout"] = 1.into();
            return (run, "agent", params);
        }
        if kind == "hold" {
            self.held.insert(run.clone());
        }
        if self.rng.percent(50) {
            return (run, "agent", params);
        }
        params["queueMode"] = (*self.rng.pick(&["steer", "steer", "steer", "followup", "collect", "interrupt"])).into();
        (run, "chat.send", params)
    }

    async fn send(&mut self, gateway: &mut GatewayUnderTest) {
        let (run, method, params) = self.next();
        let at = now();
        let id = gateway.ask(method, &params).await;
        self.open.insert(id, RequestPurpose::Message(run.clone()));
        self.tapes.entry((run.clone(), self.process_index)).or_default().has_tools = true;
        self.sent.insert(run, SentMessage { method, params, at, is_accepted: false, end: None });
    }

    /// Aborts some active runs.
    async fn stop_some(&mut self, gateway: &mut GatewayUnderTest) {
        let open: Vec<_> = self.unfinished().cloned().collect();
        let mut wanted: Vec<_> = self.held.iter().cloned().collect();
        if !open.is_empty() && self.rng.percent(40) {
            wanted.push(self.rng.pick(&open).clone());
        }
        for run in wanted {
            let params = json!({"sessionKey": self.sent[&run].params["sessionKey"], "runId": run});
            self.open.insert(gateway.ask("chat.abort", &params).await, RequestPurpose::Other);
            self.stopped += 1;
        }
    }

    /// Returns the unfinished runs.
    fn unfinished(&self) -> impl Iterator<Item = &String> {
        self.sent.iter().filter(|(_, sent)| sent.end.is_none()).map(|(run, _)| run)
    }

    /// Processes the next frame.
    async fn listen(&mut self, gateway: &mut GatewayUnderTest) {
        let frame = next_frame(&mut gateway.socket).await.expect("the gateway went away");
        if frame["event"] == "agent" {
            self.note(&frame["payload"]);
        } else if frame["type"] == "res" {
            let id = frame["id"].as_str().unwrap_or_default();
            match self.open.get(id) {
                Some(RequestPurpose::Message(run)) => self.answered(gateway, run.clone(), &frame).await,
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
        let tape = self.tapes.entry((run, self.process_index)).or_default();
        tape.events.insert(payload["seq"].as_u64().unwrap(), payload.clone());
        tape.last_at = now();
    }

    /// Records the events of a run from before the subscription. Those of a run that had ended by then are not
    /// available.
    fn catch_up(&mut self, run: &str, missed: &Value) {
        let Some(events) = missed["events"].as_array() else { return };
        self.tapes.entry((run.to_owned(), self.process_index)).or_default().has_tools = true;
        events.iter().for_each(|payload| self.note(payload));
    }

    /// Handles the first response to a message, and waits for the end of its run.
    async fn answered(&mut self, gateway: &mut GatewayUnderTest, run: String, frame: &Value) {
        let sent = self.sent.get_mut(&run).unwrap();
        if sent.is_accepted {
            return;
        }
        // A repeated message may have failed by now.
        let is_known = frame["ok"] == true || frame["payload"]["runId"] == run.as_str();
        assert!(is_known, "{frame}");
        sent.is_accepted = true;
        self.steered += usize::from(frame["payload"]["disposition"] == "steered");
        let id = self.wait(gateway, &run).await;
        self.open.insert(id, RequestPurpose::End(run));
    }

    async fn wait(&self, gateway: &mut GatewayUnderTest, run: &str) -> String {
        gateway.ask("agent.wait", &json!({"runId": run, "timeoutMs": TIMEOUT_MS})).await
    }

    /// Kills the gateway and starts it again; unfinished runs are requested again.
    async fn kill(&mut self, home: &Home, gateway: GatewayUnderTest) -> GatewayUnderTest {
        gateway.kill();
        let killed_at = now();
        let mut gateway = Self::begin_after_downtime(home, &mut self.downtimes, killed_at).await;
        self.process_index += 1;
        self.open.clear();
        let open: Vec<_> = self.unfinished().cloned().collect();
        for run in open {
            let sent = &self.sent[&run];
            let (id, purpose) = match sent.is_accepted {
                true => (self.wait(&mut gateway, &run).await, RequestPurpose::End(run.clone())),
                false => (gateway.ask(sent.method, &sent.params).await, RequestPurpose::Message(run.clone())),
            };
            let params = json!({"sessionKey": sent.params["sessionKey"], "runId": run, "afterSeq": 0});
            self.open.insert(id, purpose);
            self.open.insert(gateway.ask("chat.resume", &params).await, RequestPurpose::Missed(run));
        }
        gateway
    }

    async fn begin_after_downtime(home: &Home, downtimes: &mut Vec<(u64, u64)>, killed_at: u64) -> GatewayUnderTest {
        // It is certainly down until it is started.
        downtimes.push((killed_at, now()));
        Self::begin(home).await
    }

    /// Reads events until every run has ended, and every run that started in this process was reported to its end.
    async fn finish(&mut self, gateway: &mut GatewayUnderTest) {
        loop {
            let is_complete = self
                .tapes
                .iter()
                .all(|((_, index), tape)| *index != self.process_index || tape.events.is_empty() || tape.is_over());
            if self.unfinished().next().is_none() && is_complete {
                return;
            }
            self.stop_held(gateway).await;
            self.listen(gateway).await;
        }
    }

    async fn stop_held(&mut self, gateway: &mut GatewayUnderTest) {
        // A queued run may start after its abort was requested, if that was before a kill.
        let has_text = |run: &String| {
            self.tapes
                .get(&(run.clone(), self.process_index))
                .is_some_and(|tape| tape.events.values().any(|event| event["stream"] == "assistant"))
        };
        let due: Vec<_> = self.held.iter().filter(|run| has_text(run)).cloned().collect();
        for run in due {
            self.held.remove(&run);
            let params = json!({"sessionKey": self.sent[&run].params["sessionKey"], "runId": run});
            self.open.insert(gateway.ask("chat.abort", &params).await, RequestPurpose::Other);
            self.stopped += 1;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn timelines_of_a_soak_are_complete_and_match_the_events() {
    let (runs, kills) = if is_long() { (520, 25) } else { (60, 3) };
    let home = Home::new();
    let model = SoakModel::start();
    home.configure(&model.config().to_string());
    let mut soak = SoakClients::new(13);
    let mut gateway = SoakClients::begin(&home).await;
    let mut killed = 0;
    while soak.sent.len() < runs {
        for _ in 0..AT_ONCE {
            soak.send(&mut gateway).await;
        }
        let is_due = killed < kills && soak.sent.len() * kills >= runs * (killed + 1);
        let mut frames_until_kill = is_due.then(|| soak.rng.below(FRAMES));
        if soak.rng.percent(30) {
            soak.stop_some(&mut gateway).await;
        }
        while soak.unfinished().count() > LEFT {
            if frames_until_kill == Some(0) {
                killed += 1;
                gateway = soak.kill(&home, gateway).await;
                frames_until_kill = None;
            }
            frames_until_kill = frames_until_kill.map(|left| left - 1);
            soak.stop_held(&mut gateway).await;
            soak.listen(&mut gateway).await;
        }
        if is_long() && soak.sent.len() % 100 < AT_ONCE {
            println!("{} messages, {killed} kills", soak.sent.len());
        }
    }
    soak.finish(&mut gateway).await;
    let report = Report::of(&soak, &model, &home, &mut gateway).await;
    assert_eq!(gateway.end(Signal::TERM), Some(0));
    report.same_without_gateway(&home);
    println!("{report}; {killed} kills, {} steers, {} wishes to stop", soak.steered, soak.stopped);
    report.judge(&soak, runs, kills);
}
