//! A store that fails, dawdles or takes the process with it where it is told to, and remembers what it took.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use homard_proto::{RunId, SessionId, SessionKey, message::Message, session, transcript::Entry};
use homard_store::{
    Delivery, DeliveryRow, Error, Fence, Look, Rec, RunRow, RunState, Session, Store, Unfinished, Verdict,
    spend::{Period, Spent},
};
use tokio::sync::Notify;

/// What goes wrong with a commit.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Fault {
    /// How long the commit takes.
    pub delay: Duration,
    /// Why the disk does not take it; nothing of the batch is stored then.
    pub error: Option<String>,
    /// Whether the process dies there.
    pub death: Option<Death>,
}

/// When the process dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Death {
    /// Before the commit takes effect.
    Unstored,
    /// After it took effect, before anybody is told.
    Stored,
}

/// What a store took, in order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Taken {
    pub(crate) accepted: Vec<(RunId, SessionKey)>,
    /// What the messages of these say.
    pub(crate) said: BTreeMap<RunId, String>,
    /// How many ends of each run it took.
    pub(crate) ends: BTreeMap<RunId, usize>,
    /// The runs that a run became a part of; one at most, if all is well.
    pub(crate) hosts: BTreeMap<RunId, Vec<RunId>>,
    /// The runs whose answers go to channels.
    pub(crate) posting: Vec<RunId>,
    /// What is to be said on channels, in the order in which it was queued.
    pub(crate) queued: Vec<Delivery>,
}

/// A store whose commits, counted from 1, meet these faults.
#[derive(Debug)]
pub struct FaultyStore<S> {
    inner: S,
    faults: BTreeMap<u64, Fault>,
    commits: AtomicU64,
    taken: Mutex<Taken>,
    dead: Notify,
}

impl<S> FaultyStore<S> {
    /// Wraps a store.
    pub fn new(inner: S, faults: BTreeMap<u64, Fault>) -> Self {
        Self { inner, faults, commits: AtomicU64::new(0), taken: Mutex::default(), dead: Notify::new() }
    }

    /// Waits until a commit comes that the process does not survive. That commit never returns.
    pub async fn death(&self) {
        self.dead.notified().await;
    }

