//! Walks a directory tree in a fixed order and skips ignored files.
//!
//! Each directory is listed completely, sorted by name, before its subdirectories. Symlinks are not followed, and each
//! directory is opened with symlinks disallowed, so that a concurrent swap cannot lead outside. Hidden files are
//! included; `.git`, files ignored by `.gitignore` and `.ignore`, and files hidden from tools are not.

mod ignore_rules;

use std::{
    ffi::{CStr, CString, OsStr},
    fs::File,
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::{Path, PathBuf},
    sync::Arc,
    vec,
};

use rustix::{
    fs::{Dir, FileType, Mode, OFlags, fstat, openat},
    io::Errno,
};
use tokio_util::sync::CancellationToken;

use crate::{
    Error, ls,
    path_guard::{PathGuard, lookup_without_links, real_path},
    sandbox::PathRules,
};
use ignore_rules::IgnoreRules;

/// An entry of the tree.
#[derive(Debug)]
pub(crate) struct WalkEntry {
    /// Path relative to the start of the walk.
    pub(crate) path: PathBuf,
    /// Type at the time when its directory was listed.
    pub(crate) kind: FileType,
    directory: Arc<OwnedFd>,
    name: CString,
}

impl WalkEntry {
    /// Opens it for reading, if it is still a regular file.
    pub(crate) fn open(&self) -> Result<File, Errno> {
        open_regular(&self.directory, &self.name)
    }
}

/// Opens a regular file; does not follow symlinks and cannot block.
fn open_regular(directory: &OwnedFd, name: &CStr) -> Result<File, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = openat(directory, name, flags, Mode::empty())?;
    match FileType::from_raw_mode(fstat(&file)?.st_mode) {
        FileType::RegularFile => Ok(File::from(file)),
        FileType::Directory
        | FileType::Symlink
        | FileType::Fifo
        | FileType::Socket
        | FileType::CharacterDevice
        | FileType::BlockDevice
        | FileType::Unknown => Err(Errno::INVAL),
    }
}

/// A walk. It ends early when the run is cancelled.
#[derive(Debug)]
pub(crate) struct TreeWalk {
    start: OwnedFd,
    cancel: CancellationToken,
    hidden: PathRules,
    /// Path of the start relative to the workspace, for ignore rules of directories above.
    inside: PathBuf,
    current: Option<WalkListing>,
    /// Directories still to be listed; the next one is last.
    pending: Vec<(PathBuf, IgnoreRules)>,
    /// Number of unreadable directories.
    pub(crate) unreadable: usize,
}

/// The directory whose entries are being returned.
#[derive(Debug)]
struct WalkListing {
    path: PathBuf,
    directory: Arc<OwnedFd>,
    entries: vec::IntoIter<(CString, FileType)>,
    below: Vec<(PathBuf, IgnoreRules)>,
    rules: IgnoreRules,
}

impl TreeWalk {
    /// Starts at a directory.
    pub(crate) fn new(guard: &PathGuard, path: &str, cancel: &CancellationToken) -> Result<Self, Error> {
        let start = guard.directory(path)?;
        let inside = guard.normalize(path)?;
        let mut rules = IgnoreRules::default();
        // Rules of the directories above, from the workspace down; those of the start itself are loaded with its
        // listing.
        let mut above: Vec<&Path> = inside.ancestors().skip(1).collect();
        while let Some(path) = above.pop() {
            if let Ok(directory) = guard.directory(path.to_str().unwrap_or(".")) {
                rules = rules.below(path, &directory);
            }
        }
        let pending = vec![(PathBuf::new(), rules)];
        let hidden = guard.rules().clone();
        Ok(Self { start, cancel: cancel.clone(), hidden, inside, current: None, pending, unreadable: 0 })
    }

    /// Lists the next directory, if there is one.
    fn list(&mut self) -> Option<Result<WalkListing, Errno>> {
        let (path, rules) = self.pending.pop()?;
        let directory = match lookup_without_links(&self.start, &path) {
            Ok(directory) => directory,
            Err(errno) => return Some(Err(errno)),
        };
        let real_directory = match (!self.hidden.is_empty()).then(|| real_path(&directory)).transpose() {
            Ok(real_directory) => real_directory,
            Err(errno) => return Some(Err(errno)),
        };
        let is_hidden = |name: &CStr| {
            let real_directory =
                real_directory.as_ref().map(|real_directory| real_directory.join(OsStr::from_bytes(name.to_bytes())));
            real_directory.is_some_and(|real_directory| self.hidden.hides(&real_directory))
        };
        let rules = rules.below(&self.inside.join(&path), &directory);
        let listed = Dir::read_from(&directory).and_then(|listed| {
            let mut entries = Vec::new();
            for entry in listed {
                let entry = entry?;
                let is_left_out = matches!(entry.file_name().to_bytes(), b"." | b".." | b".git");
                if !is_left_out && !is_hidden(entry.file_name()) {
                    entries.push((entry.file_name().to_owned(), ls::kind(&directory, &entry)));
                }
                if self.cancel.is_cancelled() {
                    break;
                }
            }
            entries.sort_unstable_by(|(first, _), (other, _)| first.cmp(other));
            Ok(entries)
        });
        Some(listed.map(|entries| WalkListing {
            path,
            directory: Arc::new(directory),
            entries: entries.into_iter(),
            below: Vec::new(),
            rules,
        }))
    }
}

impl Iterator for TreeWalk {
    type Item = WalkEntry;

    fn next(&mut self) -> Option<WalkEntry> {
        loop {
            if self.cancel.is_cancelled() {
                return None;
            }
            let Some(listing) = &mut self.current else {
                match self.list()? {
                    Ok(listing) => self.current = Some(listing),
                    // A directory that was removed or replaced by a symlink meanwhile is skipped silently.
                    Err(Errno::NOENT | Errno::LOOP | Errno::NOTDIR) => {}
                    Err(_) => self.unreadable += 1,
                }
                continue;
            };
            let Some((name, kind)) = listing.entries.next() else {
                let below = std::mem::take(&mut listing.below);
                self.current = None;
                self.pending.extend(below.into_iter().rev());
                continue;
            };
            let path = listing.path.join(OsStr::from_bytes(name.to_bytes()));
            if listing.rules.is_ignored(&self.inside, &path, kind == FileType::Directory) {
                continue;
            }
            if kind == FileType::Directory {
                listing.below.push((path.clone(), listing.rules.clone()));
            }
            return Some(WalkEntry { path, kind, directory: listing.directory.clone(), name });
        }
    }
}
