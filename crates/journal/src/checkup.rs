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
    Journal, Room, db, disk,
    index::FILE,
    layout::{FileId, LOCK, Layout},
    transcript::{self, End},
    volume,
};

/// A damaged file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flaw {
    /// Path of the file.
    pub path: PathBuf,
    /// Kind of damage.
    pub kind: FlawKind,
}

/// Kind of damage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FlawKind {
    /// The file ends in the middle of a line.
    Torn,
    /// Number of lines that cannot be parsed, counting a missing header.
    Damaged(usize),
    /// A `sessions.json` that is not a JSON object, with the reason.
    NoRecords(String),
    /// The file cannot be read, with the reason.
    Unreadable(String),
}

/// Summary of the transcripts in a state directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Transcripts {
    /// Number of transcripts.
    pub count: usize,
    /// Names of the agents' folders.
    pub agents: Vec<String>,
    /// Damaged transcripts and unreadable session records.
    pub flaws: Vec<Flaw>,
}

/// Reads all transcripts and session records.
pub fn transcripts(state_dir: &Path) -> io::Result<Transcripts> {
    let mut found = Transcripts::default();
    for agent in names(&state_dir.join("agents"))? {
        let folder = state_dir.join("agents").join(&agent).join("sessions");
        let before = found.count;
        for name in names(&folder)? {
            let path = folder.join(&name);
            let is_transcript = name.ends_with(".jsonl");
            if !is_transcript && name != FILE {
                continue;
            }
            found.count += usize::from(is_transcript);
            let kind = match fs::read(&path) {
                Ok(bytes) if is_transcript => flaw_of(&name, &bytes),
                Ok(bytes) => serde_json::from_slice::<serde_json::Map<String, Value>>(&bytes)
                    .err()
                    .map(|reason| FlawKind::NoRecords(reason.to_string())),
                Err(reason) => Some(FlawKind::Unreadable(reason.to_string())),
            };
            found.flaws.extend(kind.map(|kind| Flaw { path, kind }));
        }
        if found.count > before {
            found.agents.push(agent);
        }
    }
    Ok(found)
}

fn flaw_of(name: &str, bytes: &[u8]) -> Option<FlawKind> {
    let reading = transcript::read(bytes, &session_of(name, bytes)?);
    match (reading.damaged, reading.end) {
        (0, End::Whole | End::Unbroken) => None,
        (0, End::Torn(_)) => Some(FlawKind::Torn),
        (lines, _) => Some(FlawKind::Damaged(lines)),
    }
}

/// Returns the session of a transcript: from its header or else from its file name.
fn session_of(name: &str, bytes: &[u8]) -> Option<SessionId> {
    let first = bytes.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let header: Option<Value> = serde_json::from_slice(first).ok();
    let told = header.as_ref().filter(|header| header["type"] == "session").and_then(|header| header["id"].as_str());
    let stem = name.strip_suffix(".jsonl").unwrap_or(name);
    let by_name = stem.split_once("-topic-").map_or(stem, |(session, _)| session);
    told.and_then(|id| SessionId::parse(id).ok()).or_else(|| SessionId::parse(by_name).ok())
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
pub enum Database {
    /// No database exists yet.
    None,
    /// The database is intact.
    Sound,
    /// Another process holds the lock, so the database cannot be inspected.
    InUse,
    /// The database is corrupt; the next start moves it aside.
    Damaged(String),
    /// The database cannot be used for another reason.
    Unusable(String),
}

/// Inspects the database unless a process holds the lock.
pub fn database(state_dir: &Path) -> Database {
    let path = state_dir.join("journal").join("journal.db");
    if !path.exists() {
        return Database::None;
    }
    // Held during the inspection, so that no gateway starts meanwhile.
    let lock = File::open(state_dir.join(LOCK));
    if let Ok(lock) = &lock {
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Database::InUse,
            Err(TryLockError::Error(reason)) => return Database::Unusable(reason.to_string()),
        }
    }
    let look = || -> rusqlite::Result<(usize, String)> {
        let db = Connection::open_with_flags(&path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        db.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
        let version = db.pragma_query_value(None, "user_version", |row| row.get(0))?;
        Ok((version, db.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?))
    };
    match look() {
        Ok((version, _)) if version > db::version() => Database::Unusable(format!(
            "it was written by a newer version of this program (format {version}); use that version"
        )),
        Ok((_, said)) if said == "ok" => Database::Sound,
        Ok((_, said)) => Database::Damaged(said),
        Err(reason) => match db::Trouble::of(&reason, &path) {
            db::Trouble::Corrupt(why) => Database::Damaged(why),
            db::Trouble::Broken(why) => Database::Unusable(why),
            db::Trouble::Other(error) => Database::Unusable(error.to_string()),
        },
    }
}

/// The file system of a state directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    /// Free space in bytes.
    pub free: u64,
    /// Threshold in bytes below which new messages are refused.
    pub least: u64,
    /// Why the file system is refused (a network file system), if it is.
    pub refused: Option<String>,
}

