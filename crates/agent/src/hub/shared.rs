//! What the hub and its lanes share: what is alive, and where everything else is found.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use homard_audit::{Fact, What};
use homard_proto::{RunId, SessionKey, message::Usage};
use homard_store::{Ended, Failure, FailureKind, Outcome, Rec, Store};
use tokio::{
    sync::{Notify, mpsc, oneshot, watch},
    task::JoinHandle,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    Admission, HubEvent, Inbound,
    background::Running,
    backlog::Backlog,
    held::HeldRuns,
    registry::{Mailbox, Registry},
    setup::Setup,
    waits::Waits,
};
use crate::{
    ambient::Ambient,
    approval::Desk,
    course::{self, Span},
    event::AbortReason,
    lane::{self, Job, rest::Rest, slots::Slots},
    post::Mail,
    purse::Purse,
    tape::Tape,
    writer::Writer,
};

/// How often it is tried again to store the end of a run.
const BURIAL: Duration = Duration::from_secs(1);

/// The end of a run whose own end was not stored when it came.
pub(super) fn interrupted(accepted_at: u64, at: u64) -> Ended {
    let message = "INTERRUPTED: the run's end could not be stored when it came".to_owned();
    Ended {
        outcome: Outcome::Failed(Failure { kind: FailureKind::Internal, message }),
        replies: Vec::new(),
        model: (String::new(), String::new()),
        usage: Usage::default(),
        steps: course::of(&[], Span { accepted_at, begun: &[accepted_at], held: None, stored_at: None, until: at }),
        ended_at: at,
        words: None,
        payloads: None,
    }
}

/// What the hub and its lanes share.
pub(crate) struct Shared {
    pub(crate) ambient: Ambient,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) writer: Writer,
    pub(crate) setup: Setup,
    pub(crate) slots: Slots,
    pub(crate) rest: Rest,
    /// Nothing begins any more.
    pub(crate) draining: CancellationToken,
    /// Everything lets go.
    pub(crate) stopping: CancellationToken,
    pub(super) feed: mpsc::UnboundedSender<HubEvent>,
    pub(super) tracker: TaskTracker,
    pub(super) live: Mutex<Live>,
    /// Rung whenever a new run is claimed, for those who wait for one that nobody knew.
    pub(super) arrivals: Notify,
    /// Where it is asked whether commands may run.
    pub(crate) desk: OnceLock<Desk>,
    /// What waits to be said on channels.
    pub(crate) mail: Mail,
    /// Background commands that run in this process.
    pub(crate) running: Running,
    /// What models may take.
    pub(crate) purse: Arc<Purse>,
    /// Unfinished runs of earlier processes that are still to be taken up.
    pub(super) backlog: Backlog,
    /// Locked while a held run is released or ended, so that of two decisions one counts.
    pub(super) held: HeldRuns,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hub").field("setup", &self.setup).finish_non_exhaustive()
    }
}

/// What is alive. One short lock; never held across an await.
#[derive(Debug, Default)]
pub(super) struct Live {
    pub(super) lanes: Registry<SessionKey, mpsc::UnboundedSender<Job>>,
    pub(super) runs: HashMap<RunId, LiveRun>,
    /// Which sessions wait for which.
    pub(super) waits: Waits,
}

#[derive(Debug)]
pub(super) struct LiveRun {
    pub(super) tape: Arc<Tape>,
    pub(super) asked: (String, String, String),
    pub(super) admission: watch::Receiver<Admission>,
    /// The session that started its session, if one did.
    pub(super) parent: Option<SessionKey>,
}

impl LiveRun {
    pub(super) fn new(tape: &Arc<Tape>, inbound: &Inbound, admission: watch::Receiver<Admission>) -> Self {
        let asked = (inbound.principal.clone(), inbound.method.clone(), inbound.fingerprint.clone());
        Self { tape: tape.clone(), asked, admission, parent: inbound.parent() }
    }

    /// Whether it is the run of this very request.
    pub(super) fn is_of(&self, inbound: &Inbound) -> bool {
        let (principal, method, fingerprint) = &self.asked;
        (principal, method, fingerprint) == (&inbound.principal, &inbound.method, &inbound.fingerprint)
    }

    pub(super) fn claim(&self) -> (Arc<Tape>, watch::Receiver<Admission>) {
        (self.tape.clone(), self.admission.clone())
    }
}

