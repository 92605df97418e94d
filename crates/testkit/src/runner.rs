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
    Agents, FencedStore, Hub, HubRules, Profile, RunSettings, Tape, TapeEvent,
    hub::{CrashLoops, WaitResult},
    profile::{LevelSettings, ModelResolver, RetrySettings},
    tape::TapeState,
};
use homard_model::{
    Model, ModelSpec,
    candidates::{Candidate, CandidateRank, Candidates, Credential, CredentialOrder},
    retry::RetryLimits,
};
use homard_prompt::PromptConfig;
use homard_proto::{AgentId, Generation, RunId, SessionId, SessionKey, transcript::Entry};
use homard_queue::Slots;
use homard_runtime::{Ambient, task};
use homard_store::{DeliveryRow, Fence, MemoryStore, ProcessEnd, Rec, RunRow, Session, StoreReader, StoreWriter};
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
    tools::{ResultNumbering, ScriptedTools, StartedCall},
    trace::{ActKind, ProcessKind, Trace, TraceAct, TraceSetup},
    workspace::TraceFolder,
};

/// Start time of every trace, in milliseconds since the epoch.
pub const EPOCH_MS: u64 = 1_800_000_000_000;

/// Time limit for a response; a later one counts as missing.
const PATIENCE: Duration = Duration::from_secs(30 * 24 * 3_600);

/// Time limit for stopping a hub without active runs.
const STOP: Duration = Duration::from_secs(10);

/// Maximum number of hub lifetimes of a trace; more mean an endless restart.
const LIVES: usize = 40;

/// Everything that was recorded while a trace ran.
#[derive(Debug)]
pub struct TraceResult {
    pub(crate) calls: Vec<ClientCall>,
    pub(crate) log: RunLog,
    pub(crate) requests: Vec<RecordedRequest>,
    /// Number of model requests before the last process.
    pub(crate) requests_before: usize,
    pub(crate) started_calls: Vec<StartedCall>,
    pub(crate) sessions: Vec<(SessionKey, Session)>,
    /// Former transcripts: runs used them, but their sessions have newer ones.
    pub(crate) past_transcripts: Vec<(SessionKey, SessionId, Vec<Entry>)>,
    /// Records that the store accepted.
    pub(crate) committed: AcceptedRecords,
    /// Number of commits that were requested.
    pub(crate) commits: u64,
    /// Stored state of each run that was stored or had events.
    pub(crate) rows: BTreeMap<RunId, RunRow>,
    /// Acknowledgements that clients received, and may rely on.
    pub(crate) acknowledged: Acknowledgements,
    /// Result of `agent.wait` for each run after the end, if requested.
    pub(crate) wait_results: Vec<(RunId, WaitResult)>,
    pub(crate) channels: ChannelRecords,
    /// Deviations from the script.
    pub(crate) complaints: Vec<String>,
    pub(crate) conditions: TraceConditions,
    /// Invocations of hooks, listeners and commands.
    pub(crate) hook_invocations: Vec<HookInvocation>,
    /// The folder with the workspace, if the trace has files.
    pub(crate) folder: Option<TraceFolder>,
    /// The user's time zone.
    pub(crate) zone: Option<TimeZone>,
}

/// What the channels of a trace received.
#[derive(Debug)]
pub(crate) struct ChannelRecords {
    /// True if the trace has channels.
    pub(crate) has_any: bool,
    /// The channels that deduplicate.
    pub(crate) idempotent: BTreeSet<String>,
    /// Messages that they accepted.
    pub(crate) accepted_messages: Vec<AcceptedMessage>,
    /// Messages that they refused.
    pub(crate) refused: Vec<AcceptedMessage>,
    /// Outbox: deliveries without a confirmation.
    pub(crate) outbox: Vec<DeliveryRow>,
}

/// Circumstances that change what is expected of a trace.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TraceConditions {
    /// True if the script has a fault of the store.
    pub(crate) disk_failed: bool,
    /// Total duration of slow commits in the script.
    pub(crate) commit_time: Duration,
    /// Downtime of each restart.
    pub(crate) downtime: Duration,
    /// True if the script stopped the hub without a restart.
    pub(crate) stopped: bool,
    /// True if the trace runs until every run has ended.
    pub(crate) is_played_out: bool,
}

