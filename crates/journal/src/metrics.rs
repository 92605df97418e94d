//! Metrics of the journal, reports of its repairs, and the key-value notes that it stores for other crates.

use std::{
    collections::BTreeMap,
    fmt,
    fs::File,
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use homard_stdx::sync::{Mutex, MutexGuard};
use homard_store::Error;
use rusqlite::{Connection, OpenFlags, config::DbConfig};

use crate::{Journal, JournalInner, db, disk, layout::LOCK, sessions};

/// Maximum number of repairs that wait to be reported. Further ones are only counted.
const MAX_UNREPORTED: usize = 1000;

/// Metrics of the journal since it was opened.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JournalMetrics {
    /// Number of committed batches.
    pub commits: u64,
    /// Number of transcript bytes in these batches.
    pub bytes: u64,
    /// Total duration of the commits.
    pub duration: Duration,
    /// Number of deliveries not known to have arrived, by state.
    pub outbox: BTreeMap<String, u64>,
    /// Number of repairs by kind.
    pub repairs: BTreeMap<&'static str, u64>,
}

/// Callback that receives repairs.
type RepairCallback = Box<dyn Fn(&'static str) + Send + Sync>;

/// Counters and pending notes.
#[derive(Default)]
pub(crate) struct Counters {
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
    unreported: Vec<&'static str>,
    callback: Option<RepairCallback>,
}

impl Counters {
    /// Counts a committed batch.
    pub(crate) fn committed(&self, bytes: u64, elapsed: Duration) {
        self.commits.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.micros.fetch_add(u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Counts a repair and reports it.
    pub(crate) fn repaired(&self, kind: &'static str) {
        let mut repairs = self.repairs();
        *repairs.counts.entry(kind).or_default() += 1;
        match &repairs.callback {
            Some(callback) => callback(kind),
            None if repairs.unreported.len() < MAX_UNREPORTED => repairs.unreported.push(kind),
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
        self.repairs.lock()
    }

    fn notes(&self) -> MutexGuard<'_, BTreeMap<&'static str, String>> {
        self.notes.lock()
    }
}

impl fmt::Debug for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counters").field("commits", &self.commits).finish_non_exhaustive()
    }
}

fn key(name: &str) -> String {
    format!("note.{name}")
}

/// Stores the pending notes (named values, see [`Journal::set_note`]) in a commit of their own, if there are any.
pub(crate) fn flush_notes(journal: &JournalInner) -> Result<(), Error> {
    if journal.health.counters.notes().is_empty() {
        return Ok(());
    }
    let writer = journal.writer();
    // All or none: notes may depend on one another.
    let store = || {
        let all = writer.db.unchecked_transaction()?;
        journal.health.counters.store_notes(&all)?;
        all.commit()
    };
    journal.health.sql(store())
}

/// Returns the value of a note: the pending one, else the one in the database.
fn read_note(journal: &JournalInner, name: &str) -> Result<Option<String>, Error> {
    let new = journal.health.counters.notes().get(name).cloned();
    match new {
        Some(new) => Ok(Some(new)),
        None => journal.health.sql(sessions::meta(&journal.writer().db, &key(name))),
    }
}

impl Journal {
    /// Sets a note, replacing its previous value. It is on disk about a second later, or after [`flush`](Self::flush);
    /// callers do not wait.
    pub fn set_note(&self, name: &'static str, value: String) {
        self.inner.health.counters.notes().insert(name, value);
        self.inner.unsynced.notify_one();
    }

    /// Sets several notes atomically. They are on disk when this returns. Blocks.
    pub fn set_notes(&self, notes: impl IntoIterator<Item = (&'static str, String)>) -> Result<(), Error> {
        self.inner.health.counters.notes().extend(notes);
        flush_notes(&self.inner)
    }

    /// Returns the value of a note.
    pub async fn read_note(&self, name: &'static str) -> Result<Option<String>, Error> {
        self.blocking(move |inner| read_note(inner, name)).await
    }

    /// Returns the value of a note. Blocks.
    pub fn read_note_blocking(&self, name: &str) -> Result<Option<String>, Error> {
        read_note(&self.inner, name)
    }

    /// Sets the callback for repairs. It also receives the repairs made when the journal was opened.
    pub fn on_repair(&self, callback: impl Fn(&'static str) + Send + Sync + 'static) {
        let mut repairs = self.inner.health.counters.repairs();
        std::mem::take(&mut repairs.unreported).into_iter().for_each(&callback);
        repairs.callback = Some(Box::new(callback));
    }

    /// Returns the metrics. Blocks while a batch is written.
    pub fn metrics(&self) -> Result<JournalMetrics, Error> {
        let health = &self.inner.health;
        let counters = &health.counters;
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let states = |db: &Connection| -> rusqlite::Result<BTreeMap<String, u64>> {
            // A state is serialized as a string, or as an object with the state as its only key.
            let sql = "SELECT CASE json_type(state) WHEN 'text' THEN state ->> '$' ELSE (SELECT key FROM json_each(state) LIMIT 1) END, count(*)
                       FROM outbox WHERE is_sent = 0 GROUP BY 1";
            db.prepare_cached(sql)?.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
        };
        let outbox = health.sql(states(&self.inner.writer().db))?;
        Ok(JournalMetrics {
            commits: read(&counters.commits),
            bytes: read(&counters.bytes),
            duration: Duration::from_micros(read(&counters.micros)),
            outbox,
            repairs: counters.repairs().counts.clone(),
        })
    }
}

/// Returns the value of a note in a state directory that no process holds. Blocks; changes nothing.
pub fn read_note_offline(state_dir: &Path, name: &str) -> Result<Option<String>, Error> {
    let path = state_dir.join("journal").join("journal.db");
    if disk::length(&path)? == 0 {
        return Ok(None);
    }
    let lock_path = state_dir.join(LOCK);
    let lock = File::open(&lock_path).map_err(disk::failed("open", &lock_path))?;
    if lock.try_lock().is_err() {
        let state = state_dir.display();
        return Err(Error::Locked(format!(
            "state directory {state} is in use by another process; try again when that process has finished"
        )));
    }
    let read = || -> rusqlite::Result<Option<String>> {
        let db = Connection::open_with_flags(&path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        db.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
        sessions::meta(&db, &key(name))
    };
    read().map_err(|reason| db::DatabaseError::of(&reason, &path).into_error(&path))
}
