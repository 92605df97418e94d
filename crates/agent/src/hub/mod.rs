//! Entry point of the crate: submit a message, abort a run, wait for one, read sessions.

mod background;
mod backlog;
mod children;
mod compact;
mod config;
mod held;
mod hook_events;
mod inbound;
mod live_status;
mod recover;
mod registry;
mod request;
mod shared;
mod status;
mod trace;
mod waits;

use std::{
    sync::{Arc, Mutex, OnceLock},
    time::Duration,
};

use homard_approvals::ExecApprovals;
use homard_audit::Audit;
use homard_command::{CommandInfo, all_commands};
use homard_proto::{AgentId, EntryId, RunId, SessionId, SessionKey, message::Message, session};
use homard_queue::slots::Slots;
use homard_runtime::ambient::Ambient;
use homard_store::{Authority, EndRecord, Error as StoreError, Fence, RunRow, RunState, Store, branch};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    delivery::Deliveries,
    event::AbortReason,
    lane::{
        LaneJob, Ticket,
        idle_cache::IdleCache,
        mutations::{ChangeError, DeletedSession, Deletion, InjectedMessage, Mutation, Patch},
    },
    profile::Agents,
    tape::{Subscriber, Tape, TapeState},
    wire::{self, RunReport},
    writer::CommitWriter,
};
use background::RunningCommands;
use backlog::Backlog;
use config::HubConfig;
use held::HeldRuns;
use shared::LiveRun;

pub use background::BackgroundCommand;
pub use children::{ChildOutcome, ChildRun, Cleanup, SpawnError, SpawnParams, SpawnedChild, parent_of};
pub use compact::CompactionResult;
pub use held::{HeldError, drop_records};
pub use homard_events::trace::{HeldRun, RunTrace};
pub use homard_store::{
    RunQuery,
    usage::{UsageQuery, UsageSum, day_of},
};
pub(crate) use inbound::is_answer_due;
pub use inbound::{HTTP, Inbound, InboundId, InboundOptions, InboundReply, InboundSender, InboundSession, SCHEDULE};
pub use live_status::{LiveRunStatus, RunProgress};
pub use recover::{CrashLoops, RecoveryResult};
pub(crate) use request::Admission;
pub use request::{
    AcceptedRun, HubEvent, HubRules, QueueDefaults, SubmitError, SubmitOutcome, WaitResult, WorkingDirs,
};
pub(crate) use shared::Shared;
pub use waits::WaitGuard;

/// Maximum number of live runs, active and queued.
const MAX_LIVE: usize = 50_000;

/// Handle of the agent loop. Clones are cheap and share the same state.
#[derive(Debug, Clone)]
pub struct Hub(pub(crate) Arc<Shared>);

/// Messages with the ids of their transcript entries.
pub type HistoryEntries = Vec<(EntryId, Arc<Message>)>;

impl Hub {
    /// Starts a hub with default rules. The receiver gets events of all runs; it may be dropped if it is not needed.
    pub fn start(
        ambient: Ambient,
        (store, fence): (Arc<dyn Store>, Fence),
        agents: Agents,
        slots: Slots,
    ) -> (Self, mpsc::UnboundedReceiver<HubEvent>) {
        Self::start_with(ambient, (store, fence), agents, slots, HubRules::default())
    }

    /// Starts a hub with the given rules.
    pub fn start_with(
        ambient: Ambient,
        (store, fence): (Arc<dyn Store>, Fence),
        agents: Agents,
        slots: Slots,
        rules: HubRules,
    ) -> (Self, mpsc::UnboundedReceiver<HubEvent>) {
        // Unbounded: a tape is queued at most once until it is read, so there are never more entries than live runs,
        // plus one event for each delivery.
        let (feed, receiver) = mpsc::unbounded_channel();
        let (writer, _) = CommitWriter::start(store.clone(), fence);
        let shared = Shared {
            ambient,
            store,
            writer,
            config: HubConfig::new(agents, rules),
            slots,
            idle_cache: IdleCache::default(),
            draining: CancellationToken::new(),
            stopping: CancellationToken::new(),
            feed,
            tracker: TaskTracker::new(),
            live: Mutex::default(),
            arrivals: Notify::new(),
            approvals: OnceLock::new(),
            deliveries: Deliveries::default(),
            background: RunningCommands::default(),
            budgets: Arc::default(),
            backlog: Backlog::default(),
            held: HeldRuns::default(),
        };
        (Self(Arc::new(shared)), receiver)
    }

