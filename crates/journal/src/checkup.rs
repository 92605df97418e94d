//! Inspection of a state directory without taking its lock, and the repair of its transcripts.
//!
//! Inspection changes nothing; its results are for the operator. Recovery from a crash happens at start-up, without it.

use std::{
    fs::{self, File, TryLockError},
    io,
    path::{Path, PathBuf},
};

use homard_proto::{AgentId, SessionId};
use homard_store::Error;
use rusqlite::{Connection, OpenFlags, config::DbConfig};
use serde_json::Value;

use crate::{
    Journal, JournalInner, db, disk, disk_space,
    index::SESSIONS_FILE,
    layout::{FileId, LOCK, StateLayout},
    transcript::{self, TranscriptTail},
};

/// A damaged file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileDamage {
    /// Path of the file.
    pub path: PathBuf,
    /// Kind of damage.
    pub kind: DamageKind,
}

/// Kind of damage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DamageKind {
    /// The file ends in the middle of a line.
    Torn,
    /// Number of lines that cannot be parsed, counting a missing header.
    Damaged(usize),
    /// A `sessions.json` that is not a JSON object, with the reason.
    InvalidRecords(String),
    /// The file cannot be read, with the reason.
    Unreadable(String),
}

/// Summary of the transcripts in a state directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TranscriptReport {
    /// Number of transcripts.
    pub count: usize,
    /// Names of the agents' folders.
    pub agents: Vec<String>,
    /// Damaged transcripts and unreadable session records.
    pub damaged: Vec<FileDamage>,
}

/// Reads all transcripts and session records.
pub fn transcripts(state_dir: &Path) -> io::Result<TranscriptReport> {
    let mut found = TranscriptReport::default();
    for agent in names(&state_dir.join("agents"))? {
        let folder = state_dir.join("agents").join(&agent).join("sessions");
        let before = found.count;
        for name in names(&folder)? {
            let path = folder.join(&name);
            let is_transcript = name.ends_with(".jsonl");
            if !is_transcript && name != SESSIONS_FILE {
                continue;
            }
            found.count += usize::from(is_transcript);
            let kind = match fs::read(&path) {
                Ok(bytes) if is_transcript => damage_of(&name, &bytes),
                Ok(bytes) => serde_json::from_slice::<serde_json::Map<String, Value>>(&bytes)
                    .err()
                    .map(|reason| DamageKind::InvalidRecords(reason.to_string())),
                Err(reason) => Some(DamageKind::Unreadable(reason.to_string())),
            };
            found.damaged.extend(kind.map(|kind| FileDamage { path, kind }));
        }
        if found.count > before {
            found.agents.push(agent);
        }
    }
    Ok(found)
}

fn damage_of(name: &str, bytes: &[u8]) -> Option<DamageKind> {
    let parsed = transcript::read(bytes, &session_of(name, bytes)?);
    match (parsed.damaged, parsed.end) {
        (0, TranscriptTail::Whole | TranscriptTail::NoLineBreak) => None,
        (0, TranscriptTail::Torn(_)) => Some(DamageKind::Torn),
        (lines, _) => Some(DamageKind::Damaged(lines)),
    }
}

/// Returns the session of a transcript: from its header or else from its file name.
fn session_of(name: &str, bytes: &[u8]) -> Option<SessionId> {
    let first = bytes.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let header: Option<Value> = serde_json::from_slice(first).ok();
    let header_id =
        header.as_ref().filter(|header| header["type"] == "session").and_then(|header| header["id"].as_str());
    let stem = name.strip_suffix(".jsonl").unwrap_or(name);
    let by_name = stem.split_once("-topic-").map_or(stem, |(session, _)| session);
    header_id.and_then(|id| SessionId::parse(id).ok()).or_else(|| SessionId::parse(by_name).ok())
}

