//! One task per session: it owns everything that touches that session.
//!
//! There is no lock to leak and no watchdog: whatever happens to a run, its lane is the one that ends it, and then takes
//! the next message. A lane with nothing to do goes away and comes back with the next message.

mod epilogue;
pub(crate) mod slots;

use std::{collections::VecDeque, sync::Arc, time::Duration};

use homard_proto::{
    Extra, RunId, SessionKey,
    message::{Message, Usage},
    session,
    transcript::{Entry, Header, Kind, ModelChange},
};
use homard_store::{
    Accept, Ended, Error as StoreError, Failure, FailureKind, Input, Outcome, Rec, RunRow, RunState, Start, branch,
};
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::JoinHandle,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use crate::{
    ambient::iso,
    context,
    event::{AbortReason, RunEvent},
    hub::{Admission, Inbound, Shared},
    profile::Profile,
    run::{self, RunError, RunScope},
    tape::Tape,
    writer::Then,
};

/// How long a lane with nothing to do keeps its history at hand.
const IDLE: Duration = Duration::from_secs(30);

/// How long a run that was told to stop may take to do so before it is dropped. Tools get their own, shorter, grace.
const GRACE: Duration = Duration::from_millis(750);

/// Something for a lane to do.
#[derive(Debug)]
pub(crate) enum Job {
    /// A message came in.
    Run(Box<Queued>),
    /// A run, or all of them, shall stop.
    Abort { run: Option<RunId>, reason: AbortReason, tell: oneshot::Sender<Vec<RunId>> },
}

/// A message that waits for its turn.
#[derive(Debug)]
pub(crate) struct Queued {
    inbound: Inbound,
    tape: Arc<Tape>,
    admit: watch::Sender<Admission>,
    cancel: CancellationToken,
    reason: Option<AbortReason>,
}

impl Queued {
    pub(crate) fn new(
        inbound: Inbound,
        tape: Arc<Tape>,
        admit: watch::Sender<Admission>,
        stopping: &CancellationToken,
    ) -> Self {
        Self { inbound, tape, admit, cancel: stopping.child_token(), reason: None }
    }

    /// Tells the run to stop; the first reason counts.
    fn stop(&mut self, reason: AbortReason) {
        self.reason.get_or_insert(reason);
        self.cancel.cancel();
    }

    /// Why it was stopped; without a reason of its own, because everything stops.
    fn stopped(&self) -> Option<AbortReason> {
        self.cancel.is_cancelled().then_some(self.reason.unwrap_or(AbortReason::Shutdown))
    }
}

/// A session at work.
struct Lane {
    hub: Arc<Shared>,
    key: SessionKey,
    jobs: mpsc::UnboundedReceiver<Job>,
    queue: VecDeque<Queued>,
    session: Option<OpenSession>,
}

/// What the lane knows of its session while it lives.
struct OpenSession {
    record: session::Record,
    /// Whether the record is on disk, or about to be.
    is_new: bool,
    history: Vec<Arc<Message>>,
}

