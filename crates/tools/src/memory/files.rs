//! Finds the memory files of a workspace.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fs::Metadata,
    os::{
        fd::OwnedFd,
        unix::{ffi::OsStrExt, fs::MetadataExt},
    },
    path::{Component, Path},
};

use homard_memory::MemorySource;
use rustix::fs::{Dir, FileType};
use tokio_util::sync::CancellationToken;

use crate::{Error, error::StoppedError, ls::kind, path_guard::PathGuard, path_guard::lookup_without_links};

/// Memory files at the top of a workspace.
const FILES: [&str; 2] = ["MEMORY.md", "memory.md"];

/// Directory of notes.
const FOLDER: &str = "memory";

/// Maximum number of files.
const MAX_FILES: usize = 5000;

/// Maximum depth of directories.
const MAX_DEPTH: usize = 16;

/// Maximum size of an indexed file in bytes.
pub(super) const MAX_FILE_BYTES: u64 = 2 * 1024 * 1024;

/// Memory files of a workspace.
#[derive(Debug, Default)]
pub(super) struct MemoryFiles {
    /// Files to index.
    pub(super) sources: Vec<MemorySource>,
    /// Files that are too large or exceed the maximum number.
    pub(super) skipped: Vec<String>,
    /// Device and inode of each file, because one file may have two names.
    seen: BTreeSet<(u64, u64)>,
}

impl MemoryFiles {
    /// Lists the memory files.
    pub(super) fn of(guard: &PathGuard, cancel: &CancellationToken) -> Result<Self, Error> {
        let mut files = Self::default();
        for name in FILES {
            files.add(guard, name.to_owned());
        }
        let mut folders = Vec::new();
        if let Ok(folder) = guard.directory(FOLDER) {
            folders.push((folder, FOLDER.to_owned(), 0));
        }
        let mut notes = Vec::new();
        while let Some((folder, path, depth)) = folders.pop() {
            for (name, kind) in entries(&folder) {
                if cancel.is_cancelled() {
                    return Err(Error::Stopped(StoppedError::Interrupted));
                }
                let below = format!("{path}/{name}");
                if kind == FileType::Directory && depth < MAX_DEPTH {
                    folders.extend(
                        lookup_without_links(&folder, Path::new(&name)).ok().map(|opened| (opened, below, depth + 1)),
                    );
                } else if is_note(Path::new(&name)) && notes.len() < MAX_FILES {
                    notes.push(below);
                } else if is_note(Path::new(&name)) {
                    files.skipped.push(below);
                }
            }
        }
        notes.sort();
        for note in notes {
            files.add(guard, note);
        }
        Ok(files)
    }

    /// Adds a file; ignores what cannot be opened or is not a regular file.
    fn add(&mut self, guard: &PathGuard, path: String) {
        let Some(metadata) = guard.file(&path).ok().and_then(|file| file.metadata().ok()) else { return };
        if !self.seen.insert((metadata.dev(), metadata.ino())) {
            return;
        }
        if metadata.len() > MAX_FILE_BYTES {
            self.skipped.push(path);
        } else {
            self.sources.push(MemorySource { version: fingerprint(&metadata), path });
        }
    }
}

/// True if a normalized path is a memory file.
pub(super) fn is_memory(path: &Path) -> bool {
    let is_below = path.components().next() == Some(Component::Normal(OsStr::new(FOLDER)));
    FILES.iter().any(|name| path == Path::new(name)) || (is_below && is_note(path))
}

fn is_note(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending.as_bytes().eq_ignore_ascii_case(b"md"))
}

/// Returns the UTF-8 names in a directory, without hidden ones, which belong to tools rather than to the agent.
fn entries(folder: &OwnedFd) -> Vec<(String, FileType)> {
    let entries = Dir::read_from(folder).into_iter().flatten().filter_map(|entry| {
        let entry = entry.ok()?;
        let name = entry.file_name().to_str().ok().filter(|name| !name.starts_with('.'))?.to_owned();
        Some((name, kind(folder, &entry)))
    });
    entries.collect()
}

/// Returns a fingerprint that changes whenever the file does. The modification time alone can be set back.
fn fingerprint(file: &Metadata) -> String {
    let times = format!("{}.{} {}.{}", file.mtime(), file.mtime_nsec(), file.ctime(), file.ctime_nsec());
    format!("{times} {} {}:{}", file.len(), file.dev(), file.ino())
}
