//! Plays a trace against the real hub, in a world with its own clock.

use std::{path::PathBuf, sync::Arc, time::Duration};

use homard_agent::{
    Agents, Ambient, Follower, Hub, Profile,
    hub::{Disposition, SubmitError},
    intake,
    tape::State,
    task,
    wire::{self, Reported},
};
use homard_proto::{
    AgentId, ErrorShape, Generation, RunId, SessionKey,
    method::{
        Params,
        agent::{AgentParams, WaitParams},
        chat::AbortParams,
    },
};
use homard_store::{Fence, MemoryStore, Rec, RunRow, Session, Store};
use serde_json::{Value, json};
use tokio::{
    runtime::Builder,
    sync::{mpsc, watch as channel},
    time::{Instant, sleep, sleep_until, timeout},
};

use crate::{
    faults::FaultyStore,
    script::{Script, Seen},
    tools::Bench,
    trace::{Act, Deed, Setup, Trace},
    watch::{self, Log},
};

/// When every trace begins, in milliseconds since the epoch.
pub const EPOCH_MS: u64 = 1_800_000_000_000;

/// Who has no answer by then will not get one.
const PATIENCE: Duration = Duration::from_secs(30 * 24 * 3_600);

/// How long the hub may take to stop when nothing is at work.
const STOP: Duration = Duration::from_secs(10);

/// What happened.
#[derive(Debug)]
pub struct Played {
    pub(crate) acts: Vec<(Act, Vec<Frame>)>,
    pub(crate) log: Log,
    pub(crate) seen: Vec<Seen>,
    pub(crate) sessions: Vec<(SessionKey, Session)>,
    /// What the store knows of each run in the log.
    pub(crate) rows: Vec<Option<RunRow>>,
    /// What did not go by the script.
    pub(crate) complaints: Vec<String>,
    /// Whether the disk was told to fail.
    pub(crate) disk_failed: bool,
}

/// A response as either protocol has it.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) at: Duration,
    pub(crate) three: String,
    pub(crate) four: String,
}

impl Played {
    /// What was said in each session as the store has it.
    pub fn sessions(&self) -> &[(SessionKey, Session)] {
        &self.sessions
    }
}

/// Plays a trace. The same trace always gives the same.
pub fn play(trace: &Trace) -> anyhow::Result<Played> {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build()?;
    runtime.block_on(world(trace))
}

async fn world(trace: &Trace) -> anyhow::Result<Played> {
    let origin = Instant::now();
    let memory = MemoryStore::default();
    for (key, record) in &trace.setup.sessions {
        let patch = Rec::Patch { key: key.clone(), expect: None, record: Box::new(record.clone()) };
        memory.commit(&Fence::default(), vec![patch]).await?;
    }
    let store = Arc::new(FaultyStore::new(memory, trace.faults.clone()));
    let script = Arc::new(Script::new(trace.turns.iter().cloned()));
    let bench = Bench::new(trace.tools.clone());
    let agents = agents(&trace.setup, &script, &bench);
    let slots = trace.setup.slots.clone();
    let (hub, feed) = Hub::start(Ambient::fixed(EPOCH_MS), (store.clone(), Fence::default()), agents, slots);
    let (stop, stopped) = channel::channel(false);
    let following = task::spawn("follow all runs", watch::follow(feed, origin, stopped));

    let (acts, mut complaints) = perform(&hub, origin, &trace.acts).await;
    if timeout(STOP, hub.shut_down()).await.is_err() {
        complaints.push(format!("the hub did not stop within {STOP:?}: something is still at work"));
    }
    // Words of the last instant are told a moment later.
    sleep(Duration::from_millis(5)).await;
    stop.send_replace(true);
    let log = following.await?;

    let mut rows = Vec::new();
    for heard in &log.runs {
        rows.push(store.run(heard.tape.run()).await?);
    }
    let mut sessions = Vec::new();
    for (key, _) in store.list().await? {
        sessions.extend(store.load(&key).await?.map(|session| (key, session)));
    }
    complaints.extend([script.complaints(), bench.complaints(), store.complaints()].concat());
    let disk_failed = trace.faults.values().any(|fault| fault.error.is_some());
    Ok(Played { acts, log, seen: script.seen(), sessions, rows, complaints, disk_failed })
}

fn agents(setup: &Setup, script: &Arc<Script>, bench: &Arc<Bench>) -> Agents {
    let profile = |id: AgentId| Profile {
        workdir: PathBuf::from(format!("/home/{id}")),
        id,
        model: script.clone(),
        toolbox: bench.toolbox(&setup.tools),
        timeout: setup.timeout,
        tool_mode: setup.tool_mode,
    };
    Agents::new(profile(AgentId::main()), setup.agents.iter().cloned().map(profile))
}

