//! The database: opening, schema and classification of errors.
//!
//! It holds what must be atomic: runs, session records, and transcript lines that are not yet synced to their files.
//! One process uses it through one connection with an exclusive lock, so there is no shared-memory file, and no other
//! process can read it meanwhile.

use std::{fs, io::ErrorKind, path::Path, time::Duration};

use homard_store::Error;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use serde::{Serialize, de::DeserializeOwned};

use crate::{disk, layout::StateLayout, sessions};

/// Schema migrations, one per version.
const MIGRATIONS: [&str; 7] = ["
    CREATE TABLE meta(name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE boot(epoch INTEGER PRIMARY KEY, at INTEGER NOT NULL, clean INTEGER NOT NULL);
    CREATE TABLE run(
        seq INTEGER PRIMARY KEY, run_id TEXT NOT NULL UNIQUE, principal TEXT NOT NULL, method TEXT NOT NULL,
        fingerprint TEXT NOT NULL, skey TEXT NOT NULL, accepted_at INTEGER NOT NULL, st TEXT NOT NULL,
        attempts INTEGER NOT NULL DEFAULT 0, absorbed_by TEXT, session_id TEXT, input_entry TEXT, aborted TEXT,
        asked TEXT, ended TEXT, ended_at INTEGER);
    CREATE INDEX run_absorbed ON run(absorbed_by) WHERE absorbed_by IS NOT NULL;
    CREATE TABLE tool(
        run_id TEXT NOT NULL, n INTEGER NOT NULL, call_id TEXT NOT NULL, class TEXT NOT NULL, result TEXT,
        PRIMARY KEY(run_id, n)) WITHOUT ROWID;
    CREATE TABLE sess(id INTEGER PRIMARY KEY, skey TEXT NOT NULL UNIQUE, session_id TEXT NOT NULL, record TEXT NOT NULL);
    CREATE TABLE strange(agent TEXT NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY(agent, name)) WITHOUT ROWID;
    CREATE TABLE file(
        agent TEXT NOT NULL, session_id TEXT NOT NULL, name TEXT NOT NULL, len INTEGER NOT NULL, leaf TEXT,
        PRIMARY KEY(agent, session_id)) WITHOUT ROWID;
    CREATE TABLE redo(
        seq INTEGER PRIMARY KEY, agent TEXT NOT NULL, name TEXT NOT NULL, session_id TEXT, off INTEGER NOT NULL,
        leaf TEXT, line BLOB NOT NULL);
    CREATE TABLE moving(agent TEXT NOT NULL, name TEXT NOT NULL, target TEXT NOT NULL, PRIMARY KEY(agent, target)) WITHOUT ROWID;
", "
    ALTER TABLE run ADD COLUMN origin TEXT;
    ALTER TABLE run ADD COLUMN started_at INTEGER;
    UPDATE run SET started_at = ended ->> 'started_at' WHERE st = 'ended';
    CREATE UNIQUE INDEX run_origin ON run(origin) WHERE origin IS NOT NULL;
    CREATE TABLE outbox(
        seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, target TEXT NOT NULL, delivery TEXT NOT NULL,
        state TEXT NOT NULL, attempts INTEGER NOT NULL DEFAULT 0, is_sent INTEGER NOT NULL DEFAULT 0, final_at INTEGER);
    CREATE INDEX outbox_undelivered ON outbox(target) WHERE is_sent = 0;
    CREATE INDEX outbox_final ON outbox(final_at) WHERE final_at IS NOT NULL;
",
    // A row with a key holds the record of that session; an empty value means that the session was deleted.
    "ALTER TABLE redo ADD COLUMN skey TEXT",
    // Ends of runs are numbered, so that recovery knows which of them are missing in the sums.
    "ALTER TABLE run ADD COLUMN end_no INTEGER;
    CREATE TABLE spend(
        day INTEGER NOT NULL, skey TEXT NOT NULL, session_id TEXT NOT NULL, provider TEXT NOT NULL, model TEXT NOT NULL,
        runs INTEGER NOT NULL, input INTEGER NOT NULL, output INTEGER NOT NULL, cache_read INTEGER NOT NULL,
        cache_write INTEGER NOT NULL, tokens INTEGER NOT NULL, cost_input REAL NOT NULL, cost_output REAL NOT NULL,
        cost_read REAL NOT NULL, cost_write REAL NOT NULL, cost REAL NOT NULL,
        PRIMARY KEY(day, skey, session_id, provider, model)) WITHOUT ROWID;
    CREATE INDEX spend_session ON spend(session_id);
    CREATE INDEX outbox_run ON outbox(delivery ->> 'run');
    ",
    // Times at which a restart resumed the run; empty for most runs.
    "ALTER TABLE run ADD COLUMN taken_up TEXT",
    // Epochs of the processes in which a run started, separated by spaces; and its hold, as JSON.
    "ALTER TABLE run ADD COLUMN epochs TEXT;
    ALTER TABLE run ADD COLUMN hold TEXT;
    ",
    // The columns that filters of `runs.list` examine; see `run_search`.
    "CREATE TABLE run_summary(
        seq INTEGER PRIMARY KEY, run_id TEXT NOT NULL, skey TEXT NOT NULL, status TEXT NOT NULL, model TEXT NOT NULL,
        error TEXT);
    ",
];

