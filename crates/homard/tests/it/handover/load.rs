//! Hand-overs under load: runs in the background, clients that read streams, and two channels. No connection is refused,
//! no run fails, and no message is lost or doubled.
//!
//! `GRID=all` makes a hundred hand-overs with two hundred runs and fifty streaming clients, and compares the gaps between
//! the pieces that clients received with the limit. `HANDOVER_PROGRAMS` names the programs that take turns; one that does
//! not read the format of the state directory must be refused, and the gateway continues.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures_util::future::join_all;
use homard_runtime::task;
use homard_stdx::SeededRng;
use homard_testkit::{FakeTelegram, FakeWebhook, fake_telegram};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use super::{
    clients::{BackgroundClient, Gaps, Shared, StreamingClient, text_of},
    paced_model::{Pace, PacedModel},
    process,
    programs::Programs,
    report, try_process,
};
use crate::{
    channels::setup::{SECRET, post_signed, webhook_message},
    chaos::gateway::{GatewayUnderTest, is_long, messages_of, transcripts},
    home::Home,
    socket::next_frame,
};

/// Longest gap between two pieces that a client may see, beyond the model's own.
const MAX_GAP: Duration = Duration::from_millis(300);
/// Timeout of everything that is waited for. The machine may be slow, and many runs end only if they are not interrupted.
const PATIENCE: Duration = Duration::from_secs(300);
/// Number of runs that one client keeps active in the background.
const RUNS_OF_A_CLIENT: usize = 50;
/// First user of Telegram.
const FIRST_USER: i64 = 1_000;

/// How much load there is.
#[derive(Clone, Copy)]
struct HandoverLoad {
    handovers: usize,
    /// Concurrent runs without a client that reads their events.
    background: usize,
    /// Clients that read the stream of one run after the other.
    streaming: usize,
    /// Messages that each channel receives around each hand-over.
    channel: usize,
    background_pace: Pace,
    streaming_pace: Pace,
    /// How long active runs may take to end, in milliseconds; one of these.
    waits: &'static [u64],
}

impl HandoverLoad {
    fn of_grid() -> Self {
        let pace = |pieces, tick| Pace { pieces, tick: Duration::from_millis(tick) };
        match is_long() {
            true => Self {
                handovers: 100,
                background: 200,
                streaming: 50,
                channel: 3,
                // What clients receive is multiplied by their number: each gets the events of all runs.
                background_pace: pace(8, 1_000),
                streaming_pace: pace(50, 100),
                waits: &[0, 200, 5_000],
            },
            false => Self {
                handovers: 3,
                background: 6,
                streaming: 4,
                channel: 1,
                background_pace: pace(20, 50),
                streaming_pace: pace(20, 50),
                waits: &[0, 200],
            },
        }
    }

    /// Returns the pace of the answer to a message.
    fn pace(&self, message: &str) -> Pace {
        if message.starts_with('s') { self.streaming_pace } else { self.background_pace }
    }

    /// Returns the messages of a channel around some hand-overs.
    fn messages(&self, handovers: std::ops::Range<usize>) -> std::ops::Range<usize> {
        handovers.start * self.channel..handovers.end * self.channel
    }
}

/// The gateway under load, and everything around it.
struct Fixture {
    load: HandoverLoad,
    model: PacedModel,
    peer: FakeWebhook,
    telegram: FakeTelegram,
    home: Home,
    programs: Programs,
    gateway: GatewayUnderTest,
    shared: Arc<Shared>,
    /// Number of programs that were refused because of the format of the state directory.
    refused_programs: usize,
}

async fn within_timeout<T>(description: &str, future: impl Future<Output = T>) -> T {
    timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("{description}: not within {PATIENCE:?}"))
}

impl Fixture {
    async fn start(load: HandoverLoad) -> Self {
        let model = PacedModel::start(move |message| load.pace(message)).await;
        let (peer, telegram) = (FakeWebhook::start().await.unwrap(), FakeTelegram::start().await.unwrap());
        let config = json!({
            "models": {"providers": model.providers()},
            "agents": {"defaults": {"model": "paced/m", "maxConcurrent": load.background + load.streaming + 20}},
            "channels": {
                "webhook": {"allowFrom": ["*"], "dmPolicy": "open", "url": peer.url(), "secret": SECRET},
                "telegram": {
                    "allowFrom": ["*"], "dmPolicy": "open", "apiRoot": telegram.root(), "botToken": fake_telegram::TOKEN,
                },
            },
        });
        let home = Home::new();
        home.configure(&config.to_string());
        let programs = Programs::of_environment(&home);
        let gateway =
            GatewayUnderTest::of(&home, programs.start(&home)).await.ok().expect("it ended before it listened");
        let shared = Shared::new(gateway.port, super::token(&home));
        Self { load, model, peer, telegram, home, programs, gateway, shared, refused_programs: 0 }
    }

