//! The front door: take a message in, stop a run, wait for one, look at what is there.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use homard_proto::{
    RunId, SessionId, SessionKey,
    message::{Message, User},
    session,
};
use homard_store::{Error as StoreError, Fence, RunRow, RunState, Store, branch};
use tokio::{
    sync::{Notify, mpsc, oneshot, watch},
    task::JoinHandle,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    ambient::Ambient,
    event::AbortReason,
    lane::{
        self, Job, Queued,
        slots::{Class, Slots},
    },
    profile::Agents,
    tape::{Follower, State, Tape},
    wire::Reported,
    writer::Writer,
};

/// A message on its way in. [`crate::intake`] makes one from a request.
#[derive(Debug, Clone, PartialEq)]
pub struct Inbound {
    /// Names the run; the same name never runs twice.
    pub run: RunId,
    /// Who sends it.
    pub principal: String,
    /// With which method.
    pub method: String,
    /// A digest of what was asked.
    pub fingerprint: String,
    /// The session.
    pub key: SessionKey,
    /// The transcript that a new session gets; `None` for one with a new id.
    pub session: Option<SessionId>,
    /// What is said.
    pub message: User,
    /// The pool that its run draws from.
    pub class: Class,
    /// How long the run may take; `None` for the agent's own limit.
    pub timeout: Option<Duration>,
    /// A change of the session's thinking level: a level, or `off` to forget it.
    pub thinking: Option<String>,
    /// A new label for the session.
    pub label: Option<String>,
    /// The session that started this one.
    pub spawned_by: Option<String>,
    /// What this run adds to the system prompt.
    pub extra_prompt: Option<String>,
}

/// A message that was taken in.
#[derive(Debug, Clone)]
pub struct Accepted {
    /// The run.
    pub run: RunId,
    /// The session.
    pub key: SessionKey,
    /// Milliseconds since the epoch.
    pub at: u64,
    /// What happens with it.
    pub disposition: Disposition,
}

/// What happens with a message that was taken in.
#[derive(Debug, Clone)]
pub enum Disposition {
    /// A new run, on this tape.
    New(Arc<Tape>),
    /// The same request is already at work, on this tape.
    InFlight(Arc<Tape>),
    /// The same request was done before, with this result.
    Finished(Box<Reported>),
}

/// Why a message was not taken in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// The id belongs to another request.
    #[error("idempotency_conflict: run id {0} was already used for another request")]
    Conflict(RunId),
    /// The session does not take messages.
    #[error("send blocked by session policy")]
    Blocked,
    /// It could not be stored; nothing was taken in.
    #[error("the message could not be stored: {0}")]
    Store(#[from] StoreError),
    /// The process is going down.
    #[error("the gateway is stopping; send it again when it is back")]
    Stopping,
}

/// Whether a message was taken in, once that is known.
#[derive(Debug, Clone)]
pub(crate) enum Admission {
    /// Not known yet.
    Pending,
    /// It is on disk.
    Accepted,
    /// It was on disk before.
    Duplicate(Box<RunRow>),
    /// Its id belongs to another request.
    Conflict,
    /// The session does not take messages.
    Blocked,
    /// It is not on disk.
    Failed(StoreError),
}

/// What `agent.wait` learns.
#[derive(Debug, Clone)]
pub enum Waited {
    /// The run is over.
    Ended(Box<Reported>),
    /// Time is up and the run still waits for its turn.
    Queued,
    /// Time is up, or nobody knows the run.
    Timeout,
    /// The run's end could not be stored; the text says why.
    Broken(String),
}

impl Waited {
    /// What a tape says now.
    fn now(tape: &Tape) -> Self {
        match tape.state() {
            State::Ended(end) => Self::Ended(Box::new(Reported::of(tape.run(), tape.key(), &end))),
            State::Broken(why) => Self::Broken(why),
            State::Queued => Self::Queued,
            State::Running | State::Refused => Self::Timeout,
        }
    }
}

/// News from all runs, for whoever follows them all. A tape with news is announced once until it is read.
#[derive(Debug, Clone)]
pub enum HubEvent {
    /// There is something new on this tape.
    Run(Arc<Tape>),
}

/// The front door. Clones are cheap and are the same door.
#[derive(Debug, Clone)]
pub struct Hub(Arc<Shared>);

/// What the hub and its lanes share.
pub(crate) struct Shared {
    pub(crate) ambient: Ambient,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) writer: Writer,
    pub(crate) agents: Agents,
    pub(crate) slots: Slots,
    pub(crate) stopping: CancellationToken,
    feed: mpsc::UnboundedSender<HubEvent>,
    tracker: TaskTracker,
    live: Mutex<Live>,
    /// Rung whenever a new run is claimed, for those who wait for one that nobody knew.
    arrivals: Notify,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hub").field("agents", &self.agents).finish_non_exhaustive()
    }
}

