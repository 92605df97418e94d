//! A store with scripted faults: commits fail, are slow or crash the process. Records what it accepted.

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
    Delivery, DeliveryRow, Error, Fence, Rec, RunQuery, RunRow, RunState, Session, Store, StoreReader, StoreWriter,
    UnfinishedRun, Verdict,
    usage::{UsageQuery, UsageSum},
};
use tokio::sync::Notify;

/// Fault of a commit.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StoreFault {
    /// Duration of the commit.
    pub delay: Duration,
    /// Disk error, if any; nothing of the batch is stored then.
    pub error: Option<String>,
    /// Crash at this commit, if any.
    pub crash: Option<CrashPoint>,
}

/// When the process crashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CrashPoint {
    /// Before the commit takes effect.
    BeforeCommit,
    /// After it took effect, before the caller learns of it.
    AfterCommit,
}

/// What the store accepted, in order.
#[derive(Debug, Clone, Default)]
pub(crate) struct AcceptedRecords {
    pub(crate) accepted: Vec<(RunId, SessionKey)>,
    /// Text of the messages of these runs.
    pub(crate) messages: BTreeMap<RunId, String>,
    /// Number of accepted terminal records per run.
    pub(crate) ends: BTreeMap<RunId, usize>,
    /// Hosts of absorbed runs; at most one each, if all is well.
    pub(crate) hosts: BTreeMap<RunId, Vec<RunId>>,
    /// Runs whose replies are delivered to channels.
    pub(crate) delivering: Vec<RunId>,
    /// Deliveries, in the order in which they were enqueued.
    pub(crate) deliveries: Vec<Delivery>,
}

/// A store whose commits, counted from 1, have these faults.
#[derive(Debug)]
pub struct FaultyStore<S> {
    inner: S,
    faults: BTreeMap<u64, StoreFault>,
    commits: AtomicU64,
    accepted: Mutex<AcceptedRecords>,
    crashed: Notify,
}

impl<S> FaultyStore<S> {
    /// Wraps a store.
    pub fn new(inner: S, faults: BTreeMap<u64, StoreFault>) -> Self {
        Self { inner, faults, commits: AtomicU64::new(0), accepted: Mutex::default(), crashed: Notify::new() }
    }

    /// Waits for a commit at which the process crashes. That commit never returns.
    pub async fn crashed(&self) {
        self.crashed.notified().await;
    }

    /// Returns the wrapped store.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// Returns the number of commits.
    pub fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }

    /// Reports faults whose commit never happened.
    pub fn complaints(&self) -> Vec<String> {
        let commits = self.commits();
        let unmet = self.faults.keys().filter(|&&number| number > commits);
        unmet.map(|number| format!("`fault store.commit #{number}` never happened")).collect()
    }

    pub(crate) fn accepted(&self) -> AcceptedRecords {
        self.lock().clone()
    }

    /// Signals the crash and never returns.
    async fn crash<T>(&self) -> T {
        self.crashed.notify_one();
        std::future::pending().await
    }

    fn lock(&self) -> MutexGuard<'_, AcceptedRecords> {
        self.accepted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: Store> FaultyStore<S> {
    async fn commit_batch(&self, fence: &Fence, batch: Vec<Rec>) -> Result<Vec<Verdict>, Error> {
        let records: Vec<_> = batch.iter().map(RememberedRecord::of).collect();
        let waiting = self.absorbable(&records).await?;
        let verdicts = self.inner.commit(fence, batch).await?;
        let mut accepted = self.lock();
        for (record, _) in records.into_iter().zip(&verdicts).filter(|(_, verdict)| **verdict == Verdict::Stored) {
            match record {
                RememberedRecord::Accepted(run, key, text, is_delivered) => {
                    accepted.accepted.push((run.clone(), key));
                    accepted.delivering.extend(is_delivered.then(|| run.clone()));
                    accepted.messages.insert(run, text);
                }
                RememberedRecord::Absorbed(absorbed, host) => {
                    for run_id in absorbed.into_iter().filter(|run_id| waiting.contains(run_id)) {
                        accepted.hosts.entry(run_id).or_default().push(host.clone());
                    }
                }
                RememberedRecord::Queued(delivery) => accepted.deliveries.push(*delivery),
                RememberedRecord::Ended(run) => *accepted.ends.entry(run).or_default() += 1,
                RememberedRecord::Other => {}
            }
        }
        drop(accepted);
        Ok(verdicts)
    }

    /// Returns the runs that a batch would mark as absorbed and that have not started yet.
    async fn absorbable(&self, records: &[RememberedRecord]) -> Result<Vec<RunId>, Error> {
        let mut waiting = Vec::new();
        for record in records {
            let RememberedRecord::Absorbed(absorbed, _) = record else { continue };
            for run_id in absorbed {
                let row = self.inner.run(run_id).await?;
                let is_new =
                    records.iter().any(|record| matches!(record, RememberedRecord::Accepted(run, ..) if run == run_id));
                if row.map_or(is_new, |row| row.state == RunState::Accepted) {
                    waiting.push(run_id.clone());
                }
            }
        }
        Ok(waiting)
    }
}