    fn start_clients(&self) -> Vec<tokio::task::JoinHandle<()>> {
        let sessions: Vec<_> = (0..self.load.background).map(|n| format!("b{n}")).collect();
        // The number of requests that a connection waits for is limited.
        let background = sessions
            .chunks(RUNS_OF_A_CLIENT)
            .map(|sessions| BackgroundClient { shared: self.shared.clone(), sessions: sessions.to_vec() });
        let mut tasks: Vec<_> = background.map(|client| task::spawn("test", client.run())).collect();
        let streaming = (0..self.load.streaming).map(|n| StreamingClient {
            shared: self.shared.clone(),
            name: format!("s{n}"),
            protocol: 3 + (n % 2) as u64,
            pace: self.load.streaming_pace,
        });
        tasks.extend(streaming.map(|client| task::spawn("test", client.run())));
        tasks
    }

    /// Hands over to the next program while the channels receive messages. Returns how long it took beyond the time for
    /// active runs.
    async fn hand_over(&mut self, wait: u64, messages: std::ops::Range<usize>) -> Duration {
        for n in messages.clone() {
            self.telegram.add_message(FIRST_USER + n as i64, &format!("t{n}"));
        }
        self.programs.advance();
        let bringing = task::spawn("test", bring(self.shared.clone(), messages));
        let replaced = self.replace(wait).await;
        within_timeout("messages are accepted", bringing).await.unwrap();
        replaced
    }

    /// Returns when the new process answers, and after which time.
    async fn replace(&mut self, wait: u64) -> Duration {
        self.gateway.socket = self.shared.connect(4).await;
        let before = process(&mut self.gateway).await;
        let started_at = Instant::now();
        let answer = super::restart(&mut self.gateway, &json!({"waitMs": wait})).await;
        if answer["ok"] != true {
            self.refused(&answer, &before).await;
            return Duration::ZERO;
        }
        loop {
            while next_frame(&mut self.gateway.socket).await.is_some() {}
            self.gateway.socket = self.shared.connect(4).await;
            let now = try_process(&mut self.gateway).await;
            if let Some(now) = now.filter(|now| now["startedAtMs"] != before["startedAtMs"]) {
                assert_eq!(now["pid"], before["pid"]);
                assert_eq!(now["version"], self.programs.version());
                return started_at.elapsed().saturating_sub(Duration::from_millis(wait));
            }
        }
    }

    /// A program that does not read the format is refused with the ways out, and the old process continues.
    async fn refused(&mut self, answer: &Value, before: &Value) {
        let why = answer["error"]["message"].as_str().unwrap_or_default();
        assert!(self.programs.are_several() && why.contains("has format") && why.contains("homard restore"), "{why}");
        assert_eq!(process(&mut self.gateway).await["startedAtMs"], before["startedAtMs"]);
        self.refused_programs += 1;
        self.programs.step_back();
        assert_eq!(before["version"], self.programs.version());
        report(&format!("version {} continues: {why}", self.programs.version()));
    }

    fn report_progress(&self, number: usize, wait: u64, replaced: Duration) {
        if is_long() && number.is_multiple_of(10) {
            let (ended, requests) = (self.shared.ended(), self.model.requests());
            report(&format!(
                "{number} hand-overs, {ended} runs, {requests} model requests; the last took {replaced:?} beyond {wait} ms"
            ));
        }
    }

    /// Returns what the users of the webhook received.
    fn webhook_texts(&self) -> Vec<String> {
        let messages = self.peer.visible_messages().into_iter().filter(|seen| seen["type"] == "message");
        messages.map(|seen| seen["text"].as_str().unwrap().to_owned()).collect()
    }

    /// Returns what the users of Telegram received.
    fn telegram_texts(&self) -> Vec<String> {
        let messages = self.telegram.visible_messages().into_iter();
        messages.map(|seen| format!("{}: {}", seen.chat, seen.text)).collect()
    }

    /// Waits for the replies on both channels.
    async fn wait_for_replies(&self) {
        let expected = self.load.messages(0..self.load.handovers).len();
        within_timeout("replies", self.peer.until(|_| self.webhook_texts().len() >= expected)).await;
        within_timeout("replies", self.telegram.until(|_| self.telegram_texts().len() >= expected)).await;
    }