/// Does every act at its time and gathers the answers; complains of those who never got one.
async fn perform(hub: &Hub, origin: Instant, acts: &[Act]) -> (Vec<(Act, Vec<Frame>)>, Vec<String>) {
    let mut running = Vec::new();
    for act in acts {
        sleep_until(origin + act.at).await;
        // Unbounded: an act gets two answers.
        let (answer, answers) = mpsc::unbounded_channel();
        let caller = Caller { hub: hub.clone(), origin, answer };
        running.push((act, answers, task::spawn("act", caller.act(act.deed.clone()))));
    }
    let mut done = Vec::new();
    let mut complaints = Vec::new();
    for (act, mut answers, mut handle) in running {
        match timeout(PATIENCE, &mut handle).await {
            Ok(Ok(())) => {}
            Ok(Err(panic)) => complaints.push(format!("`{}` broke: {panic}", act.text)),
            Err(_) => {
                complaints.push(format!("`{}` still has no last answer after {PATIENCE:?}", act.text));
                handle.abort();
            }
        }
        let mut frames = Vec::new();
        while let Ok(frame) = answers.try_recv() {
            frames.push(frame);
        }
        done.push((act.clone(), frames));
    }
    (done, complaints)
}

/// Somebody outside, and where their answers go.
struct Caller {
    hub: Hub,
    origin: Instant,
    answer: mpsc::UnboundedSender<Frame>,
}

impl Caller {
    async fn act(self, deed: Deed) {
        match deed {
            Deed::Agent { principal, generation, params } => self.agent(&principal, generation, params).await,
            Deed::Wait { generation, params } => self.wait(generation, params).await,
            Deed::Abort { params } => match AbortParams::decode(Generation::Four, Some(params)) {
                Ok(AbortParams { session_key, run_id }) => {
                    match SessionKey::parse(&session_key, self.hub.agents().default_id()) {
                        Ok(key) => self.abort(Some(&key), run_id).await,
                        Err(error) => self.both(&format!("error {error}")),
                    }
                }
                Err(error) => self.refuse(&error),
            },
            Deed::AbortRun(run) => self.abort(self.hub.session_of(&run).as_ref(), Some(run)).await,
            Deed::ShutDown => {
                self.hub.shut_down().await;
                self.both("stopped");
            }
        }
    }

    async fn agent(&self, principal: &str, generation: Generation, params: Value) {
        let params = match AgentParams::decode(generation, Some(params)) {
            Ok(params) => params,
            Err(error) => return self.refuse(&error),
        };
        let inbound = match intake::agent(&self.hub, principal, params).await {
            Ok(inbound) => inbound,
            Err(error) => return self.refuse(&error),
        };
        let accepted = match self.hub.submit(inbound).await {
            Ok(accepted) => accepted,
            Err(refused) => return self.both(&refusal(&refused)),
        };
        self.each(|generation| response(wire::accepted(generation, &accepted)));
        let tape = match &accepted.disposition {
            Disposition::New(tape) | Disposition::InFlight(tape) => tape.clone(),
            Disposition::Finished(_) => return,
        };
        match Follower::new(tape).end().await {
            State::Ended(end) => {
                let report = Reported::of(&accepted.run, &accepted.key, &end);
                self.each(|generation| response(report.response(generation)));
            }
            State::Broken(why) => self.both(&format!("broken {why}")),
            state @ (State::Queued | State::Running | State::Refused) => self.both(&format!("left while {state:?}")),
        }
    }

    async fn wait(&self, generation: Generation, params: Value) {
        let params = match WaitParams::decode(generation, Some(params)) {
            Ok(params) => params,
            Err(error) => return self.refuse(&error),
        };
        let patience = Duration::from_millis(params.timeout_ms.unwrap_or(30_000));
        match self.hub.wait(&params.run_id, patience).await {
            Ok(waited) => self.each(|generation| format!("ok {}", wire::waited(generation, &params.run_id, &waited))),
            Err(error) => self.both(&format!("error {error}")),
        }
    }

    async fn abort(&self, key: Option<&SessionKey>, run: Option<RunId>) {
        let stopped = match key {
            Some(key) => self.hub.abort(key, run).await,
            None => Vec::new(),
        };
        self.both(&format!("stopped {}", json!(stopped)));
    }

    fn refuse(&self, error: &ErrorShape) {
        self.both(&format!("error {}", json!(error)));
    }

    fn both(&self, text: &str) {
        self.each(|_| text.to_owned());
    }

    fn each(&self, tell: impl Fn(Generation) -> String) {
        let at = self.origin.elapsed();
        let frame = Frame { at, three: tell(Generation::Three), four: tell(Generation::Four) };
        // Whoever gathers the answers gives up in the end, and that is fine.
        self.answer.send(frame).ok();
    }
}

fn refusal(error: &SubmitError) -> String {
    let kind = match error {
        SubmitError::Conflict(_) => "conflict",
        SubmitError::Blocked => "blocked",
        SubmitError::Store(_) => "store",
        SubmitError::Stopping => "stopping",
    };
    format!("refused ({kind}) {error}")
}

fn response((payload, error): (Value, Option<ErrorShape>)) -> String {
    match error {
        None => format!("ok {payload}"),
        Some(error) => format!("error {} {payload}", json!(error)),
    }
}
