//! One task per session, the lane, which owns everything that touches that session.
//!
//! There is no lock to leak and no watchdog: whatever happens to a run, its lane ends it and then takes the next
//! message. An idle lane retires and is started again with the next message.

mod absorbed;
mod control;
mod epilogue;
mod heartbeat;
mod hooks;
pub(crate) mod idle_cache;
mod model_choice;
pub(crate) mod mutations;
mod output;
mod prelude;
mod queue;
pub(crate) mod recovered_end;
mod replies;
mod run_summary;
mod session;
mod start;
mod strict;
mod ticket;

use std::{
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::{FutureExt, future::OptionFuture};
use homard_proto::{RunId, SessionKey};
use homard_queue::{
    inbox::{Inbox, QueuedRun, Readiness},
    slots::{Lender, Slot},
};
use homard_stdx::time::millis;
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, sleep_until, timeout},
};
use tokio_util::task::AbortOnDropHandle;

use crate::{
    context::gather::{self, PromptSession},
    event::{AbortReason, QueueEvent},
    hub::{Inbound, Shared},
    profile::Profile,
    run::{self, RunError, RunResult, Steered},
    tape::{Tape, TapeState},
    tool::RunOrigin,
};
use hooks::ResetCause;
use hooks::{before_reset, fire_transcript_change};
use mutations::{Deletion, Mutation};
use mutations::{delete, mutate};
use output::open_output;
use session::OpenSession;
use start::RunInputs;
use start::start_run;
use strict::{refuse, too_long};
use ticket::ActiveRun;

pub(crate) use control::{ReportRequest, SessionView, context_report};
pub(crate) use model_choice::{model as answering_model, model_name as answering};
pub(crate) use start::{AUTO_COMPACT, AUTO_FLUSH, ResumeState, event_of_entry};
pub(crate) use ticket::Ticket;

/// Maximum time that an idle lane keeps its history in memory.
const IDLE: Duration = Duration::from_secs(30);

/// Extension of a run's time limit while it compacts the context.
const COMPACTION_GRACE: Duration = Duration::from_secs(60);

/// Time for an aborted run to end before its task is dropped. Tools have their own, shorter, grace period.
const GRACE: Duration = Duration::from_millis(750);

/// Time that a message waits behind a run before its sender gets a busy event.
const BUSY_AFTER: Duration = Duration::from_secs(30);

/// A job for a lane.
#[derive(Debug)]
pub(crate) enum LaneJob {
    /// A message, new or recovered.
    Run(Box<Ticket>),
    /// Aborts one run or all of them.
    Abort { run: Option<RunId>, reason: AbortReason, reply: oneshot::Sender<Vec<RunId>> },
    /// A change to the session from outside.
    Change(Box<Mutation>),
    /// The active run asks for an offered message.
    Offer(oneshot::Sender<Steered>),
}

impl LaneJob {
    /// Returns the tape of the job's run.
    pub(crate) fn tape(&self) -> Option<&Arc<Tape>> {
        match self {
            Self::Run(ticket) => Some(&ticket.tape),
            Self::Abort { .. } | Self::Change(_) | Self::Offer(_) => None,
        }
    }
}

/// State of a lane.
struct Lane {
    hub: Arc<Shared>,
    key: SessionKey,
    jobs: mpsc::UnboundedReceiver<LaneJob>,
    inbox: Inbox<Ticket>,
    /// Start of the lane: debounce and waiting times are measured from here, independently of the wall clock.
    origin: Instant,
    /// True if a message is offered to the active run.
    has_pending_steer: Arc<AtomicBool>,
    session: Option<OpenSession>,
    /// Deletions to execute when the active run has ended.
    deletions: Vec<Deletion>,
    /// True if the cached session has to be read again before the next run.
    must_reload: bool,
}

/// Runs a lane until it is idle. A panic loses the runs that it had read; it then starts over with the jobs it had not
/// read, so that the registered lane is always alive.
pub(crate) async fn run(hub: Arc<Shared>, key: SessionKey, jobs: mpsc::UnboundedReceiver<LaneJob>) {
    let mut lane = Lane::new(hub, key, jobs);
    while AssertUnwindSafe(run_loop(&mut lane)).catch_unwind().await.is_err() {
        lane.hub.break_off(&lane.key, &mut lane.jobs);
        lane = Lane::new(lane.hub, lane.key, lane.jobs);
    }
}

/// Main loop of a lane.
async fn run_loop(lane: &mut Lane) {
    loop {
        let wake = match lane.inbox.ready(lane.now()) {
            _ if lane.hub.draining.is_cancelled() => {
                Box::pin(lane.leave_queued()).await;
                None
            }
            Readiness::Now(_) => {
                // Boxed, so that the future of an idle lane is small.
                Box::pin(lane.run_next()).await;
                Box::pin(delete(lane)).await;
                continue;
            }
            Readiness::Later(at) => Some(lane.origin + Duration::from_millis(at)),
            Readiness::Nothing => None,
        };
        let is_idle = lane.inbox.is_empty();
        let idle_timeout = OptionFuture::from(is_idle.then(|| timeout(IDLE, lane.register_idle())));
        tokio::select! {
            biased;
            Some(job) = lane.jobs.recv() => Box::pin(lane.handle_job(job, None)).await,
            () = lane.hub.draining.cancelled() => if is_idle && lane.hub.retire(&lane.key, &lane.jobs) { return },
            () = sleep_until_some(wake), if wake.is_some() => {}
            Some(_) = idle_timeout => if lane.hub.retire(&lane.key, &lane.jobs) { return },
        }
    }
}

