//! Tests of the schedule against a real hub, with a paused clock.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use futures_util::{StreamExt, stream};
use homard_model::{EventStream, Model, ModelEvent, ModelSpec, Request, candidates::Candidates, stream::AnswerEnd};
use homard_proto::{
    Route, SessionKey,
    message::{Message, StopReason, Usage},
};
use homard_store::{Authority, Fence, MemoryStore};
use serde_json::json;
use tokio::sync::Semaphore;

use super::{
    heartbeat::{HeartbeatFile, Hours},
    store::MemoryJobStore,
    *,
};
use crate::{
    Agents, Ambient, Profile, Slots,
    channel_sender::{ChannelSender, ChannelTraits, OutgoingAction, Receipt, Recipient, SendError},
};

/// 2026-11-15T00:00:00Z.
const BIRTH: u64 = 1_794_700_800_000;
const HOUR: u64 = 3_600_000;

/// A model that gives the same answer each time its gate permits, and records its requests.
#[derive(Debug)]
struct Parrot {
    spec: ModelSpec,
    says: Mutex<String>,
    gate: Semaphore,
    asked: Mutex<Vec<String>>,
}

struct ParrotModel(Arc<Parrot>);

impl Model for ParrotModel {
    fn spec(&self) -> &ModelSpec {
        &self.0.spec
    }

    fn stream(&self, request: Request) -> EventStream {
        let words = request.messages.last().map(|message| match &**message {
            Message::User(user) => user.content.text(),
            Message::Assistant(_) | Message::ToolResult(_) | Message::Other(_) => String::new(),
        });
        self.0.asked.lock().unwrap().extend(words);
        let parrot = self.0.clone();
        let said = stream::once(async move {
            parrot.gate.acquire().await.unwrap().forget();
            let said = parrot.says.lock().unwrap().clone();
            ModelEvent::Text(said)
        });
        said.chain(stream::iter([ModelEvent::Done(AnswerEnd { stop: StopReason::Stop, usage: Usage::default() })]))
            .boxed()
    }
}

/// A hub with one agent, a job store, and the schedule over both.
struct ScheduleFixture {
    hub: Hub,
    parrot: Arc<Parrot>,
    shelf: Arc<dyn JobStore>,
    schedule: Schedule,
    tasks: ScheduleTasks,
    stop: CancellationToken,
}

fn hub(words: &str, permits: usize) -> (Hub, Arc<Parrot>) {
    let spec = ModelSpec {
        provider: "test".to_owned(),
        model: "parrot".to_owned(),
        idle_timeout: Duration::MAX,
        ..ModelSpec::default()
    };
    let (says, gate) = (Mutex::new(words.to_owned()), Semaphore::new(permits));
    let parrot = Arc::new(Parrot { spec, says, gate, asked: Mutex::default() });
    let roster = Candidates::single(Arc::new(ParrotModel(parrot.clone())));
    let timeout = Some(Duration::from_secs(20 * 3600));
    let profile = Profile { timeout, ..Profile::new(AgentId::main(), roster) };
    let store = (Arc::new(MemoryStore::default()) as Arc<dyn homard_store::Store>, Fence::default());
    let (hub, _) = Hub::start(Ambient::fixed(BIRTH), store, Agents::new(profile, []), Slots::default());
    (hub, parrot)
}

/// No automatic heartbeats, and no file.
fn calm() -> ScheduleSettings {
    settings(HeartbeatConfig { every: Duration::from_secs(1_000_000), ..HeartbeatConfig::of(AgentId::main()) }, None)
}

fn settings(pulse: HeartbeatConfig, file: Option<&'static str>) -> ScheduleSettings {
    let file = HeartbeatFile::new(move |_| file.map(str::to_owned));
    ScheduleSettings { is_enabled: true, zone: TimeZone::UTC, heartbeats: vec![pulse], file }
}

impl ScheduleFixture {
    async fn new(jobs: Vec<Value>, settings: ScheduleSettings) -> Self {
        Self::over(hub("done", 1000), Arc::new(MemoryJobStore::with(jobs)), settings).await
    }

