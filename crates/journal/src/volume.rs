//! The file system under the state directory: whether it can be trusted, and how much room it has.

use std::{fmt, io, path::Path, sync::Mutex, time::Duration};

use homard_store::Error;
use tokio::time::Instant;
use tracing::warn;

use crate::disk;

/// Below this, no new message is taken in: what is left is for the runs at work.
pub(crate) const RESERVE: u64 = 64 * 1024 * 1024;

/// How often the room is measured at most.
const MEASURE_EVERY: Duration = Duration::from_secs(1);

/// Refuses a directory that other machines can write to: neither locks nor syncs can be relied on there.
pub(crate) fn check(state: &Path) -> Result<(), Error> {
    match network(kind(state).map_err(disk::failed("look at the file system of", state))?) {
        None => Ok(()),
        Some(name) => Err(Error::Disk(format!(
            "state directory {} is on a network file system ({name}), where a crash can lose what was acknowledged; \
             choose a directory on a local disk with HOMARD_STATE_DIR",
            state.display()
        ))),
    }
}

#[cfg(target_os = "linux")]
fn kind(state: &Path) -> io::Result<u64> {
    // All the numbers have 32 bits; some systems hand them out with a sign.
    Ok(rustix::fs::statfs(state)?.f_type as u64 & 0xffff_ffff)
}

#[cfg(not(target_os = "linux"))]
fn kind(_: &Path) -> io::Result<u64> {
    Ok(0)
}

/// The name of a network file system, by the number that Linux gives it.
fn network(kind: u64) -> Option<&'static str> {
    match kind {
        0x6969 => Some("NFS"),
        0x517b | 0xff53_4d42 | 0xfe53_4d42 => Some("SMB"),
        0x5346_414f | 0x6b41_4653 => Some("AFS"),
        0x7375_7245 => Some("Coda"),
        0x00c3_6400 => Some("Ceph"),
        _ => None,
    }
}

/// How much room there is on the file system of a directory, in bytes.
pub(crate) fn free(state: &Path) -> io::Result<u64> {
    let volume = rustix::fs::statvfs(state)?;
    Ok(volume.f_bavail.saturating_mul(volume.f_frsize))
}

/// How much room there is, measured at most once a second.
pub(crate) struct Room {
    measure: Box<dyn Fn() -> io::Result<u64> + Send + Sync>,
    last: Mutex<Option<(Instant, bool)>>,
}

impl Room {
    /// The room on the file system of a directory.
    pub(crate) fn of(state: &Path) -> Self {
        let state = state.to_owned();
        Self::measured(move || free(&state))
    }

    /// The room that `measure` finds, in bytes.
    pub(crate) fn measured(measure: impl Fn() -> io::Result<u64> + Send + Sync + 'static) -> Self {
        Self { measure: Box::new(measure), last: Mutex::default() }
    }

    /// Whether so many bytes could be used and new work would still be taken in. Where nobody can tell, they cannot.
    pub(crate) fn has_to_spare(&self, bytes: u64) -> bool {
        (self.measure)().is_ok_and(|free| free >= RESERVE.saturating_add(bytes))
    }

    /// Whether there is too little for new work. Where nobody can tell, there is enough.
    pub(crate) fn is_low(&self) -> bool {
        let mut last = self.last.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let now = Instant::now();
        match *last {
            Some((at, low)) if now.duration_since(at) < MEASURE_EVERY => low,
            Some(_) | None => {
                let low = (self.measure)().is_ok_and(|free| free < RESERVE);
                if low && !last.is_some_and(|(_, low)| low) {
                    warn!("the disk is nearly full; new messages are refused until there is room");
                }
                *last = Some((now, low));
                low
            }
        }
    }
}

impl fmt::Debug for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Room").field("last", &self.last).finish_non_exhaustive()
    }
}

/// What the sender of a message is told when there is too little room for it.
pub(crate) fn full(state: &Path) -> Error {
    Error::Disk(format!(
        "disk_full: less than {} MiB are free on the disk of {}; free some space and send it again",
        RESERVE / (1024 * 1024),
        state.display()
    ))
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    };

    use super::*;

    #[test]
    fn network_file_systems_are_refused_and_local_ones_are_not() {
        assert_eq!(network(0x6969), Some("NFS"));
        assert_eq!(network(0xff53_4d42), Some("SMB"));
        // FUSE is also what containers without root have for a disk.
        for local in [0x6573_5546, 0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0x794c_7630, 0] {
            assert_eq!(network(local), None, "{local:x}");
        }
        assert_eq!(check(&std::env::temp_dir()), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn the_room_is_measured_once_a_second() {
        let free = Arc::new(AtomicU64::new(RESERVE - 1));
        let probe = Arc::clone(&free);
        let room = Room::measured(move || Ok(probe.load(Ordering::Relaxed)));
        assert!(room.is_low());
        free.store(RESERVE, Ordering::Relaxed);
        tokio::time::advance(MEASURE_EVERY - Duration::from_millis(1)).await;
        assert!(room.is_low());
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(!room.is_low());
        assert!(!Room::measured(|| Err(io::Error::other("no idea"))).is_low());
    }
}