/// A lane's life.
pub(crate) async fn run(hub: Arc<Shared>, key: SessionKey, jobs: mpsc::UnboundedReceiver<Job>) {
    let mut lane = Lane { hub, key, jobs, queue: VecDeque::new(), session: None };
    loop {
        if let Some(next) = lane.queue.pop_front() {
            lane.turn(next).await;
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
            Job::Run(queued) => {
                if let Some(queued) = self.admit(*queued).await {
                    self.queue.push_back(queued);
                }
            }
            Job::Abort { run, reason, tell } => {
                let meant = |queued: &Queued| run.as_ref().is_none_or(|run| *run == queued.inbound.run);
                let mut stopped = Vec::new();
                // Those that wait first, so that none of them starts when the active one has gone.
                let (waiting, others) = std::mem::take(&mut self.queue).into_iter().partition(|queued| meant(queued));
                self.queue = others;
                for mut queued in Vec::from(waiting) {
                    queued.stop(reason);
                    stopped.push(queued.inbound.run.clone());
                    self.turn_down(&queued).await;
                }
                if let Some(active) = active.filter(|active| meant(active)) {
                    active.stop(reason);
                    stopped.push(active.inbound.run.clone());
                }
                // Whoever asked may have gone, and that is fine.
                tell.send(stopped).ok();
            }
        }
    }

    /// Puts a message on its way to disk, or refuses it.
    async fn admit(&mut self, queued: Queued) -> Option<Queued> {
        let refusal = match self.known(&queued.inbound).await {
            Ok(None) => self.open().await.err().map(Admission::Failed),
            Ok(Some(refusal)) => Some(refusal),
            Err(error) => Some(Admission::Failed(error)),
        };
        let blocked = |session: &OpenSession| session.record.send_policy.as_deref() == Some("deny");
        let refusal = refusal.or_else(|| self.session.as_ref().is_some_and(blocked).then_some(Admission::Blocked));
        if let Some(refusal) = refusal {
            self.hub.forget(&queued.inbound.run);
            queued.tape.refuse();
            queued.admit.send_replace(refusal);
            return None;
        }
        let inbound = &queued.inbound;
        let at = queued.tape.accepted_at();
        let session = self.session.get_or_insert_with(|| OpenSession {
            record: session::Record::new(inbound.session.clone().unwrap_or_else(|| self.hub.ambient.session_id()), at),
            is_new: true,
            history: Vec::new(),
        });
        let expect = (!std::mem::take(&mut session.is_new)).then(|| session.record.session_id.clone());
        session.note(inbound, at);
        let accept = Accept {
            run: inbound.run.clone(),
            principal: inbound.principal.clone(),
            method: inbound.method.clone(),
            fingerprint: inbound.fingerprint.clone(),
            key: self.key.clone(),
            message: Message::User(inbound.message.clone()),
            at,
        };
        let patch = Rec::Patch { key: self.key.clone(), expect, record: Box::new(session.record.clone()) };
        self.hub.writer.send(vec![Rec::Accept(Box::new(accept)), patch], Then::Admit(queued.admit.clone()));
        Some(queued)
    }

    /// What the store says to a run id that it has seen before.
    async fn known(&self, inbound: &Inbound) -> Result<Option<Admission>, StoreError> {
        let Some(mut row) = self.hub.store.run(&inbound.run).await? else { return Ok(None) };
        if !matches!(row.state, RunState::Ended(_)) {
            // It is not alive, or its id would still be claimed: its end could not be stored then, so it is now.
            self.bury(&row).await?;
            row = self.hub.store.run(&inbound.run).await?.unwrap_or(row);
        }
        let same = (&row.principal, &row.method, &row.fingerprint)
            == (&inbound.principal, &inbound.method, &inbound.fingerprint);
        Ok(Some(if same { Admission::Duplicate(Box::new(row)) } else { Admission::Conflict }))
    }

    /// Ends a run whose end was not stored when it came.
    async fn bury(&self, row: &RunRow) -> Result<(), StoreError> {
        let message = "the run was interrupted: its end could not be stored".to_owned();
        let ended = Ended {
            outcome: Outcome::Failed(Failure { kind: FailureKind::Internal, message }),
            replies: Vec::new(),
            model: (String::new(), String::new()),
            usage: Usage::default(),
            started_at: None,
            ended_at: self.hub.ambient.now_ms(),
        };
        let terminal = Rec::Terminal { run: row.run.clone(), ended: Box::new(ended) };
        self.hub.writer.commit(vec![terminal]).await
    }

    /// Reads the session from disk if it is not at hand.
    async fn open(&mut self) -> Result<(), StoreError> {
        if self.session.is_none() {
            self.session = self.hub.store.load(&self.key).await?.map(OpenSession::from);
        }
        Ok(())
    }

    /// One run, from its slot to its end.
    async fn turn(&mut self, mut queued: Queued) {
        let profile = self.hub.agents.of(self.key.agent()).clone();
        let Some(slot) = self.wait_for_slot(&mut queued).await else { return self.turn_down(&queued).await };
        if let Err(error) = self.open().await {
            tracing::warn!(key = %self.key, %error, "could not read the session");
        }
        // Both halves are sent before either is awaited, so that an idle lane commits them together.
        let scope = self.begin(&queued, &profile);
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
        drop(slot);
    }

    /// Ends a run that was stopped before it began.
    async fn turn_down(&mut self, queued: &Queued) {
        if is_admitted(queued).await {
            let profile = self.hub.agents.of(self.key.agent()).clone();
            self.end(queued, &profile, Err(RunError::Stopped)).await;
        } else {
            self.never_was(queued);
        }
    }

    /// A message that could not be stored never was a run. Its sender knows; what we believed of the session is void.
    fn never_was(&mut self, queued: &Queued) {
        self.hub.forget(&queued.inbound.run);
        queued.tape.refuse();
        self.session = None;
    }

    /// Waits for a slot, serving the mailbox meanwhile; `None` when the run was stopped first.
    async fn wait_for_slot(&mut self, queued: &mut Queued) -> Option<tokio::sync::OwnedSemaphorePermit> {
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

    /// Puts the run's beginning on its way to disk and gathers what the run needs.
    ///
    /// `None` when the session is not at hand: an earlier commit failed, and nothing about it can be trusted.
    fn begin(&mut self, queued: &Queued, profile: &Arc<Profile>) -> Option<RunScope> {
        let (hub, tape, inbound) = (&self.hub, &queued.tape, &queued.inbound);
        let session = self.session.as_mut()?;
        let at = hub.ambient.now_ms();
        let cwd = profile.workdir.display().to_string();
        let header = Header::new(session.record.session_id.clone(), iso(at), cwd);
        let entry = |kind| Entry { kind, id: hub.ambient.entry_id(), parent_id: None, timestamp: iso(at) };
        let message = Arc::new(Message::User(inbound.message.clone()));
        let mut entries = Vec::new();
        let spec = profile.model.spec();
        if session.set_model(&spec.provider, &spec.model, spec.context_window) {
            let (provider, model_id) = (spec.provider.clone(), spec.model.clone());
            let change = ModelChange { provider, model_id, extra: Extra::new() };
            entries.push(entry(Kind::ModelChange(change)));
        }
        entries.push(entry(Kind::message((*message).clone())));
        tape.hold(at, RunEvent::Started { session: session.record.session_id.clone() });
        tape.hold(at, RunEvent::Input(message.clone()));
        let start = Start { run: inbound.run.clone(), key: self.key.clone(), header, at };
        let input = Input { run: inbound.run.clone(), key: self.key.clone(), absorbs: Vec::new(), entries };
        hub.writer.send(vec![Rec::Start(start), Rec::Input(input)], Then::Publish(tape.clone(), 2));
        session.history.push(message);
        Some(RunScope {
            hub: hub.clone(),
            profile: profile.clone(),
            tape: tape.clone(),
            cancel: queued.cancel.clone(),
            system: context::prompt(profile, inbound.extra_prompt.as_deref()),
            history: session.history.clone(),
            said: 0,
        })
    }

    /// Watches over a run until it is over, serving the mailbox meanwhile.
    async fn supervise(
        &mut self,
        queued: &mut Queued,
        mut handle: JoinHandle<Result<(), RunError>>,
        profile: &Profile,
    ) -> Result<(), RunError> {
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

impl From<homard_store::Session> for OpenSession {
    fn from(session: homard_store::Session) -> Self {
        Self { history: branch::messages(&session.entries), record: session.record, is_new: false }
    }
}

impl OpenSession {
    /// What a message changes in the session's record.
    fn note(&mut self, inbound: &Inbound, at: u64) {
        let record = &mut self.record;
        record.updated_at = record.updated_at.max(at);
        if inbound.label.is_some() {
            record.label.clone_from(&inbound.label);
        }
        if inbound.spawned_by.is_some() {
            record.spawned_by.clone_from(&inbound.spawned_by);
        }
        match inbound.thinking.as_deref() {
            Some("off") => record.thinking_level = None,
            Some(level) => record.thinking_level = Some(level.to_owned()),
            None => {}
        }
    }

    /// Notes which model answers from here on; returns whether it is another one than before.
    fn set_model(&mut self, provider: &str, model: &str, window: u64) -> bool {
        let record = &mut self.record;
        let before = (record.model_provider.as_deref(), record.model.as_deref());
        if before == (Some(provider), Some(model)) {
            return false;
        }
        record.model_provider = Some(provider.to_owned());
        record.model = Some(model.to_owned());
        record.context_tokens = Some(window);
        true
    }
}