    async fn over((hub, parrot): (Hub, Arc<Parrot>), shelf: Arc<dyn JobStore>, settings: ScheduleSettings) -> Self {
        let stop = CancellationToken::new();
        let (schedule, tasks) = Schedule::start(&hub, shelf.clone(), settings, stop.clone()).await.unwrap();
        Self { hub, parrot, shelf, schedule, tasks, stop }
    }

    /// Restarts the schedule over the same hub and job store.
    async fn restart(self) -> Self {
        self.stop.cancel();
        self.tasks.ended().await;
        Self::over((self.hub, self.parrot), self.shelf, calm()).await
    }

    async fn runs(&self, job: &str) -> Vec<Value> {
        self.shelf.history(job).await.unwrap()
    }

    fn asked(&self) -> Vec<String> {
        self.parrot.asked.lock().unwrap().clone()
    }

    fn job(&self, id: &str) -> Value {
        self.schedule.view().jobs.iter().find(|job| job.id == id).map_or(Value::Null, |job| json!(job))
    }
}

/// Waits for the next event of this kind. The paused clock advances while all tasks are idle.
async fn heard(news: &mut broadcast::Receiver<(&'static str, Value)>, name: &str, action: &str) -> Value {
    loop {
        let (event, payload) = news.recv().await.unwrap();
        if event == name && (action.is_empty() || payload["action"] == action) {
            return payload;
        }
    }
}

fn isolated(id: &str, schedule: &Value) -> Value {
    json!({
        "id": id, "name": "Look", "createdAtMs": BIRTH, "schedule": schedule, "sessionTarget": "isolated",
        "payload": {"kind": "agentTurn", "message": "look round"},
    })
}

fn hourly(id: &str) -> Value {
    isolated(id, &json!({"kind": "every", "everyMs": HOUR}))
}

fn event(id: &str, wake: &str) -> Value {
    json!({
        "id": id, "name": "Tell", "createdAtMs": BIRTH, "schedule": {"kind": "every", "everyMs": HOUR},
        "sessionTarget": "main", "wakeMode": wake, "payload": {"kind": "systemEvent", "text": "water the plants"},
    })
}

/// Returns the run history without values that change from run to run.
fn told(lines: &[Value]) -> Vec<Value> {
    lines
        .iter()
        .map(|line| json!([line["outcome"], line["status"], line["slotMs"].as_u64().unwrap() - BIRTH]))
        .collect()
}

// Case 196.
#[tokio::test(start_paused = true)]
async fn an_isolated_job_runs_in_its_own_session_with_a_new_transcript_each_time() {
    let world = ScheduleFixture::new(vec![hourly("j1")], calm()).await;
    let mut news = world.schedule.subscribe();
    for _ in 0..2 {
        heard(&mut news, "cron", "finished").await;
    }
    let lines = world.runs("j1").await;
    assert_eq!(told(&lines), [json!(["ran", "ok", HOUR]), json!(["ran", "ok", 2 * HOUR])]);
    assert_eq!(lines[0]["runId"], format!("cron-j1-{}", BIRTH + HOUR));
    assert_eq!((&lines[0]["sessionKey"], &lines[0]["summary"]), (&json!("agent:main:cron:j1"), &json!("done")));
    assert_ne!(lines[0]["sessionId"], lines[1]["sessionId"]);
    assert_eq!(world.asked()[0], "[cron:j1 Look] look round\nCurrent time: Sunday, 2026-11-15 01:00 +00:00 (UTC)");
    let key = SessionKey::parse("agent:main:cron:j1", &AgentId::main()).unwrap();
    assert_eq!(world.hub.history(&key).await.unwrap().unwrap().1.len(), 2);
    let state = &world.job("j1")["state"];
    assert_eq!((&state["lastStatus"], &state["nextRunAtMs"]), (&json!("ok"), &json!(BIRTH + 3 * HOUR)));
    assert_eq!(state.get("runningAtMs"), None);
}

#[tokio::test(start_paused = true)]
async fn a_restart_in_the_middle_of_a_slot_does_not_run_it_twice() {
    let world = ScheduleFixture::over(hub("done", 0), Arc::new(MemoryJobStore::with(vec![hourly("j1")])), calm()).await;
    heard(&mut world.schedule.subscribe(), "cron", "started").await;
    let world = world.restart().await;
    let mut news = world.schedule.subscribe();
    world.parrot.gate.add_permits(1);
    heard(&mut news, "cron", "finished").await;
    assert_eq!((told(&world.runs("j1").await), world.asked().len()), (vec![json!(["ran", "ok", HOUR])], 1));
}

#[tokio::test(start_paused = true)]
async fn a_slot_that_ended_unseen_is_written_down_once() {
    let mut begun = hourly("j1");
    begun["state"] = json!({"settledAtMs": BIRTH, "runningAtMs": BIRTH, "runningSlotMs": BIRTH});
    let world = ScheduleFixture::new(vec![begun.clone()], calm()).await;
    heard(&mut world.schedule.subscribe(), "cron", "finished").await;
    // As after a crash before the job was stored, and then before the run history was.
    world.shelf.save(vec![begun.clone()]).await.unwrap();
    let world = world.restart().await;
    let mut news = world.schedule.subscribe();
    heard(&mut news, "cron", "started").await;
    heard(&mut news, "cron", "finished").await;
    let lines = told(&world.runs("j1").await);
    assert_eq!((lines, world.asked().len()), (vec![json!(["ran", "ok", 0]), json!(["ran", "ok", HOUR])], 2));
    let (hub, parrot) = (world.hub.clone(), world.parrot.clone());
    begun["state"]["settledAtMs"] = json!(BIRTH + HOUR);
    let fresh = ScheduleFixture::over((hub, parrot), Arc::new(MemoryJobStore::with(vec![begun])), calm()).await;
    heard(&mut fresh.schedule.subscribe(), "cron", "finished").await;
    assert_eq!((told(&fresh.runs("j1").await)[0].clone(), fresh.asked().len()), (json!(["ran", "ok", 0]), 2));
}

#[tokio::test(start_paused = true)]
async fn what_nobody_was_there_to_run_is_counted_and_told() {
    let mut old = hourly("j1");
    old["createdAtMs"] = json!(BIRTH - 5 * HOUR - 120_000);
    let mut once = isolated("j2", &json!({"kind": "at", "atMs": BIRTH - 2 * HOUR}));
    once["deleteAfterRun"] = json!(true);
    let late = isolated("j3", &json!({"kind": "at", "atMs": BIRTH - 600_000}));
    let world = ScheduleFixture::new(vec![old, once, late], calm()).await;
    let mut news = world.schedule.subscribe();
    while heard(&mut news, "cron", "finished").await["jobId"] != "j3" {}
    let line = world.runs("j1").await[0].clone();
    assert_eq!((&line["outcome"], &line["slots"]), (&json!("missed"), &json!(5)));
    assert_eq!(line["error"], "missed 5: not started in time");
    assert_eq!(world.job("j1")["state"]["missedSlots"], 5);
    assert_eq!((&world.runs("j2").await[0]["outcome"], &world.job("j2")["enabled"]), (&json!("missed"), &json!(false)));
    assert_eq!((&world.runs("j3").await[0]["outcome"], &world.job("j3")["enabled"]), (&json!("ran"), &json!(false)));
}

#[tokio::test(start_paused = true)]
async fn a_slot_is_skipped_while_the_one_before_is_at_work() {
    let world = ScheduleFixture::over(hub("done", 0), Arc::new(MemoryJobStore::with(vec![hourly("j1")])), calm()).await;
    let mut news = world.schedule.subscribe();
    assert_eq!(heard(&mut news, "cron", "finished").await["error"], "skipped: the previous run is still active");
    assert_eq!(world.schedule.run("j1", RunMode::Force).await, Ok(RunNowResult::AlreadyRunning));
    world.parrot.gate.add_permits(1);
    heard(&mut news, "cron", "finished").await;
    let expected = [json!(["skipped", "skipped", 2 * HOUR]), json!(["ran", "ok", HOUR])];
    assert_eq!(told(&world.runs("j1").await), expected);
}

#[tokio::test(start_paused = true)]
async fn a_job_can_be_run_by_hand() {
    let world = ScheduleFixture::new(vec![hourly("j1"), event("j2", "next-heartbeat")], calm()).await;
    assert_eq!(world.schedule.run("j1", RunMode::Due).await, Ok(RunNowResult::NotDue));
    assert_eq!(world.schedule.run("j9", RunMode::Force).await, Err(Error::Unknown("j9".to_owned())));
    let mut news = world.schedule.subscribe();
    let run = homard_proto::RunId::parse(&format!("cron-j1-{BIRTH}")).unwrap();
    assert_eq!(world.schedule.run("j1", RunMode::Force).await, Ok(RunNowResult::Started(run)));
    heard(&mut news, "cron", "finished").await;
    assert_eq!(told(&world.runs("j1").await), [json!(["ran", "ok", 0])]);
    assert_eq!(world.job("j1")["state"]["nextRunAtMs"], BIRTH + HOUR);
}

#[tokio::test(start_paused = true)]
async fn a_job_that_comes_once_goes_when_it_ran_well() {
    let world = ScheduleFixture::new(Vec::new(), calm()).await;
    let fields = json!({
        "name": "once", "schedule": {"kind": "at", "at": "2026-11-15T03:00:00Z"},
        "payload": {"kind": "agentTurn", "message": "x"},
    });
    let Value::Object(fields) = fields else { panic!() };
    let mut news = world.schedule.subscribe();
    let job = world.schedule.add(fields).await.unwrap();
    let made = (job.delete_after_run, job.session_target, job.state.next_run_at_ms);
    assert_eq!(made, (Some(true), job::JobTarget::Isolated, Some(BIRTH + 3 * HOUR)));
    heard(&mut news, "cron", "removed").await;
    assert_eq!(
        (world.schedule.view().jobs.len(), told(&world.runs(&job.id).await)),
        (0, vec![json!(["ran", "ok", 3 * HOUR])])
    );
}

#[tokio::test(start_paused = true)]
async fn a_job_of_the_main_session_is_told_there_and_wakes_it() {
    let world = ScheduleFixture::new(vec![event("j1", "now")], calm()).await;
    let mut news = world.schedule.subscribe();
    let beat = heard(&mut news, "heartbeat", "").await;
    assert_eq!(
        (&beat["status"], &beat["reason"], &beat["preview"]),
        (&json!("skipped"), &json!("no-target"), &json!("done"))
    );
    assert_eq!(world.schedule.heartbeats().last().as_deref(), Some(&beat));
    let asked = world.asked();
    assert!(asked[0].starts_with("[System event: water the plants]"), "{asked:?}");
    assert_eq!(told(&world.runs("j1").await), [json!(["ran", "ok", HOUR])]);
    // The same answer is a new finding: it is about another event.
    let beat = heard(&mut news, "heartbeat", "").await;
    assert_eq!((&beat["status"], &beat["reason"]), (&json!("skipped"), &json!("no-target")));
}

#[tokio::test(start_paused = true)]
async fn an_event_can_wait_for_the_next_heartbeat() {
    let pulse = HeartbeatConfig { every: Duration::from_secs(90 * 60), ..HeartbeatConfig::of(AgentId::main()) };
    let world = ScheduleFixture::new(vec![event("j1", "next-heartbeat")], settings(pulse, Some("# Tasks"))).await;
    let mut news = world.schedule.subscribe();
    let beat = heard(&mut news, "heartbeat", "").await;
    assert_eq!((&beat["reason"], beat["ts"].as_u64()), (&json!("no-target"), Some(BIRTH + 90 * 60_000)));
    assert!(world.asked()[0].contains("[System event: water the plants]"));
}

// Case 192.
#[tokio::test(start_paused = true)]
async fn heartbeats_say_why_they_are_left_out() {
    let hours = Hours::parse("00:00", "02:45", TimeZone::UTC);
    let pulse = HeartbeatConfig { hours, ..HeartbeatConfig::of(AgentId::main()) };
    let world = ScheduleFixture::new(Vec::new(), settings(pulse, Some("# Tasks\n- \n"))).await;
    let mut news = world.schedule.subscribe();
    let beat = heard(&mut news, "heartbeat", "").await;
    let expected = json!({
        "ts": BIRTH + HOUR / 2, "status": "skipped", "reason": "empty-heartbeat-file", "agentId": "main",
    });
    assert_eq!(beat, expected);
    world.schedule.heartbeats().enable(false).await;
    assert_eq!(heard(&mut news, "heartbeat", "").await["reason"], "disabled");
    world.schedule.heartbeats().enable(true).await;
    for _ in 0..3 {
        assert_eq!(heard(&mut news, "heartbeat", "").await["reason"], "empty-heartbeat-file");
    }
    assert_eq!(heard(&mut news, "heartbeat", "").await["reason"], "quiet-hours");
    assert_eq!(world.asked(), Vec::<String>::new());
}

// Case 192.
#[tokio::test(start_paused = true)]
async fn an_agent_without_a_file_is_asked() {
    let world = ScheduleFixture::new(Vec::new(), settings(HeartbeatConfig::of(AgentId::main()), None)).await;
    let mut news = world.schedule.subscribe();
    let beat = heard(&mut news, "heartbeat", "").await;
    assert_eq!((&beat["status"], &beat["reason"]), (&json!("skipped"), &json!("no-target")));
    assert_eq!(world.asked().len(), 1);
}

// Case 193.
#[tokio::test(start_paused = true)]
async fn the_same_words_are_told_once_a_day() {
    let world = ScheduleFixture::new(Vec::new(), settings(HeartbeatConfig::of(AgentId::main()), Some("- look"))).await;
    let mut news = world.schedule.subscribe();
    let (mut told, mut left_out) = (Vec::new(), 0);
    while told.len() < 2 {
        let beat = heard(&mut news, "heartbeat", "").await;
        match (beat["status"].as_str().unwrap(), beat["reason"].as_str().unwrap()) {
            ("skipped", "no-target") => told.push(beat["ts"].as_u64().unwrap()),
            ("skipped", "duplicate") => left_out += 1,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((told[1] - told[0], left_out), (24 * HOUR, 47));
}

/// A chat platform that accepts everything.
#[derive(Debug, Default)]
struct RecordingChat(Mutex<Vec<String>>);

#[async_trait]
impl ChannelSender for RecordingChat {
    fn traits(&self, channel: &str) -> Option<ChannelTraits> {
        (channel == "telegram").then(ChannelTraits::default)
    }

    async fn deliver(&self, outgoing: OutgoingAction) -> Result<Receipt, SendError> {
        self.0.lock().unwrap().push(format!("{} {}", outgoing.to, outgoing.text));
        Ok(Receipt::default())
    }

    fn recipient(&self, route: &Route) -> Result<Recipient, SendError> {
        Err(SendError::NoChannel(format!("{route:?}")))
    }
}

/// Sets the last route of the main session.
async fn spoken_to(hub: &Hub, channel: &str, to: &str) {
    let changes = json!({"lastChannel": channel, "lastTo": to});
    let Value::Object(changes) = changes else { panic!() };
    let patch = crate::Patch { expected: None, changes };
    hub.patch(&AgentId::main().main_session(), patch).await.unwrap();
}

// Acceptance D4.
#[tokio::test(start_paused = true)]
async fn a_finding_goes_to_the_chat_that_is_set_and_the_event_says_so() {
    let sent = |target: &'static str, to: Option<&'static str>| async move {
        let (hub, parrot) = hub("fire", 1000);
        let chat = Arc::new(RecordingChat::default());
        hub.set_channel_sender(chat.clone());
        spoken_to(&hub, "telegram", "42").await;
        let pulse = HeartbeatConfig {
            target: target.into(),
            to: to.map(str::to_owned),
            ..HeartbeatConfig::of(AgentId::main())
        };
        let world =
            ScheduleFixture::over((hub, parrot), Arc::new(MemoryJobStore::default()), settings(pulse, None)).await;
        let mut news = world.schedule.subscribe();
        let mut beats = Vec::new();
        for _ in 0..2 {
            let beat = heard(&mut news, "heartbeat", "").await;
            beats.push(json!([beat["status"], beat["reason"], beat["channel"], beat["to"]]));
        }
        world.hub.wait_delivered().await;
        let heard = chat.0.lock().unwrap().clone();
        (beats, heard)
    };
    let duplicate = json!(["skipped", "duplicate", null, null]);
    let expected = (vec![json!(["sent", "interval", "telegram", "42"]), duplicate.clone()], vec!["42 fire".to_owned()]);
    assert_eq!(sent("last", None).await, expected);
    let expected = (vec![json!(["sent", "interval", "telegram", "7"]), duplicate.clone()], vec!["7 fire".to_owned()]);
    assert_eq!(sent("telegram", Some("7")).await, expected);
    let expected = (vec![json!(["skipped", "target-none", null, null]), duplicate], Vec::new());
    assert_eq!(sent("none", None).await, expected);
    let (beats, heard) = sent("slack", Some("C1")).await;
    assert!(beats[0][1].as_str().unwrap().contains("the channel slack is not set up"), "{beats:?}");
    assert_eq!((beats[0][0].as_str(), heard), (Some("skipped"), Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn a_wake_waits_for_a_busy_session() {
    let world = ScheduleFixture::over(hub("HEARTBEAT_OK", 0), Arc::new(MemoryJobStore::default()), calm()).await;
    let ask = run::ScheduledRun {
        run: world.hub.ambient().run_id(),
        key: AgentId::main().main_session(),
        class: crate::RunClass::Main,
        text: "hello".to_owned(),
    };
    world.hub.submit(ask.inbound(BIRTH)).await.unwrap();
    let mut news = world.schedule.subscribe();
    world.schedule.wake(None, ("the post came", Authority::Full), &job::WakeMode::Now).await.unwrap();
    tokio::time::advance(Duration::from_secs(5)).await;
    world.parrot.gate.add_permits(2);
    let beat = heard(&mut news, "heartbeat", "").await;
    assert_eq!((&beat["status"], &beat["reason"]), (&json!("ok-token"), &json!("wake")));
    assert!(world.asked()[1].contains("[System event: the post came]"), "{:?}", world.asked());
}

/// A job store that rejects writes while it is full.
#[derive(Debug, Default)]
struct FullShelf(MemoryJobStore, AtomicBool);

#[async_trait]
impl JobStore for FullShelf {
    fn location(&self) -> String {
        self.0.location()
    }

    async fn load(&self) -> Result<Vec<Value>, StoreError> {
        self.0.load().await
    }

    async fn save(&self, jobs: Vec<Value>) -> Result<(), StoreError> {
        match self.1.load(Ordering::SeqCst) {
            true => Err(StoreError::Disk("full".to_owned())),
            false => self.0.save(jobs).await,
        }
    }

    async fn append(&self, job: &str, line: Value) -> Result<(), StoreError> {
        self.0.append(job, line).await
    }

    async fn history(&self, job: &str) -> Result<Vec<Value>, StoreError> {
        self.0.history(job).await
    }
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_kept_is_not_started() {
    let shelf = Arc::new(FullShelf(MemoryJobStore::with(vec![hourly("j1")]), AtomicBool::new(true)));
    let world = ScheduleFixture::over(hub("done", 1000), shelf.clone(), calm()).await;
    let refused = world.schedule.update("j1", serde_json::Map::new()).await;
    assert_eq!(refused, Err(Error::Store(StoreError::Disk("full".to_owned()))));
    tokio::time::advance(Duration::from_millis(HOUR + 30_000)).await;
    assert_eq!(world.asked(), Vec::<String>::new());
    shelf.1.store(false, Ordering::SeqCst);
    heard(&mut world.schedule.subscribe(), "cron", "finished").await;
    assert_eq!(told(&world.runs("j1").await), [json!(["ran", "ok", HOUR])]);
}

#[tokio::test(start_paused = true)]
async fn a_job_that_cannot_be_read_is_kept() {
    let strange = json!({"id": 7, "from": "the future"});
    let world = ScheduleFixture::new(vec![strange.clone(), hourly("j1")], calm()).await;
    assert_eq!(world.schedule.remove("j1").await, Ok(true));
    assert_eq!(world.schedule.remove("j1").await, Ok(false));
    assert_eq!(world.shelf.load().await.unwrap(), [strange]);
}

#[tokio::test(start_paused = true)]
async fn a_changed_job_begins_anew() {
    let mut off = hourly("j1");
    off["enabled"] = json!(false);
    off["createdAtMs"] = json!(BIRTH - 50 * HOUR);
    let world = ScheduleFixture::new(vec![off], calm()).await;
    let patch = |patch: Value| patch.as_object().unwrap().clone();
    let on =
        world.schedule.update("j1", patch(json!({"enabled": true, "id": "other", "agentId": null}))).await.unwrap();
    assert_eq!((on.id.as_str(), on.state.next_run_at_ms), ("j1", Some(BIRTH + HOUR)));
    let patched = patch(json!({"payload": {"kind": "agentTurn", "thinking": "low"}, "name": "New"}));
    let changed = world.schedule.update("j1", patched).await.unwrap();
    assert_eq!(json!(changed.payload), json!({"kind": "agentTurn", "message": "look round", "thinking": "low"}));
    assert_eq!((changed.name.as_str(), changed.state.missed_slots), ("New", None));
    let sooner = patch(json!({"schedule": {"kind": "cron", "expr": "*/5 * * * *"}}));
    assert_eq!(world.schedule.update("j1", sooner).await.unwrap().state.next_run_at_ms, Some(BIRTH + 300_000));
}

#[tokio::test(start_paused = true)]
async fn a_job_that_makes_no_sense_is_refused_in_plain_words() {
    let world = ScheduleFixture::new(Vec::new(), calm()).await;
    let (every, turn) = (json!({"kind": "every", "everyMs": 5000}), json!({"kind": "agentTurn", "message": "x"}));
    for (fields, why) in [
        (json!({"name": " ", "schedule": every, "payload": turn}), "name must not be blank"),
        (json!({"name": "j", "payload": turn}), "missing field \"schedule\""),
        (
            json!({"name": "j", "schedule": every, "payload": {"kind": "agentTurn", "message": " "}}),
            "payload.message must not be blank",
        ),
        (
            json!({"name": "j", "schedule": {"kind": "every", "everyMs": 5}, "payload": turn}),
            "schedule.everyMs must be at least 1000",
        ),
        (
            json!({"name": "j", "schedule": {"kind": "at", "at": "2026-11-14T23:58:00Z"}, "payload": turn}),
            "schedule.at is in the past",
        ),
        (
            json!({"name": "j", "schedule": {"kind": "cron", "expr": "0 0 30 2 *"}, "payload": turn}),
            "the schedule has no future run time",
        ),
        (
            json!({"name": "j", "schedule": {"kind": "every"}, "payload": turn}),
            "schedule.everyMs is missing or not a whole number of milliseconds",
        ),
        (json!({"name": "j", "schedule": every, "payload": turn, "agentId": "nobody"}), "unknown agent id \"nobody\""),
        (
            json!({
                "name": "j", "schedule": every, "payload": {"kind": "agentTurn", "message": "x", "thinking": "hard"},
            }),
            "payload.thinking \"hard\" is not a level; use off|minimal|low|medium|high|xhigh",
        ),
        (
            json!({"name": "j", "schedule": every, "payload": turn, "sessionTarget": "main"}),
            "a job of the main session needs payload.kind \"systemEvent\"; use it, or sessionTarget \"isolated\"",
        ),
    ] {
        let Value::Object(fields) = fields else { panic!() };
        assert_eq!(world.schedule.add(fields).await, Err(Error::Invalid(why.to_owned())));
    }
    assert_eq!(world.schedule.view().jobs, []);
}
