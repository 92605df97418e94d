//! The front door: take a message in, stop a run, wait for one, look at what is there.

mod background;
mod backlog;
mod children;
mod compact;
mod held;
mod received;
mod recover;
mod registry;
mod setup;
mod shared;
mod status;
mod trace;
mod waits;
mod words;
mod work;

use std::{
    sync::{Arc, Mutex, OnceLock},
    time::Duration,
};

use homard_audit::Audit;
use homard_proto::{AgentId, EntryId, RunId, SessionId, SessionKey, message::Message, session};
use homard_store::{Authority, Ended, Error as StoreError, Fence, RunRow, RunState, Store, branch};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    ambient::Ambient,
    approval::Desk,
    command::{Listed, listed},
    event::AbortReason,
    lane::{
        Job, Queued,
        chores::{ChangeError, Chore, Deleted, Deletion, InjectedMessage, Patch},
        rest::Rest,
        slots::Slots,
    },
    post::Mail,
    profile::Agents,
    tape::{Follower, State, Tape},
    wire::{self, Reported},
    writer::Writer,
};
pub use background::BackgroundCommand;
use background::Running;
use backlog::Backlog;
pub use children::{Child, Cleanup, Errand, Fate, Spawn, SpawnError, parent_of};
pub use compact::CompactReport;
use held::HeldRuns;
pub use held::{HeldError, HeldRun, dropping};
pub use homard_store::{
    Look,
    spend::{Period, Spent, day_of},
};
pub use recover::{CrashLoops, Recovered};
use setup::Setup;
use shared::LiveRun;
pub(crate) use shared::Shared;
pub use trace::Life;
pub use waits::Waiting;
pub(crate) use words::Admission;
pub use words::{Accepted, Disposition, HTTP, HubEvent, Inbound, QueueRules, Rules, SubmitError, Waited, WorkingDirs};
pub use work::{Pace, Work};

/// How many runs are alive at most, at work and waiting.
const MAX_LIVE: usize = 50_000;

/// The front door. Clones are cheap and are the same door.
#[derive(Debug, Clone)]
pub struct Hub(pub(crate) Arc<Shared>);

/// What was said, each message with its line in the transcript.
pub type SaidLines = Vec<(EntryId, Arc<Message>)>;

impl Hub {
    /// Opens the door. The receiver hears of every run; drop it if nobody follows them all.
    pub fn start(
        ambient: Ambient,
        (store, fence): (Arc<dyn Store>, Fence),
        agents: Agents,
        slots: Slots,
    ) -> (Self, mpsc::UnboundedReceiver<HubEvent>) {
        Self::start_with(ambient, (store, fence), agents, slots, Rules::default())
    }

    /// Opens the door of a house with rules of its own.
    pub fn start_with(
        ambient: Ambient,
        (store, fence): (Arc<dyn Store>, Fence),
        agents: Agents,
        slots: Slots,
        rules: Rules,
    ) -> (Self, mpsc::UnboundedReceiver<HubEvent>) {
        // Unbounded: a tape is announced once until it is read, so there are never more entries than live runs, and a word
        // for each message that a channel has taken or refused.
        let (feed, follow) = mpsc::unbounded_channel();
        let (writer, _) = Writer::start(store.clone(), fence);
        let shared = Shared {
            ambient,
            store,
            writer,
            setup: Setup::new(agents, rules),
            slots,
            rest: Rest::default(),
            draining: CancellationToken::new(),
            stopping: CancellationToken::new(),
            feed,
            tracker: TaskTracker::new(),
            live: Mutex::default(),
            arrivals: Notify::new(),
            desk: OnceLock::new(),
            mail: Mail::default(),
            running: Running::default(),
            purse: Arc::default(),
            backlog: Backlog::default(),
            held: HeldRuns::default(),
        };
        (Self(Arc::new(shared)), follow)
    }

    /// The door of a house.
    pub(crate) fn of(shared: &Arc<Shared>) -> Self {
        Self(shared.clone())
    }

    /// Where time and ids come from.
    pub fn ambient(&self) -> &Ambient {
        &self.0.ambient
    }

