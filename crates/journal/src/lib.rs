//! The durable store: a redo journal in SQLite beside transcripts and `sessions.json` in OpenClaw's format and layout.
//!
//! A batch is one transaction, so it is stored atomically. Its transcript lines stay in the database until their files
//! are synced; the files are the long-term truth, which people and OpenClaw can read. This crate does not depend on the
//! agent loop, the config or the clock. Start with [`Journal`], then `commit` (writes a batch to disk), `checkpoint`
//! (moves its lines to their files), `start` (crash recovery) and `export` (`sessions.json`).
#![warn(missing_docs)]

mod approvals;
mod checkpoint;
pub mod checkup;
mod commit;
mod cron;
mod db;
mod desk;
mod disk;
mod export;
mod figures;
mod health;
mod index;
mod layout;
pub mod lock;
mod mend;
mod migrate;
mod outbox;
mod reserve;
mod runs;
mod sessions;
mod spend;
mod start;
mod transcript;
mod view;
mod volume;

use std::{
    fmt,
    fs::File,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use homard_proto::{RunId, SessionId, SessionKey, session::Record, transcript::Entry};
use homard_store::{
    DeliveryRow, Error, Fence, Look, Rec, RunRow, Session, Store, Unfinished, Verdict,
    spend::{Period, Spent},
};
use tokio::{sync::Notify, time::Instant};
use tracing::warn;

pub use approvals::ApprovalFiles;
pub use cron::CronFiles;
pub use figures::{Figures, noted};
pub use start::Boots;

use crate::{desk::Desk, health::Health, index::Index, layout::Layout, reserve::Reserve};

/// Maximum delay, and minimum interval, of writing `sessions.json`.
const EXPORT_EVERY: Duration = Duration::from_secs(5);

/// Interval of checkpoints, which sync transcripts and remove their lines from the database.
const CHECKPOINT_EVERY: Duration = Duration::from_secs(1);

/// A state directory that this process owns for as long as the value lives.
///
/// Dropping the future of a call does not cancel it: a disk operation that was started is completed.
pub struct Journal {
    room: Arc<Room>,
}

/// State shared by all calls. Lock order: the order of the fields.
struct Room {
    /// Serializes writers of `sessions.json`.
    exporting: Mutex<()>,
    /// State of the single writer of the database and the transcripts.
    desk: Mutex<Desk>,
    /// Session index. Changed only by the writer; locked briefly, never during disk I/O.
    known: Mutex<Index>,
    layout: Arc<Layout>,
    health: Arc<Health>,
    volume: volume::Room,
    reserve: Reserve,
    fence: Fence,
    boots: Boots,
    now_ms: Box<dyn Fn() -> u64 + Send + Sync>,
    /// Notified when `sessions.json` becomes out of date.
    changed: Notify,
    /// Notified when lines were written that are not synced yet.
    dirtied: Notify,
    /// Notified when enough lines were written for an early checkpoint.
    full: Notify,
    /// Lock of the state directory; released when the last call has finished.
    _lock: File,
}

impl Journal {
    /// Locks the state directory and recovers from a crash. Blocks; meant for the start of a process.
    ///
    /// `now_ms` returns the time in milliseconds since the epoch. It names files that are set aside and dates crashes.
    pub fn open(state_dir: &Path, now_ms: impl Fn() -> u64 + Send + Sync + 'static) -> Result<Self, Error> {
        let layout = Arc::new(Layout::create(state_dir)?);
        volume::check(layout.state())?;
        let now = now_ms();
        let lock = lock::take(&layout, now)?;
        let health = Arc::new(Health::new(layout.database()));
        let started = start::start(&layout, &health, now)?;
        let room = Room {
            exporting: Mutex::default(),
            desk: Mutex::new(started.desk),
            known: Mutex::new(started.index),
            volume: volume::Room::of(layout.state()),
            reserve: Reserve::at(layout.reserve()),
            layout,
            health,
            fence: Fence(started.epoch),
            boots: started.boots,
            now_ms: Box::new(now_ms),
            changed: Notify::new(),
            dirtied: Notify::new(),
            full: Notify::new(),
            _lock: lock,
        };
        if !room.known().behind().is_empty() {
            room.changed.notify_one();
        }
        room.dirtied.notify_one();
        Ok(Self { room: Arc::new(room) })
    }

    /// Returns the fencing token of this process. Batches with another token are refused.
    pub fn fence(&self) -> Fence {
        self.room.fence.clone()
    }

    /// Sets how many of the newest runs are kept. Runs of the last day are always kept.
    pub fn keep_runs(&self, count: u32) {
        self.room.desk().keep = count;
    }

    /// Returns how previous processes ended.
    pub fn boots(&self) -> Boots {
        self.room.boots
    }

    /// Waits until the disk has failed. From then on all writes are refused, and only a restart can help.
    pub async fn failed(&self) -> Error {
        self.room.health.failed().await
    }

    /// Runs checkpoints and exports `sessions.json` until it is cancelled. Call it once, in a task of its own. Without
    /// it nothing is lost, but the database grows.
    pub async fn maintain(&self) {
        tokio::join!(self.keep_safe(), self.keep_exported());
    }

    async fn keep_safe(&self) {
        loop {
            self.room.dirtied.notified().await;
            loop {
                tokio::select! {
                    biased;
                    () = self.room.full.notified() => {}
                    () = tokio::time::sleep(CHECKPOINT_EVERY) => {}
                }
                match self.blocking(Room::keep_up).await {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(reason) => warn!(%reason, "transcripts could not be made safe"),
                }
            }
        }
    }

    async fn keep_exported(&self) {
        let mut last: Option<Instant> = None;
        loop {
            self.room.changed.notified().await;
            if let Some(last) = last {
                tokio::time::sleep_until(last + EXPORT_EVERY).await;
            }
            if let Err(reason) = self.blocking(Room::export).await {
                warn!(%reason, "sessions.json is behind");
                self.room.changed.notify_one();
            }
            last = Some(Instant::now());
        }
    }

    /// Syncs everything, exports `sessions.json` and records a clean shutdown. Call it at shutdown, after the last
    /// commit.
    pub async fn flush(&self) -> Result<(), Error> {
        self.blocking(|room| room.export().and_then(|()| room.settle())).await
    }

    /// Runs a read on the database.
    async fn ask<T, F>(&self, read: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&Desk) -> rusqlite::Result<T> + Send + 'static,
    {
        self.blocking(move |room| room.health.sql(read(&room.desk()))).await
    }

    async fn blocking<T, F>(&self, work: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&Room) -> Result<T, Error> + Send + 'static,
    {
        let room = Arc::clone(&self.room);
        match tokio::task::spawn_blocking(move || work(&room)).await {
            Ok(outcome) => outcome,
            Err(reason) => Err(Error::Disk(format!("the journal stopped in the middle of a call: {reason}"))),
        }
    }
}

impl Room {
    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self) -> MutexGuard<'_, Index> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a checkpoint. Also creates the reserve, here rather than at start-up, so that start-up does not wait for
    /// it.
    fn keep_up(&self) -> Result<bool, Error> {
        self.reserve.keep(&self.volume);
        self.keep_notes()?;
        self.checkpoint()
    }
}