/// Name of the row of `meta` with the version of Homard that wrote the database last.
const WRITER: &str = "homard_version";

/// Maximum size in bytes of the write-ahead log that is left after a large batch.
const WAL_SIZE_LIMIT: i64 = 16 * 1024 * 1024;

/// Opens the database; creates it if it does not exist.
pub(crate) fn open(layout: &StateLayout) -> Result<Connection, DatabaseError> {
    let path = layout.database();
    let created = disk::make_folder(&layout.journal()).and_then(|_| {
        // SQLite gives its other files the permissions of the database file, so that one is created here.
        disk::private().append(true).create(true).open(&path).map_err(disk::failed("open", &path))
    });
    created.map_err(DatabaseError::Other)?;
    if suspect_marker(&path).exists() {
        return Err(DatabaseError::Corrupt("it was found to be damaged while Homard was using it".to_owned()));
    }
    let mut db = connect(&path).map_err(|reason| DatabaseError::of(&reason, &path))?;
    let version: usize = db
        .pragma_query_value(None, "user_version", |row| row.get(0))
        .map_err(|reason| DatabaseError::of(&reason, &path))?;
    let Some(steps) = MIGRATIONS.get(version..) else {
        let writer = writer_version(&db);
        return Err(DatabaseError::Other(Error::Corrupt(newer_format(layout.state(), version, writer.as_deref()))));
    };
    if version > 0 && !steps.is_empty() {
        keep_before_migration(&db, layout, version)?;
    }
    migrate(&mut db, version, steps).map_err(|reason| DatabaseError::of(&reason, &path))?;
    record_writer(&db).map_err(|reason| DatabaseError::of(&reason, &path))?;
    if version == 0 {
        // A new database: its folders may be new as well, and nothing in it is durable before they are synced.
        for folder in [layout.journal().as_path(), layout.state()] {
            disk::sync_folder(folder).map_err(DatabaseError::Other)?;
        }
    }
    Ok(db)
}

/// Returns why a state directory of a newer version cannot be used, and the ways out. `writer` is that version.
pub fn newer_format(state: &Path, format: usize, writer: Option<&str>) -> String {
    let writer = writer.map_or_else(|| "a newer version of Homard".to_owned(), |version| format!("Homard {version}"));
    format!(
        "state directory {} has format {format}, which {writer} wrote; this version ({}) reads formats up to {}. Use that \
         version again, or restore a backup from before the upgrade with: homard restore DIRECTORY --force",
        state.display(),
        env!("CARGO_PKG_VERSION"),
        state_format()
    )
}

/// Returns the version of Homard that wrote the database last, if it was recorded.
pub(crate) fn writer_version(db: &Connection) -> Option<String> {
    sessions::meta(db, WRITER).ok().flatten()
}

/// Records that this version writes the database.
fn record_writer(db: &Connection) -> rusqlite::Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    if writer_version(db).as_deref() != Some(version) {
        sessions::set_meta(db, WRITER, version)?;
    }
    Ok(())
}

/// Copies a database of an older format, so that the version that wrote it can be used again. A copy of the same format
/// is replaced.
fn keep_before_migration(db: &Connection, layout: &StateLayout, version: usize) -> Result<(), DatabaseError> {
    let path = layout.journal().join(format!("format-{version}.db"));
    let staged = path.with_added_extension("new");
    disk::missing_is_none(fs::remove_file(&staged))
        .map_err(|error| DatabaseError::Other(disk::failed("remove", &staged)(error)))?;
    // SQLite gives the copy the permissions of this file.
    disk::private()
        .append(true)
        .create(true)
        .open(&staged)
        .map_err(|error| DatabaseError::Other(disk::failed("create", &staged)(error)))?;
    db.execute("VACUUM INTO ?1", [staged.to_string_lossy()]).map_err(|reason| DatabaseError::of(&reason, &staged))?;
    fs::rename(&staged, &path).map_err(|error| DatabaseError::Other(disk::failed("rename", &staged)(error)))?;
    disk::sync_folder(&layout.journal()).map_err(DatabaseError::Other)?;
    tracing::info!(from = version, to = state_format(), copy = %path.display(), "migrating the journal");
    Ok(())
}

