//! Runs a trace against the real hub, on a paused clock.
//!
//! Each process of the trace has its own runtime: a crash drops the runtime, and with it every task of that process. The
//! store, the clock and the recorders survive.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use homard_agent::{
    Agents, Ambient, Hub, HubRules, Profile, PromptConfig, Slots, Tape, TapeEvent,
    hub::{CrashLoops, WaitResult},
    profile::ModelResolver,
    tape::TapeState,
    task,
};
use homard_model::{
    Model, ModelSpec,
    candidates::{Candidate, CandidateRank, Candidates, Credential, CredentialOrder},
    retry::RetryLimits,
};
use homard_proto::{AgentId, Generation, RunId, SessionId, SessionKey, transcript::Entry};
use homard_store::{DeliveryRow, Fence, MemoryStore, ProcessEnd, Rec, RunRow, Session, Store};
use jiff::tz::TimeZone;
use serde_json::json;
use tokio::{
    runtime::Builder,
    sync::watch as channel,
    time::{sleep, timeout},
};

use crate::{
    channel_sender::{AcceptedMessage, FakePlatforms},
    client::{Acknowledgements, ClientCall, SharedAcknowledgements},
    clock::TraceClock,
    faults::{AcceptedRecords, FaultyStore},
    hooks::{HookInvocation, ScriptedHooks},
    invariants,
    recorder::{RunLog, SharedRunLog},
    script::{AnswerFn, COMPACTION_MODEL, FallbackModel, RecordedRequest, ScriptedModel},
    tools::{ResultNumbering, ScriptedTools, ToolLaunch},
    trace::{ActKind, ProcessKind, Trace, TraceAct, TraceSetup},
    workspace::TraceFolder,
};

/// Start time of every trace, in milliseconds since the epoch.
pub const EPOCH_MS: u64 = 1_800_000_000_000;

/// Time limit for a response; a later one counts as missing.
const PATIENCE: Duration = Duration::from_secs(30 * 24 * 3_600);

/// Time limit for stopping a hub without active runs.
const STOP: Duration = Duration::from_secs(10);

/// Maximum number of processes of a trace; more mean an endless restart.
const LIVES: usize = 40;

/// Everything that was recorded while a trace ran.
#[derive(Debug)]
pub struct TraceResult {
    pub(crate) calls: Vec<ClientCall>,
    pub(crate) log: RunLog,
    pub(crate) seen: Vec<RecordedRequest>,
    /// Number of model requests before the last process.
    pub(crate) seen_before: usize,
    pub(crate) launches: Vec<ToolLaunch>,
    pub(crate) sessions: Vec<(SessionKey, Session)>,
    /// Former transcripts: runs used them, but their sessions have newer ones.
    pub(crate) past: Vec<(SessionKey, SessionId, Vec<Entry>)>,
    /// Commits of the store, and the number of commits requested.
    pub(crate) taken: AcceptedRecords,
    pub(crate) commits: u64,
    /// Stored state of each run that was stored or had events.
    pub(crate) rows: BTreeMap<RunId, RunRow>,
    /// Promises made to clients.
    pub(crate) promises: Acknowledgements,
    /// Result of `agent.wait` for each run after the end, if requested.
    pub(crate) waited: Vec<(RunId, WaitResult)>,
    /// Messages that channels accepted, and the channels that deduplicate.
    pub(crate) heard: Vec<AcceptedMessage>,
    /// Messages that channels refused.
    pub(crate) refused: Vec<AcceptedMessage>,
    pub(crate) idempotent: BTreeSet<String>,
    /// True if the trace has channels.
    pub(crate) has_channels: bool,
    /// Outbox: deliveries without a confirmation.
    pub(crate) outbox: Vec<DeliveryRow>,
    /// Deviations from the script.
    pub(crate) complaints: Vec<String>,
    /// True if the script has a fault of the store.
    pub(crate) disk_failed: bool,
    /// Total duration of slow commits in the script.
    pub(crate) commit_time: Duration,
    /// True if the script stopped the hub without a restart.
    pub(crate) stopped: bool,
    /// True if the trace ran until every run had ended.
    pub(crate) is_played_out: bool,
    /// Downtime of each restart.
    pub(crate) down: Duration,
    /// Events that hooks received.
    pub(crate) rung: Vec<HookInvocation>,
    /// What was on disk besides.
    pub(crate) folder: Option<TraceFolder>,
    /// Where the person is.
    pub(crate) zone: Option<TimeZone>,
}

