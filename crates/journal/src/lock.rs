//! Makes sure that one process uses a state directory.
//!
//! The lock is an advisory lock of the operating system on `gateway.lock`. That file is never replaced, because a lock
//! belongs to the file and not to its name. The holder describes itself in a second file that is replaced by a rename,
//! so readers never see a mix of two descriptions.

use std::{
    fs::{self, File, TryLockError},
    io,
    os::unix::fs::FileExt,
    path::Path,
    thread,
    time::Duration,
};

use homard_store::Error;
use serde::{Deserialize, Serialize};

use crate::{
    disk,
    layout::{HOLDER, LOCK, StateLayout},
};

/// Number of attempts to take a lock whose recorded holder has exited, and the delay between them.
const MAX_ATTEMPTS: u32 = 1000;
const RETRY_DELAY: Duration = Duration::from_millis(5);

/// The process that took the lock last. The lock itself belongs to the operating system and cannot go stale; this
/// description is for people, and for a takeover, which must not signal an unrelated process that got the same process
/// id later.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LockHolder {
    /// Process id.
    pub pid: u32,
    /// Time at which it took the directory, in milliseconds since the epoch.
    pub started_at: u64,
    /// Start time of the process in the system's clock ticks since boot; `None` if the system does not provide it.
    #[serde(default)]
    pub started: Option<u64>,
}

/// Returns the process that took a state directory last, if it is still running.
pub fn holder(state_dir: &Path) -> Option<LockHolder> {
    recorded(state_dir).find(LockHolder::is_alive)
}

/// Returns the recorded holders: from the description file, and from the lock file, which earlier versions write.
fn recorded(state_dir: &Path) -> impl Iterator<Item = LockHolder> {
    let read = |name: &str| serde_json::from_slice(&fs::read(state_dir.join(name)).ok()?).ok();
    [HOLDER, LOCK].into_iter().filter_map(read)
}

/// Returns the start time of a process in clock ticks since boot; `None` if it does not exist or is a zombie.
pub fn process_start_time(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The program name stands in parentheses and may contain anything; the start time is the 22nd field, the 20th after
    // it.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let is_dead = matches!(fields.next()?, "Z" | "X");
    fields.nth(18).filter(|_| !is_dead)?.parse().ok()
}

/// Locks the directory for as long as the file stays open.
///
/// A command that a killed process was just starting inherits its lock until `exec`. This function waits for that, but
/// not for a holder that is alive.
pub(crate) fn acquire(layout: &StateLayout, now_ms: u64) -> Result<File, Error> {
    let path = layout.lock();
    let file = disk::private()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .map_err(disk::failed("open", &path))?;
    let mut attempts = 0;
    while let Err(refused) = file.try_lock() {
        if let TryLockError::Error(reason) = refused {
            return Err(disk::failed("lock", &path)(reason));
        }
        let all: Vec<_> = recorded(layout.state()).collect();
        attempts += 1;
        if attempts == MAX_ATTEMPTS || all.is_empty() || !all.iter().all(LockHolder::is_gone) {
            return Err(in_use(layout, all.into_iter().find(|holder| !holder.is_gone())));
        }
        thread::sleep(RETRY_DELAY);
    }
    let pid = std::process::id();
    let holder =
        format!("{}\n", serde_json::json!(LockHolder { pid, started_at: now_ms, started: process_start_time(pid) }));
    disk::replace(&layout.holder(), holder.as_bytes())?;
    write_text(&file, &holder).map_err(disk::failed("write", &path))?;
    Ok(file)
}

/// Writes the description into the lock file, where earlier versions read it. Padding with blanks overwrites a longer
/// previous text; truncating would be a second step, before which readers would see its end.
fn write_text(file: &File, holder: &str) -> io::Result<()> {
    let length = usize::try_from(file.metadata()?.len()).unwrap_or(0);
    file.write_all_at(format!("{holder:<length$}").as_bytes(), 0)
}

fn in_use(layout: &StateLayout, holder: Option<LockHolder>) -> Error {
    let state = layout.state().display();
    let holder = holder.map_or_else(|| "another process".to_owned(), |holder| holder.to_string());
    Error::Locked(format!(
        "state directory {state} is in use by {holder}; stop it or choose another directory with HOMARD_STATE_DIR"
    ))
}

impl LockHolder {
    /// True if the process is known to be running.
    fn is_alive(&self) -> bool {
        self.started.is_some() && process_start_time(self.pid) == self.started
    }