    /// Compares what the users of the channels received with what they must have.
    fn check_channels(&self) {
        let messages = self.load.messages(0..self.load.handovers);
        let text = |name: char, n: usize| self.load.pace("").text(&format!("{name}{n}"));
        let webhook: Vec<_> = messages.clone().map(|n| text('n', n)).collect();
        let telegram: Vec<_> = messages.map(|n| format!("{}: {}", FIRST_USER + n as i64, text('t', n))).collect();
        for (mut received, mut expected) in [(self.webhook_texts(), webhook), (self.telegram_texts(), telegram)] {
            received.sort_unstable();
            expected.sort_unstable();
            assert_eq!(received, expected);
        }
    }

    /// Compares what is stored and what was delivered with what was sent.
    fn check(&self) {
        assert_eq!(*self.shared.problems.lock(), Vec::<String>::new());
        assert_eq!(self.shared.refused.load(Ordering::Relaxed), 0, "connections were refused");
        self.check_channels();
        let messages = transcripts(&self.home).concat();
        let mut inputs = BTreeMap::<String, usize>::new();
        for message in messages_of("user", &messages) {
            *inputs.entry(message["idempotencyKey"].as_str().unwrap_or_default().to_owned()).or_default() += 1;
        }
        let doubled: Vec<_> = inputs.iter().filter(|(_, count)| **count != 1).collect();
        assert!(doubled.is_empty(), "{doubled:?}");
        let mut answers: Vec<_> =
            messages_of("assistant", &messages).iter().map(|message| text_of(&message["content"])).collect();
        answers.sort_unstable();
        let sent = self.shared.ended() + 2 * self.load.messages(0..self.load.handovers).len();
        assert_eq!((inputs.len(), answers.len()), (sent, sent));
        answers.dedup();
        assert_eq!(answers.len(), sent, "an answer is stored twice");
        let is_complete = |text: &String| {
            let message = text.split('/').next().unwrap_or_default();
            *text == self.load.pace(message).text(message)
        };
        let incomplete: Vec<_> = answers.iter().filter(|text| !is_complete(text)).collect();
        assert!(incomplete.is_empty(), "{incomplete:?}");
    }

    /// Reports the gaps; in the grid they are compared with the limit.
    fn check_gaps(&self) {
        let mut longest = Duration::ZERO;
        for (protocol, Gaps { across, steady }) in self.shared.gaps.lock().iter_mut() {
            for (name, gaps) in [("on a connection", steady), ("across hand-overs", across)] {
                gaps.sort_unstable();
                let Some(last) = gaps.last() else { continue };
                let percentile = |percent: usize| gaps[(gaps.len() - 1) * percent / 100];
                let over = gaps.iter().filter(|gap| **gap > MAX_GAP).count();
                report(&format!(
                    "protocol {protocol}: {} gaps {name}: median {:?}, 95 % below {:?}, 99 % below {:?}, longest {last:?}; \
                     {over} over {MAX_GAP:?}",
                    gaps.len(),
                    percentile(50),
                    percentile(95),
                    percentile(99),
                ));
                longest = longest.max(*last);
            }
        }
        assert!(!is_long() || longest <= MAX_GAP, "a client saw a gap of {longest:?}");
    }
}

/// Sends messages to the webhook until each is accepted.
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

#[tokio::test(flavor = "multi_thread")]
async fn hand_overs_under_load_lose_and_double_nothing() {
    let load = HandoverLoad::of_grid();
    let mut fixture = Fixture::start(load).await;
    let clients = fixture.start_clients();
    let mut rng = SeededRng::new(28);
    let mut times = Vec::new();
    for handover in 0..load.handovers {
        // Some runs have ended since the last one, so that it hits runs at all stages.
        let ends = 1 + rng.below((load.background + load.streaming) as u64) as usize;
        within_timeout("runs end", fixture.shared.wait_for_ends(ends)).await;
        let wait = *rng.pick(load.waits);
        let replaced =
            within_timeout("a hand-over", fixture.hand_over(wait, load.messages(handover..handover + 1))).await;
        fixture.report_progress(handover + 1, wait, replaced);
        // Otherwise runs had time to end, which counts in part.
        times.extend(Some(replaced).filter(|_| wait == 0));
    }
    fixture.shared.is_over.store(true, Ordering::Relaxed);
    within_timeout("all runs end", join_all(clients)).await.into_iter().for_each(|client| client.unwrap());
    fixture.wait_for_replies().await;
    assert_eq!(fixture.gateway.end_in_place(Signal::TERM), Some(0));
    times.sort_unstable();
    if let Some(longest) = times.last() {
        let (count, median) = (times.len(), times[times.len() / 2]);
        report(&format!("{count} hand-overs at once: median {median:?}, longest {longest:?}"));
    }
    fixture.check();
    fixture.check_gaps();
}
