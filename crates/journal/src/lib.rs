//! The durable store: a redo journal in SQLite beside transcripts and `sessions.json` in OpenClaw's format and layout.
//!
//! A batch is one transaction, so it is stored atomically. Its transcript lines stay in the database until their files
//! are synced; the files are the long-term truth, which people and OpenClaw can read. This crate does not depend on the
//! agent loop, the config or the clock. Start with [`Journal`], then `commit` (stores a batch and appends its
//! lines to their files), `checkpoint` (syncs the files, after which the lines in the database are dropped), `start`
//! (crash recovery) and `export` (`sessions.json`).
#![warn(missing_docs)]

mod approvals;
mod checkpoint;
pub mod checkup;
mod commit;
mod cron;
mod db;
mod disk;
mod disk_space;
mod export;
mod health;
mod index;
mod layout;
pub mod lock;
mod metrics;
mod migrate;
mod outbox;
mod reads;
mod repair;
mod reserve;
mod run_search;
mod runs;
mod sessions;
mod start;
mod state;
mod transcript;
mod usage;

use std::{
    fmt,
    fs::File,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use homard_proto::{RunId, SessionId, SessionKey, session::Record, transcript::Entry};
use homard_stdx::sync::{Mutex, MutexGuard};
use homard_store::{
    DeliveryRow, Error, Fence, Rec, RunQuery, RunRow, Session, StoreReader, StoreWriter, UnfinishedRun, Verdict,
    usage::{UsageQuery, UsageSum},
};
use tokio::{sync::Notify, time::Instant};
use tracing::warn;

pub use approvals::ApprovalFiles;
pub use cron::CronFiles;
pub use db::{newer_format, state_format};
pub use metrics::{JournalMetrics, read_note_offline};
pub use start::BootHistory;

use crate::{health::Health, index::SessionIndex, layout::StateLayout, reserve::Reserve, state::WriterState};

/// Maximum delay, and minimum interval, of writing `sessions.json`.
const EXPORT_EVERY: Duration = Duration::from_secs(5);

/// Interval of checkpoints, which sync transcripts and remove their lines from the database.
const CHECKPOINT_EVERY: Duration = Duration::from_secs(1);

/// A state directory that this process owns for as long as the value lives.
///
/// Dropping the future of a call does not cancel it: a disk operation that was started is completed.
pub struct Journal {
    inner: Arc<JournalInner>,
}

/// State shared by all calls. Lock order: the order of the fields.
struct JournalInner {
    /// Serializes writers of `sessions.json`.
    exporting: Mutex<()>,
    /// State of the single writer of the database and the transcripts.
    writer: Mutex<WriterState>,
    /// Session index. Changed only by the writer; locked briefly, never during disk I/O.
    index: Mutex<SessionIndex>,
    layout: Arc<StateLayout>,
    health: Arc<Health>,
    disk_space: disk_space::DiskSpace,
    reserve: Reserve,
    fence: Fence,
    boots: BootHistory,
    now_ms: Box<dyn Fn() -> u64 + Send + Sync>,
    /// Notified when `sessions.json` becomes out of date.
    export_stale: Notify,
    /// Notified when lines were written that are not synced yet.
    unsynced: Notify,
    /// Notified when enough lines were written for an early checkpoint.
    checkpoint_due: Notify,
    /// Lock of the state directory; released when the last call has finished.
    _lock: File,
}

impl Journal {
    /// Locks the state directory and recovers from a crash. Blocks; meant for the start of a process.
    ///
    /// `now_ms` returns the time in milliseconds since the epoch. It names files that are set aside and dates crashes.
    pub fn open(state_dir: &Path, now_ms: impl Fn() -> u64 + Send + Sync + 'static) -> Result<Self, Error> {
        let layout = Arc::new(StateLayout::create(state_dir)?);
        disk_space::check(layout.state())?;
        let now = now_ms();
        let lock = lock::acquire(&layout, now)?;
        let health = Arc::new(Health::new(layout.database()));
        let started = start::start(&layout, &health, now)?;
        let inner = JournalInner {
            exporting: Mutex::default(),
            writer: Mutex::new(started.writer),
            index: Mutex::new(started.index),
            disk_space: disk_space::DiskSpace::of(layout.state()),
            reserve: Reserve::new(layout.reserve()),
            layout,
            health,
            fence: Fence(started.epoch),
            boots: started.boots,
            now_ms: Box::new(now_ms),
            export_stale: Notify::new(),
            unsynced: Notify::new(),
            checkpoint_due: Notify::new(),
            _lock: lock,
        };
        if !inner.index().stale_agents().is_empty() {
            inner.export_stale.notify_one();
        }
        inner.unsynced.notify_one();
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Returns the fencing token of this process. Batches with another token are refused.
    pub fn fence(&self) -> Fence {
        self.inner.fence.clone()
    }

    /// Sets how many of the newest runs are kept. Runs of the last day are always kept.
    pub fn keep_runs(&self, count: u32) {
        self.inner.writer().keep = count;
    }

    /// Returns how previous processes ended.
    pub fn boots(&self) -> BootHistory {
        self.inner.boots
    }

    /// Waits until the disk has failed. From then on all writes are refused, and only a restart can help.
    pub async fn failed(&self) -> Error {
        self.inner.health.failed().await
    }

    /// Runs checkpoints and exports `sessions.json` until it is cancelled. Call it once, in a task of its own. Without
    /// it nothing is lost, but the database grows.
    pub async fn maintain(&self) {
        tokio::join!(self.run_checkpoints(), self.run_exports());
    }

    async fn run_checkpoints(&self) {
        loop {
            self.inner.unsynced.notified().await;
            loop {
                tokio::select! {
                    biased;
                    () = self.inner.checkpoint_due.notified() => {}
                    () = tokio::time::sleep(CHECKPOINT_EVERY) => {}
                }
                match self.blocking(JournalInner::maintain_once).await {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(reason) => warn!(%reason, "failed to sync transcripts"),
                }
            }
        }
    }

    async fn run_exports(&self) {
        let mut last: Option<Instant> = None;
        loop {
            self.inner.export_stale.notified().await;
            if let Some(last) = last {
                tokio::time::sleep_until(last + EXPORT_EVERY).await;
            }
            if let Err(reason) = self.blocking(export::export).await {
                warn!(%reason, "failed to update sessions.json; retrying");
                self.inner.export_stale.notify_one();
            }
            last = Some(Instant::now());
        }
    }

    /// Syncs everything, exports `sessions.json` and records a clean shutdown. Call it at shutdown, after the last
    /// commit.
    pub async fn flush(&self) -> Result<(), Error> {
        self.blocking(|inner| export::export(inner).and_then(|()| inner.sync_all())).await
    }

    /// Writes a consistent copy of the database to a new file, while this process continues to use it. Transcripts are
    /// copied afterwards: a line that is in the copy and in its file is written once when the copy is opened.
    pub async fn snapshot(&self, target: PathBuf) -> Result<(), Error> {
        self.blocking(move |inner| {
            // Otherwise SQLite would create it with the permissions of the process's umask.
            disk::private().write(true).create_new(true).open(&target).map_err(disk::failed("create", &target))?;
            let text = target.to_string_lossy().into_owned();
            let copied = inner.health.sql(inner.writer().db.execute("VACUUM INTO ?1", [text]).map(|_| ()));
            if copied.is_err() {
                // The error of the copy is the one to report.
                std::fs::remove_file(&target).ok();
            }
            copied
        })
        .await
    }

    /// Runs a database query on a blocking thread. It waits while the writer holds the lock.
    async fn read<T, F>(&self, read: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&WriterState) -> rusqlite::Result<T> + Send + 'static,
    {
        self.blocking(move |inner| inner.health.sql(read(&inner.writer()))).await
    }

    async fn blocking<T, F>(&self, work: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&JournalInner) -> Result<T, Error> + Send + 'static,
    {
        let inner = Arc::clone(&self.inner);
        match tokio::task::spawn_blocking(move || work(&inner)).await {
            Ok(outcome) => outcome,
            Err(reason) => Err(Error::Disk(format!("a journal operation did not complete: {reason}"))),
        }
    }
}

impl JournalInner {
    fn writer(&self) -> MutexGuard<'_, WriterState> {
        self.writer.lock()
    }

    fn index(&self) -> MutexGuard<'_, SessionIndex> {
        self.index.lock()
    }

    /// Runs a checkpoint. Also creates the reserve, here rather than at start-up, so that start-up does not wait for
    /// it.
    fn maintain_once(&self) -> Result<bool, Error> {
        self.reserve.ensure(&self.disk_space);
        metrics::flush_notes(self)?;
        self.checkpoint()
    }
}

