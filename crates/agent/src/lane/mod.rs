//! One task per session: it owns everything that touches that session.
//!
//! There is no lock to leak and no watchdog: whatever happens to a run, its lane is the one that ends it, and then takes
//! the next message. A lane with nothing to do goes away and comes back with the next message.

mod begin;
pub(crate) mod chores;
pub(crate) mod epilogue;
mod open;
pub(crate) mod slots;

use std::{collections::VecDeque, sync::Arc, time::Duration};

use homard_proto::{RunId, SessionId, SessionKey, message::ToolResult};
use homard_store::{Error as StoreError, Rec};
use tokio::{
    sync::{OwnedSemaphorePermit, mpsc, oneshot, watch},
    task::JoinHandle,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use crate::{
    command::Command,
    event::AbortReason,
    hub::{Admission, Inbound, Shared},
    profile::Profile,
    run::{self, Last, RunError},
    tape::Tape,
    writer::Then,
};
pub(crate) use begin::Resume;
use chores::{Chore, Deletion};
use open::OpenSession;

/// How long a lane with nothing to do keeps its history at hand.
const IDLE: Duration = Duration::from_secs(30);

/// How long a run that was told to stop may take to do so before it is dropped. Tools get their own, shorter, grace.
const GRACE: Duration = Duration::from_millis(750);

/// Something for a lane to do.
#[derive(Debug)]
pub(crate) enum Job {
    /// A message came in, or a restart found one.
    Run(Box<Queued>),
    /// A run, or all of them, shall stop.
    Abort { run: Option<RunId>, reason: AbortReason, tell: oneshot::Sender<Vec<RunId>> },
    /// Somebody changes the session from outside.
    Change(Chore),
}

/// A message that waits for its turn.
#[derive(Debug)]
pub(crate) struct Queued {
    inbound: Inbound,
    tape: Arc<Tape>,
    admit: watch::Sender<Admission>,
    cancel: CancellationToken,
    reason: Option<AbortReason>,
    /// What takes the message in. An idle lane commits it together with the run's beginning.
    accepting: Vec<Rec>,
    /// Set for a run that a restart found at work, until it goes on.
    resume: Option<Resume>,
    is_resumed: bool,
    /// How many assistant messages it had then, and the answers to open calls of the last one that are known.
    said: u32,
    answers: Vec<ToolResult>,
    /// The transcript that the run works in, once it began.
    session: Option<SessionId>,
}

impl Queued {
    /// A message that has just come in.
    pub(crate) fn new(
        inbound: Inbound,
        tape: Arc<Tape>,
        admit: watch::Sender<Admission>,
        stopping: &CancellationToken,
    ) -> Self {
        let cancel = stopping.child_token();
        Self {
            inbound,
            tape,
            admit,
            cancel,
            reason: None,
            accepting: Vec::new(),
            resume: None,
            is_resumed: false,
            said: 0,
            answers: Vec::new(),
            session: None,
        }
    }

    /// A run that was at work when the process ended.
    pub(crate) fn resuming(mut self, resume: Resume) -> Self {
        self.resume = Some(resume);
        self.is_resumed = true;
        self
    }

    /// Whether the message was on disk before this process began.
    fn is_recovered(&self) -> bool {
        matches!(*self.admit.borrow(), Admission::Accepted)
    }

    /// What is answered without a model, if it is a command that needs none.
    fn answer(&self) -> Option<&'static str> {
        self.inbound.command.as_ref().and_then(Command::answer)
    }

    /// Tells the run to stop; the first reason counts.
    fn stop(&mut self, reason: AbortReason) {
        self.reason.get_or_insert(reason);
        self.cancel.cancel();
    }
}

/// A session at work.
struct Lane {
    hub: Arc<Shared>,
    key: SessionKey,
    jobs: mpsc::UnboundedReceiver<Job>,
    queue: VecDeque<Queued>,
    session: Option<OpenSession>,
    /// Who waits for the session to be deleted when the run at work has ended.
    deletions: Vec<Deletion>,
    /// Whether what is known of the session has to be read again before the next run.
    is_stale: bool,
}

