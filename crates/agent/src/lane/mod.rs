//! One task per session: it owns everything that touches that session.
//!
//! There is no lock to leak and no watchdog: whatever happens to a run, its lane is the one that ends it, and then takes
//! the next message. A lane with nothing to do goes away and comes back with the next message.

mod answerer;
mod begin;
pub(crate) mod chores;
mod control;
pub(crate) mod epilogue;
mod guests;
mod heartbeat;
mod hooks;
pub(crate) mod inbox;
mod last_words;
mod line;
mod open;
mod outward;
mod prelude;
pub(crate) mod rest;
pub(crate) mod slots;
mod strict;

use std::{
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::{FutureExt, future::OptionFuture};
use homard_proto::{EntryId, RunId, SessionId, SessionKey, message::ToolResult};
use homard_store::{DeliveryRow, Hold, Rec};
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::{Instant, sleep_until, timeout},
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use crate::{
    command::{Command, queue::Settings},
    context::brief,
    event::{AbortReason, RunEvent},
    hub::{Admission, Inbound, Shared},
    post::line::Line,
    profile::Profile,
    run::{self, Driven, Flag, Handed, RunError},
    tape::{State, Tape},
    tool::Origin,
    writer::{Then, Writer},
};
pub(crate) use answerer::{model as answering_model, name as answering};
pub(crate) use begin::Resume;
use chores::{Chore, Deletion};
pub(crate) use control::report;
use inbox::{Inbox, Ready, Turn};
use open::OpenSession;
use slots::{Lender, Slot};

/// How long a lane with nothing to do keeps its history at hand, at most.
const IDLE: Duration = Duration::from_secs(30);

/// How much longer a run may take whose time is up while it makes the conversation short.
const COMPACTION_GRACE: Duration = Duration::from_secs(60);

/// How long a run that was told to stop may take to do so before it is dropped. Tools get their own, shorter, grace.
const GRACE: Duration = Duration::from_millis(750);

/// How long a message waits behind a run before its sender is told what the session is busy with.
const BUSY_AFTER: Duration = Duration::from_secs(30);

/// Something for a lane to do.
#[derive(Debug)]
pub(crate) enum Job {
    /// A message came in, or a restart found one.
    Run(Box<Queued>),
    /// A run, or all of them, shall stop.
    Abort { run: Option<RunId>, reason: AbortReason, tell: oneshot::Sender<Vec<RunId>> },
    /// Somebody changes the session from outside.
    Change(Box<Chore>),
    /// The run at work asks for a message that came for it.
    Offer(oneshot::Sender<Handed>),
}

impl Job {
    /// The tape of the run that it asks for.
    pub(crate) fn tape(&self) -> Option<&Arc<Tape>> {
        match self {
            Self::Run(queued) => Some(&queued.tape),
            Self::Abort { .. } | Self::Change(_) | Self::Offer(_) => None,
        }
    }
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
    /// How it waits for its turn; `None` for one that is always a run of its own.
    settings: Option<Settings>,
    /// Since when it waits, until its sender was told what for.
    waits_since: Option<Instant>,
    /// What is said in its place, if it speaks for others as well.
    prompt: Option<String>,
    /// Messages that its run answers beside its own.
    guests: Vec<Self>,
    /// Whether the message was on disk before this process began.
    was_found: bool,
    /// Set for a run that a restart found at work, until it goes on.
    resume: Option<Resume>,
    is_resumed: bool,
    /// How many assistant messages it had then, and the answers to open calls of the last one that are known.
    said: u32,
    answers: Vec<ToolResult>,
    /// The transcript that the run works in, once it began.
    session: Option<SessionId>,
    /// The line of its message in that transcript, once it began in this process.
    input_line: Option<EntryId>,
    /// Whether its run was told of system events.
    has_events: bool,
    /// When it began, each time, before this process had it.
    begun: Vec<u64>,
    /// Set for a run that was held and released.
    reentry: Option<Hold>,
    /// Whether its run makes the conversation short at the moment.
    compacting: Flag,
    /// Tells its run that somebody waits for it to end.
    hurry: CancellationToken,
    /// What its run says on a channel, once it may say something there.
    line: Option<Arc<Line>>,
    /// What its run had said there before a restart.
    posted: Vec<DeliveryRow>,
    /// What hooks want to be said beside the answer.
    news: Vec<String>,
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
            settings: None,
            waits_since: None,
            prompt: None,
            guests: Vec::new(),
            was_found: false,
            resume: None,
            is_resumed: false,
            said: 0,
            answers: Vec::new(),
            session: None,
            input_line: None,
            has_events: false,
            begun: Vec::new(),
            reentry: None,
            compacting: Flag::default(),
            hurry: CancellationToken::new(),
            line: None,
            posted: Vec::new(),
            news: Vec::new(),
        }
    }

    /// A run that was at work when the process ended.
    pub(crate) fn resuming(mut self, resume: Resume) -> Self {
        // A command that is answered at once starts no run, so a text that looks like one was meant as it is: the bare word
        // "stop" stops something only while there is something to stop.
        if self.is_control(true) {
            self.inbound.command = None;
        }
        self.reentry = resume.reentry;
        self.resume = Some(resume);
        self.is_resumed = true;
        self
    }

    /// What a restart found that its run had said on a channel.
    pub(crate) fn having_posted(self, posted: Vec<DeliveryRow>) -> Self {
        Self { posted, ..self }
    }

    /// Takes in runs that a restart found to end with this one.
    pub(crate) fn host(&mut self, guests: impl IntoIterator<Item = Self>) {
        self.guests.extend(guests);
    }

    /// A message that a restart found.
    pub(crate) fn found(mut self) -> Self {
        self.was_found = true;
        self
    }

    /// Whether it is known that the message was not taken in.
    fn is_refused(&self) -> bool {
        !matches!(*self.admit.borrow(), Admission::Accepted | Admission::Pending)
    }

    /// Sends the message on its way to disk, if it is not yet.
    fn accept(&mut self, writer: &Writer) {
        if !self.accepting.is_empty() {
            let records = std::mem::take(&mut self.accepting);
            writer.send(records, Then::admit(self.admit.clone(), &self.tape));
        }
    }

    /// What is answered without a model, if it is a command that needs none.
    fn answer(&self) -> Option<&'static str> {
        self.inbound.command.as_ref().and_then(Command::answer)
    }

    /// Tells the run to stop; the first reason counts.
    fn stop(&mut self, reason: AbortReason) {
        let reason = *self.reason.get_or_insert(reason);
        if let Some(line) = self.line.as_ref().filter(|_| outward::is_unwanted(reason)) {
            line.abort();
        }
        self.cancel.cancel();
    }
}