/// Returns the format of the state directory that this build writes, and the newest that it reads.
pub fn state_format() -> usize {
    MIGRATIONS.len()
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(path, flags)?;
    db.busy_timeout(Duration::ZERO)?;
    // Must come first: only then does the write-ahead log need no shared memory.
    db.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
    db.pragma_update(None, "journal_mode", "WAL")?;
    db.pragma_update(None, "synchronous", "FULL")?;
    db.pragma_update(None, "mmap_size", 0)?;
    db.pragma_update(None, "journal_size_limit", WAL_SIZE_LIMIT)?;
    db.set_prepared_statement_cache_capacity(64);
    Ok(db)
}

fn migrate(db: &mut Connection, version: usize, steps: &[&str]) -> rusqlite::Result<()> {
    if steps.is_empty() {
        return Ok(());
    }
    let tx = db.transaction()?;
    for step in steps {
        tx.execute_batch(step)?;
    }
    tx.pragma_update(None, "user_version", version + steps.len())?;
    tx.commit()
}

/// A database error, classified by what can be done about it.
#[derive(Debug)]
pub(crate) enum DatabaseError {
    /// The content is corrupt: the database has to be moved aside.
    Corrupt(String),
    /// The disk failed, and it is unknown how much of the last batch is on it: the process has to exit.
    DiskFailed(String),
    /// Any other error; a retry may succeed.
    Other(Error),
}

impl DatabaseError {
    /// Classifies an SQLite error.
    pub(crate) fn of(reason: &rusqlite::Error, path: &Path) -> Self {
        let path = path.display();
        let is_conversion_error = matches!(
            reason,
            rusqlite::Error::FromSqlConversionFailure(..)
                | rusqlite::Error::InvalidColumnType(..)
                | rusqlite::Error::IntegralValueOutOfRange(..)
        );
        match reason.sqlite_error_code() {
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Self::Corrupt(reason.to_string()),
            None if is_conversion_error => Self::Corrupt(reason.to_string()),
            Some(ErrorCode::SystemIoFailure) => Self::DiskFailed(reason.to_string()),
            Some(ErrorCode::DiskFull) => {
                Self::Other(Error::Disk(format!("disk_full: cannot write {path}: {reason}; free some space and retry")))
            }
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Other(Error::Locked(format!(
                "{path} is open in another program; close that program and restart Homard"
            ))),
            Some(_) | None => Self::Other(Error::Disk(format!("cannot write {path}: {reason}"))),
        }
    }

    /// Converts to the error that callers receive.
    pub(crate) fn into_error(self, path: &Path) -> Error {
        let path = path.display();
        match self {
            Self::Corrupt(reason) => Error::Corrupt(format!(
                "journal {path} is damaged ({reason}); restart Homard to move it aside and rebuild the list of \
                 sessions"
            )),
            Self::DiskFailed(reason) => Error::Disk(format!(
                "I/O error while writing {path} ({reason}); no new messages are accepted; check the disk, then restart \
                 Homard to recover what was stored"
            )),
            Self::Other(error) => error,
        }
    }
}

/// True if a write failed because the disk is full.
pub(crate) fn is_full(reason: &rusqlite::Error) -> bool {
    reason.sqlite_error_code() == Some(ErrorCode::DiskFull)
}

/// Marks the database as damaged, so that the next start moves it aside.
pub(crate) fn mark_suspect(path: &Path) {
    if let Err(reason) = fs::write(suspect_marker(path), "found damaged; the next start moves the journal aside\n") {
        tracing::warn!(%reason, "failed to mark the journal as damaged");
    }
}

fn suspect_marker(path: &Path) -> std::path::PathBuf {
    path.with_added_extension("suspect")
}