    /// True if the process is known to have exited.
    fn is_gone(&self) -> bool {
        self.started.is_some() && process_start_time(self.pid) != self.started
    }
}

impl std::fmt::Display for LockHolder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "process {}", self.pid)?;
        let since = i64::try_from(self.started_at).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
        since.map_or(Ok(()), |since| write!(f, " (since {since})"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(state: &Path, holder: &LockHolder) -> StateLayout {
        let layout = StateLayout::create(state).unwrap();
        fs::write(layout.lock(), serde_json::json!(holder).to_string()).unwrap();
        layout
    }

    fn me() -> LockHolder {
        let pid = std::process::id();
        LockHolder { pid, started_at: 1, started: process_start_time(pid) }
    }

    #[test]
    fn the_lock_of_an_exiting_process_is_awaited() {
        let state = tempfile::tempdir().unwrap();
        let dead_holder = LockHolder { started: Some(0), ..me() };
        let layout = layout(state.path(), &dead_holder);
        let child = File::open(layout.lock()).unwrap();
        child.lock().unwrap();
        thread::scope(|scope| {
            let acquired = scope.spawn(|| acquire(&layout, 2).map(drop));
            // The process opens the file before it tries the lock; from then on it can only wait.
            while openers(&layout.lock()) < 2 {
                thread::yield_now();
            }
            drop(child);
            assert_eq!(acquired.join().unwrap(), Ok(()));
        });
        assert_eq!(recorded(state.path()).collect::<Vec<_>>(), vec![LockHolder { started_at: 2, ..me() }; 2]);
    }

    #[test]
    fn readers_see_the_old_or_the_new_lock_holder() {
        let state = tempfile::tempdir().unwrap();
        let layout = StateLayout::create(state.path()).unwrap();
        // One description of the same length as the other's, and a longer one.
        let start_times = [1, 20_000_000_000_000];
        drop(acquire(&layout, start_times[1]).unwrap());
        thread::scope(|scope| {
            let reader = scope.spawn(|| {
                for _ in 0..2_000 {
                    let found = holder(state.path()).map(|holder| holder.started_at);
                    assert!(found.is_some_and(|started_at| start_times.contains(&started_at)), "{found:?}");
                }
            });
            for round in 0.. {
                drop(acquire(&layout, start_times[round % 2]).unwrap());
                if reader.is_finished() {
                    break;
                }
            }
            reader.join().unwrap();
        });
    }

    #[test]
    fn earlier_versions_find_the_holder_in_the_lock_file() {
        let state = tempfile::tempdir().unwrap();
        let layout = StateLayout::create(state.path()).unwrap();
        for long_text in
            ["", "{\"pid\":1,\"startedAt\":2,\"started\":3,\"more\":\"than there will be afterwards, by far\"}\n"]
        {
            fs::write(layout.lock(), long_text).unwrap();
            let _held = acquire(&layout, 7).unwrap();
            let text = fs::read_to_string(layout.lock()).unwrap();
            assert_eq!(serde_json::from_str::<LockHolder>(&text).unwrap(), LockHolder { started_at: 7, ..me() });
            assert!(text.len() >= long_text.len(), "it was cut off in a second step");
        }
    }

    #[test]
    fn a_holder_of_an_earlier_version_is_found() {
        let state = tempfile::tempdir().unwrap();
        let layout = layout(state.path(), &me());
        let dead_holder = LockHolder { started: Some(0), ..me() };
        fs::write(layout.holder(), serde_json::json!(dead_holder).to_string()).unwrap();
        assert_eq!(holder(state.path()), Some(me()));
        let other = File::open(layout.lock()).unwrap();
        other.lock().unwrap();
        assert!(matches!(acquire(&layout, 2), Err(Error::Locked(text)) if text.contains(&me().to_string())));
    }

    #[test]
    fn a_process_that_is_alive_is_not_waited_for() {
        let state = tempfile::tempdir().unwrap();
        let layout = layout(state.path(), &me());
        let other = File::open(layout.lock()).unwrap();
        other.lock().unwrap();
        assert!(matches!(acquire(&layout, 2), Err(Error::Locked(text)) if text.contains(&me().to_string())));
    }

    /// Returns how many descriptors of this process refer to a file.
    fn openers(path: &Path) -> usize {
        let path = path.canonicalize().unwrap();
        let open = fs::read_dir("/proc/self/fd").unwrap().filter_map(|item| fs::read_link(item.ok()?.path()).ok());
        open.filter(|target| *target == path).count()
    }
}