/// A session at work.
struct Lane {
    hub: Arc<Shared>,
    key: SessionKey,
    jobs: mpsc::UnboundedReceiver<Job>,
    inbox: Inbox<Queued>,
    /// When the lane began: what waits is measured from here, whatever becomes of the wall clock.
    origin: Instant,
    /// Tells the run at work that a message came for it.
    offers: Arc<AtomicBool>,
    session: Option<OpenSession>,
    /// Who waits for the session to be deleted when the run at work has ended.
    deletions: Vec<Deletion>,
    /// Whether what is known of the session has to be read again before the next run.
    is_stale: bool,
}

/// Everything that a lane does until it has nothing to do. A bug in it costs the runs that it had taken; with what it
/// had not taken it starts over, so that whoever finds it in the registry finds it alive.
pub(crate) async fn run(hub: Arc<Shared>, key: SessionKey, jobs: mpsc::UnboundedReceiver<Job>) {
    let mut lane = Lane::new(hub, key, jobs);
    while AssertUnwindSafe(live(&mut lane)).catch_unwind().await.is_err() {
        lane.hub.break_off(&lane.key, &mut lane.jobs);
        lane = Lane::new(lane.hub, lane.key, lane.jobs);
    }
}

/// A lane's life.
async fn live(lane: &mut Lane) {
    loop {
        let wake = match lane.inbox.ready(lane.now()) {
            _ if lane.hub.draining.is_cancelled() => {
                Box::pin(lane.leave()).await;
                None
            }
            Ready::Now(_) => {
                // Apart from the lane, so that one with nothing to do is small.
                Box::pin(lane.next()).await;
                Box::pin(lane.delete()).await;
                continue;
            }
            Ready::Later(at) => Some(lane.origin + Duration::from_millis(at)),
            Ready::Nothing => None,
        };
        let is_idle = lane.inbox.is_empty();
        let rest = OptionFuture::from(is_idle.then(|| timeout(IDLE, lane.rest())));
        tokio::select! {
            biased;
            Some(job) = lane.jobs.recv() => Box::pin(lane.take(job, None)).await,
            () = lane.hub.draining.cancelled() => if is_idle && lane.hub.retire(&lane.key, &lane.jobs) { return },
            () = until(wake), if wake.is_some() => {}
            Some(_) = rest => if lane.hub.retire(&lane.key, &lane.jobs) { return },
        }
    }
}