    /// Wraps shared state in a handle.
    pub(crate) fn of(shared: &Arc<Shared>) -> Self {
        Self(shared.clone())
    }

    /// Source of time and ids.
    pub fn ambient(&self) -> &Ambient {
        &self.0.ambient
    }

    /// Returns the configured agents.
    pub fn agents(&self) -> Agents {
        self.0.config.agents()
    }

    /// Replaces agents and rules. Active runs keep the old ones; runs that start later use the new ones.
    pub fn reconfigure(&self, agents: Agents, rules: HubRules) {
        self.0.config.change(agents, rules);
    }

    /// Sets where exec approvals are requested. Can be set once; later calls are ignored.
    pub fn set_approvals(&self, approvals: &ExecApprovals) {
        self.0.approvals.get_or_init(|| approvals.clone());
    }

    /// Returns where exec approvals are requested, if set.
    pub fn approvals(&self) -> Option<&ExecApprovals> {
        self.0.approvals.get()
    }

    /// Returns the audit log.
    pub fn audit(&self) -> Audit {
        self.0.config.rules().audit.clone()
    }

    /// Returns the commands that the owner may write in a chat.
    pub fn commands(&self) -> Vec<CommandInfo> {
        all_commands(&self.rules().triggers)
    }

    /// Returns the concurrency limits.
    pub fn slots(&self) -> &Slots {
        &self.0.slots
    }

    /// Returns the current rules.
    pub(crate) fn rules(&self) -> Arc<HubRules> {
        self.0.config.rules()
    }

    /// Accepts a message. When this returns `Ok`, the message is on disk and its run will end exactly once.
    ///
    /// Unfinished runs of earlier processes in the session are queued first. The run id is then claimed before anything
    /// is awaited: of two equal requests at the same time one runs, and both get the same result.
    pub async fn submit(&self, inbound: Inbound) -> Result<AcceptedRun, SubmitError> {
        if self.0.draining.is_cancelled() {
            return Err(SubmitError::Stopping);
        }
        self.recover_session(&inbound.session.key).await?;
        self.await_transcript(&inbound).await;
        let (run, key) = (inbound.id.run.clone(), inbound.session.key.clone());
        self.await_claim(&inbound).await;
        let received = self.received_event(&inbound);
        let (tape, mut admission, is_new) = self.claim(inbound)?;
        let verdict = match admission.wait_for(|admission| !matches!(admission, Admission::Pending)).await {
            Ok(verdict) => verdict.clone(),
            // The lane ended before it read the job.
            Err(_) => return Err(SubmitError::Stopping),
        };
        let accepted = |at, disposition| Ok(AcceptedRun { run: run.clone(), key: key.clone(), at, disposition });
        match verdict {
            Admission::Accepted if is_new => {
                self.fire_received(received);
                accepted(tape.accepted_at(), SubmitOutcome::New(tape))
            }
            Admission::Accepted => accepted(tape.accepted_at(), SubmitOutcome::InFlight(tape)),
            Admission::Duplicate(row) => match (self.report(&row).await?, self.host_of(&row)) {
                (Some(report), _) => accepted(row.accepted_at, SubmitOutcome::Finished(Box::new(report))),
                (None, Some(host)) => accepted(row.accepted_at, SubmitOutcome::InFlight(host)),
                (None, None) => match self.held_for(&row).await? {
                    Some(held) => Err(SubmitError::Held(held)),
                    None => {
                        let report = self.force_end(&row).await?;
                        accepted(row.accepted_at, SubmitOutcome::Finished(Box::new(report)))
                    }
                },
            },
            Admission::Conflict => {
                // The id belongs to another request; this tape must not be found under it.
                self.0.forget(&tape);
                Err(SubmitError::Conflict(run))
            }
            Admission::Blocked => Err(SubmitError::Blocked),
            Admission::SessionChanged => Err(SubmitError::SessionChanged),
            Admission::Overloaded => Err(SubmitError::Overloaded),
            Admission::Failed(error) => {
                // The lane may remove the tape only after an active run; until then a retry must not get this failure.
                self.0.forget(&tape);
                Err(error.into())
            }
            Admission::Pending => Err(SubmitError::Stopping),
        }
    }

