//! Disk space reserved for active runs: a preallocated file without content that is deleted when the disk is full.

use std::{fs, io, path::PathBuf};

use homard_stdx::sync::{Mutex, MutexGuard};
use rustix::{
    fs::{FallocateFlags, fallocate},
    io::Errno,
};
use tracing::{info, warn};

use crate::{disk, disk_space};

/// Size of the reserve in bytes.
pub(crate) const RESERVE_BYTES: u64 = 16 * 1024 * 1024;

/// Reserve of a state directory.
#[derive(Debug)]
pub(crate) struct Reserve {
    path: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// This process has not created the file yet, or has deleted it. One of an earlier process may exist.
    Missing,
    /// The file exists.
    Present,
    /// The file system does not support preallocation.
    Unsupported,
}

impl Reserve {
    /// Creates a handle; the file itself is created in the background.
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, state: Mutex::new(State::Missing) }
    }

    /// Creates the file if it is missing and enough space is free.
    pub(crate) fn ensure(&self, space: &disk_space::DiskSpace) {
        let mut state = self.state();
        if *state != State::Missing || !space.can_spare(RESERVE_BYTES) {
            return;
        }
        *state = match self.make() {
            Ok(()) => State::Present,
            Err(Errno::NOSPC) => {
                self.remove();
                State::Missing
            }
            Err(reason) => {
                info!(path = %self.path.display(), %reason, "cannot reserve disk space for active runs");
                self.remove();
                State::Unsupported
            }
        };
    }

    /// Deletes the file to free its space; returns true if it existed.
    pub(crate) fn release(&self) -> bool {
        let mut state = self.state();
        // The file may have been created by an earlier process.
        let is_released = self.remove();
        if is_released {
            warn!(path = %self.path.display(), "disk full; releasing the space reserved for active runs");
            *state = State::Missing;
        }
        is_released
    }

    fn make(&self) -> Result<(), Errno> {
        let errno = |error: io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
        let file = disk::private().write(true).create(true).truncate(false).open(&self.path).map_err(errno)?;
        fallocate(&file, FallocateFlags::empty(), 0, RESERVE_BYTES)
    }

    fn remove(&self) -> bool {
        fs::remove_file(&self.path).is_ok()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn the_reserve_allocates_real_space_and_is_recreated() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("reserve.bin");
        let reserve = Reserve::new(path.clone());
        assert!(!reserve.release());
        let space_with =
            |free: u64| disk_space::DiskSpace::measured(move || Ok(disk_space::Space { free, size: u64::MAX }));
        let (scarce, ample) = (space_with(RESERVE_BYTES), space_with(u64::MAX));
        reserve.ensure(&scarce);
        assert!(!path.exists());
        reserve.ensure(&ample);
        let metadata = fs::metadata(&path).unwrap();
        assert!(metadata.len() == RESERVE_BYTES && metadata.blocks() * 512 >= RESERVE_BYTES);
        assert!(reserve.release() && !path.exists());
        reserve.ensure(&ample);
        assert!(Reserve::new(path).release(), "of a process before");
    }
}