impl Lane {
    fn new(hub: Arc<Shared>, key: SessionKey, jobs: mpsc::UnboundedReceiver<LaneJob>) -> Self {
        Self {
            hub,
            key,
            jobs,
            inbox: Inbox::default(),
            origin: Instant::now(),
            has_pending_steer: Arc::default(),
            session: None,
            deletions: Vec::new(),
            must_reload: false,
        }
    }

    /// Milliseconds since the start of the lane.
    fn now(&self) -> u64 {
        millis(self.origin.elapsed())
    }

    /// Registers an idle lane in the cache of idle lanes. The receiver resolves when the lane is evicted.
    fn register_idle(&self) -> oneshot::Receiver<()> {
        self.hub.idle_cache.register(self.session.as_ref().map_or(0, |session| session.history.len()))
    }

    /// Executes a job. `active` is the active run.
    async fn handle_job(&mut self, job: LaneJob, active: Option<&mut ActiveRun>) {
        match job {
            LaneJob::Run(ticket) => self.receive(*ticket, active).await,
            LaneJob::Abort { run, reason, reply } => {
                let stopped = self.abort(run.as_ref(), reason, active).await;
                // The caller may have gone; the result is then dropped.
                reply.send(stopped).ok();
            }
            LaneJob::Change(mutation) => mutate(self, *mutation, active).await,
            LaneJob::Offer(reply) => self.offer(reply, active).await,
        }
    }

    /// Executes the next run once there is a slot for it.
    async fn run_next(&mut self) {
        let Some(slot) = self.slot().await else { return };
        self.await_admissions().await;
        let now = self.now();
        if let Some(queued) = self.inbox.next(now) {
            self.refresh();
            self.execute(queued, slot).await;
        }
    }

    /// Executes one run from start to end.
    async fn execute(&mut self, queued: QueuedRun<Ticket>, slot: Lender) {
        let QueuedRun { mut host, absorbed, prompt } = queued;
        host.host(absorbed);
        let mut active = ActiveRun { prompt, ..ActiveRun::from(host) };
        let profile = self.profile_for(&active.ticket.inbound);
        if let Err(error) = self.open_for(&active.ticket).await {
            tracing::warn!(key = %self.key, %error, "failed to read the session");
        }
        let hooks = self.hub.config.rules().hooks.clone();
        let id = self.session.as_ref().map(|session| session.record.session_id.clone());
        let origin = RunOrigin::of(&active.ticket.inbound);
        let session = PromptSession { key: &self.key, id: id.as_ref(), now: self.hub.ambient.now_ms() };
        let gathered = gather::gather(&profile, &origin, session, &hooks).await;
        let accepts_images = self
            .session
            .as_ref()
            .is_none_or(|session| model_choice::model(&profile, &session.record).spec().accepts_images);
        if let Some(refusal) = too_long(self, &active, &profile, &gathered) {
            return refuse(self, active, &profile, refusal).await;
        }
        let attachments = active.load_attachments(&profile, &gathered.kit, accepts_images).await;
        if active.ticket.inbound.starts_transcript() && !active.ticket.is_resumed {
            active.hook_messages =
                before_reset(self, active.ticket.reset_reason(), ResetCause::Command(&active.ticket)).await;
        }
        let (profile_of_run, has_pending_steer) = (profile.clone(), self.has_pending_steer.clone());
        let inputs = RunInputs { profile: profile_of_run, slot, has_pending_steer, files: gathered, attachments };
        let scope = start_run(self, &mut active, inputs).await;
        if !active.ticket.is_admitted().await {
            return self.drop_rejected(&active.ticket);
        }
        if let Some(session) = &mut self.session
            && let Some(change) = session.transcript_change.take()
        {
            let id = session.record.session_id.clone();
            fire_transcript_change(self, &change, Some(&id));
        }
        open_output(self, &mut active, &profile);
        let result = match scope {
            Some(mut scope) => {
                active.attach_output(&mut scope);
                // The run is aborted with its lane if the lane panics.
                let handle = AbortOnDropHandle::new(self.hub.spawn("run", run::drive(scope)));
                self.supervise(&mut active, handle, &profile).await
            }
            None if active.ticket.is_resumed => RunError::Orphaned.into(),
            None => RunError::SessionGone.into(),
        };
        self.inbox.withdraw_offers();
        self.has_pending_steer.store(false, Ordering::Release);
        let ephemeral = active.ticket.inbound.session.is_ephemeral.then(|| active.ticket.tape.clone());
        self.end(active, &profile, result).await;
        if ephemeral.is_some_and(|tape| matches!(tape.state(), TapeState::Ended(_))) {
            // No caller waits for this deletion.
            let (reply, _) = oneshot::channel();
            self.deletions.push(Deletion { expected: None, reply });
        }
        self.update_dispositions();
    }