    /// Waits for the admission of another request that claims the same id. The store decides which of them owns it.
    async fn await_claim(&self, inbound: &Inbound) {
        loop {
            let other_claim =
                self.0.lock().runs.get(&inbound.id.run).filter(|live_run| !live_run.is_of(inbound)).map(LiveRun::claim);
            let Some((tape, mut admission)) = other_claim else { return };
            let live_run = admission.wait_for(|admission| !matches!(admission, Admission::Pending)).await;
            if matches!(live_run.as_deref(), Ok(Admission::Accepted) | Err(_)) {
                return;
            }
            drop(live_run);
            self.0.forget(&tape);
        }
    }

    /// Waits for runs of other sessions that write to the transcript this message names (for example a run that started
    /// before its session was reset), so that the entries of two runs are not interleaved.
    async fn await_transcript(&self, inbound: &Inbound) {
        let Some(transcript) = &inbound.session.transcript else { return };
        let is_elsewhere = |run: &&LiveRun| run.tape.key() != &inbound.session.key && run.tape.started_in(transcript);
        let runs: Vec<_> = self.0.lock().runs.values().filter(is_elsewhere).map(|run| run.tape.clone()).collect();
        for tape in runs {
            Subscriber::new(tape).end().await;
        }
    }

    /// Claims the id and passes the message to its lane, under one lock.
    fn claim(&self, inbound: Inbound) -> Result<(Arc<Tape>, watch::Receiver<Admission>, bool), SubmitError> {
        let mut live = self.0.lock();
        if live.runs.len() >= MAX_LIVE {
            return Err(SubmitError::Overloaded);
        }
        if let Some(live_run) = live.runs.get(&inbound.id.run) {
            if !live_run.is_of(&inbound) {
                return Err(SubmitError::Conflict(inbound.id.run));
            }
            return Ok((live_run.tape.clone(), live_run.admission.clone(), false));
        }
        let tape = Tape::new(
            inbound.id.run.clone(),
            inbound.session.key.clone(),
            self.0.ambient.now_ms(),
            self.0.feed.clone(),
        );
        let (admit, admission) = watch::channel(Admission::Pending);
        live.runs.insert(inbound.id.run.clone(), LiveRun::new(&tape, &inbound, admission.clone()));
        let key = inbound.session.key.clone();
        let queued = Ticket::new(inbound, tape.clone(), admit, &self.0.stopping);
        self.0.send(&mut live, &key, LaneJob::Run(Box::new(queued)));
        self.0.arrivals.notify_waiters();
        Ok((tape, admission, true))
    }

    /// Aborts one run of a session, or all of them with the child runs they started. Returns the aborted runs. `/stop`
    /// also ends the session's background commands.
    pub async fn abort(&self, key: &SessionKey, run: Option<RunId>, reason: AbortReason) -> Vec<RunId> {
        let is_all = run.is_none();
        let mut stopped = self.0.abort(key, run, reason).await;
        if is_all {
            for child in self.0.descendants(key) {
                stopped.extend(self.0.abort(&child, None, reason).await);
            }
            if reason == AbortReason::Stop {
                self.0.background.stop(key);
            }
        }
        stopped
    }