impl Lane {
    fn new(hub: Arc<Shared>, key: SessionKey, jobs: mpsc::UnboundedReceiver<Job>) -> Self {
        Self {
            hub,
            key,
            jobs,
            inbox: Inbox::default(),
            origin: Instant::now(),
            offers: Arc::default(),
            session: None,
            deletions: Vec::new(),
            is_stale: false,
        }
    }

    /// Milliseconds since the lane began.
    fn now(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Takes a place among the lanes with nothing to do; what is returned ends when the lane has to go.
    fn rest(&self) -> oneshot::Receiver<()> {
        self.hub.rest.take(self.session.as_ref().map_or(0, |session| session.history.len()))
    }

    /// Does what a job asks for. `active` is the run at work.
    async fn take(&mut self, job: Job, active: Option<&mut Queued>) {
        match job {
            Job::Run(queued) => self.receive(*queued, active).await,
            Job::Abort { run, reason, tell } => {
                let stopped = self.abort(run.as_ref(), reason, active).await;
                // Whoever asked may have gone, and that is fine.
                tell.send(stopped).ok();
            }
            Job::Change(chore) => self.change(*chore, active).await,
            Job::Offer(tell) => self.offer(tell, active).await,
        }
    }

    /// The next turn, once there is a slot for it.
    async fn next(&mut self) {
        let Some(slot) = self.slot().await else { return };
        self.settle_admissions().await;
        let now = self.now();
        if let Some(turn) = self.inbox.next(now) {
            self.refresh();
            self.turn(turn, slot).await;
        }
    }

    /// One run, from its beginning to its end.
    async fn turn(&mut self, turn: Turn<Queued>, slot: Lender) {
        let Turn { host: mut queued, guests, prompt } = turn;
        queued.host(guests);
        queued.prompt = prompt;
        let profile = self.profile_for(&queued.inbound);
        if let Err(error) = self.open_for(&queued).await {
            tracing::warn!(key = %self.key, %error, "could not read the session");
        }
        let hooks = self.hub.setup.rules().hooks.clone();
        let id = self.session.as_ref().map(|session| session.record.session_id.clone());
        let origin = Origin::of(&queued.inbound);
        let now = self.hub.ambient.now_ms();
        let found = brief::gather(&profile, (&origin, &self.key), &hooks, (id.as_ref(), now)).await;
        let sees = self.session.as_ref().is_none_or(|session| answerer::model(&profile, &session.record).spec().sees);
        if let Some(refusal) = self.too_long(&queued, &profile, &found) {
            return self.refuse(queued, &profile, refusal).await;
        }
        let brought = queued.bring(&profile, &found.kit, sees).await;
        if queued.inbound.begins_anew() && !queued.is_resumed {
            queued.news = self.before_reset(queued.anew(), Some(&queued)).await;
        }
        let scope = self.begin(&mut queued, &profile, slot, (found, brought)).await;
        if !is_admitted(&queued).await {
            return self.never_was(&queued);
        }
        if let Some(session) = &mut self.session
            && let Some(news) = session.news.take()
        {
            let id = session.record.session_id.clone();
            self.tell_news(&news, Some(&id));
        }
        self.open_line(&mut queued, &profile);
        let ended = match scope {
            Some(mut scope) => {
                queued.speak_out(&mut scope);
                // The run goes with the lane that watches over it, should that break.
                let handle = AbortOnDropHandle::new(self.hub.spawn("run", run::drive(scope)));
                self.supervise(&mut queued, handle, &profile).await
            }
            None if queued.is_resumed => RunError::Orphaned.into(),
            None => RunError::SessionGone.into(),
        };
        self.inbox.withdraw_offers();
        self.offers.store(false, Ordering::Release);
        let ephemeral = queued.inbound.is_ephemeral.then(|| queued.tape.clone());
        self.end(queued, &profile, ended).await;
        if ephemeral.is_some_and(|tape| matches!(tape.state(), State::Ended(_))) {
            // Nobody waits for it.
            let (tell, _) = oneshot::channel();
            self.deletions.push(Deletion { expected: None, tell });
        }
        self.update_places();
    }

    /// The agent of this session, with the working directory and the settings that the message asks for.
    fn profile_for(&self, inbound: &Inbound) -> Arc<Profile> {
        let profile = self.hub.setup.agents().of(self.key.agent());
        profile.in_session(&self.key, inbound.cwd.as_ref()).overridden(&inbound.overrides)
    }

    /// Ends a run that was stopped before it began; says whether it was one.
    async fn turn_down(&mut self, mut queued: Queued) -> bool {
        queued.accept(&self.hub.writer);
        let is_admitted = is_admitted(&queued).await;
        if is_admitted {
            queued.take_up(self.hub.ambient.now_ms());
            let profile = self.profile_for(&queued.inbound);
            self.end(queued, &profile, RunError::Stopped.into()).await;
        } else {
            self.never_was(&queued);
        }
        is_admitted
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

    /// A slot for the next turn, serving the mailbox while it waits for one; `None` when no turn is next any more.
    async fn slot(&mut self) -> Option<Lender> {
        let Ready::Now(letter) = self.inbox.ready(self.now()) else { return None };
        // An answer without a model needs no slot.
        if letter.answer().is_some() {
            return Some(Lender::default());
        }
        let class = letter.inbound.class;
        if let Some(slot) = self.hub.slots.try_take(class) {
            return Some(slot.into());
        }
        self.accept_all();
        // Before anything else is taken from the mailbox: nothing may build on what a refused message says.
        self.settle_admissions().await;
        let slots = self.hub.slots.clone();
        let slot = slots.take(class);
        tokio::pin!(slot);
        loop {
            match self.inbox.ready(self.now()) {
                Ready::Now(letter) if letter.answer().is_none() && letter.inbound.class == class => {}
                Ready::Now(_) | Ready::Later(_) | Ready::Nothing => return None,
            }
            tokio::select! {
                biased;
                Some(job) = self.jobs.recv() => self.take(job, None).await,
                () = self.hub.draining.cancelled() => return None,
                slot = &mut slot => return Some(self.granted(slot)),
            }
        }
    }

    /// A slot that was waited for. A long wait is told.
    fn granted(&self, slot: Slot) -> Lender {
        if let Some(waited) = slot.long_wait() {
            tracing::warn!(key = %self.key, ?waited, "a run waited long for a slot; agents.defaults.maxConcurrent has more");
            if let Ready::Now(letter) = self.inbox.ready(self.now()) {
                letter.tape.pass(self.hub.ambient.now_ms(), RunEvent::Waited(waited));
            }
        }
        slot.into()
    }

    /// Watches over a run until it is over, serving the mailbox meanwhile.
    async fn supervise(
        &mut self,
        queued: &mut Queued,
        mut handle: AbortOnDropHandle<Driven>,
        profile: &Profile,
    ) -> Driven {
        let mut patience = queued.inbound.timeout.or(profile.timeout).map(|limit| Instant::now() + limit);
        let (mut is_stopping, mut has_grace) = (false, false);
        let cancel = queued.cancel.clone();
        loop {
            let oldest = self.inbox.iter_mut().filter_map(|waiting| waiting.waits_since).min();
            let notice = oldest.map(|since| since + BUSY_AFTER);
            tokio::select! {
                biased;
                joined = &mut handle => return joined.unwrap_or_else(|panic| RunError::from(panic).into()),
                Some(job) = self.jobs.recv() => self.take(job, Some(queued)).await,
                () = until(notice), if notice.is_some() => self.tell_busy(queued),
                () = cancel.cancelled(), if !is_stopping => {
                    is_stopping = true;
                    patience = Some(Instant::now() + GRACE);
                }
                () = until(patience) => {
                    if !is_stopping && queued.compacting.is_set() && !std::mem::replace(&mut has_grace, true) {
                        // Once: what was asked for is nearly there, and would be lost.
                        patience = Some(Instant::now() + COMPACTION_GRACE);
                    } else if is_stopping {
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