    /// The agents.
    pub fn agents(&self) -> Agents {
        self.0.setup.agents()
    }

    /// Sets the house up anew. Runs at work keep what they started with; what begins from here on has this.
    pub fn set_up(&self, agents: Agents, rules: Rules) {
        self.0.setup.change(agents, rules);
    }

    /// Says where it is asked whether commands may run. A house has one desk: the first counts.
    pub fn open_desk(&self, desk: &Desk) {
        self.0.desk.get_or_init(|| desk.clone());
    }

    /// Where it is asked whether commands may run, if anywhere.
    pub fn desk(&self) -> Option<&Desk> {
        self.0.desk.get()
    }

    /// Where it is noted what matters to whoever guards the house.
    pub fn audit(&self) -> Audit {
        self.0.setup.rules().audit.clone()
    }

    /// The commands that the owner may write in a chat.
    pub fn commands(&self) -> Vec<Listed> {
        listed(&self.rules().triggers)
    }

    /// How many runs are at work at once.
    pub fn slots(&self) -> &Slots {
        &self.0.slots
    }

    /// The rules of the house.
    pub(crate) fn rules(&self) -> Arc<Rules> {
        self.0.setup.rules()
    }

    /// Takes a message in. When this returns `Ok`, it is on disk and its run will end exactly once.
    ///
    /// What earlier processes left unfinished in the session is queued first. Then the run's id is claimed before anything
    /// is awaited: of two equal requests at the same time one runs, and both get the same answer.
    pub async fn submit(&self, inbound: Inbound) -> Result<Accepted, SubmitError> {
        if self.0.draining.is_cancelled() {
            return Err(SubmitError::Stopping);
        }
        self.recover_session(&inbound.key).await?;
        self.await_transcript(&inbound).await;
        let (run, key) = (inbound.run.clone(), inbound.key.clone());
        self.await_rival(&inbound).await;
        let news = self.received(&inbound);
        let (tape, mut admission, is_new) = self.claim(inbound)?;
        let verdict = match admission.wait_for(|admission| !matches!(admission, Admission::Pending)).await {
            Ok(verdict) => verdict.clone(),
            // The lane went away before it looked at the job.
            Err(_) => return Err(SubmitError::Stopping),
        };
        let accepted = |at, disposition| Ok(Accepted { run: run.clone(), key: key.clone(), at, disposition });
        match verdict {
            Admission::Accepted if is_new => {
                self.tell_received(news);
                accepted(tape.accepted_at(), Disposition::New(tape))
            }
            Admission::Accepted => accepted(tape.accepted_at(), Disposition::InFlight(tape)),
            Admission::Duplicate(row) => match (self.report(&row).await?, self.host_of(&row)) {
                (Some(report), _) => accepted(row.accepted_at, Disposition::Finished(Box::new(report))),
                (None, Some(host)) => accepted(row.accepted_at, Disposition::InFlight(host)),
                (None, None) if row.state == RunState::Held => Err(SubmitError::Held(row.run)),
                (None, None) => {
                    let report = self.bury(&row).await?;
                    accepted(row.accepted_at, Disposition::Finished(Box::new(report)))
                }
            },
            Admission::Conflict => {
                // The id is another's, who must not be taken for this one.
                self.0.forget(&tape);
                Err(SubmitError::Conflict(run))
            }
            Admission::Blocked => Err(SubmitError::Blocked),
            Admission::SessionChanged => Err(SubmitError::SessionChanged),
            Admission::Overloaded => Err(SubmitError::Overloaded),
            Admission::Failed(error) => {
                // It may wait behind a busy run to be forgotten; a retry shall not get this old answer until then.
                self.0.forget(&tape);
                Err(error.into())
            }
            Admission::Pending => Err(SubmitError::Stopping),
        }
    }