#[async_trait]
impl Store for Journal {
    async fn commit(&self, fence: &Fence, batch: Vec<Rec>) -> Result<Vec<Verdict>, Error> {
        if *fence != self.room.fence {
            let state = self.room.layout.state().display();
            return Err(Error::Locked(format!("state directory {state} was opened again since this writer began")));
        }
        self.blocking(move |room| room.commit(&batch)).await
    }

    async fn load(&self, key: &SessionKey) -> Result<Option<Session>, Error> {
        let key = key.clone();
        self.blocking(move |room| room.load(&key)).await
    }

    async fn transcript(&self, key: &SessionKey, session: &SessionId) -> Result<Option<Vec<Entry>>, Error> {
        let (key, session) = (key.clone(), session.clone());
        self.blocking(move |room| room.transcript(&key, &session)).await
    }

    async fn live_transcript(&self, key: &SessionKey, session: &SessionId) -> Result<Vec<Entry>, Error> {
        let (key, session) = (key.clone(), session.clone());
        self.blocking(move |room| room.live_transcript(&key, &session)).await
    }

    fn transcript_path(&self, key: &SessionKey, session: &SessionId) -> Option<PathBuf> {
        let name = layout::thread_name(key, session).unwrap_or_else(|| layout::plain_name(session));
        Some(self.room.layout.sessions(&layout::home(key)).join(name))
    }

    async fn run(&self, run: &RunId) -> Result<Option<RunRow>, Error> {
        let run = run.clone();
        self.ask(move |desk| runs::row(&desk.db, &run)).await
    }

    async fn record(&self, key: &SessionKey) -> Result<Option<Arc<Record>>, Error> {
        Ok(self.room.known().get(key))
    }

    async fn list(&self) -> Result<Vec<(SessionKey, Arc<Record>)>, Error> {
        Ok(self.room.known().all())
    }

    async fn find(&self, session: &SessionId) -> Result<Option<SessionKey>, Error> {
        Ok(self.room.known().find(session))
    }

    async fn recover(&self) -> Result<Vec<Unfinished>, Error> {
        self.blocking(Room::recover).await
    }

    async fn outbox(&self) -> Result<Vec<DeliveryRow>, Error> {
        self.ask(|desk| outbox::undelivered(&desk.db)).await
    }

    async fn runs(&self, look: &Look) -> Result<Vec<RunRow>, Error> {
        let look = look.clone();
        self.ask(move |desk| runs::look(&desk.db, &look)).await
    }

    async fn run_named(&self, name: &str) -> Result<Option<RunId>, Error> {
        let name = name.to_owned();
        self.ask(move |desk| match runs::of_event(&desk.db, &name)? {
            Some(run) => Ok(Some(run)),
            None => outbox::run_of(&desk.db, &name),
        })
        .await
    }

    async fn posted(&self, run: &RunId) -> Result<Vec<DeliveryRow>, Error> {
        let run = run.clone();
        self.ask(move |desk| outbox::of_run(&desk.db, &run)).await
    }

    async fn spent(&self, period: &Period) -> Result<Vec<Spent>, Error> {
        let period = period.clone();
        self.ask(move |desk| desk.tally.look(&desk.db, &period)).await
    }
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journal").field("state", &self.room.layout.state()).finish_non_exhaustive()
    }
}