/// What is alive. One short lock; never held across an await.
#[derive(Debug, Default)]
struct Live {
    lanes: HashMap<SessionKey, mpsc::UnboundedSender<Job>>,
    runs: HashMap<RunId, LiveRun>,
}

#[derive(Debug)]
struct LiveRun {
    tape: Arc<Tape>,
    asked: (String, String, String),
    admission: watch::Receiver<Admission>,
}

impl Hub {
    /// Opens the door. The receiver hears of every run; drop it if nobody follows them all.
    pub fn start(
        ambient: Ambient,
        (store, fence): (Arc<dyn Store>, Fence),
        agents: Agents,
        slots: Slots,
    ) -> (Self, mpsc::UnboundedReceiver<HubEvent>) {
        // Unbounded: a tape is announced once until it is read, so there are never more entries than live runs.
        let (feed, follow) = mpsc::unbounded_channel();
        let (writer, _) = Writer::start(store.clone(), fence);
        let shared = Shared {
            ambient,
            store,
            writer,
            agents,
            slots,
            stopping: CancellationToken::new(),
            feed,
            tracker: TaskTracker::new(),
            live: Mutex::default(),
            arrivals: Notify::new(),
        };
        (Self(Arc::new(shared)), follow)
    }

    /// Where time and ids come from.
    pub fn ambient(&self) -> &Ambient {
        &self.0.ambient
    }

    /// The agents.
    pub fn agents(&self) -> &Agents {
        &self.0.agents
    }

    /// Takes a message in. When this returns `Ok`, it is on disk and its run will end exactly once.
    ///
    /// The run's id is claimed before anything is awaited: of two equal requests at the same time one runs, and both
    /// get the same answer.
    pub async fn submit(&self, inbound: Inbound) -> Result<Accepted, SubmitError> {
        if self.0.stopping.is_cancelled() {
            return Err(SubmitError::Stopping);
        }
        let (run, key) = (inbound.run.clone(), inbound.key.clone());
        let (tape, mut admission, is_new) = self.claim(inbound)?;
        let verdict = match admission.wait_for(|admission| !matches!(admission, Admission::Pending)).await {
            Ok(verdict) => verdict.clone(),
            // The lane went away before it looked at the job.
            Err(_) => return Err(SubmitError::Stopping),
        };
        let accepted = |at, disposition| Ok(Accepted { run: run.clone(), key: key.clone(), at, disposition });
        match verdict {
            Admission::Accepted if is_new => accepted(tape.accepted_at(), Disposition::New(tape)),
            Admission::Accepted => accepted(tape.accepted_at(), Disposition::InFlight(tape)),
            Admission::Duplicate(row) => match self.report(&row).await? {
                Some(report) => accepted(row.accepted_at, Disposition::Finished(Box::new(report))),
                None => accepted(row.accepted_at, Disposition::InFlight(tape)),
            },
            Admission::Conflict => Err(SubmitError::Conflict(run)),
            Admission::Blocked => Err(SubmitError::Blocked),
            Admission::Failed(error) => Err(error.into()),
            Admission::Pending => Err(SubmitError::Stopping),
        }
    }

    /// Claims the id and hands the message to its lane, all under one lock.
    fn claim(&self, inbound: Inbound) -> Result<(Arc<Tape>, watch::Receiver<Admission>, bool), SubmitError> {
        let asked = (inbound.principal.clone(), inbound.method.clone(), inbound.fingerprint.clone());
        let mut live = self.0.lock();
        if let Some(known) = live.runs.get(&inbound.run) {
            if known.asked != asked {
                return Err(SubmitError::Conflict(inbound.run));
            }
            return Ok((known.tape.clone(), known.admission.clone(), false));
        }
        let tape = Tape::new(inbound.run.clone(), inbound.key.clone(), self.0.ambient.now_ms(), self.0.feed.clone());
        let (admit, admission) = watch::channel(Admission::Pending);
        let run = LiveRun { tape: tape.clone(), asked, admission: admission.clone() };
        live.runs.insert(inbound.run.clone(), run);
        let key = inbound.key.clone();
        let queued = Queued::new(inbound, tape.clone(), admit, &self.0.stopping);
        self.0.send(&mut live, &key, Job::Run(Box::new(queued)));
        self.0.arrivals.notify_waiters();
        Ok((tape, admission, true))
    }

    /// Stops a run of a session, or all of them; returns those that were stopped.
    pub async fn abort(&self, key: &SessionKey, run: Option<RunId>) -> Vec<RunId> {
        let (tell, told) = oneshot::channel();
        {
            let mut live = self.0.lock();
            if !live.lanes.contains_key(key) {
                return Vec::new();
            }
            self.0.send(&mut live, key, Job::Abort { run, reason: AbortReason::User, tell });
        }
        told.await.unwrap_or_default()
    }