    /// Waits for what becomes of another request that claims the same id at the moment. Which of them is right is on disk.
    async fn await_rival(&self, inbound: &Inbound) {
        loop {
            let rival = self.0.lock().runs.get(&inbound.run).filter(|known| !known.is_of(inbound)).map(LiveRun::claim);
            let Some((tape, mut admission)) = rival else { return };
            let known = admission.wait_for(|admission| !matches!(admission, Admission::Pending)).await;
            if matches!(known.as_deref(), Ok(Admission::Accepted) | Err(_)) {
                return;
            }
            drop(known);
            self.0.forget(&tape);
        }
    }

    /// Waits for runs of other sessions in the transcript that a message names, as one that began before its session was
    /// reset: the lines of two runs must not be mixed.
    async fn await_transcript(&self, inbound: &Inbound) {
        let Some(transcript) = &inbound.session else { return };
        let is_elsewhere = |run: &&LiveRun| run.tape.key() != &inbound.key && run.tape.works_in(transcript);
        let runs: Vec<_> = self.0.lock().runs.values().filter(is_elsewhere).map(|run| run.tape.clone()).collect();
        for tape in runs {
            Follower::new(tape).end().await;
        }
    }

    /// Claims the id and hands the message to its lane, all under one lock.
    fn claim(&self, inbound: Inbound) -> Result<(Arc<Tape>, watch::Receiver<Admission>, bool), SubmitError> {
        let mut live = self.0.lock();
        if live.runs.len() >= MAX_LIVE {
            return Err(SubmitError::Overloaded);
        }
        if let Some(known) = live.runs.get(&inbound.run) {
            if !known.is_of(&inbound) {
                return Err(SubmitError::Conflict(inbound.run));
            }
            return Ok((known.tape.clone(), known.admission.clone(), false));
        }
        let tape = Tape::new(inbound.run.clone(), inbound.key.clone(), self.0.ambient.now_ms(), self.0.feed.clone());
        let (admit, admission) = watch::channel(Admission::Pending);
        live.runs.insert(inbound.run.clone(), LiveRun::new(&tape, &inbound, admission.clone()));
        let key = inbound.key.clone();
        let queued = Queued::new(inbound, tape.clone(), admit, &self.0.stopping);
        self.0.send(&mut live, &key, Job::Run(Box::new(queued)));
        self.0.arrivals.notify_waiters();
        Ok((tape, admission, true))
    }

    /// Stops a run of a session, or all of them and those that they started; returns those that were stopped. `/stop` ends
    /// the background commands of the session, too.
    pub async fn abort(&self, key: &SessionKey, run: Option<RunId>, reason: AbortReason) -> Vec<RunId> {
        let is_all = run.is_none();
        let mut stopped = self.0.abort(key, run, reason).await;
        if is_all {
            for child in self.0.descendants(key) {
                stopped.extend(self.0.abort(&child, None, reason).await);
            }
            if reason == AbortReason::Stop {
                self.0.running.stop(key);
            }
        }
        stopped
    }

    /// Does what a command to stop says: stops the session's runs and those that they started; returns those that were
    /// stopped.
    pub async fn stop(&self, command: &Inbound) -> Vec<RunId> {
        let stopped = self.abort(&command.key, None, AbortReason::Stop).await;
        match self.session(&command.key).await {
            Ok(record) => self.0.tell_command(command, record.as_deref()),
            Err(error) => {
                tracing::warn!(key = %command.key, %error, "could not read the session");
                self.0.tell_command(command, None);
            }
        }
        stopped
    }

    /// Whether the process is going down.
    pub fn is_draining(&self) -> bool {
        self.0.draining.is_cancelled()
    }

    /// What is at work and what waits, oldest first.
    pub fn work(&self) -> Vec<Work> {
        let now = self.0.ambient.now_ms();
        let mut work: Vec<_> = self.0.lock().runs.values().filter_map(|run| Work::of(&run.tape, now)).collect();
        work.sort_by_key(|work| work.accepted_at);
        work
    }

    /// Something happened that the session's next run is told. It may quote what a command printed.
    pub async fn note_event(&self, key: &SessionKey, text: String) -> Result<(), ChangeError> {
        self.note_event_of(key, text, Authority::Full).await
    }

