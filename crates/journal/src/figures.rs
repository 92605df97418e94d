//! Metrics of the journal, reports of its repairs, and the key-value notes that it stores for other crates.

use std::{
    collections::BTreeMap,
    fmt,
    fs::File,
    path::Path,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use homard_store::Error;
use rusqlite::{Connection, OpenFlags, config::DbConfig};

use crate::{Journal, Room, db, disk, layout::LOCK, sessions};

/// Maximum number of repairs that wait to be reported. Further ones are only counted.
const UNTOLD: usize = 1000;

/// Metrics of the journal since it was opened.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Figures {
    /// Number of committed batches.
    pub commits: u64,
    /// Number of transcript bytes in these batches.
    pub bytes: u64,
    /// Total duration of the commits.
    pub took: Duration,
    /// Number of deliveries not known to have arrived, by state.
    pub outbox: BTreeMap<String, u64>,
    /// Number of repairs by kind.
    pub repairs: BTreeMap<&'static str, u64>,
}

/// Callback that receives repairs.
type Tell = Box<dyn Fn(&'static str) + Send + Sync>;

/// Counters and pending notes.
#[derive(Default)]
pub(crate) struct Ticks {
    commits: AtomicU64,
    bytes: AtomicU64,
    micros: AtomicU64,
    repairs: Mutex<Repairs>,
    /// Notes that are not in the database yet.
    notes: Mutex<BTreeMap<&'static str, String>>,
}

#[derive(Default)]
struct Repairs {
    counts: BTreeMap<&'static str, u64>,
    untold: Vec<&'static str>,
    tell: Option<Tell>,
}

impl Ticks {
    /// Counts a committed batch.
    pub(crate) fn committed(&self, bytes: u64, took: Duration) {
        self.commits.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.micros.fetch_add(u64::try_from(took.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Counts a repair and reports it.
    pub(crate) fn repaired(&self, kind: &'static str) {
        let mut repairs = self.repairs();
        *repairs.counts.entry(kind).or_default() += 1;
        match &repairs.tell {
            Some(tell) => tell(kind),
            None if repairs.untold.len() < UNTOLD => repairs.untold.push(kind),
            None => {}
        }
    }

    /// Stores the pending notes.
    pub(crate) fn store_notes(&self, db: &Connection) -> rusqlite::Result<()> {
        let mut notes = self.notes();
        for (name, value) in notes.iter() {
            sessions::set_meta(db, &key(name), value)?;
        }
        notes.clear();
        Ok(())
    }

    fn repairs(&self) -> MutexGuard<'_, Repairs> {
        self.repairs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn notes(&self) -> MutexGuard<'_, BTreeMap<&'static str, String>> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Ticks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticks").field("commits", &self.commits).finish_non_exhaustive()
    }
}

fn key(name: &str) -> String {
    format!("note.{name}")
}

impl Room {
    /// Stores the pending notes in a commit of their own, if there are any.
    pub(crate) fn keep_notes(&self) -> Result<(), Error> {
        if self.health.ticks.notes().is_empty() {
            return Ok(());
        }
        let desk = self.desk();
        // All or none: notes may depend on one another.
        let store = || {
            let all = desk.db.unchecked_transaction()?;
            self.health.ticks.store_notes(&all)?;
            all.commit()
        };
        self.health.sql(store())
    }

    fn noted(&self, name: &str) -> Result<Option<String>, Error> {
        let new = self.health.ticks.notes().get(name).cloned();
        match new {
            Some(new) => Ok(Some(new)),
            None => self.health.sql(sessions::meta(&self.desk().db, &key(name))),
        }
    }
}

impl Journal {
    /// Sets a note, replacing its previous value. It is on disk about a second later, or after [`flush`](Self::flush);
    /// callers do not wait.
    pub fn note(&self, name: &'static str, value: String) {
        self.room.health.ticks.notes().insert(name, value);
        self.room.dirtied.notify_one();
    }

    /// Sets several notes atomically. They are on disk when this returns. Blocks.
    pub fn note_now(&self, notes: impl IntoIterator<Item = (&'static str, String)>) -> Result<(), Error> {
        self.room.health.ticks.notes().extend(notes);
        self.room.keep_notes()
    }

    /// Returns the value of a note.
    pub async fn noted(&self, name: &'static str) -> Result<Option<String>, Error> {
        self.blocking(move |room| room.noted(name)).await
    }

    /// Returns the value of a note. Blocks.
    pub fn noted_now(&self, name: &str) -> Result<Option<String>, Error> {
        self.room.noted(name)
    }

    /// Sets the callback for repairs. It also receives the repairs made when the journal was opened.
    pub fn tell_repairs(&self, tell: impl Fn(&'static str) + Send + Sync + 'static) {
        let mut repairs = self.room.health.ticks.repairs();
        std::mem::take(&mut repairs.untold).into_iter().for_each(&tell);
        repairs.tell = Some(Box::new(tell));
    }

    /// Returns the metrics. Blocks while a batch is written.
    pub fn figures(&self) -> Result<Figures, Error> {
        let (ticks, health) = (&self.room.health.ticks, &self.room.health);
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let states = |db: &Connection| -> rusqlite::Result<BTreeMap<String, u64>> {
            // A state is serialized as a string, or as an object with the state as its only key.
            let sql = "SELECT CASE json_type(state) WHEN 'text' THEN state ->> '$' ELSE (SELECT key FROM json_each(state) LIMIT 1) END, count(*)
                       FROM outbox WHERE is_sent = 0 GROUP BY 1";
            db.prepare_cached(sql)?.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
        };
        let outbox = health.sql(states(&self.room.desk().db))?;
        Ok(Figures {
            commits: read(&ticks.commits),
            bytes: read(&ticks.bytes),
            took: Duration::from_micros(read(&ticks.micros)),
            outbox,
            repairs: ticks.repairs().counts.clone(),
        })
    }
}

/// Returns the value of a note in a state directory that no process holds. Blocks; changes nothing.
pub fn noted(state_dir: &Path, name: &str) -> Result<Option<String>, Error> {
    let path = state_dir.join("journal").join("journal.db");
    if disk::length(&path)? == 0 {
        return Ok(None);
    }
    let place = state_dir.join(LOCK);
    let lock = File::open(&place).map_err(disk::failed("open", &place))?;
    if lock.try_lock().is_err() {
        let state = state_dir.display();
        return Err(Error::Locked(format!("state directory {state} is in use; ask the process that has it")));
    }
    let read = || -> rusqlite::Result<Option<String>> {
        let db = Connection::open_with_flags(&path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        db.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
        sessions::meta(&db, &key(name))
    };
    read().map_err(|reason| db::Trouble::of(&reason, &path).told(&path))
}