    /// The store itself.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// How many commits there were.
    pub fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }

    /// Faults that no commit met.
    pub fn complaints(&self) -> Vec<String> {
        let commits = self.commits();
        let unmet = self.faults.keys().filter(|&&number| number > commits);
        unmet.map(|number| format!("`fault store.commit #{number}` never happened")).collect()
    }

    pub(crate) fn taken(&self) -> Taken {
        self.lock().clone()
    }

    /// Takes the process along.
    async fn die<T>(&self) -> T {
        self.dead.notify_one();
        std::future::pending().await
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: Store> FaultyStore<S> {
    async fn take(&self, fence: &Fence, batch: Vec<Rec>) -> Result<Vec<Verdict>, Error> {
        let facts: Vec<_> = batch.iter().map(Fact::of).collect();
        let waiting = self.waiting(&facts).await?;
        let verdicts = self.inner.commit(fence, batch).await?;
        let mut taken = self.lock();
        for (fact, _) in facts.into_iter().zip(&verdicts).filter(|(_, verdict)| **verdict == Verdict::Stored) {
            match fact {
                Fact::Accepted(run, key, said, is_posting) => {
                    taken.accepted.push((run.clone(), key));
                    taken.posting.extend(is_posting.then(|| run.clone()));
                    taken.said.insert(run, said);
                }
                Fact::Absorbed(guests, host) => {
                    for guest in guests.into_iter().filter(|guest| waiting.contains(guest)) {
                        taken.hosts.entry(guest).or_default().push(host.clone());
                    }
                }
                Fact::Queued(delivery) => taken.queued.push(*delivery),
                Fact::Ended(run) => *taken.ends.entry(run).or_default() += 1,
                Fact::Other => {}
            }
        }
        drop(taken);
        Ok(verdicts)
    }

    /// The runs that a batch would make a part of others, and that are still to be had.
    async fn waiting(&self, facts: &[Fact]) -> Result<Vec<RunId>, Error> {
        let mut waiting = Vec::new();
        for fact in facts {
            let Fact::Absorbed(guests, _) = fact else { continue };
            for guest in guests {
                let row = self.inner.run(guest).await?;
                let is_new = facts.iter().any(|fact| matches!(fact, Fact::Accepted(run, ..) if run == guest));
                if row.map_or(is_new, |row| row.state == RunState::Accepted) {
                    waiting.push(guest.clone());
                }
            }
        }
        Ok(waiting)
    }
}

/// What is remembered of a record.
enum Fact {
    /// A run, its session, what its message says, and whether its answer goes to a channel.
    Accepted(RunId, SessionKey, String, bool),
    /// These runs became a part of that one.
    Absorbed(Vec<RunId>, RunId),
    Ended(RunId),
    Queued(Box<Delivery>),
    Other,
}

impl Fact {
    fn of(rec: &Rec) -> Self {
        match rec {
            Rec::Accept(accept) => {
                let said = match &accept.message {
                    Message::User(user) => user.content.text(),
                    Message::Assistant(_) | Message::ToolResult(_) | Message::Other(_) => String::new(),
                };
                let is_posting = accept.options.post.as_ref().is_some_and(|post| post.trouble.is_none());
                Self::Accepted(accept.run.clone(), accept.key.clone(), said, is_posting)
            }
            Rec::Input(input) => Self::Absorbed(input.absorbs.clone(), input.run.clone()),
            Rec::Terminal { run, .. } => Self::Ended(run.clone()),
            Rec::Queue(delivery) => Self::Queued(delivery.clone()),
            Rec::Start(_)
            | Rec::Entry { .. }
            | Rec::ToolIntent { .. }
            | Rec::ToolDone { .. }
            | Rec::Abort { .. }
            | Rec::Hold { .. }
            | Rec::Release { .. }
            | Rec::Patch { .. }
            | Rec::Delete { .. }
            | Rec::Deliver { .. } => Self::Other,
        }
    }
}

#[async_trait]
impl<S: Store> Store for FaultyStore<S> {
    async fn commit(&self, fence: &Fence, batch: Vec<Rec>) -> Result<Vec<Verdict>, Error> {
        let number = self.commits.fetch_add(1, Ordering::Relaxed) + 1;
        let Fault { delay, error, death } = self.faults.get(&number).cloned().unwrap_or_default();
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        if death == Some(Death::Unstored) {
            return self.die().await;
        }
        if let Some(why) = error {
            return Err(Error::Disk(why));
        }
        let verdicts = self.take(fence, batch).await?;
        match death {
            Some(Death::Stored) => self.die().await,
            Some(Death::Unstored) | None => Ok(verdicts),
        }
    }

    async fn load(&self, key: &SessionKey) -> Result<Option<Session>, Error> {
        self.inner.load(key).await
    }

    async fn live_transcript(&self, key: &SessionKey, session: &SessionId) -> Result<Vec<Entry>, Error> {
        self.inner.live_transcript(key, session).await
    }

    async fn transcript(&self, key: &SessionKey, session: &SessionId) -> Result<Option<Vec<Entry>>, Error> {
        self.inner.transcript(key, session).await
    }

    async fn run(&self, run: &RunId) -> Result<Option<RunRow>, Error> {
        self.inner.run(run).await
    }

    async fn record(&self, key: &SessionKey) -> Result<Option<Arc<session::Record>>, Error> {
        self.inner.record(key).await
    }

    async fn list(&self) -> Result<Vec<(SessionKey, Arc<session::Record>)>, Error> {
        self.inner.list().await
    }

    async fn find(&self, session: &SessionId) -> Result<Option<SessionKey>, Error> {
        self.inner.find(session).await
    }

    async fn recover(&self) -> Result<Vec<Unfinished>, Error> {
        self.inner.recover().await
    }

    async fn outbox(&self) -> Result<Vec<DeliveryRow>, Error> {
        self.inner.outbox().await
    }

    async fn runs(&self, look: &Look) -> Result<Vec<RunRow>, Error> {
        self.inner.runs(look).await
    }

    async fn run_named(&self, name: &str) -> Result<Option<RunId>, Error> {
        self.inner.run_named(name).await
    }

    async fn posted(&self, run: &RunId) -> Result<Vec<DeliveryRow>, Error> {
        self.inner.posted(run).await
    }

    async fn spent(&self, period: &Period) -> Result<Vec<Spent>, Error> {
        self.inner.spent(period).await
    }
}