    /// Executes a stop command: aborts the session's runs and their child runs. Returns the aborted runs.
    pub async fn stop(&self, command: &Inbound) -> Vec<RunId> {
        let stopped = self.abort(&command.session.key, None, AbortReason::Stop).await;
        match self.session(&command.session.key).await {
            Ok(record) => self.0.fire_command(command, record.as_deref()),
            Err(error) => {
                tracing::warn!(key = %command.session.key, %error, "failed to read the session");
                self.0.fire_command(command, None);
            }
        }
        stopped
    }

    /// True if the process is shutting down.
    pub fn is_draining(&self) -> bool {
        self.0.draining.is_cancelled()
    }

    /// Returns active and queued runs, oldest first.
    pub fn live_runs(&self) -> Vec<LiveRunStatus> {
        let now = self.0.ambient.now_ms();
        let mut runs: Vec<_> =
            self.0.lock().runs.values().filter_map(|run| LiveRunStatus::of(&run.tape, now)).collect();
        runs.sort_by_key(|run| run.accepted_at);
        runs
    }

    /// Records an event for the session's next run. The text may quote command output, so secrets in it are masked.
    pub async fn note_event(&self, key: &SessionKey, text: String) -> Result<(), ChangeError> {
        self.note_event_of(key, text, Authority::Full).await
    }

    /// Like [`Self::note_event`], for an event caused by a request with this authority.
    pub async fn note_event_of(&self, key: &SessionKey, text: String, authority: Authority) -> Result<(), ChangeError> {
        let text = self.agents().of(key.agent()).secrets.mask(&text).into_owned();
        self.change(key, |reply| Mutation::Event((text, authority), reply)).await
    }

    /// Appends a message that no model wrote, once the session has no active or queued runs.
    pub async fn inject(&self, key: &SessionKey, text: String) -> Result<InjectedMessage, ChangeError> {
        loop {
            match self.change(key, |reply| Mutation::Note(text.clone(), reply)).await {
                Err(ChangeError::Busy) => self.await_idle(key).await,
                result => return result,
            }
        }
    }

    /// Waits for the end of all current runs of a session.
    async fn await_idle(&self, key: &SessionKey) {
        let is_in_session = |run: &&LiveRun| run.tape.key() == key;
        let runs: Vec<_> = self.0.lock().runs.values().filter(is_in_session).map(|run| run.tape.clone()).collect();
        for tape in runs {
            Subscriber::new(tape).end().await;
        }
    }

    /// Changes a session's record; creates the session if it does not exist. Returns the stored record.
    pub async fn patch(&self, key: &SessionKey, patch: Patch) -> Result<session::Record, ChangeError> {
        self.change(key, |reply| Mutation::Patch(patch, reply)).await
    }

    /// Gives a session a new transcript; creates the session if it does not exist. Its settings are kept.
    ///
    /// An active run finishes in the old transcript; queued messages run in the new one. `reason` is passed to hooks:
    /// `new` or `reset`.
    pub async fn reset(&self, key: &SessionKey, reason: &'static str) -> Result<session::Record, ChangeError> {
        self.change(key, |reply| Mutation::Reset(reason, reply)).await
    }

    /// Runs the hooks of `/new` because another session replaces this one. The session itself does not change.
    pub async fn succeeded(&self, key: &SessionKey) -> Result<(), ChangeError> {
        self.change(key, Mutation::Succeeded).await
    }

    /// Deletes a session after stopping its runs and archives its transcript. Returns what was deleted, if it existed.
    pub async fn delete(
        &self,
        key: &SessionKey,
        expected: Option<SessionId>,
    ) -> Result<Option<DeletedSession>, ChangeError> {
        if *key == self.agents().default_id().main_session() {
            return Err(ChangeError::Main(key.clone()));
        }
        self.change(key, |reply| Mutation::Delete(Deletion { expected, reply })).await
    }

