//! Which files of a workspace are memory.

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

use homard_memory::Source;
use rustix::fs::{Dir, FileType};
use tokio_util::sync::CancellationToken;

use crate::{Error, beneath::Beneath, beneath::lookup_without_links, ls::kind};

/// The files that are memory wherever an agent works.
const FILES: [&str; 2] = ["MEMORY.md", "memory.md"];

/// The folder whose notes are.
const FOLDER: &str = "memory";

/// How many files are looked at, so that a folder full of them ends.
const MOST: usize = 5000;

/// How deep folders are looked into.
const DEEP: usize = 16;

/// How large a file may be to be indexed, in bytes.
pub(super) const LARGEST: u64 = 2 * 1024 * 1024;

/// The files of a memory.
#[derive(Debug, Default)]
pub(super) struct Files {
    /// Those that can be searched.
    pub(super) sources: Vec<Source>,
    /// Those that are too large, or too many.
    pub(super) left_out: Vec<String>,
    /// Which files they are, because one file may have two names.
    seen: BTreeSet<(u64, u64)>,
}

impl Files {
    /// Looks which there are.
    pub(super) fn of(beneath: &Beneath, cancel: &CancellationToken) -> Result<Self, Error> {
        let mut files = Self::default();
        for name in FILES {
            files.add(beneath, name.to_owned());
        }
        let mut folders = Vec::new();
        if let Ok(folder) = beneath.directory(FOLDER) {
            folders.push((folder, FOLDER.to_owned(), 0));
        }
        let mut notes = Vec::new();
        while let Some((folder, path, depth)) = folders.pop() {
            for (name, kind) in entries(&folder) {
                if cancel.is_cancelled() {
                    return Err(Error::Interrupted);
                }
                let below = format!("{path}/{name}");
                if kind == FileType::Directory && depth < DEEP {
                    folders
                        .extend(lookup_without_links(&folder, Path::new(&name)).ok().map(|it| (it, below, depth + 1)));
                } else if is_note(Path::new(&name)) && notes.len() < MOST {
                    notes.push(below);
                } else if is_note(Path::new(&name)) {
                    files.left_out.push(below);
                }
            }
        }
        notes.sort();
        for note in notes {
            files.add(beneath, note);
        }
        Ok(files)
    }

    /// What cannot be opened, or is no file, is no memory.
    fn add(&mut self, beneath: &Beneath, path: String) {
        let Some(metadata) = beneath.file(&path).ok().and_then(|file| file.metadata().ok()) else { return };
        if !self.seen.insert((metadata.dev(), metadata.ino())) {
            return;
        }
        if metadata.len() > LARGEST {
            self.left_out.push(path);
        } else {
            self.sources.push(Source { mark: mark(&metadata), path });
        }
    }
}

/// Whether a path, without its detours, is one of a memory.
pub(super) fn is_memory(path: &Path) -> bool {
    let is_below = path.components().next() == Some(Component::Normal(OsStr::new(FOLDER)));
    FILES.iter().any(|name| path == Path::new(name)) || (is_below && is_note(path))
}

fn is_note(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending.as_bytes().eq_ignore_ascii_case(b"md"))
}

/// The names in a folder that are text, hidden ones left out: those are of tools, not of an agent.
fn entries(folder: &OwnedFd) -> Vec<(String, FileType)> {
    let entries = Dir::read_from(folder).into_iter().flatten().filter_map(|entry| {
        let entry = entry.ok()?;
        let name = entry.file_name().to_str().ok().filter(|name| !name.starts_with('.'))?.to_owned();
        Some((name, kind(folder, &entry)))
    });
    entries.collect()
}

/// What differs whenever the file does. The time of its last change alone can be set back.
fn mark(file: &Metadata) -> String {
    let times = format!("{}.{} {}.{}", file.mtime(), file.mtime_nsec(), file.ctime(), file.ctime_nsec());
    format!("{times} {} {}:{}", file.len(), file.dev(), file.ino())
}
