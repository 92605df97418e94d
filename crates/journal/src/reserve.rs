//! Room that is kept for the runs at work: a file that holds nothing, and goes when the disk is full.

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

/// How large it is, in bytes.
pub(crate) const SIZE: u64 = 16 * 1024 * 1024;

/// The reserve of a state directory.
#[derive(Debug)]
pub(crate) struct Reserve {
    path: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Not there, as far as this process knows.
    Missing,
    /// There.
    Kept,
    /// The file system cannot set room aside.
    Impossible,
}

impl Reserve {
    /// A reserve that is not made yet; that is the background's work.
    pub(crate) fn at(path: PathBuf) -> Self {
        Self { path, state: Mutex::new(State::Missing) }
    }

    /// Makes it if it is missing and there is room to spare.
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

    /// Gives the room away; says whether there was any.
    pub(crate) fn release(&self) -> bool {
        let mut state = self.state();
        // Also one that a process before this one made.
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