    /// The session of a run that is alive.
    pub fn session_of(&self, run: &RunId) -> Option<SessionKey> {
        self.0.lock().runs.get(run).map(|run| run.tape.key().clone())
    }

    /// Waits for the end of a run, for so long at most. The run does not notice.
    ///
    /// A run that nobody knows looks like a slow one: its sender may be about to send it.
    pub async fn wait(&self, run: &RunId, patience: Duration) -> Result<Waited, StoreError> {
        let patience = tokio::time::sleep(patience);
        tokio::pin!(patience);
        loop {
            let arrival = self.0.arrivals.notified();
            tokio::pin!(arrival);
            arrival.as_mut().enable();
            let follower = self.follow(run);
            let tape = follower.as_ref().map(|follower| follower.tape().clone());
            let state = match follower {
                Some(follower) => tokio::select! {
                    biased;
                    state = follower.end() => state,
                    () = &mut patience => return Ok(tape.map_or(Waited::Timeout, |tape| Waited::now(&tape))),
                },
                None => State::Refused,
            };
            if let (Some(tape), true) = (tape, state != State::Refused) {
                return Ok(Waited::now(&tape));
            }
            let row = self.0.store.run(run).await?;
            if let Some(row) = row
                && let Some(report) = self.report(&row).await?
            {
                return Ok(Waited::Ended(Box::new(report)));
            }
            tokio::select! {
                biased;
                () = arrival => {}
                () = &mut patience => return Ok(Waited::Timeout),
            }
        }
    }

    /// Reads one run as it happens, from its beginning; `None` when it is not alive.
    pub fn follow(&self, run: &RunId) -> Option<Follower> {
        self.0.lock().runs.get(run).map(|run| Follower::new(run.tape.clone()))
    }

    /// The sessions' records, newest first.
    pub async fn sessions(&self) -> Result<Vec<(SessionKey, session::Record)>, StoreError> {
        let mut sessions = self.0.store.list().await?;
        sessions.sort_by(|(a_key, a), (b_key, b)| b.updated_at.cmp(&a.updated_at).then_with(|| a_key.cmp(b_key)));
        Ok(sessions)
    }

    /// The key whose session has this id.
    pub async fn find_session(&self, id: &SessionId) -> Result<Option<SessionKey>, StoreError> {
        self.0.store.find(id).await
    }

    /// A session's record and what was said in it, oldest first.
    pub async fn history(&self, key: &SessionKey) -> Result<Option<(session::Record, Vec<Arc<Message>>)>, StoreError> {
        let loaded = self.0.store.load(key).await?;
        Ok(loaded.map(|session| (session.record, branch::messages(&session.entries))))
    }

    /// Stops all runs, waits until each has ended and everything is stored.
    pub async fn shut_down(&self) {
        self.0.stopping.cancel();
        self.0.tracker.close();
        self.0.tracker.wait().await;
        if let Err(error) = self.0.writer.barrier().await {
            tracing::error!(%error, "the last records could not be stored");
        }
    }

    /// What a stored run came to, with its replies looked up in the transcript; `None` while it is not over.
    async fn report(&self, row: &RunRow) -> Result<Option<Reported>, StoreError> {
        let RunState::Ended(ended) = &row.state else { return Ok(None) };
        let session = self.0.store.load(&row.key).await?;
        let entries = session.map(|session| session.entries).unwrap_or_default();
        Ok(Some(Reported::from_row(row, ended, &entries)))
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Live> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands a job to the session's lane, which is started if there is none. The lock is held, so the lane cannot retire.
    fn send(self: &Arc<Self>, live: &mut Live, key: &SessionKey, job: Job) {
        let lane = live.lanes.entry(key.clone()).or_insert_with(|| {
            // Unbounded: a client is answered for each message, so it is bounded by the clients; the inbox caps it.
            let (mailbox, jobs) = mpsc::unbounded_channel();
            self.spawn("lane", lane::run(self.clone(), key.clone(), jobs));
            mailbox
        });
        // The lane lives while it is in the map, and we hold the map.
        lane.send(job).ok();
    }

    /// Ends a lane with nothing to do, unless a job came in the meantime.
    pub(crate) fn retire(&self, key: &SessionKey, jobs: &mpsc::UnboundedReceiver<Job>) -> bool {
        let mut live = self.lock();
        let idle = jobs.is_empty();
        if idle {
            live.lanes.remove(key);
        }
        idle
    }

    /// Forgets a run that is over; from here on the store answers for it.
    pub(crate) fn forget(&self, run: &RunId) {
        self.lock().runs.remove(run);
    }

    /// Spawns a task that shutting down waits for.
    pub(crate) fn spawn<F>(&self, name: &'static str, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        crate::task::spawn(name, self.tracker.track_future(future))
    }
}
