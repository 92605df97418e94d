//! A file that is about to be created, replaced or removed.
//!
//! A file is never changed in place: what is new is written beside it and renamed over it. A reader sees the old content
//! or the new, also after a crash; and where the file has a second name (a hard link), perhaps outside the workspace,
//! that name keeps the old content.

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

use crate::{Error, beneath::Beneath};

/// How many temporary files that a crash left behind are stepped over.
const TRIES: u32 = 100;

/// The place of a file, which may not be there yet.
#[derive(Debug)]
pub(crate) struct Target {
    path: String,
    directory: OwnedFd,
    name: OsString,
    mode: Option<Mode>,
}

impl Target {
    /// Finds the place of `path`, and makes the directories that lead there.
    pub(crate) fn find(beneath: &Beneath, path: &str) -> Result<Self, Error> {
        let (directory, name) = beneath.parent(path)?;
        let mode = mode(beneath, path, &directory, name)?;
        Ok(Self { path: path.to_owned(), directory, name: name.to_owned(), mode })
    }

    /// The mode of the file that is there, if there is one and it may be replaced or removed. Changes nothing.
    pub(crate) fn check(beneath: &Beneath, path: &str) -> Result<Option<Mode>, Error> {
        match beneath.parent_if_there(path)? {
            Some((directory, name)) => mode(beneath, path, &directory, name),
            None => Ok(None),
        }
    }

    /// Creates the file or replaces its content.
    pub(crate) fn replace(&self, content: &[u8]) -> Result<(), Error> {
        self.stage(content, self.mode)?.put()
    }

    /// Writes what the file will hold beside it, ready to take its place.
    pub(crate) fn stage(&self, content: &[u8], mode: Option<Mode>) -> Result<Staged<'_>, Error> {
        let failed = |source| Error::Io { path: self.path.clone(), source };
        let (mut file, name) = self.create_beside(mode).map_err(|errno| failed(errno.into()))?;
        let staged = Staged { target: self, name: Some(name) };
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
            .map_err(|errno| Error::Io { path: self.path.clone(), source: errno.into() })
    }

    fn create_beside(&self, mode: Option<Mode>) -> Result<(File, String), Errno> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // Nobody else may read what replaces a private file, not even for a moment. A new file is as the umask has it.
        let mode = Mode::from_raw_mode(if mode.is_some() { 0o600 } else { 0o666 });
        let mut last = Errno::EXIST;
        for number in 0..TRIES {
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

/// What a file will hold, written beside it. It is gone again unless it is put.
#[derive(Debug)]
pub(crate) struct Staged<'a> {
    target: &'a Target,
    name: Option<String>,
}

impl Staged<'_> {
    /// Puts it in the file's place.
    pub(crate) fn put(mut self) -> Result<(), Error> {
        let Target { path, directory, name, .. } = self.target;
        if let Some(staged) = &self.name {
            renameat(directory, staged, directory, name)
                .map_err(|errno| Error::Io { path: path.clone(), source: io::Error::from(errno) })?;
        }
        self.name = None;
        Ok(())
    }
}

impl Drop for Staged<'_> {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            // Another error is told already, and that one is why we are here.
            unlinkat(&self.target.directory, name, AtFlags::empty()).ok();
        }
    }
}

fn mode(beneath: &Beneath, path: &str, directory: &OwnedFd, name: &OsStr) -> Result<Option<Mode>, Error> {
    match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => replaceable(path, stat.st_mode).map(Some),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(beneath.explain(path, errno)),
    }
}

/// The mode of what is there, if it is a file that may be replaced.
fn replaceable(path: &str, raw: u32) -> Result<Mode, Error> {
    let path = path.to_owned();
    let mode = Mode::from_raw_mode(raw);
    match FileType::from_raw_mode(raw) {
        // The rename would not ask.
        FileType::RegularFile if !mode.intersects(Mode::WUSR | Mode::WGRP | Mode::WOTH) => {
            Err(Error::ReadOnly { path })
        }
        FileType::RegularFile => Ok(mode & (Mode::RWXU | Mode::RWXG | Mode::RWXO)),
        FileType::Directory => Err(Error::Directory { path }),
        FileType::Symlink => Err(Error::Link { path }),
        FileType::Fifo | FileType::Socket | FileType::CharacterDevice | FileType::BlockDevice | FileType::Unknown => {
            Err(Error::Special { path })
        }
    }
}