/// A lane's life.
pub(crate) async fn run(hub: Arc<Shared>, key: SessionKey, jobs: mpsc::UnboundedReceiver<Job>) {
    let mut lane =
        Lane { hub, key, jobs, queue: VecDeque::new(), session: None, deletions: Vec::new(), is_stale: false };
    loop {
        if let Some(next) = lane.queue.pop_front() {
            lane.refresh();
            lane.turn(next).await;
            lane.delete().await;
            continue;
        }
        tokio::select! {
            biased;
            Some(job) = lane.jobs.recv() => lane.take(job, None).await,
            () = lane.hub.stopping.cancelled() => if lane.hub.retire(&lane.key, &lane.jobs) { return },
            () = tokio::time::sleep(IDLE) => if lane.hub.retire(&lane.key, &lane.jobs) { return },
        }
    }
}

impl Lane {
    /// Does what a job asks for. `active` is the run whose turn it is.
    async fn take(&mut self, job: Job, active: Option<&mut Queued>) {
        match job {
            Job::Run(queued) if queued.is_recovered() => self.queue.push_back(*queued),
            Job::Run(queued) => {
                let is_idle = active.is_none() && self.queue.is_empty();
                if is_idle {
                    self.refresh();
                }
                if let Some(mut queued) = self.admit(*queued).await {
                    if !is_idle {
                        self.accept(&mut queued);
                    }
                    self.queue.push_back(queued);
                }
            }
            Job::Abort { run, reason, tell } => {
                let stopped = self.abort(run.as_ref(), reason, active).await;
                // Whoever asked may have gone, and that is fine.
                tell.send(stopped).ok();
            }
            Job::Change(chore) => self.change(chore, active).await,
        }
    }

    /// Sends a message on its way to disk, if it is not yet.
    fn accept(&self, queued: &mut Queued) {
        if !queued.accepting.is_empty() {
            let records = std::mem::take(&mut queued.accepting);
            self.hub.writer.send(records, Then::admit(queued.admit.clone(), &queued.tape));
        }
    }

    /// Stops a run, or all of them. Whoever asked hears of it once a restart would know it, too.
    async fn abort(&mut self, run: Option<&RunId>, reason: AbortReason, active: Option<&mut Queued>) -> Vec<RunId> {
        let meant = |queued: &Queued| run.is_none_or(|run| *run == queued.inbound.run);
        let mut stopped = Vec::new();
        // Those that wait first, so that none of them starts when the active one has gone.
        let (waiting, others) = std::mem::take(&mut self.queue).into_iter().partition(|queued| meant(queued));
        self.queue = others;
        for mut queued in Vec::from(waiting) {
            queued.stop(reason);
            stopped.push(queued.inbound.run.clone());
            self.turn_down(queued).await;
        }
        if let Some(active) = active.filter(|active| meant(active)) {
            let run = active.inbound.run.clone();
            if let Err(error) = self.hub.writer.commit(vec![Rec::Abort { run: run.clone(), reason }]).await {
                tracing::warn!(%run, %error, "the wish to stop could not be stored");
            }
            active.stop(reason);
            stopped.push(run);
        }
        stopped
    }