    /// Passes a change to the session's lane and waits for the result.
    async fn change<T>(
        &self,
        key: &SessionKey,
        mutation: impl FnOnce(oneshot::Sender<Result<T, ChangeError>>) -> Mutation,
    ) -> Result<T, ChangeError> {
        if self.0.stopping.is_cancelled() {
            return Err(ChangeError::Stopping);
        }
        self.recover_session(key).await?;
        let (reply, result) = oneshot::channel();
        self.0.send(&mut self.0.lock(), key, LaneJob::Change(Box::new(mutation(reply))));
        // A dropped sender means that the lane ended before it read the job.
        result.await.unwrap_or(Err(ChangeError::Stopping))
    }

    /// Returns the session of a live run.
    pub fn session_of(&self, run: &RunId) -> Option<SessionKey> {
        self.0.lock().runs.get(run).map(|run| run.tape.key().clone())
    }

    /// Returns the session of a run, live or still in the store.
    pub async fn session_of_run(&self, run: &RunId) -> Result<Option<SessionKey>, StoreError> {
        match self.session_of(run) {
            Some(key) => Ok(Some(key)),
            None => Ok(self.0.store.run(run).await?.map(|row| row.key)),
        }
    }

    /// True if the session has an active or queued run.
    pub fn has_live_run(&self, key: &SessionKey) -> bool {
        self.0.lock().runs.values().any(|run| run.tape.key() == key)
    }

    /// Waits for the end of a run, up to a time limit, without affecting it.
    ///
    /// An unknown run is waited for like a slow one: its sender may be about to submit it.
    pub async fn wait(&self, run: &RunId, timeout: Duration) -> Result<WaitResult, StoreError> {
        let timeout = tokio::time::sleep(timeout);
        tokio::pin!(timeout);
        loop {
            let claimed = self.0.arrivals.notified();
            tokio::pin!(claimed);
            claimed.as_mut().enable();
            let follower = self.follow(run);
            let tape = follower.as_ref().map(|follower| follower.tape().clone());
            let state = match follower {
                Some(follower) => tokio::select! {
                    biased;
                    state = follower.end() => state,
                    () = &mut timeout => return Ok(tape.map_or(WaitResult::Timeout, |tape| WaitResult::now(&tape))),
                },
                None => TapeState::Rejected,
            };
            if let (Some(tape), true) = (tape, state != TapeState::Rejected) {
                return Ok(WaitResult::now(&tape));
            }
            let row = self.0.store.run(run).await?;
            if let Some(row) = row
                && let RunState::Ended(ended) = &row.state
            {
                return Ok(WaitResult::Ended(Box::new(self.report_end(&row, ended).await?)));
            }
            tokio::select! {
                biased;
                () = claimed => {}
                () = &mut timeout => return Ok(WaitResult::Timeout),
            }
        }
    }

    /// Subscribes to the events of a live run from its beginning; `None` if it is not live.
    pub fn follow(&self, run: &RunId) -> Option<Subscriber> {
        self.0.lock().runs.get(run).map(|run| Subscriber::new(run.tape.clone()))
    }

    /// Returns the result of a finished run with its replies; `None` if it has not ended or is unknown.
    pub async fn reported(&self, run: &RunId) -> Result<Option<RunReport>, StoreError> {
        match self.0.store.run(run).await? {
            Some(row) => self.report(&row).await,
            None => Ok(None),
        }
    }

    /// Returns a session's record.
    pub async fn session(&self, key: &SessionKey) -> Result<Option<Arc<session::Record>>, StoreError> {
        self.0.store.record(key).await
    }

    /// Returns all sessions' records, unordered.
    pub async fn unsorted_sessions(&self) -> Result<Vec<(SessionKey, Arc<session::Record>)>, StoreError> {
        self.0.store.list().await
    }

    /// Returns all sessions' records, newest first.
    pub async fn sessions(&self) -> Result<Vec<(SessionKey, Arc<session::Record>)>, StoreError> {
        let mut sessions = self.unsorted_sessions().await?;
        sessions.sort_by(crate::row::newest_first);
        Ok(sessions)
    }

    /// Returns the key of the session with this id.
    pub async fn find_session(&self, id: &SessionId) -> Result<Option<SessionKey>, StoreError> {
        self.0.store.find(id).await
    }