/// Returns the sorted names in a folder; empty if the folder does not exist.
fn names(folder: &Path) -> io::Result<Vec<String>> {
    let listing = match fs::read_dir(folder) {
        Err(reason) if matches!(reason.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        listing => listing?,
    };
    let mut names = listing
        .filter_map(|item| item.map(|item| item.file_name().into_string().ok()).transpose())
        .collect::<io::Result<Vec<_>>>()?;
    names.sort();
    Ok(names)
}

/// Condition of the database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DatabaseStatus {
    /// No database exists yet.
    None,
    /// The database is intact.
    Intact,
    /// Another process holds the lock, so the database cannot be inspected.
    InUse,
    /// The database is corrupt; the next start moves it aside.
    Corrupt(String),
    /// The database cannot be used for another reason.
    Unusable(String),
}

/// Inspects the database unless a process holds the lock.
pub fn database_status(state_dir: &Path) -> DatabaseStatus {
    let path = state_dir.join("journal").join("journal.db");
    if !path.exists() {
        return DatabaseStatus::None;
    }
    // Held during the inspection, so that no gateway starts meanwhile.
    let lock = File::open(state_dir.join(LOCK));
    if let Ok(lock) = &lock {
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return DatabaseStatus::InUse,
            Err(TryLockError::Error(reason)) => return DatabaseStatus::Unusable(reason.to_string()),
        }
    }
    let check = || -> rusqlite::Result<(usize, Option<String>, String)> {
        let db = Connection::open_with_flags(&path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        db.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
        let version = db.pragma_query_value(None, "user_version", |row| row.get(0))?;
        let report = db.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
        Ok((version, db::writer_version(&db), report))
    };
    match check() {
        Ok((version, writer, _)) if version > db::state_format() => {
            DatabaseStatus::Unusable(db::newer_format(state_dir, version, writer.as_deref()))
        }
        Ok((_, _, report)) if report == "ok" => DatabaseStatus::Intact,
        Ok((_, _, report)) => DatabaseStatus::Corrupt(report),
        Err(reason) => match db::DatabaseError::of(&reason, &path) {
            db::DatabaseError::Corrupt(message) => DatabaseStatus::Corrupt(message),
            db::DatabaseError::DiskFailed(message) => DatabaseStatus::Unusable(message),
            db::DatabaseError::Other(error) => DatabaseStatus::Unusable(error.to_string()),
        },
    }
}

/// The file system of a state directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskStatus {
    /// Free space in bytes.
    pub free: u64,
    /// Threshold in bytes below which new messages are refused.
    pub min_free: u64,
    /// Why the file system is refused (a network file system), if it is.
    pub rejection: Option<String>,
}

/// Inspects the file system of an existing folder.
pub fn disk_status(folder: &Path) -> io::Result<DiskStatus> {
    let refused = disk_space::check(folder).err().map(|error| error.to_string());
    let space = disk_space::Space::of(folder)?;
    Ok(DiskStatus { free: space.free, min_free: space.min_free(), rejection: refused })
}

impl Journal {
    /// Repairs all transcripts and returns those that were damaged. Everything removed from a transcript is kept beside
    /// it.
    pub async fn repair_transcripts(&self) -> Result<Vec<PathBuf>, Error> {
        self.blocking(repair_transcripts).await
    }
}

fn repair_transcripts(journal: &JournalInner) -> Result<Vec<PathBuf>, Error> {
    let state = journal.layout.state();
    let found = transcripts(state).map_err(disk::failed("list", state))?;
    let mut done = Vec::new();
    for path in found.damaged.into_iter().map(|damage| damage.path) {
        let Some((file, session)) = place_of(&journal.layout, &path) else { continue };
        journal.writer().repair(&file, &session, (journal.now_ms)())?;
        done.push(path);
    }
    Ok(done)
}

