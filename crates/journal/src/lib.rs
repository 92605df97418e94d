//! The durable store: a redo journal in SQLite beside transcripts and `sessions.json` in OpenClaw's format and layout.
//!
//! A batch is one transaction, so it is on disk whole or not at all. Its transcript lines are in the database until their
//! files are safe; the files stay the long-term truth that people and OpenClaw can read. This crate refuses to know
//! the loop, the config and the clock. Start with [`Journal`], then `commit` (how a batch gets to disk), `checkpoint`
//! (how its lines get to their files), `start` (how a crash is made up for) and `export` (how `sessions.json` follows).
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

/// How long `sessions.json` may stay behind, and how often it is written at most.
const EXPORT_EVERY: Duration = Duration::from_secs(5);

/// How long lines stay in the database before their files are made safe.
const CHECKPOINT_EVERY: Duration = Duration::from_secs(1);

/// A state directory that this process owns for as long as the value lives.
///
/// A caller that goes away in the middle of a call does not stop it: what was begun on disk is finished there.
pub struct Journal {
    room: Arc<Room>,
}

/// Everything that the calls share. Locks are taken in the order of the fields.
struct Room {
    /// Held while `sessions.json` is written, so that there is one such writer.
    exporting: Mutex<()>,
    /// Who holds this is the one writer of the database and of the transcripts.
    desk: Mutex<Desk>,
    /// The sessions. Changed only by the writer; held for moments, never while the disk works.
    known: Mutex<Index>,
    layout: Arc<Layout>,
    health: Arc<Health>,
    volume: volume::Room,
    reserve: Reserve,
    fence: Fence,
    boots: Boots,
    now_ms: Box<dyn Fn() -> u64 + Send + Sync>,
    /// Rung when `sessions.json` falls behind.
    changed: Notify,
    /// Rung when lines were written that are not safe yet.
    dirtied: Notify,
    /// Rung when so many were written that they should be made safe now.
    full: Notify,
    /// The right to the state directory; let go when the last call is done.
    _lock: File,
}

impl Journal {
    /// Takes the state directory and makes up for what a crash left undone. Blocks; meant for the start of a process.
    ///
    /// `now_ms` tells the time in milliseconds since the epoch; it names files that are set aside and counts crashes.
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

    /// The right to write here. A batch with any other is refused.
    pub fn fence(&self) -> Fence {
        self.room.fence.clone()
    }

    /// Says how many of the newest runs are remembered; those of the last day are in any case.
    pub fn keep_runs(&self, count: u32) {
        self.room.desk().keep = count;
    }

    /// How the starts before this one went.
    pub fn boots(&self) -> Boots {
        self.room.boots
    }

    /// Waits until the disk has failed: from then on nothing is taken in, and only a restart can help.
    pub async fn failed(&self) -> Error {
        self.room.health.failed().await
    }

    /// Makes transcripts safe and keeps `sessions.json` up to date until it is cancelled. Call it once, in a task of its
    /// own. Without it nothing is lost, but the database grows.
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

    /// Makes everything safe, writes `sessions.json` where it is behind, and notes that this process ended well. To be
    /// called at stop, after the last commit.
    pub async fn flush(&self) -> Result<(), Error> {
        self.blocking(|room| room.export().and_then(|()| room.settle())).await
    }

    /// Reads from the database.
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

    /// A checkpoint, and the reserve: made here and not at start, so that nobody waits for it.
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
