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
use homard_agent::{
    Agents, FencedStore, HubRules, Profile,
    channel_sender::{ChannelSender, ChannelTraits, OutgoingAction, Receipt, Recipient, SendError},
};
use homard_model::{EventStream, Model, ModelEvent, ModelSpec, Request, candidates::Candidates, stream::AnswerEnd};
use homard_proto::{
    Route, SessionKey,
    message::{Message, StopReason, Usage},
};
use homard_queue::Slots;
use homard_runtime::Ambient;
use homard_store::{Authority, Error as StoreError, Fence, MemoryStore};
use serde_json::json;
use tokio::sync::Semaphore;

use super::{
    heartbeat::{HeartbeatFile, Hours},
    store::MemoryJobStore,
    *,
};

/// 2026-11-15T00:00:00Z.
const START_MS: u64 = 1_794_700_800_000;
const HOUR: u64 = 3_600_000;

/// A model that gives the same answer each time its gate permits, and records its requests.
#[derive(Debug)]
struct TestModelState {
    spec: ModelSpec,
    reply_text: Mutex<String>,
    gate: Semaphore,
    prompts: Mutex<Vec<String>>,
}

struct TestModel(Arc<TestModelState>);

impl Model for TestModel {
    fn spec(&self) -> &ModelSpec {
        &self.0.spec
    }

    fn stream(&self, request: Request) -> EventStream {
        let prompt = request.messages.last().map(|message| match &**message {
            Message::User(user) => user.content.text(),
            Message::Assistant(_) | Message::ToolResult(_) | Message::Other(_) => String::new(),
        });
        self.0.prompts.lock().unwrap().extend(prompt);
        let model_state = self.0.clone();
        let reply = stream::once(async move {
            model_state.gate.acquire().await.unwrap().forget();
            let reply = model_state.reply_text.lock().unwrap().clone();
            ModelEvent::Text(reply)
        });
        reply
            .chain(stream::iter([ModelEvent::Done(AnswerEnd { stop: StopReason::Stop, usage: Usage::default() })]))
            .boxed()
    }
}

/// A hub with one agent, a job store, and the schedule over both.
struct ScheduleFixture {
    hub: Hub,
    model_state: Arc<TestModelState>,
    store: Arc<dyn JobStore>,
    schedule: Schedule,
    tasks: ScheduleTasks,
    stop: CancellationToken,
}

/// A hub with the model that answers its runs.
struct TestHub {
    hub: Hub,
    model_state: Arc<TestModelState>,
}

fn hub(reply: &str, permits: usize) -> TestHub {
    let spec = ModelSpec {
        provider: "test".to_owned(),
        model: "parrot".to_owned(),
        idle_timeout: Duration::MAX,
        ..ModelSpec::default()
    };
    let (reply_text, gate) = (Mutex::new(reply.to_owned()), Semaphore::new(permits));
    let model_state = Arc::new(TestModelState { spec, reply_text, gate, prompts: Mutex::default() });
    let candidates = Candidates::single(Arc::new(TestModel(model_state.clone())));
    let timeout = Some(Duration::from_secs(20 * 3600));
    let profile = Profile { timeout, ..Profile::new(AgentId::main(), candidates) };
    let store = FencedStore::new(Arc::new(MemoryStore::default()), Fence::default());
    let (hub, _) =
        Hub::start(Ambient::fixed(START_MS), store, Agents::new(profile, []), Slots::default(), HubRules::default());
    TestHub { hub, model_state }
}

/// No automatic heartbeats, and no file.
fn quiet_settings() -> ScheduleSettings {
    settings(HeartbeatConfig { every: Duration::from_secs(1_000_000), ..HeartbeatConfig::of(AgentId::main()) }, None)
}

fn settings(config: HeartbeatConfig, file: Option<&'static str>) -> ScheduleSettings {
    let file = HeartbeatFile::new(move |_| file.map(str::to_owned));
    ScheduleSettings { is_enabled: true, zone: TimeZone::UTC, heartbeats: vec![config], file }
}

