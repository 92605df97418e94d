//! The file system of the state directory: whether it can be trusted, and its free space.

use std::{
    fmt, io,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
};

use homard_store::Error;
use tracing::{info, warn};

use crate::disk;

const MIB: u64 = 1024 * 1024;

/// Maximum space kept free for active runs.
const MAX_KEPT_FREE: u64 = 64 * MIB;

/// Divisor of the file system's size that gives the space kept free, if that is less than the maximum: 5 %.
const KEPT_FREE_DIVISOR: u64 = 20;

/// Refuses directories on network file systems, where neither locks nor syncs are reliable.
pub(crate) fn check(state: &Path) -> Result<(), Error> {
    match network_fs_name(kind(state).map_err(disk::failed("inspect the file system of", state))?) {
        None => Ok(()),
        Some(name) => Err(Error::Disk(format!(
            "state directory {} is on a network file system ({name}), where a crash can lose acknowledged messages; \
             choose a directory on a local disk with HOMARD_STATE_DIR",
            state.display()
        ))),
    }
}

#[cfg(target_os = "linux")]
fn kind(state: &Path) -> io::Result<u64> {
    // The numbers have 32 bits; some systems return them sign-extended.
    Ok(rustix::fs::statfs(state)?.f_type as u64 & 0xffff_ffff)
}

#[cfg(not(target_os = "linux"))]
fn kind(_: &Path) -> io::Result<u64> {
    Ok(0)
}

/// Returns the name of a network file system by its Linux magic number.
fn network_fs_name(kind: u64) -> Option<&'static str> {
    match kind {
        0x6969 => Some("NFS"),
        0x517b | 0xff53_4d42 | 0xfe53_4d42 => Some("SMB"),
        0x5346_414f | 0x6b41_4653 => Some("AFS"),
        0x7375_7245 => Some("Coda"),
        0x00c3_6400 => Some("Ceph"),
        _ => None,
    }
}

/// Space of a file system, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Space {
    /// Space available to this user.
    pub(crate) free: u64,
    /// Total size.
    pub(crate) size: u64,
}

impl Space {
    /// Measures the file system of a directory.
    pub(crate) fn of(state: &Path) -> io::Result<Self> {
        let stats = rustix::fs::statvfs(state)?;
        let bytes = |blocks: u64| blocks.saturating_mul(stats.f_frsize);
        Ok(Self { free: bytes(stats.f_bavail), size: bytes(stats.f_blocks) })
    }

    /// Returns the threshold below which no new message is accepted; the remaining space is for active runs.
    pub(crate) fn min_free(self) -> u64 {
        MAX_KEPT_FREE.min(self.size / KEPT_FREE_DIVISOR)
    }
}

/// Free space on the journal's disk. It is measured on every use, which is cheap on a local disk, so that the first
/// message after space was freed is accepted.
pub(crate) struct DiskSpace {
    measure: Box<dyn Fn() -> io::Result<Space> + Send + Sync>,
    /// True if space was low at the last check.
    was_low: AtomicBool,
}

impl DiskSpace {
    /// Measures the file system of a directory.
    pub(crate) fn of(state: &Path) -> Self {
        let state = state.to_owned();
        Self::measured(move || Space::of(&state))
    }

    /// Uses `measure` to determine the space.
    pub(crate) fn measured(measure: impl Fn() -> io::Result<Space> + Send + Sync + 'static) -> Self {
        Self { measure: Box::new(measure), was_low: AtomicBool::new(false) }
    }

    /// True if this many bytes can be used without falling below the threshold. False if the space cannot be measured.
    pub(crate) fn can_spare(&self, bytes: u64) -> bool {
        (self.measure)().is_ok_and(|space| space.free >= space.min_free().saturating_add(bytes))
    }

    /// True if the space is too low for new runs. False if it cannot be measured.
    pub(crate) fn is_low(&self) -> bool {
        let is_low = (self.measure)().is_ok_and(|space| space.free < space.min_free());
        match (self.was_low.swap(is_low, Ordering::Relaxed), is_low) {
            (false, true) => warn!("the disk is nearly full; new messages are rejected until space is available"),
            (true, false) => info!("disk space is available again; new messages are accepted"),
            (false, false) | (true, true) => {}
        }
        is_low
    }

    /// Returns the error for a message that is refused because space is low.
    pub(crate) fn full_error(&self, state: &Path) -> Error {
        let min_free = (self.measure)().map_or(MAX_KEPT_FREE, Space::min_free);
        let min_free = format!("{:.1}", min_free as f64 / MIB as f64);
        let (min_free, state) = (min_free.trim_end_matches(".0"), state.display());
        Error::Disk(format!(
            "disk_full: less than {min_free} MiB are free on the disk of {state}; free some space and retry"
        ))
    }
}

impl fmt::Debug for DiskSpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DiskSpace").field("was_low", &self.was_low).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, atomic::AtomicU64};

    use super::*;

    #[test]
    fn network_file_systems_are_refused_and_local_ones_are_not() {
        assert_eq!(network_fs_name(0x6969), Some("NFS"));
        assert_eq!(network_fs_name(0xff53_4d42), Some("SMB"));
        // Rootless containers also use FUSE for local disks.
        for local in [0x6573_5546, 0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0x794c_7630, 0] {
            assert_eq!(network_fs_name(local), None, "{local:x}");
        }
        assert_eq!(check(&std::env::temp_dir()), Ok(()));
    }

    #[test]
    fn the_minimum_free_space_depends_on_the_disk_size() {
        let min_free = |size: u64| Space { free: 0, size }.min_free();
        assert_eq!([min_free(0), min_free(100 * MIB), min_free(1_280 * MIB)], [0, 5 * MIB, 64 * MIB]);
        assert_eq!([min_free(1_281 * MIB), min_free(u64::MAX)], [64 * MIB; 2]);
    }

    #[test]
    fn free_space_is_measured_at_every_query() {
        let free = Arc::new(AtomicU64::new(5 * MIB - 1));
        let probe = Arc::clone(&free);
        let space = DiskSpace::measured(move || Ok(Space { free: probe.load(Ordering::Relaxed), size: 100 * MIB }));
        assert!(space.is_low());
        free.store(5 * MIB, Ordering::Relaxed);
        assert!(!space.is_low());
        free.store(5 * MIB - 1, Ordering::Relaxed);
        assert!(space.is_low());
        assert!(!DiskSpace::measured(|| Err(io::Error::other("no idea"))).is_low());
    }

    #[test]
    fn the_disk_full_error_names_the_required_space() {
        let error_for = |size: u64| {
            let space = DiskSpace::measured(move || Ok(Space { free: 0, size }));
            space.full_error(Path::new("/state")).to_string()
        };
        let expected = |min_free: &str| {
            format!("disk_full: less than {min_free} MiB are free on the disk of /state; free some space and retry")
        };
        assert!(error_for(u64::MAX).ends_with(&expected("64")), "{}", error_for(u64::MAX));
        assert!(error_for(100 * MIB).ends_with(&expected("5")), "{}", error_for(100 * MIB));
        assert!(error_for(128 * MIB).ends_with(&expected("6.4")), "{}", error_for(128 * MIB));
    }
}