/// What is remembered of a record.
enum RememberedRecord {
    /// A run, its session, its message's text, and whether its reply is delivered to a channel.
    Accepted(RunId, SessionKey, String, bool),
    /// These runs were absorbed by that one.
    Absorbed(Vec<RunId>, RunId),
    Ended(RunId),
    Queued(Box<Delivery>),
    Other,
}

impl RememberedRecord {
    fn of(rec: &Rec) -> Self {
        match rec {
            Rec::Accept(accept) => {
                let text = match &accept.message {
                    Message::User(user) => user.content.text(),
                    Message::Assistant(_) | Message::ToolResult(_) | Message::Other(_) => String::new(),
                };
                let is_delivered =
                    accept.options.delivery.as_ref().is_some_and(|delivery| delivery.undeliverable_reason.is_none());
                Self::Accepted(accept.run.clone(), accept.key.clone(), text, is_delivered)
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
impl<S: Store> StoreWriter for FaultyStore<S> {
    async fn commit(&self, fence: &Fence, batch: Vec<Rec>) -> Result<Vec<Verdict>, Error> {
        let number = self.commits.fetch_add(1, Ordering::Relaxed) + 1;
        let StoreFault { delay, error, crash } = self.faults.get(&number).cloned().unwrap_or_default();
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        if crash == Some(CrashPoint::BeforeCommit) {
            return self.crash().await;
        }
        if let Some(why) = error {
            return Err(Error::Disk(why));
        }
        let verdicts = self.commit_batch(fence, batch).await?;
        match crash {
            Some(CrashPoint::AfterCommit) => self.crash().await,
            Some(CrashPoint::BeforeCommit) | None => Ok(verdicts),
        }
    }
}

#[async_trait]
impl<S: Store> StoreReader for FaultyStore<S> {
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

    async fn recover(&self) -> Result<Vec<UnfinishedRun>, Error> {
        self.inner.recover().await
    }

    async fn outbox(&self) -> Result<Vec<DeliveryRow>, Error> {
        self.inner.outbox().await
    }

    async fn delivery(&self, id: &str) -> Result<Option<DeliveryRow>, Error> {
        self.inner.delivery(id).await
    }

    async fn runs(&self, query: &RunQuery) -> Result<Vec<RunRow>, Error> {
        self.inner.runs(query).await
    }

    async fn find_run(&self, name: &str) -> Result<Option<RunId>, Error> {
        self.inner.find_run(name).await
    }

    async fn deliveries_of(&self, run: &RunId) -> Result<Vec<DeliveryRow>, Error> {
        self.inner.deliveries_of(run).await
    }

    async fn usage(&self, query: &UsageQuery) -> Result<Vec<UsageSum>, Error> {
        self.inner.usage(query).await
    }
}