/// Moves a damaged database and its log aside.
pub(crate) fn set_aside(layout: &StateLayout, now_ms: u64) -> Result<(), Error> {
    let path = layout.database();
    let target = path.with_added_extension(format!("corrupt-{now_ms}"));
    for ending in ["", "-wal"] {
        let with_ending = |path: &Path| std::path::PathBuf::from(format!("{}{ending}", path.display()));
        disk::missing_is_none(fs::rename(with_ending(&path), with_ending(&target)))
            .map_err(disk::failed("move aside", &path))?;
    }
    let note = suspect_marker(&path);
    match fs::remove_file(&note) {
        Err(reason) if reason.kind() != ErrorKind::NotFound => return Err(disk::failed("remove", &note)(reason)),
        Ok(()) | Err(_) => {}
    }
    disk::sync_folder(&layout.journal())
}

/// Serializes a value as JSON for a column.
pub(crate) fn json(value: &impl Serialize) -> rusqlite::Result<String> {
    serde_json::to_string(value).map_err(|reason| rusqlite::Error::ToSqlConversionFailure(Box::new(reason)))
}

/// Parses a JSON column; `None` if it is NULL.
pub(crate) fn json_column<T: DeserializeOwned>(row: &rusqlite::Row<'_>, column: &str) -> rusqlite::Result<Option<T>> {
    let text: Option<String> = row.get(column)?;
    text.map(|text| serde_json::from_str(&text).map_err(invalid_value)).transpose()
}

/// Parses an identifier column; `None` if it is NULL.
pub(crate) fn id_column<T, E>(
    row: &rusqlite::Row<'_>,
    column: &str,
    parse: impl FnOnce(&str) -> Result<T, E>,
) -> rusqlite::Result<Option<T>>
where
    E: std::error::Error + Send + Sync + 'static,
{
    let text: Option<String> = row.get(column)?;
    text.map(|text| parse(&text).map_err(invalid_value)).transpose()
}

/// Returns an error for a column that is unexpectedly NULL.
pub(crate) fn unexpected_null() -> rusqlite::Error {
    invalid_value(std::io::Error::other("unexpected NULL in a column"))
}

/// Returns an error for a stored value that cannot be parsed.
pub(crate) fn invalid_value(reason: impl std::error::Error + Send + Sync + 'static) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(0, rusqlite::types::Type::Text, Box::new(reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Format 5 is the last one before holds and epochs.
    #[test]
    fn an_unfinished_run_of_format_5_has_no_attempts_and_is_not_held() {
        let state = tempfile::tempdir().unwrap();
        let layout = StateLayout::create(state.path()).unwrap();
        disk::make_folder(&layout.journal()).unwrap();
        let mut old = Connection::open(layout.database()).unwrap();
        migrate(&mut old, 0, &MIGRATIONS[..5]).unwrap();
        let request = r#"{"message":{"role":"user","content":"hi","timestamp":1},"options":{"lane":"main"}}"#;
        let sql = "INSERT INTO run(run_id, principal, method, fingerprint, skey, accepted_at, st, attempts, started_at, taken_up, asked)
                   VALUES ('a', 'owner', 'agent', 'f', 'agent:main:main', 1, 'running', 2, 2, '[3]', ?1)";
        old.execute(sql, [request]).unwrap();
        drop(old);
        let db = open(&layout).unwrap();
        let [(open, _)] = &crate::runs::unfinished(&db).unwrap()[..] else { panic!("one is open") };
        assert_eq!(
            (&open.row.state, open.row.hold, &open.attempts[..]),
            (&homard_store::RunState::Running, None, &[][..])
        );
    }

    #[test]
    fn runs_of_the_first_version_keep_their_start_time() {
        let state = tempfile::tempdir().unwrap();
        let layout = StateLayout::create(state.path()).unwrap();
        disk::make_folder(&layout.journal()).unwrap();
        let mut old = Connection::open(layout.database()).unwrap();
        migrate(&mut old, 0, &MIGRATIONS[..1]).unwrap();
        let sql = "INSERT INTO run(run_id, principal, method, fingerprint, skey, accepted_at, st, ended)
                   VALUES ('a', '', '', '', 'global', 1, 'ended', '{\"started_at\":7,\"ended_at\":9}'),
                          ('b', '', '', '', 'global', 1, 'ended', '{\"started_at\":null,\"ended_at\":9}'),
                          ('c', '', '', '', 'global', 1, 'running', NULL)";
        old.execute(sql, []).unwrap();
        drop(old);
        let db = open(&layout).unwrap();
        let mut statement = db.prepare("SELECT started_at FROM run ORDER BY run_id").unwrap();
        let started_at =
            statement.query_map([], |row| row.get(0)).unwrap().collect::<rusqlite::Result<Vec<Option<u64>>>>();
        assert_eq!(started_at, Ok(vec![Some(7), None, None]));
    }
}