impl TraceResult {
    /// Returns all transcripts, current and former, with the key of their session.
    pub(crate) fn transcripts(&self) -> impl Iterator<Item = (&SessionKey, &[Entry])> {
        let past = self.past_transcripts.iter().map(|(key, _, entries)| (key, entries.as_slice()));
        past.chain(self.sessions.iter().map(|(key, session)| (key, session.entries.as_slice())))
    }

    /// Returns the runs whose start was published, with the time, in the order of publication.
    pub fn run_starts(&self) -> impl Iterator<Item = (&RunId, Duration)> {
        let starts = self.log.payloads.iter().filter(|recorded| invariants::phase(recorded) == Some("start"));
        starts.map(|recorded| (self.log.runs[recorded.run].tape.run(), recorded.at))
    }

    /// Returns the maximum number of runs that were active at the same time.
    pub fn max_concurrent_runs(&self) -> usize {
        let ends: BTreeMap<_, _> = self
            .log
            .payloads
            .iter()
            .filter(|recorded| matches!(invariants::phase(recorded), Some("end" | "error")))
            .map(|recorded| (recorded.run, recorded.at))
            .collect();
        // A run that ends makes room for one that starts at the same moment, because -1 sorts before 1.
        let starts = self.log.payloads.iter().filter(|recorded| invariants::phase(recorded) == Some("start"));
        let intervals = starts.map(|recorded| (recorded.at, ends.get(&recorded.run).copied().unwrap_or(Duration::MAX)));
        let intervals = intervals.filter(|(start, end)| end > start);
        let mut steps: Vec<_> = intervals.flat_map(|(start, end)| [(start, 1_isize), (end, -1)]).collect();
        steps.sort_unstable();
        let counts = steps.iter().scan(0_isize, |count, (_, step)| {
            *count += step;
            Some(*count)
        });
        counts.max().unwrap_or_default().unsigned_abs()
    }

    /// Returns the tape and the events of each run. A run that was resumed after a restart is listed twice.
    pub fn runs(&self) -> impl Iterator<Item = (&Tape, &[TapeEvent])> {
        self.log.runs.iter().map(|recorded_run| (&*recorded_run.tape, recorded_run.events.as_slice()))
    }

    /// Returns the stored state of each run.
    pub fn rows(&self) -> impl Iterator<Item = &RunRow> {
        self.rows.values()
    }

    /// Returns the number of restarts of the hub, after a crash or a shutdown.
    pub fn restarts(&self) -> usize {
        self.log.restarts.len()
    }

    /// True if the script has a fault of the store.
    pub fn has_store_fault(&self) -> bool {
        self.conditions.disk_failed
    }

    /// Returns the model requests, in order.
    pub fn requests(&self) -> &[RecordedRequest] {
        &self.requests
    }

    /// Returns true if hooks received an event that begins with this word.
    pub(crate) fn hooks_received(&self, word: &str) -> bool {
        self.hook_invocations.iter().any(|invocation| invocation.what.split(' ').next() == Some(word))
    }

    /// Returns the reply of a run that ended, with the workspace path replaced as in a snapshot.
    pub fn reply(&self, run: &str) -> Option<String> {
        let recorded_run = self.log.runs.iter().rev().find(|recorded_run| recorded_run.tape.run().as_str() == run)?;
        let TapeState::Ended(end) = recorded_run.tape.state() else { return None };
        Some(self.replace_path(&end.replies.iter().map(|reply| reply.text.as_str()).collect::<Vec<_>>().join("\n")))
    }

    /// Replaces the path of the workspace, which differs every time, by a constant.
    pub fn replace_path(&self, text: &str) -> String {
        self.folder.as_ref().map_or_else(|| text.to_owned(), |folder| folder.replace_path(text))
    }

    /// Returns the sessions as the store has them.
    pub fn sessions(&self) -> &[(SessionKey, Session)] {
        &self.sessions
    }
}