impl TraceResult {
    /// All transcripts, with the session that each is or was of.
    pub(crate) fn transcripts(&self) -> impl Iterator<Item = (&SessionKey, &[Entry])> {
        let past = self.past.iter().map(|(key, _, entries)| (key, entries.as_slice()));
        past.chain(self.sessions.iter().map(|(key, session)| (key, session.entries.as_slice())))
    }

    /// When each run began that clients heard of, in the order in which they did.
    pub fn beginnings(&self) -> impl Iterator<Item = (&RunId, Duration)> {
        let began = self.log.payloads.iter().filter(|told| invariants::phase(told) == Some("start"));
        began.map(|told| (self.log.runs[told.run].tape.run(), told.at))
    }

    /// How many runs were in the model's hands at once, at most.
    pub fn busiest(&self) -> usize {
        let ends: BTreeMap<_, _> = self
            .log
            .payloads
            .iter()
            .filter(|told| matches!(invariants::phase(told), Some("end" | "error")))
            .map(|told| (told.run, told.at))
            .collect();
        // Each comes and goes; who goes makes room for who comes at the same moment.
        let began = self.log.payloads.iter().filter(|told| invariants::phase(told) == Some("start"));
        let stays = began.map(|told| (told.at, ends.get(&told.run).copied().unwrap_or(Duration::MAX)));
        let stays = stays.filter(|(came, went)| went > came);
        let mut steps: Vec<_> = stays.flat_map(|(came, went)| [(came, 1_isize), (went, -1)]).collect();
        steps.sort_unstable();
        let counts = steps.iter().scan(0_isize, |count, (_, step)| {
            *count += step;
            Some(*count)
        });
        counts.max().unwrap_or_default().unsigned_abs()
    }

    /// Each run that was heard of, and what is on its tape. One that a restart took up again is heard of twice.
    pub fn runs(&self) -> impl Iterator<Item = (&Tape, &[TapeEvent])> {
        self.log.runs.iter().map(|heard| (&*heard.tape, heard.events.as_slice()))
    }

    /// What the store knows of each run.
    pub fn rows(&self) -> impl Iterator<Item = &RunRow> {
        self.rows.values()
    }

    /// How often the hub died or stopped and began again.
    pub fn restarts(&self) -> usize {
        self.log.restarts.len()
    }

    /// True if the script has a fault of the store.
    pub fn has_bad_disk(&self) -> bool {
        self.disk_failed
    }

    /// What models were asked, in order.
    pub fn asked(&self) -> &[RecordedRequest] {
        &self.seen
    }

    /// Returns true if hooks received an event that begins with this word.
    pub(crate) fn asked_hooks(&self, word: &str) -> bool {
        self.rung.iter().any(|rung| rung.what.split(' ').next() == Some(word))
    }

    /// What was answered to the message of a run, if that went well; names of folders are as in a snapshot.
    pub fn reply(&self, run: &str) -> Option<String> {
        let heard = self.log.runs.iter().rev().find(|heard| heard.tape.run().as_str() == run)?;
        let TapeState::Ended(end) = heard.tape.state() else { return None };
        Some(self.unnamed(&end.replies.iter().map(|reply| reply.text.as_str()).collect::<Vec<_>>().join("\n")))
    }

    /// A text in which the folder of the workspace has the same name every time.
    pub fn unnamed(&self, text: &str) -> String {
        self.folder.as_ref().map_or_else(|| text.to_owned(), |folder| folder.replace_path(text))
    }

    /// What was said in each session as the store has it.
    pub fn sessions(&self) -> &[(SessionKey, Session)] {
        &self.sessions
    }
}

