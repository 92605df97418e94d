//! Export of the session records to `sessions.json`, for OpenClaw and for people. The file lags behind the records and
//! is read back only if another program changed it.

use std::{
    fs,
    hash::{DefaultHasher, Hasher},
    os::unix::fs::MetadataExt,
    path::Path,
};

use homard_proto::AgentId;
use homard_store::Error;
use rusqlite::Connection;
use serde::{Deserialize, Serialize};

use crate::{JournalInner, disk, index, sessions};

/// Fingerprint of a file, to detect foreign changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileStamp {
    size: u64,
    modified: (i64, i64),
    /// Hash of the content: a copied state directory has other modification times.
    digest: u64,
}

impl FileStamp {
    /// Computes the stamp of a file; `None` if it does not exist.
    pub(crate) fn of(path: &Path) -> Result<Option<Self>, Error> {
        let Some((size, modified)) = stat(path)? else { return Ok(None) };
        Ok(disk::read(path)?.map(|bytes| Self { size, modified, digest: digest(&bytes) }))
    }
}

/// Size and modification time (seconds, nanoseconds) of a file.
type SizeAndTime = (u64, (i64, i64));

fn stat(path: &Path) -> Result<Option<SizeAndTime>, Error> {
    let found = disk::missing_is_none(fs::metadata(path)).map_err(disk::failed("read the metadata of", path))?;
    Ok(found.map(|found| (found.len(), (found.mtime(), found.mtime_nsec()))))
}

/// Hashes a file's content. Another version may hash differently; the file is then read once more than necessary.
fn digest(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}

/// True if a file has one of the given stamps. Its content is read only if its modification time differs.
pub(crate) fn is_known(path: &Path, stamps: &[FileStamp]) -> Result<bool, Error> {
    let Some((size, modified)) = stat(path)? else { return Ok(false) };
    let mut same_size = stamps.iter().filter(|stamp| stamp.size == size).peekable();
    if same_size.peek().is_none() || same_size.clone().any(|stamp| stamp.modified == modified) {
        return Ok(same_size.peek().is_some());
    }
    let digest = disk::read(path)?.map(|bytes| digest(&bytes));
    Ok(same_size.any(|stamp| Some(stamp.digest) == digest))
}

/// Returns the stamps of an agent's `sessions.json` as it was last written or read; two while it is being replaced.
pub(crate) fn stored_stamps(db: &Connection, agent: &AgentId) -> rusqlite::Result<Vec<FileStamp>> {
    let stored = sessions::meta(db, &stamp_key(agent))?;
    Ok(stored.and_then(|stored| serde_json::from_str(&stored).ok()).unwrap_or_default())
}

/// Stores the stamps of an agent's `sessions.json`.
pub(crate) fn store_stamps(db: &Connection, agent: &AgentId, stamps: &[FileStamp]) -> rusqlite::Result<()> {
    sessions::set_meta(db, &stamp_key(agent), &crate::db::json(&stamps)?)
}

fn stamp_key(agent: &AgentId) -> String {
    format!("export {agent}")
}

/// Writes the `sessions.json` of every agent whose records changed.
pub(crate) fn export(journal: &JournalInner) -> Result<(), Error> {
    let _one = journal.exporting.lock();
    let stale = journal.index().stale_agents();
    stale.iter().try_for_each(|agent| export_agent(journal, agent))
}

fn export_agent(journal: &JournalInner, agent: &AgentId) -> Result<(), Error> {
    journal.layout.make_sessions(agent)?;
    let mut folder = journal.index().snapshot(agent, false);
    folder.name_threads(&journal.layout.sessions(agent));
    let path = journal.layout.sessions(agent).join(index::SESSIONS_FILE);
    let write = || {
        let json = serde_json::to_vec_pretty(&folder).map_err(|reason| disk::not_serializable(&reason))?;
        let staged = homard_stdx::file::stage(&path, &json).map_err(disk::failed("write", &path))?;
        // Stored before the rename: after a crash in between, our own file must not pass for a foreign one and
        // bring back a session that was deleted meanwhile.
        let (current, new) = (stat(&path)?, FileStamp::of(staged.path())?);
        let writer = journal.writer();
        journal.health.check()?;
        let stamps = |db: &Connection| {
            let mut stamps = stored_stamps(db, agent)?;
            stamps.retain(|stamp| current == Some((stamp.size, stamp.modified)));
            stamps.extend(new);
            store_stamps(db, agent, &stamps)
        };
        journal.health.sql(stamps(&writer.db))?;
        drop(writer);
        staged.commit().map_err(disk::failed("write", &path))
    };
    write().inspect_err(|_| drop(journal.index().snapshot(agent, true)))
}