impl ScheduleFixture {
    async fn new(jobs: Vec<Value>, settings: ScheduleSettings) -> Self {
        Self::over(hub("done", 1000), Arc::new(MemoryJobStore::with(jobs)), settings).await
    }

    async fn over(test_hub: TestHub, store: Arc<dyn JobStore>, settings: ScheduleSettings) -> Self {
        let (TestHub { hub, model_state }, stop) = (test_hub, CancellationToken::new());
        let (schedule, tasks) = Schedule::start(&hub, store.clone(), settings, stop.clone()).await.unwrap();
        Self { hub, model_state, store, schedule, tasks, stop }
    }

    /// Restarts the schedule over the same hub and job store.
    async fn restart(self) -> Self {
        self.stop.cancel();
        self.tasks.ended().await;
        Self::over(TestHub { hub: self.hub, model_state: self.model_state }, self.store, quiet_settings()).await
    }

    async fn runs(&self, job: &str) -> Vec<Value> {
        self.store.history(job).await.unwrap()
    }

    fn prompts(&self) -> Vec<String> {
        self.model_state.prompts.lock().unwrap().clone()
    }

    fn job(&self, id: &str) -> Value {
        self.schedule.view().jobs.iter().find(|job| job.id == id).map_or(Value::Null, |job| json!(job))
    }
}