#[async_trait]
impl StoreWriter for Journal {
    async fn commit(&self, fence: &Fence, batch: Vec<Rec>) -> Result<Vec<Verdict>, Error> {
        if *fence != self.inner.fence {
            let state = self.inner.layout.state().display();
            return Err(Error::Locked(format!(
                "state directory {state} was opened again; writes of the earlier opening are rejected"
            )));
        }
        self.blocking(move |inner| inner.commit(&batch)).await
    }
}

#[async_trait]
impl StoreReader for Journal {
    async fn load(&self, key: &SessionKey) -> Result<Option<Session>, Error> {
        let key = key.clone();
        self.blocking(move |inner| inner.load(&key)).await
    }

    async fn transcript(&self, key: &SessionKey, session: &SessionId) -> Result<Option<Vec<Entry>>, Error> {
        let (key, session) = (key.clone(), session.clone());
        self.blocking(move |inner| inner.transcript(&key, &session)).await
    }

    async fn live_transcript(&self, key: &SessionKey, session: &SessionId) -> Result<Vec<Entry>, Error> {
        let (key, session) = (key.clone(), session.clone());
        self.blocking(move |inner| inner.live_transcript(&key, &session)).await
    }

    fn transcript_path(&self, key: &SessionKey, session: &SessionId) -> Option<PathBuf> {
        let name = layout::thread_name(key, session).unwrap_or_else(|| layout::plain_name(session));
        Some(self.inner.layout.sessions(&layout::agent_of(key)).join(name))
    }