/// Plays a trace by its script. Deterministic: the same trace gives the same result.
pub fn play(trace: &Trace) -> anyhow::Result<TraceResult> {
    TestEnvironment::new(trace, ScriptedModel::new(trace.turns.iter().cloned()), Rigour::Script)?.play()
}

/// Plays a trace until every run has ended, with a model that may answer anything, and then sends a final message to
/// each session.
pub(crate) fn play_out(trace: &Trace, answers: AnswerFn) -> anyhow::Result<TraceResult> {
    TestEnvironment::new(trace, ScriptedModel::free(answers), Rigour::EveryRunEnds)?.play()
}

/// How strictly a trace is played.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rigour {
    /// Every deviation from the script is reported.
    Script,
    /// Runs until no run is unfinished and every session has processed one more message.
    EveryRunEnds,
}

/// How a lifetime of the hub ends.
enum End {
    /// The trace is over.
    Over,
    /// The hub is restarted.
    Again,
}

/// Everything that survives a restart of the hub: store, clock, script and recorders.
struct TestEnvironment {
    rigour: Rigour,
    folder: Option<TraceFolder>,
    zone: Option<TimeZone>,
    hub: HubSetup,
    store: Arc<FaultyStore<MemoryStore>>,
    fakes: Fakes,
    clock: TraceClock,
    run_log: SharedRunLog,
    acknowledged: SharedAcknowledgements,
    acts: VecDeque<TraceAct>,
    calls: Vec<ClientCall>,
    /// Start of the current lifetime, in trace time.
    started_at: Duration,
    ids: u64,
    requests_before: usize,
    /// Kind of the current process.
    process: ProcessKind,
    sent_final_messages: bool,
    wait_results: Vec<(RunId, WaitResult)>,
    complaints: Vec<String>,
    conditions: TraceConditions,
}

/// What every hub of a trace is started with.
struct HubSetup {
    agents: Agents,
    rules: HubRules,
    slots: Slots,
}

/// The scripted surroundings of the hub.
struct Fakes {
    script: Arc<ScriptedModel>,
    tools: Arc<ScriptedTools>,
    platforms: Arc<FakePlatforms>,
    hooks: ScriptedHooks,
}

impl TestEnvironment {
    fn new(trace: &Trace, script: ScriptedModel, rigour: Rigour) -> anyhow::Result<Self> {
        let clock = TraceClock::new();
        let script = Arc::new(script.with_clock(clock.clone()).with_spec(trace.setup.models.first.clone()));
        let numbering = match rigour {
            Rigour::Script => ResultNumbering::Plain,
            Rigour::EveryRunEnds => ResultNumbering::Numbered,
        };
        let setup = &trace.setup;
        let platforms = FakePlatforms::on(clock.clone(), setup.channels.clone(), trace.sender_behaviours.clone());
        let platforms = Arc::new(platforms);
        let tools = ScriptedTools::on(clock.clone(), trace.tools.clone(), numbering, Some(platforms.clone()));
        let memory = runtime()?.block_on(memory(setup))?;
        let folder = (!setup.files.is_empty()).then(|| TraceFolder::new(&setup.files)).transpose()?;
        let mut prompt_config = setup.setting.clone();
        prompt_config.workspace = folder.as_ref().map(TraceFolder::workspace).or(prompt_config.workspace);
        Ok(Self {
            rigour,
            zone: prompt_config.zone.clone(),
            hub: HubSetup {
                agents: agents(setup, &prompt_config, &script, &tools),
                rules: HubRules {
                    queue: setup.queue.clone(),
                    auto_reset: setup.auto_reset(),
                    history: setup.history.clone(),
                    ..HubRules::default()
                },
                slots: Slots::new(setup.slots, 8, 1),
            },
            folder,
            store: Arc::new(FaultyStore::new(memory, trace.faults.clone())),
            fakes: Fakes {
                script,
                tools,
                platforms,
                hooks: ScriptedHooks::new(trace.participants.clone(), clock.clone()),
            },
            clock,
            run_log: SharedRunLog::default(),
            acknowledged: SharedAcknowledgements::default(),
            acts: trace.acts.iter().cloned().collect(),
            calls: Vec::new(),
            started_at: Duration::ZERO,
            ids: 0,
            requests_before: 0,
            process: ProcessKind::default(),
            sent_final_messages: false,
            wait_results: Vec::new(),
            complaints: Vec::new(),
            conditions: TraceConditions {
                disk_failed: trace.faults.values().any(|fault| fault.error.is_some()),
                commit_time: trace.faults.values().map(|fault| fault.delay).sum(),
                downtime: setup.downtime,
                stopped: false,
                is_played_out: rigour == Rigour::EveryRunEnds,
            },
        })
    }