/// Plays a trace by its script. The same trace always gives the same.
pub fn play(trace: &Trace) -> anyhow::Result<TraceResult> {
    TestEnvironment::new(trace, ScriptedModel::new(trace.turns.iter().cloned()), Rigour::Script)?.play()
}

/// Plays a trace to the end of every run, with a model that may say anything, and then sends one more message to each
/// session.
pub(crate) fn play_out(trace: &Trace, answers: AnswerFn) -> anyhow::Result<TraceResult> {
    TestEnvironment::new(trace, ScriptedModel::free(answers), Rigour::EveryRunEnds)?.play()
}

/// What is asked of a play.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rigour {
    /// It goes by the script, to the letter.
    Script,
    /// Runs until no run is unfinished and every session has processed one more message.
    EveryRunEnds,
}

/// How a life of the hub ends.
enum End {
    /// The hub is needed no more.
    Over,
    /// Another one begins.
    Again,
}

/// What outlives the hub.
struct TestEnvironment {
    rigour: Rigour,
    folder: Option<TraceFolder>,
    zone: Option<TimeZone>,
    agents: Agents,
    rules: HubRules,
    slots: Slots,
    store: Arc<FaultyStore<MemoryStore>>,
    script: Arc<ScriptedModel>,
    bench: Arc<ScriptedTools>,
    platforms: Arc<FakePlatforms>,
    bell: ScriptedHooks,
    clock: TraceClock,
    logbook: SharedRunLog,
    promised: SharedAcknowledgements,
    acts: VecDeque<TraceAct>,
    calls: Vec<ClientCall>,
    /// When the present life began, and how many ids and answers were given before it.
    began: Duration,
    down: Duration,
    ids: u64,
    seen_before: usize,
    stopped: bool,
    /// What the process at hand is for.
    process: ProcessKind,
    encored: bool,
    waited: Vec<(RunId, WaitResult)>,
    complaints: Vec<String>,
    disk_failed: bool,
    commit_time: Duration,
}

impl TestEnvironment {
    fn new(trace: &Trace, script: ScriptedModel, rigour: Rigour) -> anyhow::Result<Self> {
        let clock = TraceClock::new();
        let script = Arc::new(script.with_clock(clock.clone()).with_spec(trace.setup.model.clone()));
        let numbering = match rigour {
            Rigour::Script => ResultNumbering::Plain,
            Rigour::EveryRunEnds => ResultNumbering::Numbered,
        };
        let setup = &trace.setup;
        let platforms = FakePlatforms::on(clock.clone(), setup.channels.clone(), trace.sender_behaviours.clone());
        let platforms = Arc::new(platforms);
        let bench = ScriptedTools::on(clock.clone(), trace.tools.clone(), numbering, Some(platforms.clone()));
        let memory = runtime()?.block_on(memory(setup))?;
        let folder = (!setup.files.is_empty()).then(|| TraceFolder::new(&setup.files)).transpose()?;
        let mut setting = setup.setting.clone();
        setting.workspace = folder.as_ref().map(TraceFolder::workspace).or(setting.workspace);
        Ok(Self {
            rigour,
            zone: setting.zone.clone(),
            agents: agents(setup, &setting, &script, &bench),
            folder,
            rules: HubRules {
                queue: setup.queue.clone(),
                auto_reset: setup.freshness(),
                history: setup.history.clone(),
                ..HubRules::default()
            },
            slots: Slots::new(setup.slots, 8, 1),
            store: Arc::new(FaultyStore::new(memory, trace.faults.clone())),
            script,
            bench,
            platforms,
            bell: ScriptedHooks::new(trace.participants.clone(), clock.clone()),
            clock,
            logbook: SharedRunLog::default(),
            promised: SharedAcknowledgements::default(),
            acts: trace.acts.iter().cloned().collect(),
            calls: Vec::new(),
            began: Duration::ZERO,
            down: setup.downtime,
            ids: 0,
            seen_before: 0,
            stopped: false,
            process: ProcessKind::default(),
            encored: false,
            waited: Vec::new(),
            complaints: Vec::new(),
            disk_failed: trace.faults.values().any(|fault| fault.error.is_some()),
            commit_time: trace.faults.values().map(|fault| fault.delay).sum(),
        })
    }