/// Inspects the file system of an existing folder.
pub fn volume(folder: &Path) -> io::Result<Volume> {
    let refused = volume::check(folder).err().map(|error| error.to_string());
    let space = volume::Space::of(folder)?;
    Ok(Volume { free: space.free, least: space.floor(), refused })
}

impl Journal {
    /// Repairs all transcripts and returns those that were damaged. Everything removed from a transcript is kept beside
    /// it.
    pub async fn put_right(&self) -> Result<Vec<PathBuf>, Error> {
        self.blocking(Room::put_right).await
    }
}

impl Room {
    fn put_right(&self) -> Result<Vec<PathBuf>, Error> {
        let state = self.layout.state();
        let found = transcripts(state).map_err(disk::failed("list", state))?;
        let mut done = Vec::new();
        for path in found.flaws.into_iter().map(|flaw| flaw.path) {
            let Some((file, session)) = place_of(&self.layout, &path) else { continue };
            self.desk().put_right(&file, &session, (self.now_ms)())?;
            done.push(path);
        }
        Ok(done)
    }
}

fn place_of(layout: &Layout, path: &Path) -> Option<(FileId, SessionId)> {
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

    fn kinds(state: &Path) -> Vec<(String, FlawKind)> {
        let flaws = transcripts(state).unwrap().flaws.into_iter();
        flaws.map(|flaw| (flaw.path.file_name().unwrap().to_str().unwrap().to_owned(), flaw.kind)).collect()
    }

    #[test]
    fn torn_and_damaged_transcripts_are_seen_and_sound_ones_are_not() {
        let state = with(&[
            ("s1.jsonl", HEADER),
            ("torn.jsonl", &format!("{HEADER}{{\"type\":\"mess")),
            ("damaged.jsonl", &format!("{HEADER}nonsense\n{{}}\n")),
            ("s1.jsonl.torn-7", "{\"ty"),
            ("sessions.json", "{\"agent:main:main\""),
        ]);
        let found = kinds(state.path());
        let records = |kind: &FlawKind| matches!(kind, FlawKind::NoRecords(_));
        assert!(
            matches!(&found[..], [(damaged, FlawKind::Damaged(1)), (file, kind), (torn, FlawKind::Torn)]
                if damaged == "damaged.jsonl" && file == FILE && records(kind) && torn == "torn.jsonl"),
            "{found:?}"
        );
        assert_eq!(transcripts(state.path()).unwrap().count, 3);
        assert_eq!(transcripts(&state.path().join("nothing")).unwrap(), Transcripts::default());
    }

    #[tokio::test]
    async fn transcripts_are_put_right_and_nothing_of_them_is_lost() {
        let torn = format!("{HEADER}{{\"type\":\"mess");
        let state = with(&[("torn.jsonl", &torn), ("damaged.jsonl", &format!("{HEADER}nonsense\n"))]);
        let folder = state.path().join("agents/main/sessions");
        let journal = Journal::open(state.path(), || 7).unwrap();
        assert_eq!(journal.put_right().await, Ok(vec![folder.join("damaged.jsonl"), folder.join("torn.jsonl")]));
        assert_eq!(kinds(state.path()), []);
        assert_eq!(journal.put_right().await, Ok(vec![]));
        let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
        assert_eq!(read("torn.jsonl"), HEADER);
        assert_eq!(read("torn.jsonl.torn-7"), "{\"type\":\"mess");
        assert_eq!(read("damaged.jsonl.corrupt-7"), format!("{HEADER}nonsense\n"));
    }

    #[test]
    fn the_database_is_looked_at_unless_somebody_has_it() {
        let state = tempfile::tempdir().unwrap();
        assert_eq!(database(state.path()), Database::None);
        let journal = Journal::open(state.path(), || 7).unwrap();
        assert_eq!(database(state.path()), Database::InUse);
        drop(journal);
        assert_eq!(database(state.path()), Database::Sound);
        fs::write(state.path().join("journal/journal.db"), "no database at all, but long enough to be looked at")
            .unwrap();
        assert!(matches!(database(state.path()), Database::Damaged(_)));
    }
}