    fn play(mut self) -> anyhow::Result<TraceResult> {
        for _ in 0..LIVES {
            let runtime = runtime()?;
            let end = runtime.block_on(self.run_lifetime());
            self.calls.iter_mut().for_each(|call| call.disconnect(self.started_at));
            // This is the crash: every task of this lifetime is dropped with its runtime.
            drop(runtime);
            match end? {
                End::Over => return crate::runner::runtime()?.block_on(self.close()),
                End::Again => {
                    let how = if self.conditions.stopped { ProcessEnd::Stopped } else { ProcessEnd::Crashed };
                    self.store.inner().restart(how);
                    self.run_log.lock().restart(self.started_at);
                    self.started_at += self.conditions.downtime;
                }
            }
        }
        anyhow::bail!("the hub still has work after {LIVES} lives");
    }

    /// Runs one lifetime of the hub.
    async fn run_lifetime(&mut self) -> anyhow::Result<End> {
        self.clock.restart_at(self.started_at);
        self.conditions.stopped = false;
        self.requests_before = self.fakes.script.requests().len();
        let ambient = self.ambient();
        let store = FencedStore::new(self.store.clone(), Fence::default());
        let agents = self.hub.agents.clone();
        let rules = HubRules { hooks: self.fakes.hooks.hooks(), ..self.hub.rules.clone() };
        let (hub, feed) = Hub::start(ambient.clone(), store, agents, self.hub.slots.clone(), rules);
        if !self.fakes.platforms.is_empty() {
            hub.deliveries().set_sender(self.fakes.platforms.clone());
        }
        let (stop, stopped) = channel::channel(false);
        let recorder = task::spawn("follow all runs", self.run_log.clone().follow(feed, self.clock.clone(), stopped));
        let store = self.store.clone();
        let end = tokio::select! {
            biased;
            () = store.crashed() => End::Again,
            end = self.perform_acts(&hub) => end?,
        };
        if matches!(end, End::Over) {
            if timeout(STOP, hub.lifecycle().shut_down()).await.is_err() {
                let complaint = format!("the hub did not stop within {STOP:?}: something is still at work");
                self.complaints.push(complaint);
            }
            // Text of the last instant is published a moment later.
            sleep(Duration::from_millis(5)).await;
            stop.send_replace(true);
            recorder.await?;
        }
        self.started_at = self.clock.now();
        self.ids = count(&ambient);
        Ok(end)
    }

    /// Returns the source of time and ids for this lifetime; both continue those of the previous one.
    fn ambient(&self) -> Ambient {
        let ambient = Ambient::fixed(EPOCH_MS + self.started_at.as_millis() as u64);
        while self.ids > 0 && count(&ambient) < self.ids {}
        ambient
    }

