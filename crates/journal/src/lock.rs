//! One process per state directory.

use std::{
    fs::{self, File, TryLockError},
    io::Write,
    path::Path,
};

use homard_store::Error;
use serde::{Deserialize, Serialize};

use crate::{disk, layout::Layout};

/// Who took the lock last. The lock itself is the operating system's and cannot go stale; this is for people, and for a
/// takeover, which must not hit a stranger that got the same process id later.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Holder {
    /// Its process id.
    pub pid: u32,
    /// When it took the directory, in milliseconds since the epoch.
    pub started_at: u64,
    /// When the process began, in the system's own ticks since it was switched on; `None` where the system does not tell.
    #[serde(default)]
    pub started: Option<u64>,
}

/// The process that took a state directory last, if it still is at work.
pub fn holder(state_dir: &Path) -> Option<Holder> {
    let holder = recorded(&state_dir.join(crate::layout::LOCK))?;
    (holder.started.is_some() && began(holder.pid) == holder.started).then_some(holder)
}

fn recorded(path: &Path) -> Option<Holder> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

/// When a process began, in ticks since the system was switched on; `None` when there is no such process.
pub fn began(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program stands in parentheses and may hold anything; the time is the 22nd field, the 20th after it.
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// Takes the directory for as long as the file stays open.
pub(crate) fn take(layout: &Layout, now_ms: u64) -> Result<File, Error> {
    let path = layout.lock();
    let mut file = disk::private()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .map_err(disk::failed("open", &path))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(in_use(layout, recorded(&path))),
        Err(TryLockError::Error(reason)) => return Err(disk::failed("lock", &path)(reason)),
    }
    let pid = std::process::id();
    let holder = serde_json::json!(Holder { pid, started_at: now_ms, started: began(pid) });
    file.set_len(0).and_then(|()| writeln!(file, "{holder}")).map_err(disk::failed("write", &path))?;
    Ok(file)
}

fn in_use(layout: &Layout, holder: Option<Holder>) -> Error {
    let state = layout.state().display();
    let holder = holder.map_or_else(|| "another process".to_owned(), |holder| holder.to_string());
    Error::Locked(format!(
        "state directory {state} is in use by {holder}; stop it or choose another directory with HOMARD_STATE_DIR"
    ))
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "process {}", self.pid)?;
        let since = i64::try_from(self.started_at).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
        since.map_or(Ok(()), |since| write!(f, " (since {since})"))
    }
}