    fn play(mut self) -> anyhow::Result<TraceResult> {
        for _ in 0..LIVES {
            let runtime = runtime()?;
            let end = runtime.block_on(self.live());
            self.calls.iter_mut().for_each(|call| call.disconnect(self.began));
            // This is the death: every task of this life goes with its runtime.
            drop(runtime);
            match end? {
                End::Over => return crate::runner::runtime()?.block_on(self.close()),
                End::Again => {
                    let how = if self.stopped { ProcessEnd::Stopped } else { ProcessEnd::Crashed };
                    self.store.inner().restart(how);
                    self.logbook.lock().restart(self.began);
                    self.began += self.down;
                }
            }
        }
        anyhow::bail!("the hub still has work after {LIVES} lives");
    }

    /// One life of the hub.
    async fn live(&mut self) -> anyhow::Result<End> {
        self.clock.restart_at(self.began);
        self.stopped = false;
        self.seen_before = self.script.requests().len();
        let ambient = self.ambient();
        let store: (Arc<dyn Store>, _) = (self.store.clone(), Fence::default());
        let agents = self.agents.clone();
        let rules = HubRules { hooks: self.bell.hooks(), ..self.rules.clone() };
        let (hub, feed) = Hub::start_with(ambient.clone(), store, agents, self.slots.clone(), rules);
        if !self.platforms.is_empty() {
            hub.set_channel_sender(self.platforms.clone());
        }
        let (stop, stopped) = channel::channel(false);
        let following = task::spawn("follow all runs", self.logbook.clone().follow(feed, self.clock.clone(), stopped));
        let store = self.store.clone();
        let end = tokio::select! {
            biased;
            () = store.crashed() => End::Again,
            end = self.stage(&hub) => end?,
        };
        if matches!(end, End::Over) {
            if timeout(STOP, hub.shut_down()).await.is_err() {
                let complaint = format!("the hub did not stop within {STOP:?}: something is still at work");
                self.complaints.push(complaint);
            }
            // Text of the last instant is published a moment later.
            sleep(Duration::from_millis(5)).await;
            stop.send_replace(true);
            following.await?;
        }
        self.began = self.clock.now();
        self.ids = count(&ambient);
        Ok(end)
    }

    /// Where this life's time and ids come from: they go on from those of the life before.
    fn ambient(&self) -> Ambient {
        let ambient = Ambient::fixed(EPOCH_MS + self.began.as_millis() as u64);
        while self.ids > 0 && count(&ambient) < self.ids {}
        ambient
    }

    /// What happens in a life, from the start of the hub until it is needed no more.
    async fn stage(&mut self, hub: &Hub) -> anyhow::Result<End> {
        // No more input: a gateway recovers the remaining runs.
        if self.acts.is_empty() {
            self.process = ProcessKind::Gateway;
        }
        if self.process == ProcessKind::Gateway && self.recover(hub).await.is_err() {
            return Ok(End::Again);
        }
        loop {
            while let Some(act) = self.acts.front() {
                self.clock.sleep_until(act.at).await;
                let Some(act) = self.acts.pop_front() else { break };
                if let ActKind::Restart(process) = act.kind {
                    self.process = process;
                    self.calls.push(ClientCall::without_responses(act));
                    return Ok(End::Again);
                }
                self.stopped |= matches!(act.kind, ActKind::ShutDown | ActKind::Drain(_));
                self.calls.push(ClientCall::start(act, hub, &self.slots, &self.clock, &self.promised));
            }
            for call in &mut self.calls {
                let complaint = call.finish(PATIENCE).await.err();
                // After a crash a client may wait for a run that was never accepted.
                let is_idle = matches!(call.act.kind, ActKind::Wait { .. }) && self.rigour == Rigour::EveryRunEnds;
                self.complaints.extend(complaint.filter(|_| !is_idle));
            }
            // Messages that the hub submits itself at the end of a run are still being submitted.
            sleep(Duration::from_millis(1)).await;
            let is_left = self.settle(hub).await?;
            if timeout(PATIENCE, hub.wait_delivered()).await.is_err() {
                self.complaints.push(format!("something is still to be sent after {PATIENCE:?}"));
            }
            match self.rigour {
                Rigour::Script => return Ok(End::Over),
                Rigour::EveryRunEnds if self.stopped || is_left => return Ok(End::Again),
                Rigour::EveryRunEnds if self.encored => break,
                Rigour::EveryRunEnds => self.encore().await?,
            }
        }
        for (run, _) in self.store.accepted().accepted {
            let waited = hub.wait(&run, Duration::from_secs(1)).await?;
            self.waited.push((run, waited));
        }
        Ok(End::Over)
    }