    /// Performs the acts of a lifetime, from the start of the hub until it stops or is restarted.
    async fn perform_acts(&mut self, hub: &Hub) -> anyhow::Result<End> {
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
                self.conditions.stopped |= matches!(act.kind, ActKind::ShutDown | ActKind::Drain(_));
                self.calls.push(ClientCall::start(act, hub, &self.hub.slots, &self.clock, &self.acknowledged));
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
            if timeout(PATIENCE, hub.deliveries().wait_empty()).await.is_err() {
                self.complaints.push(format!("something is still to be sent after {PATIENCE:?}"));
            }
            match self.rigour {
                Rigour::Script => return Ok(End::Over),
                Rigour::EveryRunEnds if self.conditions.stopped || is_left => return Ok(End::Again),
                Rigour::EveryRunEnds if self.sent_final_messages => break,
                Rigour::EveryRunEnds => self.send_final_messages().await?,
            }
        }
        for (run, _) in self.store.accepted().accepted {
            let wait_result = hub.runs().wait(&run, Duration::from_secs(1)).await?;
            self.wait_results.push((run, wait_result));
        }
        Ok(End::Over)
    }

    /// Recovers unfinished runs. At the very end the owner releases held runs.
    async fn recover(&self, hub: &Hub) -> anyhow::Result<()> {
        hub.lifecycle().recover(CrashLoops::Hold).await?;
        if self.rigour == Rigour::EveryRunEnds && self.acts.is_empty() {
            for held in hub.runs().held().await? {
                hub.runs().release(&held.run).await?;
            }
        }
        Ok(())
    }

    /// Waits for the runs without a waiting client. Returns true if some are left that are not active.
    async fn settle(&mut self, hub: &Hub) -> anyhow::Result<bool> {
        for unfinished in self.store.recover().await? {
            if let Some(subscriber) = hub.runs().follow(&unfinished.row.run)
                && timeout(PATIENCE, subscriber.end()).await.is_err()
            {
                self.complaints.push(format!("run {} is still at work after {PATIENCE:?}", unfinished.row.run));
            }
        }
        Ok(!self.store.recover().await?.is_empty())
    }

    /// Adds a final message for each session.
    async fn send_final_messages(&mut self) -> anyhow::Result<()> {
        self.sent_final_messages = true;
        let at = self.clock.now();
        for (number, (key, _)) in (1..).zip(self.store.list().await?) {
            let params =
                json!({"message": "one more", "sessionKey": key, "idempotencyKey": format!("{ENCORE}{number}")});
            let kind = ActKind::Agent { principal: "owner".to_owned(), generation: Generation::Four, params };
            self.acts.push_back(TraceAct { at, text: format!("say \"one more\" key={key}"), kind });
        }
        Ok(())
    }

    async fn close(self) -> anyhow::Result<TraceResult> {
        let log = std::mem::take(&mut *self.run_log.lock());
        let committed = self.store.accepted();
        let mut rows = BTreeMap::new();
        let runs = committed
            .accepted
            .iter()
            .map(|(run, _)| run)
            .chain(log.runs.iter().map(|recorded_run| recorded_run.tape.run()));
        for run in runs {
            rows.extend(self.store.run(run).await?.map(|row| (run.clone(), row)));
        }
        let mut sessions = Vec::new();
        for (key, _) in self.store.list().await? {
            sessions.extend(self.store.load(&key).await?.map(|session| (key, session)));
        }
        let used_sessions: BTreeSet<_> =
            rows.values().filter_map(|row: &RunRow| Some((row.key.clone(), row.session.clone()?))).collect();
        let mut past_transcripts = Vec::new();
        for (key, id) in used_sessions {
            // A session under another key may have continued it.
            if !sessions.iter().any(|(_, session)| session.record.session_id == id) {
                past_transcripts.extend(self.store.transcript(&key, &id).await?.map(|entries| (key, id, entries)));
            }
        }
        let outbox = self.store.outbox().await?;
        let mut complaints = self.complaints;
        if self.rigour == Rigour::Script {
            complaints.extend(
                [self.fakes.script.complaints(), self.fakes.tools.complaints(), self.store.complaints()].concat(),
            );
            complaints.extend(self.fakes.platforms.complaints());
        }
        Ok(TraceResult {
            calls: self.calls,
            log,
            requests: self.fakes.script.requests(),
            requests_before: self.requests_before,
            started_calls: self.fakes.tools.started_calls(),
            hook_invocations: self.fakes.hooks.invocations(),
            sessions,
            past_transcripts,
            committed,
            commits: self.store.commits(),
            rows,
            acknowledged: self.acknowledged.lock().clone(),
            wait_results: self.wait_results,
            channels: ChannelRecords {
                has_any: !self.fakes.platforms.is_empty(),
                idempotent: self.fakes.platforms.idempotent(),
                accepted_messages: self.fakes.platforms.accepted(),
                refused: self.fakes.platforms.refused(),
                outbox,
            },
            complaints,
            conditions: self.conditions,
            folder: self.folder,
            zone: self.zone,
        })
    }
}

