//! What the hub and its lanes share: what is alive, and where everything else is found.

use std::{
    collections::HashMap,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures_util::FutureExt;
use homard_proto::{RunId, SessionKey};
use homard_store::Store;
use tokio::{
    sync::{Notify, mpsc, watch},
    task::JoinHandle,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{Admission, HubEvent, Rules};
use crate::{
    ambient::Ambient,
    lane::{self, Job, slots::Slots},
    profile::Agents,
    tape::Tape,
    writer::Writer,
};

/// What the hub and its lanes share.
pub(crate) struct Shared {
    pub(crate) ambient: Ambient,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) writer: Writer,
    pub(crate) agents: Agents,
    pub(crate) slots: Slots,
    pub(crate) rules: Rules,
    pub(crate) stopping: CancellationToken,
    pub(super) feed: mpsc::UnboundedSender<HubEvent>,
    pub(super) tracker: TaskTracker,
    pub(super) live: Mutex<Live>,
    /// Rung whenever a new run is claimed, for those who wait for one that nobody knew.
    pub(super) arrivals: Notify,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hub").field("agents", &self.agents).finish_non_exhaustive()
    }
}

/// What is alive. One short lock; never held across an await.
#[derive(Debug, Default)]
pub(super) struct Live {
    pub(super) lanes: HashMap<SessionKey, mpsc::UnboundedSender<Job>>,
    pub(super) runs: HashMap<RunId, LiveRun>,
    /// Why nothing is taken in.
    pub(super) held: Option<String>,
}

#[derive(Debug)]
pub(super) struct LiveRun {
    pub(super) tape: Arc<Tape>,
    pub(super) asked: (String, String, String),
    pub(super) admission: watch::Receiver<Admission>,
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, Live> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands a job to the session's lane, which is started if there is none. The lock is held, so the lane cannot retire.
    pub(super) fn send(self: &Arc<Self>, live: &mut Live, key: &SessionKey, job: Job) {
        let lane = live.lanes.entry(key.clone()).or_insert_with(|| {
            // Unbounded: a message that waits is on disk, or its sender waits with it.
            let (mailbox, jobs) = mpsc::unbounded_channel();
            let (shared, key) = (self.clone(), key.clone());
            self.spawn("lane", async move {
                let life = AssertUnwindSafe(lane::run(shared.clone(), key.clone(), jobs));
                if life.catch_unwind().await.is_err() {
                    shared.bury_lane(&key);
                }
            });
            mailbox
        });
        // The lane lives while it is in the map, and we hold the map.
        lane.send(job).ok();
    }

    /// Cleans up after a bug in a lane: those who follow its runs are told, and the next message gets a new lane. On disk
    /// the runs are unfinished, and a restart takes them up.
    fn bury_lane(&self, key: &SessionKey) {
        tracing::error!(%key, "a session's task panicked");
        let mut live = self.lock();
        live.lanes.remove(key);
        live.runs.retain(|_, run| {
            let is_lost = run.tape.key() == key;
            if is_lost {
                run.tape.break_off("internal error in the session's task; the run goes on after a restart");
            }
            !is_lost
        });
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