    /// Recovers unfinished runs. At the very end the owner releases held runs.
    async fn recover(&self, hub: &Hub) -> anyhow::Result<()> {
        hub.recover(CrashLoops::Hold).await?;
        if self.rigour == Rigour::EveryRunEnds && self.acts.is_empty() {
            for held in hub.held().await? {
                hub.release(&held.run).await?;
            }
        }
        Ok(())
    }

    /// Waits for the runs without a waiting client. Returns true if some are left that are not active.
    async fn settle(&mut self, hub: &Hub) -> anyhow::Result<bool> {
        for found in self.store.recover().await? {
            if let Some(follower) = hub.follow(&found.row.run)
                && timeout(PATIENCE, follower.end()).await.is_err()
            {
                self.complaints.push(format!("run {} is still at work after {PATIENCE:?}", found.row.run));
            }
        }
        Ok(!self.store.recover().await?.is_empty())
    }

    /// One more message for each session.
    async fn encore(&mut self) -> anyhow::Result<()> {
        self.encored = true;
        let at = self.clock.now();
        for (number, (key, _)) in (1..).zip(self.store.list().await?) {
            let params =
                json!({"message": "one more", "sessionKey": key, "idempotencyKey": format!("{ENCORE}{number}")});
            let deed = ActKind::Agent { principal: "owner".to_owned(), generation: Generation::Four, params };
            self.acts.push_back(TraceAct { at, text: format!("say \"one more\" key={key}"), kind: deed });
        }
        Ok(())
    }

    async fn close(self) -> anyhow::Result<TraceResult> {
        let log = std::mem::take(&mut *self.logbook.lock());
        let taken = self.store.accepted();
        let mut rows = BTreeMap::new();
        let runs = taken.accepted.iter().map(|(run, _)| run).chain(log.runs.iter().map(|heard| heard.tape.run()));
        for run in runs {
            rows.extend(self.store.run(run).await?.map(|row| (run.clone(), row)));
        }
        let mut sessions = Vec::new();
        for (key, _) in self.store.list().await? {
            sessions.extend(self.store.load(&key).await?.map(|session| (key, session)));
        }
        let worked_in: BTreeSet<_> =
            rows.values().filter_map(|row: &RunRow| Some((row.key.clone(), row.session.clone()?))).collect();
        let mut past = Vec::new();
        for (key, id) in worked_in {
            // A session under another key may have continued it.
            if !sessions.iter().any(|(_, session)| session.record.session_id == id) {
                past.extend(self.store.transcript(&key, &id).await?.map(|entries| (key, id, entries)));
            }
        }
        let outbox = self.store.outbox().await?;
        let mut complaints = self.complaints;
        if self.rigour == Rigour::Script {
            complaints.extend([self.script.complaints(), self.bench.complaints(), self.store.complaints()].concat());
            complaints.extend(self.platforms.complaints());
        }
        Ok(TraceResult {
            calls: self.calls,
            log,
            seen: self.script.requests(),
            seen_before: self.seen_before,
            launches: self.bench.launches(),
            rung: self.bell.invocations(),
            sessions,
            past,
            taken,
            commits: self.store.commits(),
            rows,
            promises: self.promised.lock().clone(),
            waited: self.waited,
            heard: self.platforms.accepted(),
            refused: self.platforms.refused(),
            idempotent: self.platforms.idempotent(),
            has_channels: !self.platforms.is_empty(),
            outbox,
            complaints,
            disk_failed: self.disk_failed,
            commit_time: self.commit_time,
            stopped: self.stopped,
            is_played_out: self.rigour == Rigour::EveryRunEnds,
            down: self.down,
            folder: self.folder,
            zone: self.zone,
        })
    }
}