    async fn run(&self, run: &RunId) -> Result<Option<RunRow>, Error> {
        let run = run.clone();
        self.read(move |writer| runs::row(&writer.db, &run)).await
    }

    async fn record(&self, key: &SessionKey) -> Result<Option<Arc<Record>>, Error> {
        Ok(self.inner.index().get(key))
    }

    async fn list(&self) -> Result<Vec<(SessionKey, Arc<Record>)>, Error> {
        Ok(self.inner.index().all())
    }

    async fn find(&self, session: &SessionId) -> Result<Option<SessionKey>, Error> {
        Ok(self.inner.index().find(session))
    }

    async fn recover(&self) -> Result<Vec<UnfinishedRun>, Error> {
        self.blocking(JournalInner::recover).await
    }

    async fn outbox(&self) -> Result<Vec<DeliveryRow>, Error> {
        self.read(|writer| outbox::undelivered(&writer.db)).await
    }

    async fn delivery(&self, id: &str) -> Result<Option<DeliveryRow>, Error> {
        let id = id.to_owned();
        self.read(move |writer| outbox::find(&writer.db, &id)).await
    }

    async fn runs(&self, query: &RunQuery) -> Result<Vec<RunRow>, Error> {
        let query = query.clone();
        if query.key.is_some() || !query.filter.is_empty() {
            return self.blocking(move |inner| run_search::search(inner, &query)).await;
        }
        self.read(move |writer| runs::list(&writer.db, query.before.as_ref(), query.limit)).await
    }

    async fn find_run(&self, name: &str) -> Result<Option<RunId>, Error> {
        let name = name.to_owned();
        self.read(move |writer| match runs::of_event(&writer.db, &name)? {
            Some(run) => Ok(Some(run)),
            None => outbox::run_of(&writer.db, &name),
        })
        .await
    }

    async fn deliveries_of(&self, run: &RunId) -> Result<Vec<DeliveryRow>, Error> {
        let run = run.clone();
        self.read(move |writer| outbox::of_run(&writer.db, &run)).await
    }

    async fn usage(&self, period: &UsageQuery) -> Result<Vec<UsageSum>, Error> {
        let period = period.clone();
        self.read(move |writer| writer.usage_tally.query(&writer.db, &period)).await
    }
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journal").field("state", &self.inner.layout.state()).finish_non_exhaustive()
    }
}
