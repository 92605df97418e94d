//! State shared by the hub and its lanes.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use homard_approvals::ExecApprovals;
use homard_audit::{AuditKind, AuditRecord};
use homard_proto::{RunId, SessionKey, message::Usage};
use homard_queue::slots::Slots;
use homard_runtime::ambient::Ambient;
use homard_store::{EndRecord, Failure, FailureKind, Outcome, Rec, StoreReader};
use tokio::{
    sync::{Notify, mpsc, oneshot, watch},
    task::JoinHandle,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    Admission, HubEvent, Inbound,
    background::RunningCommands,
    backlog::Backlog,
    config::HubConfig,
    held::HeldRuns,
    registry::{Mailbox, Registry},
    waits::WaitGraph,
};
use crate::{
    budget::BudgetLedger,
    delivery::Deliveries,
    event::AbortReason,
    lane::{self, LaneJob, idle_cache::IdleCache},
    tape::Tape,
    timeline::{self, TimelineRange},
    writer::CommitWriter,
};

/// Retry interval for storing the end of a run.
const TERMINAL_RETRY: Duration = Duration::from_secs(1);

/// Builds the terminal result of a run whose own end could not be stored.
pub(crate) fn interrupted(accepted_at: u64, at: u64) -> EndRecord {
    let message = "INTERRUPTED: the run's result could not be stored when it finished".to_owned();
    EndRecord {
        outcome: Outcome::Failed(Failure { kind: FailureKind::Internal, message }),
        replies: Vec::new(),
        model: (String::new(), String::new()),
        usage: Usage::default(),
        steps: timeline::build_timeline(
            &[],
            TimelineRange { accepted_at, earlier_starts: &[accepted_at], held: None, stored_at: None, until: at },
        ),
        ended_at: at,
        command_reply: None,
        payloads: None,
    }
}

/// State shared by the hub and its lanes.
pub(crate) struct Shared {
    pub(crate) ambient: Ambient,
    pub(crate) store: Arc<dyn StoreReader>,
    pub(crate) writer: CommitWriter,
    pub(crate) config: HubConfig,
    pub(crate) slots: Slots,
    pub(crate) idle_cache: IdleCache,
    /// Cancelled when no more runs may start.
    pub(crate) draining: CancellationToken,
    /// Cancelled when all tasks must end.
    pub(crate) stopping: CancellationToken,
    pub(super) feed: mpsc::UnboundedSender<HubEvent>,
    pub(super) tracker: TaskTracker,
    pub(super) live: Mutex<LiveState>,
    /// Notified whenever a run is claimed, for callers that wait for an unknown run.
    pub(super) arrivals: Notify,
    /// Exec approvals, once set.
    pub(crate) approvals: OnceLock<ExecApprovals>,
    /// Outgoing messages that are not delivered yet.
    pub(crate) deliveries: Deliveries,
    /// Background commands that run in this process.
    pub(crate) background: RunningCommands,
    /// Budgets of model usage.
    pub(crate) budgets: Arc<BudgetLedger>,
    /// Unfinished runs of earlier processes that are not recovered yet.
    pub(super) backlog: Backlog,
    /// Held runs, with a lock so that only one decision about a run takes effect.
    pub(super) held: HeldRuns,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("setup", &self.config).finish_non_exhaustive()
    }
}

/// Live lanes and runs, behind one short lock that is never held across an await.
#[derive(Debug, Default)]
pub(super) struct LiveState {
    pub(super) lanes: Registry<SessionKey, mpsc::UnboundedSender<LaneJob>>,
    pub(super) runs: HashMap<RunId, LiveRun>,
    /// Which sessions wait for which.
    pub(super) waits: WaitGraph,
}

#[derive(Debug)]
pub(super) struct LiveRun {
    pub(super) tape: Arc<Tape>,
    pub(super) request_key: (String, String, String),
    pub(super) admission: watch::Receiver<Admission>,
    /// The session that started this run's session, if any.
    pub(super) parent: Option<SessionKey>,
}

impl LiveRun {
    pub(super) fn new(tape: &Arc<Tape>, inbound: &Inbound, admission: watch::Receiver<Admission>) -> Self {
        let request_key =
            (inbound.sender.principal.clone(), inbound.sender.method.clone(), inbound.id.fingerprint.clone());
        Self { tape: tape.clone(), request_key, admission, parent: inbound.parent() }
    }

    /// True if the run belongs to this very request.
    pub(super) fn is_of(&self, inbound: &Inbound) -> bool {
        let (principal, method, fingerprint) = &self.request_key;
        (principal, method, fingerprint) == (&inbound.sender.principal, &inbound.sender.method, &inbound.id.fingerprint)
    }

    pub(super) fn claim(&self) -> (Arc<Tape>, watch::Receiver<Admission>) {
        (self.tape.clone(), self.admission.clone())
    }
}

