//! The changes of an agent's records since `sessions.json` was written last: one line each, replayed at start.
//!
//! An export first renames the log and then removes it, so that commits never wait for an export. A log is renamed
//! only when the one before is gone; hence old log and log, in this order, always lead to the newest records.

use std::{
    collections::BTreeMap,
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
};

use homard_proto::{AgentId, SessionKey, session::Record};
use homard_store::Error;
use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::{disk, layout};

/// A line that is written.
#[derive(Serialize)]
pub(crate) struct Change<'a> {
    pub(crate) key: &'a SessionKey,
    pub(crate) record: &'a Record,
}

/// A line that is read.
#[derive(Deserialize)]
struct Changed {
    key: String,
    record: Record,
}

/// The log in a sessions folder. No session id can become this name.
pub(crate) fn path(sessions: &Path) -> PathBuf {
    sessions.join("sessions.json.log")
}

fn old_path(sessions: &Path) -> PathBuf {
    sessions.join("sessions.json.log.old")
}

/// Begins a new log. Only the writer may call it.
pub(crate) fn rotate(sessions: &Path) -> Result<(), Error> {
    let (log, old) = (path(sessions), old_path(sessions));
    if old.exists() {
        return Ok(());
    }
    missing_is_fine(fs::rename(&log, &old)).map_err(disk::failed("rename", &log))
}

/// Removes what an export has made needless.
pub(crate) fn forget(sessions: &Path) -> Result<(), Error> {
    let old = old_path(sessions);
    missing_is_fine(fs::remove_file(&old)).map_err(disk::failed("remove", &old))
}

fn missing_is_fine(outcome: std::io::Result<()>) -> std::io::Result<()> {
    outcome.or_else(|reason| if reason.kind() == ErrorKind::NotFound { Ok(()) } else { Err(reason) })
}

/// The newest record of every key in the logs; `None` when there is no log.
pub(crate) fn replay(sessions: &Path, agent: &AgentId) -> Result<Option<BTreeMap<SessionKey, Record>>, Error> {
    let mut records = None;
    for log in [old_path(sessions), path(sessions)] {
        let Some(bytes) = disk::read(&log)? else { continue };
        let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        if whole < bytes.len() {
            // A crash came between: that change was never acknowledged, and the next must begin on its own line.
            let cut = fs::OpenOptions::new().write(true).open(&log).and_then(|file| file.set_len(whole as u64));
            cut.map_err(disk::failed("cut the torn last line of", &log))?;
        }
        let records = records.get_or_insert_with(BTreeMap::new);
        for line in bytes[..whole].split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
            match parse(line, agent) {
                Some((key, record)) => drop(records.insert(key, record)),
                None => warn!(path = %log.display(), "a change of a session record makes no sense and was passed by"),
            }
        }
    }
    Ok(records)
}

fn parse(line: &[u8], agent: &AgentId) -> Option<(SessionKey, Record)> {
    let Changed { key, record } = serde_json::from_slice(line).ok()?;
    let key = SessionKey::parse(&key, agent).ok()?;
    (layout::home(&key) == *agent).then_some((key, record))
}