/// Waits for the next event of this kind. The paused clock advances while all tasks are idle.
async fn next_event(events: &mut broadcast::Receiver<(&'static str, Value)>, name: &str, action: &str) -> Value {
    loop {
        let (event, payload) = events.recv().await.unwrap();
        if event == name && (action.is_empty() || payload["action"] == action) {
            return payload;
        }
    }
}

fn isolated(id: &str, schedule: &Value) -> Value {
    json!({
        "id": id, "name": "Look", "createdAtMs": START_MS, "schedule": schedule, "sessionTarget": "isolated",
        "payload": {"kind": "agentTurn", "message": "look round"},
    })
}

fn hourly(id: &str) -> Value {
    isolated(id, &json!({"kind": "every", "everyMs": HOUR}))
}

fn event(id: &str, wake: &str) -> Value {
    json!({
        "id": id, "name": "Tell", "createdAtMs": START_MS, "schedule": {"kind": "every", "everyMs": HOUR},
        "sessionTarget": "main", "wakeMode": wake, "payload": {"kind": "systemEvent", "text": "water the plants"},
    })
}

/// Returns the run history without values that change from run to run.
fn outcomes(lines: &[Value]) -> Vec<Value> {
    lines
        .iter()
        .map(|line| json!([line["outcome"], line["status"], line["slotMs"].as_u64().unwrap() - START_MS]))
        .collect()
}

// Case 196.
#[tokio::test(start_paused = true)]
async fn an_isolated_job_runs_in_its_own_session_with_a_new_transcript_each_time() {
    let fixture = ScheduleFixture::new(vec![hourly("j1")], quiet_settings()).await;
    let mut events = fixture.schedule.subscribe();
    for _ in 0..2 {
        next_event(&mut events, "cron", "finished").await;
    }
    let lines = fixture.runs("j1").await;
    assert_eq!(outcomes(&lines), [json!(["ran", "ok", HOUR]), json!(["ran", "ok", 2 * HOUR])]);
    assert_eq!(lines[0]["runId"], format!("cron-j1-{}", START_MS + HOUR));
    assert_eq!((&lines[0]["sessionKey"], &lines[0]["summary"]), (&json!("agent:main:cron:j1"), &json!("done")));
    assert_ne!(lines[0]["sessionId"], lines[1]["sessionId"]);
    assert_eq!(fixture.prompts()[0], "[cron:j1 Look] look round\nCurrent time: Sunday, 2026-11-15 01:00 +00:00 (UTC)");
    let key = SessionKey::parse("agent:main:cron:j1", &AgentId::main()).unwrap();
    assert_eq!(fixture.hub.sessions().history(&key).await.unwrap().unwrap().1.len(), 2);
    let state = &fixture.job("j1")["state"];
    assert_eq!((&state["lastStatus"], &state["nextRunAtMs"]), (&json!("ok"), &json!(START_MS + 3 * HOUR)));
    assert_eq!(state.get("runningAtMs"), None);
}

/// A store whose writes let other tasks run, as those of a disk do.
#[derive(Debug)]
struct YieldingStore(MemoryJobStore);

#[async_trait]
impl JobStore for YieldingStore {
    fn location(&self) -> String {
        self.0.location()
    }

    async fn load(&self) -> Result<Vec<Value>, StoreError> {
        self.0.load().await
    }

    async fn save(&self, jobs: Vec<Value>) -> Result<(), StoreError> {
        tokio::task::yield_now().await;
        self.0.save(jobs).await
    }

    async fn append(&self, job: &str, line: Value) -> Result<(), StoreError> {
        tokio::task::yield_now().await;
        self.0.append(job, line).await
    }

    async fn history(&self, job: &str) -> Result<Vec<Value>, StoreError> {
        self.0.history(job).await
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_about_a_finished_run_comes_after_its_end_is_in_the_job_and_in_the_history() {
    let store = Arc::new(YieldingStore(MemoryJobStore::with(vec![hourly("j1"), event("j2", "now")])));
    let fixture = ScheduleFixture::over(hub("done", 1000), store, quiet_settings()).await;
    let mut events = fixture.schedule.subscribe();
    for _ in 0..4 {
        let finished = next_event(&mut events, "cron", "finished").await;
        let id = finished["jobId"].as_str().unwrap();
        let state = fixture.job(id)["state"].clone();
        assert_eq!((&state["lastStatus"], state.get("runningAtMs")), (&json!("ok"), None), "{id}: {state}");
        assert_eq!(fixture.runs(id).await.last(), Some(&finished));
    }
}

#[tokio::test(start_paused = true)]
async fn a_restart_in_the_middle_of_a_slot_does_not_run_it_twice() {
    let fixture =
        ScheduleFixture::over(hub("done", 0), Arc::new(MemoryJobStore::with(vec![hourly("j1")])), quiet_settings())
            .await;
    next_event(&mut fixture.schedule.subscribe(), "cron", "started").await;
    let fixture = fixture.restart().await;
    let mut events = fixture.schedule.subscribe();
    fixture.model_state.gate.add_permits(1);
    next_event(&mut events, "cron", "finished").await;
    assert_eq!((outcomes(&fixture.runs("j1").await), fixture.prompts().len()), (vec![json!(["ran", "ok", HOUR])], 1));
}

#[tokio::test(start_paused = true)]
async fn a_slot_that_ended_before_a_crash_is_recorded_once() {
    let mut running = hourly("j1");
    running["state"] = json!({"settledAtMs": START_MS, "runningAtMs": START_MS, "runningSlotMs": START_MS});
    let fixture = ScheduleFixture::new(vec![running.clone()], quiet_settings()).await;
    next_event(&mut fixture.schedule.subscribe(), "cron", "finished").await;
    // As after a crash before the job was stored, and then before the run history was.
    fixture.store.save(vec![running.clone()]).await.unwrap();
    let fixture = fixture.restart().await;
    let mut events = fixture.schedule.subscribe();
    next_event(&mut events, "cron", "started").await;
    next_event(&mut events, "cron", "finished").await;
    let lines = outcomes(&fixture.runs("j1").await);
    assert_eq!((lines, fixture.prompts().len()), (vec![json!(["ran", "ok", 0]), json!(["ran", "ok", HOUR])], 2));
    let (hub, model_state) = (fixture.hub.clone(), fixture.model_state.clone());
    running["state"]["settledAtMs"] = json!(START_MS + HOUR);
    let fresh = ScheduleFixture::over(
        TestHub { hub, model_state },
        Arc::new(MemoryJobStore::with(vec![running])),
        quiet_settings(),
    )
    .await;
    next_event(&mut fresh.schedule.subscribe(), "cron", "finished").await;
    assert_eq!((outcomes(&fresh.runs("j1").await)[0].clone(), fresh.prompts().len()), (json!(["ran", "ok", 0]), 2));
}

#[tokio::test(start_paused = true)]
async fn missed_slots_are_counted_and_reported() {
    let mut old = hourly("j1");
    old["createdAtMs"] = json!(START_MS - 5 * HOUR - 120_000);
    let mut once = isolated("j2", &json!({"kind": "at", "atMs": START_MS - 2 * HOUR}));
    once["deleteAfterRun"] = json!(true);
    let late = isolated("j3", &json!({"kind": "at", "atMs": START_MS - 600_000}));
    let fixture = ScheduleFixture::new(vec![old, once, late], quiet_settings()).await;
    let mut events = fixture.schedule.subscribe();
    while next_event(&mut events, "cron", "finished").await["jobId"] != "j3" {}
    let line = fixture.runs("j1").await[0].clone();
    assert_eq!((&line["outcome"], &line["slots"]), (&json!("missed"), &json!(5)));
    assert_eq!(line["error"], "missed runs: 5; they were not started in time");
    assert_eq!(fixture.job("j1")["state"]["missedSlots"], 5);
    assert_eq!(
        (&fixture.runs("j2").await[0]["outcome"], &fixture.job("j2")["enabled"]),
        (&json!("missed"), &json!(false))
    );
    assert_eq!(
        (&fixture.runs("j3").await[0]["outcome"], &fixture.job("j3")["enabled"]),
        (&json!("ran"), &json!(false))
    );
}

// Pitfall 74.
#[tokio::test(start_paused = true)]
async fn a_slot_is_skipped_while_the_previous_one_runs() {
    let fixture =
        ScheduleFixture::over(hub("done", 0), Arc::new(MemoryJobStore::with(vec![hourly("j1")])), quiet_settings())
            .await;
    let mut events = fixture.schedule.subscribe();
    assert_eq!(next_event(&mut events, "cron", "finished").await["error"], "skipped: the previous run is still active");
    assert_eq!(fixture.schedule.run("j1", RunMode::Force).await, Ok(RunNowResult::AlreadyRunning));
    fixture.model_state.gate.add_permits(1);
    next_event(&mut events, "cron", "finished").await;
    let expected = [json!(["skipped", "skipped", 2 * HOUR]), json!(["ran", "ok", HOUR])];
    assert_eq!(outcomes(&fixture.runs("j1").await), expected);
}

#[tokio::test(start_paused = true)]
async fn a_job_can_be_run_on_request() {
    let fixture = ScheduleFixture::new(vec![hourly("j1"), event("j2", "next-heartbeat")], quiet_settings()).await;
    assert_eq!(fixture.schedule.run("j1", RunMode::Due).await, Ok(RunNowResult::NotDue));
    assert_eq!(fixture.schedule.run("j9", RunMode::Force).await, Err(Error::Unknown("j9".to_owned())));
    let mut events = fixture.schedule.subscribe();
    let run = homard_proto::RunId::parse(&format!("cron-j1-{START_MS}")).unwrap();
    assert_eq!(fixture.schedule.run("j1", RunMode::Force).await, Ok(RunNowResult::Started(run)));
    next_event(&mut events, "cron", "finished").await;
    assert_eq!(outcomes(&fixture.runs("j1").await), [json!(["ran", "ok", 0])]);
    assert_eq!(fixture.job("j1")["state"]["nextRunAtMs"], START_MS + HOUR);
}

#[tokio::test(start_paused = true)]
async fn a_one_time_job_is_deleted_after_success() {
    let fixture = ScheduleFixture::new(Vec::new(), quiet_settings()).await;
    let fields = json!({
        "name": "once", "schedule": {"kind": "at", "at": "2026-11-15T03:00:00Z"},
        "payload": {"kind": "agentTurn", "message": "x"},
    });
    let Value::Object(fields) = fields else { panic!() };
    let mut events = fixture.schedule.subscribe();
    let job = fixture.schedule.add(fields).await.unwrap();
    let created = (job.delete_after_run, job.session_target, job.state.next_run_at_ms);
    assert_eq!(created, (Some(true), job::JobTarget::Isolated, Some(START_MS + 3 * HOUR)));
    next_event(&mut events, "cron", "removed").await;
    assert_eq!(
        (fixture.schedule.view().jobs.len(), outcomes(&fixture.runs(&job.id).await)),
        (0, vec![json!(["ran", "ok", 3 * HOUR])])
    );
}

#[tokio::test(start_paused = true)]
async fn a_job_of_the_main_session_notifies_and_wakes_it() {
    let fixture = ScheduleFixture::new(vec![event("j1", "now")], quiet_settings()).await;
    let mut events = fixture.schedule.subscribe();
    let heartbeat = next_event(&mut events, "heartbeat", "").await;
    assert_eq!(
        (&heartbeat["status"], &heartbeat["reason"], &heartbeat["preview"]),
        (&json!("skipped"), &json!("no-target"), &json!("done"))
    );
    assert_eq!(fixture.schedule.heartbeats().last().as_deref(), Some(&heartbeat));
    let prompts = fixture.prompts();
    assert!(prompts[0].starts_with("[System event: water the plants]"), "{prompts:?}");
    assert_eq!(outcomes(&fixture.runs("j1").await), [json!(["ran", "ok", HOUR])]);
    // The same answer is a new finding: it is about another event.
    let heartbeat = next_event(&mut events, "heartbeat", "").await;
    assert_eq!((&heartbeat["status"], &heartbeat["reason"]), (&json!("skipped"), &json!("no-target")));
}

#[tokio::test(start_paused = true)]
async fn an_event_can_wait_for_the_next_heartbeat() {
    let config = HeartbeatConfig { every: Duration::from_secs(90 * 60), ..HeartbeatConfig::of(AgentId::main()) };
    let fixture = ScheduleFixture::new(vec![event("j1", "next-heartbeat")], settings(config, Some("# Tasks"))).await;
    let mut events = fixture.schedule.subscribe();
    let heartbeat = next_event(&mut events, "heartbeat", "").await;
    assert_eq!((&heartbeat["reason"], heartbeat["ts"].as_u64()), (&json!("no-target"), Some(START_MS + 90 * 60_000)));
    assert!(fixture.prompts()[0].contains("[System event: water the plants]"));
}

// Case 192.
#[tokio::test(start_paused = true)]
async fn skipped_heartbeats_report_the_reason() {
    let hours = Hours::parse("00:00", "02:45", TimeZone::UTC);
    let config = HeartbeatConfig { hours, ..HeartbeatConfig::of(AgentId::main()) };
    let fixture = ScheduleFixture::new(Vec::new(), settings(config, Some("# Tasks\n- \n"))).await;
    let mut events = fixture.schedule.subscribe();
    let heartbeat = next_event(&mut events, "heartbeat", "").await;
    let expected = json!({
        "ts": START_MS + HOUR / 2, "status": "skipped", "reason": "empty-heartbeat-file", "agentId": "main",
    });
    assert_eq!(heartbeat, expected);
    fixture.schedule.heartbeats().enable(false).await;
    assert_eq!(next_event(&mut events, "heartbeat", "").await["reason"], "disabled");
    fixture.schedule.heartbeats().enable(true).await;
    for _ in 0..3 {
        assert_eq!(next_event(&mut events, "heartbeat", "").await["reason"], "empty-heartbeat-file");
    }
    assert_eq!(next_event(&mut events, "heartbeat", "").await["reason"], "quiet-hours");
    assert_eq!(fixture.prompts(), Vec::<String>::new());
}

// Case 192.
#[tokio::test(start_paused = true)]
async fn an_agent_without_a_heartbeat_file_is_prompted() {
    let fixture = ScheduleFixture::new(Vec::new(), settings(HeartbeatConfig::of(AgentId::main()), None)).await;
    let mut events = fixture.schedule.subscribe();
    let heartbeat = next_event(&mut events, "heartbeat", "").await;
    // The status is that of the delivery: the agent had a finding, but there is no chat to send it to.
    assert_eq!((&heartbeat["status"], &heartbeat["reason"]), (&json!("skipped"), &json!("no-target")));
    assert_eq!(fixture.prompts().len(), 1);
}

// Case 193.
#[tokio::test(start_paused = true)]
async fn the_same_finding_is_reported_once_a_day() {
    let fixture =
        ScheduleFixture::new(Vec::new(), settings(HeartbeatConfig::of(AgentId::main()), Some("- look"))).await;
    let mut events = fixture.schedule.subscribe();
    let (mut reported_at, mut left_out) = (Vec::new(), 0);
    while reported_at.len() < 2 {
        let heartbeat = next_event(&mut events, "heartbeat", "").await;
        match (heartbeat["status"].as_str().unwrap(), heartbeat["reason"].as_str().unwrap()) {
            ("skipped", "no-target") => reported_at.push(heartbeat["ts"].as_u64().unwrap()),
            ("skipped", "duplicate") => left_out += 1,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((reported_at[1] - reported_at[0], left_out), (24 * HOUR, 47));
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
async fn set_last_route(hub: &Hub, channel: &str, to: &str) {
    let changes = json!({"lastChannel": channel, "lastTo": to});
    let Value::Object(changes) = changes else { panic!() };
    let patch = homard_agent::Patch { expected: None, changes };
    hub.sessions().patch(&AgentId::main().main_session(), patch).await.unwrap();
}

// Acceptance D4.
#[tokio::test(start_paused = true)]
async fn a_finding_is_sent_to_the_configured_chat_and_the_event_names_it() {
    let sent = |target: &'static str, to: Option<&'static str>| async move {
        let TestHub { hub, model_state } = hub("fire", 1000);
        let chat = Arc::new(RecordingChat::default());
        hub.deliveries().set_sender(chat.clone());
        set_last_route(&hub, "telegram", "42").await;
        let config = HeartbeatConfig {
            target: target.into(),
            to: to.map(str::to_owned),
            ..HeartbeatConfig::of(AgentId::main())
        };
        let fixture = ScheduleFixture::over(
            TestHub { hub, model_state },
            Arc::new(MemoryJobStore::default()),
            settings(config, None),
        )
        .await;
        let mut events = fixture.schedule.subscribe();
        let mut heartbeats = Vec::new();
        for _ in 0..2 {
            let heartbeat = next_event(&mut events, "heartbeat", "").await;
            heartbeats.push(json!([heartbeat["status"], heartbeat["reason"], heartbeat["channel"], heartbeat["to"]]));
        }
        fixture.hub.deliveries().wait_empty().await;
        let delivered = chat.0.lock().unwrap().clone();
        (heartbeats, delivered)
    };
    let duplicate = json!(["skipped", "duplicate", null, null]);
    let expected = (vec![json!(["sent", "interval", "telegram", "42"]), duplicate.clone()], vec!["42 fire".to_owned()]);
    assert_eq!(sent("last", None).await, expected);
    let expected = (vec![json!(["sent", "interval", "telegram", "7"]), duplicate.clone()], vec!["7 fire".to_owned()]);
    assert_eq!(sent("telegram", Some("7")).await, expected);
    let expected = (vec![json!(["skipped", "target-none", null, null]), duplicate], Vec::new());
    assert_eq!(sent("none", None).await, expected);
    let (heartbeats, delivered) = sent("slack", Some("C1")).await;
    assert!(heartbeats[0][1].as_str().unwrap().contains("channel slack is not configured"), "{heartbeats:?}");
    assert_eq!((heartbeats[0][0].as_str(), delivered), (Some("skipped"), Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn a_wake_waits_for_a_busy_session() {
    let fixture =
        ScheduleFixture::over(hub("HEARTBEAT_OK", 0), Arc::new(MemoryJobStore::default()), quiet_settings()).await;
    let scheduled = run::ScheduledRun {
        run: fixture.hub.ambient().run_id(),
        key: AgentId::main().main_session(),
        class: homard_queue::RunClass::Main,
        text: "hello".to_owned(),
    };
    fixture.hub.submit(scheduled.inbound(START_MS)).await.unwrap();
    let mut events = fixture.schedule.subscribe();
    fixture.schedule.wake(None, "the post came", Authority::Full, &job::WakeMode::Now).await.unwrap();
    tokio::time::advance(Duration::from_secs(5)).await;
    fixture.model_state.gate.add_permits(2);
    let heartbeat = next_event(&mut events, "heartbeat", "").await;
    assert_eq!((&heartbeat["status"], &heartbeat["reason"]), (&json!("ok-token"), &json!("wake")));
    assert!(fixture.prompts()[1].contains("[System event: the post came]"), "{:?}", fixture.prompts());
}

/// A job store that rejects writes while it is full.
#[derive(Debug, Default)]
struct FullStore(MemoryJobStore, AtomicBool);

#[async_trait]
impl JobStore for FullStore {
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
async fn a_slot_that_cannot_be_stored_is_not_started() {
    let store = Arc::new(FullStore(MemoryJobStore::with(vec![hourly("j1")]), AtomicBool::new(true)));
    let fixture = ScheduleFixture::over(hub("done", 1000), store.clone(), quiet_settings()).await;
    let result = fixture.schedule.update("j1", serde_json::Map::new()).await;
    assert_eq!(result, Err(Error::Store(StoreError::Disk("full".to_owned()))));
    tokio::time::advance(Duration::from_millis(HOUR + 30_000)).await;
    assert_eq!(fixture.prompts(), Vec::<String>::new());
    store.1.store(false, Ordering::SeqCst);
    next_event(&mut fixture.schedule.subscribe(), "cron", "finished").await;
    assert_eq!(outcomes(&fixture.runs("j1").await), [json!(["ran", "ok", HOUR])]);
}

#[tokio::test(start_paused = true)]
async fn an_unreadable_job_is_preserved() {
    let unreadable = json!({"id": 7, "from": "the future"});
    let fixture = ScheduleFixture::new(vec![unreadable.clone(), hourly("j1")], quiet_settings()).await;
    assert_eq!(fixture.schedule.remove("j1").await, Ok(true));
    assert_eq!(fixture.schedule.remove("j1").await, Ok(false));
    assert_eq!(fixture.store.load().await.unwrap(), [unreadable]);
}

#[tokio::test(start_paused = true)]
async fn a_changed_job_restarts_its_schedule() {
    let mut disabled = hourly("j1");
    disabled["enabled"] = json!(false);
    disabled["createdAtMs"] = json!(START_MS - 50 * HOUR);
    let fixture = ScheduleFixture::new(vec![disabled], quiet_settings()).await;
    let patch = |patch: Value| patch.as_object().unwrap().clone();
    let enabled =
        fixture.schedule.update("j1", patch(json!({"enabled": true, "id": "other", "agentId": null}))).await.unwrap();
    assert_eq!((enabled.id.as_str(), enabled.state.next_run_at_ms), ("j1", Some(START_MS + HOUR)));
    let patched = patch(json!({"payload": {"kind": "agentTurn", "thinking": "low"}, "name": "New"}));
    let changed = fixture.schedule.update("j1", patched).await.unwrap();
    assert_eq!(json!(changed.payload), json!({"kind": "agentTurn", "message": "look round", "thinking": "low"}));
    assert_eq!((changed.name.as_str(), changed.state.missed_slots), ("New", None));
    let sooner = patch(json!({"schedule": {"kind": "cron", "expr": "*/5 * * * *"}}));
    assert_eq!(fixture.schedule.update("j1", sooner).await.unwrap().state.next_run_at_ms, Some(START_MS + 300_000));
}

#[tokio::test(start_paused = true)]
async fn an_invalid_job_is_rejected_with_a_clear_error() {
    let fixture = ScheduleFixture::new(Vec::new(), quiet_settings()).await;
    let (every, turn) = (json!({"kind": "every", "everyMs": 5000}), json!({"kind": "agentTurn", "message": "x"}));
    for (fields, error) in [
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
        assert_eq!(fixture.schedule.add(fields).await, Err(Error::Invalid(error.to_owned())));
    }
    assert_eq!(fixture.schedule.view().jobs, []);
}