    /// The same, for something that comes from a request with this authority.
    pub async fn note_event_of(&self, key: &SessionKey, text: String, by: Authority) -> Result<(), ChangeError> {
        let text = self.agents().of(key.agent()).secrets.mask(&text).into_owned();
        self.change(key, |tell| Chore::Event((text, by), tell)).await
    }

    /// Puts words into a session that no model said, once no run of it is at work or waits for its turn.
    pub async fn inject(&self, key: &SessionKey, text: String) -> Result<InjectedMessage, ChangeError> {
        loop {
            match self.change(key, |tell| Chore::Note(text.clone(), tell)).await {
                Err(ChangeError::Busy) => self.await_rest(key).await,
                noted => return noted,
            }
        }
    }

    /// Waits for the ends of the runs that a session has now.
    async fn await_rest(&self, key: &SessionKey) {
        let of = |run: &&LiveRun| run.tape.key() == key;
        let runs: Vec<_> = self.0.lock().runs.values().filter(of).map(|run| run.tape.clone()).collect();
        for tape in runs {
            Follower::new(tape).end().await;
        }
    }

    /// Changes a session's record, and makes the session if there is none. Returns the record as it is stored.
    pub async fn patch(&self, key: &SessionKey, patch: Patch) -> Result<session::Record, ChangeError> {
        self.change(key, |tell| Chore::Patch(patch, tell)).await
    }

    /// Gives a session a new transcript, and makes the session if there is none. What was set in it stays.
    ///
    /// A run at work ends in the old transcript; messages that wait run in the new one.
    /// Hooks are told why: `new` or `reset`.
    pub async fn reset(&self, key: &SessionKey, reason: &'static str) -> Result<session::Record, ChangeError> {
        self.change(key, |tell| Chore::Reset(reason, tell)).await
    }

    /// Deletes a session once its runs are stopped; returns what there was, if anything. Its transcript is put aside.
    pub async fn delete(&self, key: &SessionKey, expected: Option<SessionId>) -> Result<Option<Deleted>, ChangeError> {
        if *key == self.agents().default_id().main_session() {
            return Err(ChangeError::Main(key.clone()));
        }
        self.change(key, |tell| Chore::Delete(Deletion { expected, tell })).await
    }

    /// Hands a change to the session's lane and waits until it is made.
    async fn change<T>(
        &self,
        key: &SessionKey,
        chore: impl FnOnce(oneshot::Sender<Result<T, ChangeError>>) -> Chore,
    ) -> Result<T, ChangeError> {
        if self.0.stopping.is_cancelled() {
            return Err(ChangeError::Stopping);
        }
        self.recover_session(key).await?;
        let (tell, told) = oneshot::channel();
        self.0.send(&mut self.0.lock(), key, Job::Change(Box::new(chore(tell))));
        // Silence means that the lane went away before it looked at the job.
        told.await.unwrap_or(Err(ChangeError::Stopping))
    }

    /// The session of a run that is alive.
    pub fn session_of(&self, run: &RunId) -> Option<SessionKey> {
        self.0.lock().runs.get(run).map(|run| run.tape.key().clone())
    }

    /// The session of a run, also of one that is over, as long as it is remembered.
    pub async fn session_of_run(&self, run: &RunId) -> Result<Option<SessionKey>, StoreError> {
        match self.session_of(run) {
            Some(key) => Ok(Some(key)),
            None => Ok(self.0.store.run(run).await?.map(|row| row.key)),
        }
    }

