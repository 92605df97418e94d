//! The changes of an agent's records since `sessions.json` was written last, as versions before the database kept them.
//!
//! Old log and log, in this order, lead to the newest records. They are taken in once and then removed.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use homard_proto::{AgentId, SessionKey, session::Record};
use homard_store::Error;
use serde::Deserialize;
use tracing::warn;

use crate::{disk, layout};

/// A line.
#[derive(Deserialize)]
struct Changed {
    key: String,
    record: Record,
}

/// The logs in a sessions folder. No session id can become such a name.
fn paths(sessions: &Path) -> [PathBuf; 2] {
    ["sessions.json.log.old", "sessions.json.log"].map(|name| sessions.join(name))
}

/// Whether there is a log.
pub(crate) fn exists(sessions: &Path) -> bool {
    paths(sessions).iter().any(|path| path.exists())
}

/// Removes the logs once they were taken in.
pub(crate) fn remove(sessions: &Path) -> Result<(), Error> {
    for log in paths(sessions) {
        disk::missing_is_none(fs::remove_file(&log)).map_err(disk::failed("remove", &log))?;
    }
    Ok(())
}

/// The newest record of every key in the logs; `None` when there is no log.
pub(crate) fn replay(sessions: &Path, agent: &AgentId) -> Result<Option<BTreeMap<SessionKey, Record>>, Error> {
    let mut records = None;
    for log in paths(sessions) {
        let Some(bytes) = disk::read(&log)? else { continue };
        let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
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