    /// One run, from its slot to its end.
    async fn turn(&mut self, mut queued: Queued) {
        // An answer without a model needs no slot.
        let needs_slot = queued.answer().is_none();
        let slot = match self.hub.slots.try_take(queued.inbound.class) {
            _ if queued.cancel.is_cancelled() => None,
            slot if slot.is_some() || !needs_slot => Some(slot),
            _ => self.wait_for_slot(&mut queued).await.map(Some),
        };
        let Some(_slot) = slot else { return self.turn_down(queued).await };
        // A message that was sent on its way before it came to its turn may have been refused since.
        if queued.accepting.is_empty() && !is_admitted(&queued).await {
            return self.never_was(&queued);
        }
        let profile = self.hub.agents.of(self.key.agent()).clone();
        if let Err(error) = self.open_for(&queued).await {
            tracing::warn!(key = %self.key, %error, "could not read the session");
        }
        let scope = self.begin(&mut queued, &profile);
        if !is_admitted(&queued).await {
            return self.never_was(&queued);
        }
        let ended = match scope {
            Some(scope) => {
                let handle = self.hub.spawn("run", run::drive(scope));
                self.supervise(&mut queued, handle, &profile).await
            }
            None => Err(RunError::SessionGone),
        };
        self.end(&queued, &profile, ended).await;
    }

    /// Ends a run that was stopped before it began.
    async fn turn_down(&mut self, mut queued: Queued) {
        self.accept(&mut queued);
        if is_admitted(&queued).await {
            queued.take_up(self.hub.ambient.now_ms());
            let profile = self.hub.agents.of(self.key.agent()).clone();
            self.end(&queued, &profile, Err(RunError::Stopped)).await;
        } else {
            self.never_was(&queued);
        }
    }

    /// A message that was not taken in never was a run. Its sender knows; what we believed of the session is void.
    fn never_was(&mut self, queued: &Queued) {
        self.hub.forget(&queued.tape);
        queued.tape.refuse();
        self.is_stale = true;
    }

    /// Forgets what is known of the session if it is void. Not while a run is at work: its end belongs to what it knew.
    fn refresh(&mut self) {
        if std::mem::take(&mut self.is_stale) {
            self.session = None;
        }
    }

    /// Waits for a slot, serving the mailbox meanwhile; `None` when the run was stopped first.
    async fn wait_for_slot(&mut self, queued: &mut Queued) -> Option<OwnedSemaphorePermit> {
        self.accept(queued);
        let slots = self.hub.slots.clone();
        let slot = slots.take(queued.inbound.class);
        tokio::pin!(slot);
        loop {
            let cancel = queued.cancel.clone();
            tokio::select! {
                biased;
                Some(job) = self.jobs.recv() => self.take(job, Some(queued)).await,
                () = cancel.cancelled() => return None,
                slot = &mut slot => return Some(slot),
            }
        }
    }

    /// Watches over a run until it is over, serving the mailbox meanwhile.
    async fn supervise(
        &mut self,
        queued: &mut Queued,
        mut handle: JoinHandle<Result<Last, RunError>>,
        profile: &Profile,
    ) -> Result<Last, RunError> {
        let mut patience = Some(Instant::now() + queued.inbound.timeout.unwrap_or(profile.timeout));
        let mut is_stopping = false;
        let cancel = queued.cancel.clone();
        loop {
            tokio::select! {
                biased;
                joined = &mut handle => return joined.unwrap_or_else(|panic| Err(RunError::from(panic))),
                Some(job) = self.jobs.recv() => self.take(job, Some(queued)).await,
                () = cancel.cancelled(), if !is_stopping => {
                    is_stopping = true;
                    patience = Some(Instant::now() + GRACE);
                }
                () = until(patience) => {
                    if is_stopping {
                        patience = None;
                        handle.abort();
                    } else {
                        queued.stop(AbortReason::Timeout);
                    }
                }
            }
        }
    }
}

/// Waits for a moment, or for ever.
async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

/// Whether the message was taken in; waits until that is known.
async fn is_admitted(queued: &Queued) -> bool {
    let mut admission = queued.admit.subscribe();
    let known = admission.wait_for(|admission| !matches!(admission, Admission::Pending)).await;
    matches!(known.as_deref(), Ok(Admission::Accepted))
}

impl Lane {
    /// Reads the session from disk if it is not at hand.
    async fn open(&mut self) -> Result<(), StoreError> {
        if self.session.is_none() {
            self.session = self.hub.store.load(&self.key).await?.map(OpenSession::from);
        }
        Ok(())
    }
}