    /// Whether a run of this session is at work or waits for its turn.
    pub fn is_at_work(&self, key: &SessionKey) -> bool {
        self.0.lock().runs.values().any(|run| run.tape.key() == key)
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
                && let RunState::Ended(ended) = &row.state
            {
                return Ok(Waited::Ended(Box::new(self.report_end(&row, ended).await?)));
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

    /// What came of a run that is over, with what was said in it; `None` when it is not over or nobody knows it.
    pub async fn reported(&self, run: &RunId) -> Result<Option<Reported>, StoreError> {
        match self.0.store.run(run).await? {
            Some(row) => self.report(&row).await,
            None => Ok(None),
        }
    }

    /// A session's record.
    pub async fn session(&self, key: &SessionKey) -> Result<Option<Arc<session::Record>>, StoreError> {
        self.0.store.record(key).await
    }

    /// The sessions' records, in no particular order.
    pub async fn unsorted_sessions(&self) -> Result<Vec<(SessionKey, Arc<session::Record>)>, StoreError> {
        self.0.store.list().await
    }

    /// The sessions' records, newest first.
    pub async fn sessions(&self) -> Result<Vec<(SessionKey, Arc<session::Record>)>, StoreError> {
        let mut sessions = self.unsorted_sessions().await?;
        sessions.sort_by(crate::row::newest_first);
        Ok(sessions)
    }

    /// The key whose session has this id.
    pub async fn find_session(&self, id: &SessionId) -> Result<Option<SessionKey>, StoreError> {
        self.0.store.find(id).await
    }

    /// The agent that has a transcript of this id which no session has any more, as after a reset.
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

    /// A session's record and what was said in it, oldest first.
    pub async fn history(&self, key: &SessionKey) -> Result<Option<(session::Record, Vec<Arc<Message>>)>, StoreError> {
        let loaded = self.0.store.load(key).await?;
        Ok(loaded.map(|session| (session.record, branch::said(&session.entries))))
    }

    /// The same, with the lines of the transcript that say it.
    pub async fn history_lines(&self, key: &SessionKey) -> Result<Option<(session::Record, SaidLines)>, StoreError> {
        let loaded = self.0.store.load(key).await?;
        Ok(loaded.map(|session| (session.record, branch::said_lines(&session.entries))))
    }

    /// What was said in one transcript of a session, oldest first, with the lines that say it: also in one that the session
    /// has left. `None` if there is no such transcript.
    pub async fn transcript_lines(
        &self,
        key: &SessionKey,
        session: &SessionId,
    ) -> Result<Option<SaidLines>, StoreError> {
        let entries = self.0.store.transcript(key, session).await?;
        Ok(entries.map(|entries| branch::said_lines(&entries)))
    }

    /// Whether the journal stores what it is given: it has stored everything so far within this time, and the last batch was
    /// not refused.
    pub async fn is_storing(&self, patience: Duration) -> bool {
        let stored = tokio::time::timeout(patience, self.0.writer.barrier()).await;
        matches!(stored, Ok(Ok(()))) && !self.0.writer.has_failed()
    }

    /// Takes nothing in and begins nothing any more, and waits so long for what is at work to end. What has not ended by
    /// then, and what waits, is left as it is on disk: the next start takes it up.
    pub async fn drain(&self, patience: Duration) {
        self.0.draining.cancel();
        self.0.tracker.close();
        // What is not done by then is cut short.
        tokio::time::timeout(patience, self.0.tracker.wait()).await.ok();
        self.shut_down().await;
    }

    /// Cuts all runs short, waits until each has let go and everything is stored.
    pub async fn shut_down(&self) {
        self.0.draining.cancel();
        self.0.stopping.cancel();
        self.0.tracker.close();
        self.0.tracker.wait().await;
        if let Err(error) = self.0.writer.barrier().await {
            tracing::error!(%error, "the last records could not be stored");
        }
    }

    /// The tape of the run that a run became a part of, while that is alive.
    fn host_of(&self, row: &RunRow) -> Option<Arc<Tape>> {
        let RunState::Absorbed(host) = &row.state else { return None };
        self.0.lock().runs.get(host).map(|host| host.tape.clone())
    }

    /// What a stored run came to, with its replies looked up in its own transcript; `None` while it is not over.
    async fn report(&self, row: &RunRow) -> Result<Option<Reported>, StoreError> {
        let RunState::Ended(ended) = &row.state else { return Ok(None) };
        self.report_end(row, ended).await.map(Some)
    }

    async fn report_end(&self, row: &RunRow, ended: &Ended) -> Result<Reported, StoreError> {
        let entries = match &row.session {
            Some(session) if wire::is_in_transcript(ended) => self.0.store.transcript(&row.key, session).await?,
            Some(_) | None => None,
        };
        Ok(Reported::from_row(row, ended, &entries.unwrap_or_default()))
    }
}