impl Shared {
    /// Writes an audit record for a denied tool call.
    pub(crate) fn audit_denied(&self, tape: &Tape, tool: &str, reason: &str) {
        let record = AuditRecord::new(AuditKind::PolicyDenied).actor(tape.key().as_str()).outcome(reason);
        self.config.rules().audit.note(record.with("tool", tool).with("run", tape.run().as_str()));
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, LiveState> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Passes a job to the session's lane and starts the lane if needed. The lock is held, so the lane cannot retire.
    pub(super) fn send(self: &Arc<Self>, live: &mut LiveState, key: &SessionKey, job: LaneJob) {
        live.lanes.send(key, job, || {
            // Unbounded: a queued message is on disk, or its sender waits for it.
            let (mailbox, jobs) = mpsc::unbounded_channel();
            self.spawn("lane", lane::run(self.clone(), key.clone(), jobs));
            mailbox
        });
    }

    /// Publishes an event to the subscriber of all runs.
    pub(crate) fn publish(&self, event: HubEvent) {
        // Without a gateway there is no subscriber; the event is dropped.
        self.feed.send(event).ok();
    }

    /// Passes a job to a session's lane.
    pub(crate) fn post(self: &Arc<Self>, key: &SessionKey, job: LaneJob) {
        self.send(&mut self.lock(), key, job);
    }

    /// Aborts one run of a session, or all of them. Returns the aborted runs.
    pub(super) async fn abort(
        self: &Arc<Self>,
        key: &SessionKey,
        run: Option<RunId>,
        reason: AbortReason,
    ) -> Vec<RunId> {
        let (reply, aborted) = oneshot::channel();
        {
            let mut live = self.lock();
            if !live.lanes.contains(key) {
                return Vec::new();
            }
            self.send(&mut live, key, LaneJob::Abort { run, reason, reply });
        }
        aborted.await.unwrap_or_default()
    }

    /// Returns the sessions with runs that this session started, transitively.
    pub(super) fn descendants(&self, key: &SessionKey) -> Vec<SessionKey> {
        let live = self.lock();
        let mut sessions = vec![key.clone()];
        let mut next = 0;
        while let Some(parent) = sessions.get(next).cloned() {
            let children = live.runs.values().filter(|run| run.parent.as_ref() == Some(&parent));
            for child in children.map(|run| run.tape.key()) {
                if !sessions.contains(child) {
                    sessions.push(child.clone());
                }
            }
            next += 1;
        }
        sessions.split_off(1)
    }

    /// Aborts all runs that a session started, transitively, without waiting (a lane must not wait for another).
    /// Returns the number of sessions.
    pub(crate) fn stop_descendants(self: &Arc<Self>, key: &SessionKey, reason: AbortReason) -> usize {
        let children = self.descendants(key);
        for child in &children {
            self.post(child, LaneJob::Abort { run: None, reason, reply: oneshot::channel().0 });
        }
        children.len()
    }

    /// Records which session started the session of a run.
    pub(crate) fn set_parent(&self, run: &RunId, parent: SessionKey) {
        if let Some(live) = self.lock().runs.get_mut(run) {
            live.parent.get_or_insert(parent);
        }
    }

    /// Retries in a task to store the end of a run whose terminal record was rejected.
    pub(crate) fn force_end_later(self: &Arc<Self>, run: RunId, accepted_at: u64) {
        let shared = self.clone();
        self.spawn("terminal-retry", async move {
            loop {
                tokio::select! {
                    biased;
                    // The next start finds the run unfinished.
                    () = shared.draining.cancelled() => return,
                    () = tokio::time::sleep(TERMINAL_RETRY) => {}
                }
                let ended = interrupted(accepted_at, shared.ambient.now_ms());
                let terminal = Rec::Terminal { run: run.clone(), ended: Box::new(ended) };
                if shared.writer.commit(vec![terminal]).await.is_ok() {
                    // Waiters read the end of the run from the store.
                    return shared.arrivals.notify_waiters();
                }
            }
        });
    }

    /// Ends an idle lane, unless a job arrived in the meantime.
    pub(crate) fn retire(&self, key: &SessionKey, jobs: &mpsc::UnboundedReceiver<LaneJob>) -> bool {
        self.lock().lanes.retire(key, jobs)
    }

    /// Cleans up after a panic in a lane: marks the tapes of its runs as broken. On disk these runs are unfinished, and
    /// a restart recovers them. Jobs that the lane had not read are kept for the restarted lane.
    pub(crate) fn break_off(&self, key: &SessionKey, jobs: &mut mpsc::UnboundedReceiver<LaneJob>) {
        tracing::error!(%key, "session task panicked");
        let mut live = self.lock();
        let mut unread = Vec::new();
        live.lanes.visit_jobs(key, jobs, |job| unread.extend(job.tape().cloned()));
        live.runs.retain(|_, run| {
            let is_lost = run.tape.key() == key && !unread.iter().any(|tape| Arc::ptr_eq(tape, &run.tape));
            if is_lost {
                run.tape.mark_broken("internal error in the session's task; the run resumes after a restart");
            }
            !is_lost
        });
    }

    /// Removes a finished run; the store answers for it from now on. A newer run with the same id stays.
    pub(crate) fn forget(&self, tape: &Arc<Tape>) {
        let mut live = self.lock();
        if live.runs.get(tape.run()).is_some_and(|run| Arc::ptr_eq(&run.tape, tape)) {
            live.runs.remove(tape.run());
        }
    }

    /// Spawns a task that shutdown waits for.
    pub(crate) fn spawn<F>(&self, name: &'static str, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        homard_runtime::task::spawn(name, self.tracker.track_future(future))
    }

    /// Spawns a task that is cancelled when the hub drains.
    pub(super) fn spawn_until_drained(&self, name: &'static str, future: impl Future<Output = ()> + Send + 'static) {
        let draining = self.draining.clone();
        self.spawn(name, async move {
            draining.run_until_cancelled(future).await;
        });
    }
}

impl Mailbox for mpsc::UnboundedSender<LaneJob> {
    type Job = LaneJob;
    type Jobs = mpsc::UnboundedReceiver<LaneJob>;

    fn put(&self, job: LaneJob) {
        // Fails only if the runtime shuts down and drops the lane; the job has no waiters then, either.
        self.send(job).ok();
    }

    fn is_empty(jobs: &Self::Jobs) -> bool {
        jobs.is_empty()
    }

    fn drain(jobs: &mut Self::Jobs) -> Vec<LaneJob> {
        std::iter::from_fn(|| jobs.try_recv().ok()).collect()
    }
}

#[cfg(test)]
mod tests;