impl Shared {
    /// Notes that a run may not do what its model wants.
    pub(crate) fn note_denied(&self, tape: &Tape, tool: &str, by: &str) {
        let fact = Fact::new(What::PolicyDenied).by(tape.key().as_str()).ended(by);
        self.setup.rules().audit.note(fact.with("tool", tool).with("run", tape.run().as_str()));
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Live> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands a job to the session's lane, which is started if there is none. The lock is held, so the lane cannot retire.
    pub(super) fn send(self: &Arc<Self>, live: &mut Live, key: &SessionKey, job: Job) {
        live.lanes.send(key, job, || {
            // Unbounded: a message that waits is on disk, or its sender waits with it.
            let (mailbox, jobs) = mpsc::unbounded_channel();
            self.spawn("lane", lane::run(self.clone(), key.clone(), jobs));
            mailbox
        });
    }

    /// Tells something to whoever follows all runs.
    pub(crate) fn tell(&self, event: HubEvent) {
        // Without a gateway nobody follows them, and that is fine.
        self.feed.send(event).ok();
    }

    /// Hands a job to a session's lane.
    pub(crate) fn post(self: &Arc<Self>, key: &SessionKey, job: Job) {
        self.send(&mut self.lock(), key, job);
    }

    /// Stops a run of a session, or all of them; returns those that were stopped.
    pub(super) async fn abort(
        self: &Arc<Self>,
        key: &SessionKey,
        run: Option<RunId>,
        reason: AbortReason,
    ) -> Vec<RunId> {
        let (tell, told) = oneshot::channel();
        {
            let mut live = self.lock();
            if !live.lanes.contains(key) {
                return Vec::new();
            }
            self.send(&mut live, key, Job::Abort { run, reason, tell });
        }
        told.await.unwrap_or_default()
    }

    /// The sessions with runs that a session started, and those that these started, and so on.
    pub(super) fn descendants(&self, key: &SessionKey) -> Vec<SessionKey> {
        let live = self.lock();
        let mut found = vec![key.clone()];
        let mut next = 0;
        while let Some(parent) = found.get(next).cloned() {
            let children = live.runs.values().filter(|run| run.parent.as_ref() == Some(&parent));
            for child in children.map(|run| run.tape.key()) {
                if !found.contains(child) {
                    found.push(child.clone());
                }
            }
            next += 1;
        }
        found.split_off(1)
    }

    /// Has everything stopped that a session started; returns how many sessions that are. A lane must not wait for another.
    pub(crate) fn stop_descendants(self: &Arc<Self>, key: &SessionKey, reason: AbortReason) -> usize {
        let children = self.descendants(key);
        for child in &children {
            self.post(child, Job::Abort { run: None, reason, tell: oneshot::channel().0 });
        }
        children.len()
    }

    /// Notes which session started the session of a run.
    pub(crate) fn set_parent(&self, run: &RunId, parent: SessionKey) {
        if let Some(live) = self.lock().runs.get_mut(run) {
            live.parent.get_or_insert(parent);
        }
    }

    /// Sees to it that a run whose end could not be stored ends all the same, as soon as the disk takes it.
    pub(crate) fn bury_later(self: &Arc<Self>, (run, accepted_at): (RunId, u64)) {
        let shared = self.clone();
        self.spawn("undertaker", async move {
            loop {
                tokio::select! {
                    biased;
                    // The next start finds it unfinished.
                    () = shared.draining.cancelled() => return,
                    () = tokio::time::sleep(BURIAL) => {}
                }
                let ended = interrupted(accepted_at, shared.ambient.now_ms());
                let terminal = Rec::Terminal { run: run.clone(), ended: Box::new(ended) };
                if shared.writer.commit(vec![terminal]).await.is_ok() {
                    // Whoever waits for the run learns of its end from the store.
                    return shared.arrivals.notify_waiters();
                }
            }
        });
    }

    /// Ends a lane with nothing to do, unless a job came in the meantime.
    pub(crate) fn retire(&self, key: &SessionKey, jobs: &mpsc::UnboundedReceiver<Job>) -> bool {
        self.lock().lanes.retire(key, jobs)
    }

    /// Cleans up after a bug in a lane: those who follow runs that it had taken are told. On disk these are unfinished,
    /// and a restart takes them up. What it had not taken is not lost: it is for the lane that starts over.
    pub(crate) fn break_off(&self, key: &SessionKey, jobs: &mut mpsc::UnboundedReceiver<Job>) {
        tracing::error!(%key, "a session's task panicked");
        let mut live = self.lock();
        let mut spared = Vec::new();
        live.lanes.look_through(key, jobs, |job| spared.extend(job.tape().cloned()));
        live.runs.retain(|_, run| {
            let is_lost = run.tape.key() == key && !spared.iter().any(|tape| Arc::ptr_eq(tape, &run.tape));
            if is_lost {
                run.tape.break_off("internal error in the session's task; the run goes on after a restart");
            }
            !is_lost
        });
    }

    /// Forgets a run that is over; from here on the store answers for it. Another of the same name stays.
    pub(crate) fn forget(&self, tape: &Arc<Tape>) {
        let mut live = self.lock();
        if live.runs.get(tape.run()).is_some_and(|run| Arc::ptr_eq(&run.tape, tape)) {
            live.runs.remove(tape.run());
        }
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

impl Mailbox for mpsc::UnboundedSender<Job> {
    type Job = Job;
    type Jobs = mpsc::UnboundedReceiver<Job>;

    fn put(&self, job: Job) {
        // It fails only when the runtime goes down and drops the lane; then nobody waits for the job any more, either.
        self.send(job).ok();
    }

    fn is_empty(jobs: &Self::Jobs) -> bool {
        jobs.is_empty()
    }

    fn drain(jobs: &mut Self::Jobs) -> Vec<Job> {
        std::iter::from_fn(|| jobs.try_recv().ok()).collect()
    }
}

#[cfg(test)]
mod tests;