/// How the runs of the last messages are called.
pub(crate) const ENCORE: &str = "encore-";

fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    Builder::new_current_thread().enable_time().start_paused(true).build()
}

async fn memory(setup: &TraceSetup) -> Result<MemoryStore, homard_store::Error> {
    let memory = MemoryStore::default();
    for (key, record) in &setup.sessions {
        let patch = Rec::Patch { run: None, key: key.clone(), expect: None, record: Box::new(record.clone()) };
        memory.commit(&Fence::default(), vec![patch]).await?;
        for (_, entry) in setup.entries.iter().filter(|(of, _)| of == key) {
            let (key, session, entry) = (key.clone(), record.session_id.clone(), Box::new(entry.clone()));
            memory.commit(&Fence::default(), vec![Rec::Entry { run: None, key, session, entry }]).await?;
        }
    }
    Ok(memory)
}

/// How many ids were given so far, this one included.
fn count(ambient: &Ambient) -> u64 {
    ambient.nonce().rsplit('-').next().and_then(|number| number.parse().ok()).unwrap_or_default()
}

fn agents(
    setup: &TraceSetup,
    setting: &PromptConfig,
    script: &Arc<ScriptedModel>,
    bench: &Arc<ScriptedTools>,
) -> Agents {
    let understudy =
        |spec: &ModelSpec| -> Arc<dyn Model> { Arc::new(FallbackModel { spec: spec.clone(), script: script.clone() }) };
    let rank = |model: Arc<dyn Model>| {
        let profile = model.spec().model.as_str().into();
        CandidateRank {
            candidates: vec![Candidate { model, profile, credential: Credential::ApiKey }],
            order: CredentialOrder::Configured,
        }
    };
    let first: Arc<dyn Model> = script.clone();
    let chain: Vec<_> = [first].into_iter().chain(setup.fallbacks.iter().map(understudy)).map(rank).collect();
    let roster = Candidates::new(chain, Arc::default()).filter(|_| !setup.fallbacks.is_empty());
    let roster = roster.unwrap_or_else(|| Candidates::single(script.clone()));
    let sums = Candidates::single(understudy(&ModelSpec { model: COMPACTION_MODEL.to_owned(), ..setup.model.clone() }));
    let choose: ModelResolver = Arc::new(move |name| match name.strip_prefix("script/") {
        Some(COMPACTION_MODEL) => Ok(sums.clone()),
        _ => Err(format!("there is no model {name}")),
    });
    let plain = |id: AgentId| Profile {
        resolve_model: choose.clone(),
        workdir: setting.workspace.clone().unwrap_or_else(|| PathBuf::from(format!("/home/{id}"))),
        limits: RetryLimits { rate_limits: 1, retries: setup.retries, ..RetryLimits::default() },
        toolbox: setup.toolbox.clone().unwrap_or_else(|| bench.toolbox(&setup.tools)),
        timeout: Some(setup.timeout),
        tool_mode: setup.tool_mode,
        pruning: setup.pruning.clone(),
        bounds: setup.bounds,
        prompt: setting.clone(),
        thinking: setup.thinking,
        verbose: setup.verbose,
        reasoning: setup.reasoning,
        delivery: setup.delivery.clone(),
        ..Profile::new(id, roster.clone())
    };
    let profile = |id| {
        let mut profile = plain(id);
        profile.compaction.model.clone_from(&setup.compaction_model);
        profile
    };
    Agents::new(profile(AgentId::main()), setup.agents.iter().cloned().map(profile))
}