    /// Returns the agent with a transcript of this id that belongs to no session any more (for example after a reset).
    pub async fn find_transcript(&self, id: &SessionId) -> Result<Option<AgentId>, StoreError> {
        let agents = self.agents();
        let default = agents.default_id().clone();
        let others = agents.iter().map(|profile| profile.id.clone()).filter(|agent| *agent != default);
        for agent in std::iter::once(default.clone()).chain(others) {
            let key = SessionKey::explicit(&agent, id);
            if !self.0.store.live_transcript(&key, id).await?.is_empty() {
                return Ok(Some(agent));
            }
        }
        Ok(None)
    }

    /// Returns a session's record and its messages, oldest first.
    pub async fn history(&self, key: &SessionKey) -> Result<Option<(session::Record, Vec<Arc<Message>>)>, StoreError> {
        let loaded = self.0.store.load(key).await?;
        Ok(loaded.map(|session| (session.record, branch::all_messages(&session.entries))))
    }

    /// Like [`Self::history`], with the ids of the transcript entries.
    pub async fn history_entries(
        &self,
        key: &SessionKey,
    ) -> Result<Option<(session::Record, HistoryEntries)>, StoreError> {
        let loaded = self.0.store.load(key).await?;
        Ok(loaded.map(|session| (session.record, branch::all_message_entries(&session.entries))))
    }

    /// Returns the messages of one transcript of a session with their entry ids, oldest first, also of a transcript the
    /// session no longer uses. `None` if it does not exist.
    pub async fn transcript_entries(
        &self,
        key: &SessionKey,
        session: &SessionId,
    ) -> Result<Option<HistoryEntries>, StoreError> {
        let entries = self.0.store.transcript(key, session).await?;
        Ok(entries.map(|entries| branch::all_message_entries(&entries)))
    }

    /// True if the journal is working: it has committed everything submitted so far within this time, and the last
    /// batch was not rejected.
    pub async fn is_storing(&self, timeout: Duration) -> bool {
        let stored = tokio::time::timeout(timeout, self.0.writer.barrier()).await;
        matches!(stored, Ok(Ok(()))) && !self.0.writer.has_failed()
    }

    /// Stops accepting and starting runs, and waits up to `timeout` for active runs to end. Runs that are still active
    /// then, and queued runs, stay unfinished on disk; the next start resumes them.
    pub async fn drain(&self, timeout: Duration) {
        self.0.draining.cancel();
        self.0.tracker.close();
        // Tasks that are still running at the timeout are cancelled.
        tokio::time::timeout(timeout, self.0.tracker.wait()).await.ok();
        self.shut_down().await;
    }

    /// Cancels all runs, waits for their tasks to end and for everything to be stored.
    pub async fn shut_down(&self) {
        self.0.draining.cancel();
        self.0.stopping.cancel();
        self.0.tracker.close();
        self.0.tracker.wait().await;
        if let Err(error) = self.0.writer.barrier().await {
            tracing::error!(%error, "failed to store the last records before the shutdown");
        }
    }

    /// Returns the tape of the host run of an absorbed message, while that run is live.
    fn host_of(&self, row: &RunRow) -> Option<Arc<Tape>> {
        let RunState::Absorbed(host) = &row.state else { return None };
        self.0.lock().runs.get(host).map(|host| host.tape.clone())
    }

    /// Returns the result of a stored run, with its replies from its transcript; `None` if it has not ended.
    async fn report(&self, row: &RunRow) -> Result<Option<RunReport>, StoreError> {
        let RunState::Ended(ended) = &row.state else { return Ok(None) };
        self.report_end(row, ended).await.map(Some)
    }

    async fn report_end(&self, row: &RunRow, ended: &EndRecord) -> Result<RunReport, StoreError> {
        let entries = match &row.session {
            Some(session) if wire::is_in_transcript(ended) => self.0.store.transcript(&row.key, session).await?,
            Some(_) | None => None,
        };
        Ok(RunReport::from_row(row, ended, &entries.unwrap_or_default()))
    }
}
