//! The durable store: JSONL transcripts and the session index on disk, in OpenClaw's format and layout.
//!
//! Transcripts and session records survive a crash; what is known of runs lives in memory and ends with the process.
//! This crate refuses to know the loop, the config and the clock. Start with [`Journal`], then `commit` (how a batch
//! gets to disk whole or not at all) and `export` (how `sessions.json` follows).
#![warn(missing_docs)]

mod append;
mod commit;
mod disk;
mod export;
mod index;
mod layout;
mod lock;
mod log;
mod rehearsal;
mod transcript;

use std::{
    collections::HashMap,
    fmt,
    fs::File,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use homard_proto::{RunId, SessionId, SessionKey, session::Record};
use homard_store::{Error, Fence, Rec, RunRow, Session, Store, Unfinished, Verdict, ledger::Ledger};
use tokio::{sync::Notify, time::Instant};
use tracing::warn;

use crate::{index::Index, layout::Layout, transcript::Tail};

/// How long `sessions.json` may stay behind, and how often it is written at most.
const EXPORT_EVERY: Duration = Duration::from_secs(5);

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
    /// The ends of the transcripts that were touched. Who holds this is the one writer of all other files.
    tails: Mutex<HashMap<PathBuf, Tail>>,
    /// What is in memory. Changed only by the writer; held for moments, never while the disk works.
    known: Mutex<Known>,
    layout: Layout,
    fence: Fence,
    now_ms: Box<dyn Fn() -> u64 + Send + Sync>,
    /// Rung when `sessions.json` falls behind.
    changed: Notify,
    /// The right to the state directory; let go when the last call is done.
    _lock: File,
}

#[derive(Default)]
struct Known {
    index: Index,
    ledger: Ledger,
}

impl Journal {
    /// Takes the state directory and reads the sessions in it. Blocks; meant for the start of a process.
    ///
    /// `now_ms` tells the time in milliseconds since the epoch; it only names files that are set aside.
    pub fn open(state_dir: &Path, now_ms: impl Fn() -> u64 + Send + Sync + 'static) -> Result<Self, Error> {
        let layout = Layout::create(state_dir)?;
        let now = now_ms();
        let lock = lock::take(&layout, now)?;
        let index = Index::read(&layout, now)?;
        let room = Room {
            exporting: Mutex::default(),
            tails: Mutex::default(),
            changed: Notify::new(),
            known: Mutex::new(Known { index, ledger: Ledger::default() }),
            fence: Fence(now),
            layout,
            now_ms: Box::new(now_ms),
            _lock: lock,
        };
        if !room.known().index.behind().is_empty() {
            room.changed.notify_one();
        }
        Ok(Self { room: Arc::new(room) })
    }

    /// The right to write here. A batch with any other is refused.
    pub fn fence(&self) -> Fence {
        self.room.fence.clone()
    }

    /// Keeps `sessions.json` up to date until it is cancelled. Call it once, in a task of its own.
    pub async fn maintain(&self) {
        let mut last: Option<Instant> = None;
        loop {
            self.room.changed.notified().await;
            if let Some(last) = last {
                tokio::time::sleep_until(last + EXPORT_EVERY).await;
            }
            if let Err(reason) = self.flush().await {
                warn!(%reason, "sessions.json is behind");
                self.room.changed.notify_one();
            }
            last = Some(Instant::now());
        }
    }

    /// Writes `sessions.json` now where it is behind. To be called at stop, after the last commit.
    pub async fn flush(&self) -> Result<(), Error> {
        self.blocking(Room::export).await
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
    fn tails(&self) -> MutexGuard<'_, HashMap<PathBuf, Tail>> {
        self.tails.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn load(&self, key: &SessionKey) -> Result<Option<Session>, Error> {
        let (record, path, opened) = {
            // The length is taken while nobody writes: a batch that is on its way is not seen half.
            let _writer = self.tails();
            let Some(record) = self.known().index.get(key) else { return Ok(None) };
            let path = self.layout.transcript(key, &record);
            let opened = transcript::open(&path)?;
            (record, path, opened)
        };
        let mut entries = Vec::new();
        if let Some((file, length)) = opened {
            let read = transcript::read(&path, &file, length)?;
            self.tails().entry(path).or_insert(read.tail);
            entries = read.entries;
        }
        Ok(Some(Session { record: Record::clone(&record), entries }))
    }
}

#[async_trait]
impl Store for Journal {
    async fn commit(&self, fence: &Fence, batch: Vec<Rec>) -> Result<Vec<Verdict>, Error> {
        if *fence != self.room.fence {
            let state = self.room.layout.state().display();
            return Err(Error::Locked(format!("state directory {state} was opened again since this writer began")));
        }
        self.blocking(|room| room.commit(batch)).await
    }

    async fn load(&self, key: &SessionKey) -> Result<Option<Session>, Error> {
        let key = key.clone();
        self.blocking(move |room| room.load(&key)).await
    }

    async fn run(&self, run: &RunId) -> Result<Option<RunRow>, Error> {
        Ok(self.room.known().ledger.row(run))
    }

    async fn list(&self) -> Result<Vec<(SessionKey, Record)>, Error> {
        let records = self.room.known().index.all();
        Ok(records.into_iter().map(|(key, record)| (key, Arc::unwrap_or_clone(record))).collect())
    }

    async fn find(&self, session: &SessionId) -> Result<Option<SessionKey>, Error> {
        Ok(self.room.known().index.find(session))
    }

    async fn recover(&self) -> Result<Vec<Unfinished>, Error> {
        Ok(self.room.known().ledger.unfinished())
    }
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journal").field("state", &self.room.layout.state()).finish_non_exhaustive()
    }
}
