//! Disk space reserved for active runs: a preallocated file without content that is deleted when the disk is full.

use std::{
    fs, io,
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
};

use rustix::{
    fs::{FallocateFlags, fallocate},
    io::Errno,
};
use tracing::{info, warn};

use crate::{disk, volume};

/// Size of the reserve in bytes.
pub(crate) const SIZE: u64 = 16 * 1024 * 1024;

/// Reserve of a state directory.
#[derive(Debug)]
pub(crate) struct Reserve {
    path: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Does not exist, as far as this process knows.
    Missing,
    /// Exists.
    Kept,
    /// The file system does not support preallocation.
    Impossible,
}

impl Reserve {
    /// Creates a handle; the file itself is created in the background.
    pub(crate) fn at(path: PathBuf) -> Self {
        Self { path, state: Mutex::new(State::Missing) }
    }

    /// Creates the file if it is missing and enough space is free.
    pub(crate) fn keep(&self, room: &volume::Room) {
        let mut state = self.state();
        if *state != State::Missing || !room.has_to_spare(SIZE) {
            return;
        }
        *state = match self.make() {
            Ok(()) => State::Kept,
            Err(Errno::NOSPC) => {
                self.remove();
                State::Missing
            }
            Err(reason) => {
                info!(path = %self.path.display(), %reason, "no room can be kept for a full disk");
                self.remove();
                State::Impossible
            }
        };
    }

    /// Deletes the file to free its space; returns true if it existed.
    pub(crate) fn release(&self) -> bool {
        let mut state = self.state();
        // The file may have been created by an earlier process.
        let is_released = self.remove();
        if is_released {
            warn!(path = %self.path.display(), "the disk is full; the room that was kept for runs at work is used now");
            *state = State::Missing;
        }
        is_released
    }

    fn make(&self) -> Result<(), Errno> {
        let wrong = |error: io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
        let file = disk::private().write(true).create(true).truncate(false).open(&self.path).map_err(wrong)?;
        fallocate(&file, FallocateFlags::empty(), 0, SIZE)
    }

    fn remove(&self) -> bool {
        fs::remove_file(&self.path).is_ok()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn the_reserve_takes_real_room_and_comes_back_when_there_is_some() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("reserve.bin");
        let reserve = Reserve::at(path.clone());
        assert!(!reserve.release());
        let room = |free: u64| volume::Room::measured(move || Ok(volume::Space { free, size: u64::MAX }));
        let (scarce, ample) = (room(SIZE), room(u64::MAX));
        reserve.keep(&scarce);
        assert!(!path.exists());
        reserve.keep(&ample);
        let made = fs::metadata(&path).unwrap();
        assert!(made.len() == SIZE && made.blocks() * 512 >= SIZE);
        assert!(reserve.release() && !path.exists());
        reserve.keep(&ample);
        assert!(Reserve::at(path).release(), "of a process before");
    }
}
