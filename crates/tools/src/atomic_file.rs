//! Creates, replaces or removes a file atomically.
//!
//! A file is never changed in place: new content is written to a temporary file beside it and renamed over it. A reader
//! sees the old or the new content, even after a crash; and if the file has a second name (a hard link), perhaps
//! outside the workspace, that name keeps the old content.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, Write as _},
    os::fd::OwnedFd,
};

use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags, fchmod, openat, renameat, statat, unlinkat},
    io::Errno,
};

use crate::{
    Error,
    error::{MachineError, PathError},
    path_guard::PathGuard,
};

/// Maximum number of leftover temporary files, from crashes, that are skipped.
const MAX_LEFTOVERS: u32 = 100;

/// Location of a file that may not exist yet.
#[derive(Debug)]
pub(crate) struct AtomicFile {
    path: String,
    directory: OwnedFd,
    name: OsString,
    mode: Option<Mode>,
}

impl AtomicFile {
    /// Locates `path` and creates missing directories.
    pub(crate) fn find(guard: &PathGuard, path: &str) -> Result<Self, Error> {
        let (directory, name) = guard.parent(path)?;
        let mode = mode(guard, path, &directory, name)?;
        Ok(Self { path: path.to_owned(), directory, name: name.to_owned(), mode })
    }

    /// Returns the mode of an existing file, if it may be replaced or removed. Changes nothing.
    pub(crate) fn check(guard: &PathGuard, path: &str) -> Result<Option<Mode>, Error> {
        match guard.existing_parent(path)? {
            Some((directory, name)) => mode(guard, path, &directory, name),
            None => Ok(None),
        }
    }

    /// Creates the file or replaces its content.
    pub(crate) fn replace(&self, content: &[u8]) -> Result<(), Error> {
        self.stage(content, self.mode)?.commit()
    }

    /// Writes the new content to a temporary file, ready to be renamed.
    pub(crate) fn stage(&self, content: &[u8], mode: Option<Mode>) -> Result<StagedFile<'_>, Error> {
        let failed = |source| Error::Machine(MachineError::Io { path: self.path.clone(), source });
        let (mut file, name) = self.create_temporary(mode).map_err(|errno| failed(errno.into()))?;
        let staged = StagedFile { target: self, name: Some(name) };
        let mut fill = || {
            file.write_all(content)?;
            if let Some(mode) = mode {
                fchmod(&file, mode)?;
            }
            file.sync_data()
        };
        fill().map_err(failed)?;
        Ok(staged)
    }

    /// Removes the file.
    pub(crate) fn remove(&self) -> Result<(), Error> {
        unlinkat(&self.directory, &self.name, AtFlags::empty())
            .map_err(|errno| Error::Machine(MachineError::Io { path: self.path.clone(), source: errno.into() }))
    }

    fn create_temporary(&self, mode: Option<Mode>) -> Result<(File, String), Errno> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // The replacement of a private file must never be readable by others, not even briefly. A new file follows the
        // umask.
        let mode = Mode::from_raw_mode(if mode.is_some() { 0o600 } else { 0o666 });
        let mut last = Errno::EXIST;
        for number in 0..MAX_LEFTOVERS {
            let name = format!(".homard-{}-{number}.tmp", std::process::id());
            match openat(&self.directory, &name, flags, mode) {
                Ok(file) => return Ok((File::from(file), name)),
                Err(errno) => last = errno,
            }
            if last != Errno::EXIST {
                break;
            }
        }
        Err(last)
    }
}

/// New content in a temporary file. Removed on drop unless it was put in place.
#[derive(Debug)]
pub(crate) struct StagedFile<'a> {
    target: &'a AtomicFile,
    name: Option<String>,
}

impl StagedFile<'_> {
    /// Renames it over the target.
    pub(crate) fn commit(mut self) -> Result<(), Error> {
        let AtomicFile { path, directory, name, .. } = self.target;
        if let Some(staged) = &self.name {
            renameat(directory, staged, directory, name).map_err(|errno| {
                Error::Machine(MachineError::Io { path: path.clone(), source: io::Error::from(errno) })
            })?;
        }
        self.name = None;
        Ok(())
    }
}

impl Drop for StagedFile<'_> {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            // Ignored, because another error has already been reported.
            unlinkat(&self.target.directory, name, AtFlags::empty()).ok();
        }
    }
}

fn mode(guard: &PathGuard, path: &str, directory: &OwnedFd, name: &OsStr) -> Result<Option<Mode>, Error> {
    match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => replaceable(path, stat.st_mode).map(Some),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(guard.map_errno(path, errno)),
    }
}

/// Returns the mode of a file, if it may be replaced.
fn replaceable(path: &str, raw_mode: u32) -> Result<Mode, Error> {
    let path = path.to_owned();
    let mode = Mode::from_raw_mode(raw_mode);
    match FileType::from_raw_mode(raw_mode) {
        // A rename would succeed despite the missing write permission.
        FileType::RegularFile if !mode.intersects(Mode::WUSR | Mode::WGRP | Mode::WOTH) => {
            Err(Error::Path(PathError::ReadOnly { path }))
        }
        FileType::RegularFile => Ok(mode & (Mode::RWXU | Mode::RWXG | Mode::RWXO)),
        FileType::Directory => Err(Error::Path(PathError::Directory { path })),
        FileType::Symlink => Err(Error::Path(PathError::Link { path })),
        FileType::Fifo | FileType::Socket | FileType::CharacterDevice | FileType::BlockDevice | FileType::Unknown => {
            Err(Error::Path(PathError::Special { path }))
        }
    }
}
