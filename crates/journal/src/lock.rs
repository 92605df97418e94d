//! One process per state directory.

use std::{
    fs::{self, File, TryLockError},
    io::Write,
};

use homard_store::Error;
use serde::{Deserialize, Serialize};

use crate::{disk, layout::Layout};

/// Who holds the lock. For people: the lock itself is the operating system's and cannot go stale.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Holder {
    pid: u32,
    started_at: u64,
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
        Err(TryLockError::WouldBlock) => {
            let holder = fs::read(&path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
            return Err(in_use(layout, holder));
        }
        Err(TryLockError::Error(reason)) => return Err(disk::failed("lock", &path)(reason)),
    }
    let holder = serde_json::json!(Holder { pid: std::process::id(), started_at: now_ms });
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