/// Prefix of the ids of the runs of the final messages.
pub(crate) const ENCORE: &str = "encore-";

fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    Builder::new_current_thread().enable_time().start_paused(true).build()
}

async fn memory(setup: &TraceSetup) -> Result<MemoryStore, homard_store::Error> {
    let memory = MemoryStore::default();
    for (key, record) in &setup.stored.sessions {
        let patch = Rec::Patch { run: None, key: key.clone(), expect: None, record: Box::new(record.clone()) };
        memory.commit(&Fence::default(), vec![patch]).await?;
        for (_, entry) in setup.stored.entries.iter().filter(|(session_key, _)| session_key == key) {
            let (key, session, entry) = (key.clone(), record.session_id.clone(), Box::new(entry.clone()));
            memory.commit(&Fence::default(), vec![Rec::Entry { run: None, key, session, entry }]).await?;
        }
    }
    Ok(memory)
}

/// Returns the number of ids issued so far, including the one that this function takes.
fn count(ambient: &Ambient) -> u64 {
    ambient.nonce().rsplit('-').next().and_then(|number| number.parse().ok()).unwrap_or_default()
}

fn agents(
    setup: &TraceSetup,
    prompt_config: &PromptConfig,
    script: &Arc<ScriptedModel>,
    tools: &Arc<ScriptedTools>,
) -> Agents {
    let fallback =
        |spec: &ModelSpec| -> Arc<dyn Model> { Arc::new(FallbackModel { spec: spec.clone(), script: script.clone() }) };
    let rank = |model: Arc<dyn Model>| {
        let profile = model.spec().model.as_str().into();
        CandidateRank {
            candidates: vec![Candidate { model, profile, credential: Credential::ApiKey }],
            order: CredentialOrder::Configured,
        }
    };
    let first: Arc<dyn Model> = script.clone();
    let chain: Vec<_> = [first].into_iter().chain(setup.models.fallbacks.iter().map(fallback)).map(rank).collect();
    let candidates = Candidates::new(chain, Arc::default()).filter(|_| !setup.models.fallbacks.is_empty());
    let candidates = candidates.unwrap_or_else(|| Candidates::single(script.clone()));
    let compaction_candidates =
        Candidates::single(fallback(&ModelSpec { model: COMPACTION_MODEL.to_owned(), ..setup.models.first.clone() }));
    let resolve_model: ModelResolver = Arc::new(move |name| match name.strip_prefix("script/") {
        Some(COMPACTION_MODEL) => Ok(compaction_candidates.clone()),
        _ => Err(format!("there is no model {name}")),
    });
    let default_profile = |id: AgentId| Profile {
        resolve_model: resolve_model.clone(),
        workdir: prompt_config.workspace.clone().unwrap_or_else(|| PathBuf::from(format!("/home/{id}"))),
        retry: RetrySettings {
            limits: RetryLimits { rate_limits: 1, retries: setup.retries, ..RetryLimits::default() },
            ..RetrySettings::default()
        },
        toolbox: setup.toolbox.clone().unwrap_or_else(|| tools.toolbox(&setup.tools)),
        timeout: Some(setup.timeout),
        run: RunSettings { tool_mode: setup.tool_mode, bounds: setup.bounds, ..RunSettings::default() },
        pruning: setup.pruning.clone(),
        prompt: prompt_config.clone(),
        default_levels: LevelSettings {
            thinking: setup.levels.thinking,
            verbose: setup.levels.verbose,
            reasoning: setup.levels.reasoning,
        },
        delivery: setup.delivery.clone(),
        ..Profile::new(id, candidates.clone())
    };
    let profile = |id| {
        let mut profile = default_profile(id);
        profile.compaction.model.clone_from(&setup.models.compaction);
        profile
    };
    Agents::new(profile(AgentId::main()), setup.agents.iter().cloned().map(profile))
}