fn place_of(layout: &StateLayout, path: &Path) -> Option<(FileId, SessionId)> {
    let mut parts = path.strip_prefix(layout.agents()).ok()?.iter();
    let agent = AgentId::normalize(parts.next()?.to_str()?);
    let name = path.file_name()?.to_str().filter(|name| name.ends_with(".jsonl"))?;
    let session = session_of(name, &fs::read(path).ok()?)?;
    Some((FileId { agent, name: name.to_owned() }, session))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str =
        "{\"type\":\"session\",\"version\":3,\"id\":\"s1\",\"timestamp\":\"2026-02-09T10:00:00.000Z\",\"cwd\":\"/\"}\n";

    fn with(files: &[(&str, &str)]) -> tempfile::TempDir {
        let state = tempfile::tempdir().unwrap();
        let folder = state.path().join("agents/main/sessions");
        fs::create_dir_all(&folder).unwrap();
        for (name, text) in files {
            fs::write(folder.join(name), text).unwrap();
        }
        state
    }

    fn kinds(state: &Path) -> Vec<(String, DamageKind)> {
        let damaged = transcripts(state).unwrap().damaged.into_iter();
        damaged.map(|damage| (damage.path.file_name().unwrap().to_str().unwrap().to_owned(), damage.kind)).collect()
    }

    #[test]
    fn torn_and_damaged_transcripts_are_found_and_intact_ones_are_not() {
        let state = with(&[
            ("s1.jsonl", HEADER),
            ("torn.jsonl", &format!("{HEADER}{{\"type\":\"mess")),
            ("damaged.jsonl", &format!("{HEADER}nonsense\n{{}}\n")),
            ("s1.jsonl.torn-7", "{\"ty"),
            ("sessions.json", "{\"agent:main:main\""),
        ]);
        let found = kinds(state.path());
        let records = |kind: &DamageKind| matches!(kind, DamageKind::InvalidRecords(_));
        assert!(
            matches!(&found[..], [(damaged, DamageKind::Damaged(1)), (file, kind), (torn, DamageKind::Torn)]
                if damaged == "damaged.jsonl" && file == SESSIONS_FILE && records(kind) && torn == "torn.jsonl"),
            "{found:?}"
        );
        assert_eq!(transcripts(state.path()).unwrap().count, 3);
        assert_eq!(transcripts(&state.path().join("nothing")).unwrap(), TranscriptReport::default());
    }

    #[tokio::test]
    async fn repaired_transcripts_lose_nothing() {
        let torn = format!("{HEADER}{{\"type\":\"mess");
        let state = with(&[("torn.jsonl", &torn), ("damaged.jsonl", &format!("{HEADER}nonsense\n"))]);
        let folder = state.path().join("agents/main/sessions");
        let journal = Journal::open(state.path(), || 7).unwrap();
        assert_eq!(
            journal.repair_transcripts().await,
            Ok(vec![folder.join("damaged.jsonl"), folder.join("torn.jsonl")])
        );
        assert_eq!(kinds(state.path()), []);
        assert_eq!(journal.repair_transcripts().await, Ok(vec![]));
        let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
        assert_eq!(read("torn.jsonl"), HEADER);
        assert_eq!(read("torn.jsonl.torn-7"), "{\"type\":\"mess");
        assert_eq!(read("damaged.jsonl.corrupt-7"), format!("{HEADER}nonsense\n"));
    }

    #[test]
    fn the_database_is_checked_unless_it_is_in_use() {
        let state = tempfile::tempdir().unwrap();
        assert_eq!(database_status(state.path()), DatabaseStatus::None);
        let journal = Journal::open(state.path(), || 7).unwrap();
        assert_eq!(database_status(state.path()), DatabaseStatus::InUse);
        drop(journal);
        assert_eq!(database_status(state.path()), DatabaseStatus::Intact);
        fs::write(state.path().join("journal/journal.db"), "no database at all, but long enough to be looked at")
            .unwrap();
        assert!(matches!(database_status(state.path()), DatabaseStatus::Corrupt(_)));
    }
}