    /// Returns the session's agent with the working directory and settings of the message.
    fn profile_for(&self, inbound: &Inbound) -> Arc<Profile> {
        let profile = self.hub.config.agents().of(self.key.agent());
        profile.in_session(&self.key, inbound.options.cwd.as_ref()).overridden(&inbound.options.overrides)
    }

    /// Ends a run that was aborted before it started. Returns false if the message was not accepted.
    async fn end_unstarted(&mut self, mut ticket: Ticket) -> bool {
        ticket.accept(&self.hub.writer);
        let is_admitted = ticket.is_admitted().await;
        if is_admitted {
            let mut active = ActiveRun::from(ticket);
            active.restore_progress(self.hub.ambient.now_ms());
            let profile = self.profile_for(&active.ticket.inbound);
            self.end(active, &profile, RunError::Stopped.into()).await;
        } else {
            self.drop_rejected(&ticket);
        }
        is_admitted
    }

    /// Removes a message that was not accepted. Its sender has been answered; the cached session is invalid.
    fn drop_rejected(&mut self, ticket: &Ticket) {
        self.hub.forget(&ticket.tape);
        ticket.tape.mark_rejected();
        self.must_reload = true;
    }

    /// Drops the cached session if it is invalid. Not called while a run is active, whose end refers to that state.
    fn refresh(&mut self) {
        if std::mem::take(&mut self.must_reload) {
            self.session = None;
        }
    }

    /// Waits for a slot for the next run and serves the mailbox meanwhile; `None` if no run is ready any more.
    async fn slot(&mut self) -> Option<Lender> {
        let Readiness::Now(message) = self.inbox.ready(self.now()) else { return None };
        // A fixed answer needs no slot.
        if message.fixed_reply().is_some() {
            return Some(Lender::default());
        }
        let class = message.inbound.options.class;
        if let Some(slot) = self.hub.slots.try_take(class) {
            return Some(slot.into());
        }
        self.accept_all();
        // Before another job is taken from the mailbox: nothing may depend on a rejected message.
        self.await_admissions().await;
        let slots = self.hub.slots.clone();
        let slot = slots.take(class);
        tokio::pin!(slot);
        loop {
            match self.inbox.ready(self.now()) {
                Readiness::Now(message)
                    if message.fixed_reply().is_none() && message.inbound.options.class == class => {}
                Readiness::Now(_) | Readiness::Later(_) | Readiness::Nothing => return None,
            }
            let busy_at = self.next_busy_event();
            tokio::select! {
                biased;
                Some(job) = self.jobs.recv() => self.handle_job(job, None).await,
                () = self.hub.draining.cancelled() => return None,
                slot = &mut slot => return Some(self.granted(slot)),
                () = sleep_until_some(busy_at), if busy_at.is_some() => self.emit_slots_busy(),
            }
        }
    }

    /// Returns the slot after a wait. A long wait is logged and emitted as an event.
    fn granted(&self, slot: Slot) -> Lender {
        if let Some(waited) = slot.long_wait() {
            tracing::warn!(key = %self.key, ?waited, "run waited a long time for a slot; consider raising agents.defaults.maxConcurrent");
            if let Readiness::Now(message) = self.inbox.ready(self.now()) {
                message.tape.emit(self.hub.ambient.now_ms(), QueueEvent::SlotWaited(waited));
            }
        }
        slot.into()
    }

    /// Supervises a run until it ends and serves the mailbox meanwhile.
    async fn supervise(
        &mut self,
        active: &mut ActiveRun,
        mut handle: AbortOnDropHandle<RunResult>,
        profile: &Profile,
    ) -> RunResult {
        let mut deadline =
            active.ticket.inbound.options.timeout.or(profile.timeout).map(|limit| Instant::now() + limit);
        let (mut is_stopping, mut has_grace) = (false, false);
        let cancel = active.ticket.cancel.clone();
        loop {
            let busy_at = self.next_busy_event();
            tokio::select! {
                biased;
                joined = &mut handle => return joined.unwrap_or_else(|panic| RunError::from(panic).into()),
                Some(job) = self.jobs.recv() => self.handle_job(job, Some(active)).await,
                () = sleep_until_some(busy_at), if busy_at.is_some() => self.emit_busy(active),
                () = cancel.cancelled(), if !is_stopping => {
                    is_stopping = true;
                    deadline = Some(Instant::now() + GRACE);
                }
                () = sleep_until_some(deadline) => {
                    if !is_stopping && active.compacting.is_set() && !std::mem::replace(&mut has_grace, true) {
                        // Once: the compaction is nearly done and would be lost.
                        deadline = Some(Instant::now() + COMPACTION_GRACE);
                    } else if is_stopping {
                        deadline = None;
                        handle.abort();
                    } else {
                        active.stop(AbortReason::Timeout);
                    }
                }
            }
        }
    }
}

/// Sleeps until a moment, or forever.
async fn sleep_until_some(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
