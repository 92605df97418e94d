//! Loads images from disk, from anywhere or only from below a folder.
//!
//! The kernel enforces the confinement, with `openat2` on a directory handle: `..`, absolute symlinks and symlinks that
//! are swapped during the lookup cannot lead out. Symlinks that stay inside are followed.

use std::{
    fs::File,
    io::{self, Read},
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, openat, openat2},
    io::Errno,
};

use crate::{FitError, FittedImage, ImageLimits, fit};

/// Maximum size of a file in bytes.
const MAX_FILE_BYTES: u64 = 6 * 1024 * 1024;

/// Maximum number of lookups when a concurrent rename makes the kernel return `EAGAIN`.
const MAX_LOOKUPS: usize = 32;

/// How references to images are resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageRoot {
    /// Folder that relative paths start from.
    pub root: PathBuf,
    /// Folder that `~` stands for.
    pub home: Option<PathBuf>,
    /// True if only files below `root` may be read, as in a sandbox.
    pub beneath_only: bool,
}

/// Why an image was not loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The path is outside of the only folder that the run may read.
    #[error("image {path} is outside of {root}, the only directory that this run may read; copy it there")]
    Outside {
        /// The path as written in the message.
        path: String,
        /// The only folder that may be read.
        root: PathBuf,
    },
    /// The file does not exist.
    #[error("image {path} not found")]
    Missing {
        /// The path as written in the message.
        path: String,
    },
    /// The path starts with `~`, and no home folder is known.
    #[error("cannot resolve the home directory in {path}; use an absolute path")]
    NoHome {
        /// The path as written in the message.
        path: String,
    },
    /// A folder, a pipe, a socket or a device.
    #[error("image {path} is not a regular file")]
    Special {
        /// The path as written in the message.
        path: String,
    },
    /// The file is too large.
    #[error("image {path} is larger than {} MiB; make it smaller", MAX_FILE_BYTES / 1024 / 1024)]
    TooLarge {
        /// The path as written in the message.
        path: String,
    },
    /// The file cannot be opened or read.
    #[error("cannot read image {path}")]
    Io {
        /// The path as written in the message.
        path: String,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// The file was read, but cannot be sent to a model.
    #[error("cannot send image {path} to the model")]
    Unfit {
        /// The path as written in the message.
        path: String,
        /// The reason.
        #[source]
        source: FitError,
    },
}

/// Loads an image from a path returned by [`find()`](crate::find()), and fits it to the default [`ImageLimits`].
///
/// Only regular files are read; a pipe or device is refused without blocking.
pub fn load(reference: &str, image_root: &ImageRoot) -> Result<FittedImage, LoadError> {
    let path = || reference.to_owned();
    let explain = |errno| explain(reference, image_root, errno);
    let file = File::from(image_root.open(&image_root.expand(reference)?).map_err(explain)?);
    let stat = fstat(&file).map_err(explain)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(LoadError::Special { path: path() });
    }
    let mut bytes = Vec::new();
    // One byte more than allowed, to detect a file that is too large.
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(|source| LoadError::Io { path: path(), source })?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(LoadError::TooLarge { path: path() });
    }
    fit(bytes, &ImageLimits::default()).map_err(|source| LoadError::Unfit { path: path(), source })
}

impl ImageRoot {
    fn expand(&self, reference: &str) -> Result<PathBuf, LoadError> {
        let Some(rest) = reference.strip_prefix("~/") else { return Ok(PathBuf::from(reference)) };
        match &self.home {
            Some(home) => Ok(home.join(rest)),
            None => Err(LoadError::NoHome { path: reference.to_owned() }),
        }
    }

    fn open(&self, path: &Path) -> Result<OwnedFd, Errno> {
        // Without NONBLOCK, opening a FIFO would wait for its writer.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        if !self.beneath_only {
            return openat(CWD, self.root.join(path), flags, Mode::empty());
        }
        // Only normalizes the path; the kernel enforces the confinement.
        let inside = if path.is_absolute() { path.strip_prefix(&self.root).or(Err(Errno::XDEV))? } else { path };
        // The folder itself is trusted.
        let root = openat(CWD, &self.root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let lookup = || openat2(root.as_fd(), inside, flags, Mode::empty(), resolve);
        let is_transient = |found: &Result<OwnedFd, Errno>| matches!(found, Err(Errno::AGAIN | Errno::INTR));
        (1..MAX_LOOKUPS).map(|_| lookup()).find(|found| !is_transient(found)).unwrap_or_else(lookup)
    }
}

fn explain(reference: &str, image_root: &ImageRoot, errno: Errno) -> LoadError {
    let path = reference.to_owned();
    match errno {
        Errno::XDEV => LoadError::Outside { path, root: image_root.root.clone() },
        Errno::NOENT | Errno::NOTDIR => LoadError::Missing { path },
        // Returned on opening a socket, or a device without a driver.
        Errno::NXIO | Errno::NODEV => LoadError::Special { path },
        other => LoadError::Io { path, source: other.into() },
    }
}

#[cfg(test)]
mod tests;
