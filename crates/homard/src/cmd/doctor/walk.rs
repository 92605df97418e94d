//! All that lies in the state directory, seen once for all checks.

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// How deep and how far is looked: a state directory has no more that matters.
const DEEPEST: usize = 6;
const MOST: usize = 200_000;

/// What belongs to agents and to others, and is not looked at.
const NOT_OURS: [&str; 4] = ["workspace", "extensions", "skills", "hooks"];

/// A file or a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) path: PathBuf,
    pub(super) mode: u32,
    pub(super) owner: u32,
    pub(super) is_folder: bool,
    /// When it was changed, in milliseconds since the epoch.
    pub(super) changed_ms: u64,
}

impl Seen {
    /// Looks at a file or a folder; `None` if it is a link or not there.
    pub(super) fn look(path: &Path) -> io::Result<Option<Self>> {
        let found = match fs::symlink_metadata(path) {
            Ok(found) if !found.is_symlink() => found,
            Ok(_) => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let changed_ms = found.mtime().saturating_mul(1000).saturating_add(found.mtime_nsec() / 1_000_000);
        Ok(Some(Self {
            path: path.to_owned(),
            mode: found.mode() & 0o7777,
            owner: found.uid(),
            is_folder: found.is_dir(),
            changed_ms: u64::try_from(changed_ms).unwrap_or_default(),
        }))
    }

    /// Its name.
    pub(super) fn name(&self) -> &str {
        self.path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
    }
}

/// What lies in the state directory, itself first, and the folders that could not be looked into, with the reason.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Listing {
    pub(super) seen: Vec<Seen>,
    pub(super) closed: Vec<(PathBuf, String)>,
}

impl Listing {
    /// Looks at everything.
    pub(super) fn of(state: &Path) -> Self {
        let mut listing = Self::default();
        listing.add(state, 0);
        listing
    }

    fn add(&mut self, path: &Path, depth: usize) {
        let seen = match Seen::look(path) {
            Ok(Some(seen)) => seen,
            Ok(None) => return,
            Err(error) => return self.closed.push((path.to_owned(), error.to_string())),
        };
        let goes_on = seen.is_folder && depth < DEEPEST && self.seen.len() < MOST;
        let is_foreign = depth == 1 && NOT_OURS.iter().any(|name| seen.name().starts_with(name));
        self.seen.push(seen);
        if !goes_on {
            return;
        }
        let mut inside: Vec<PathBuf> = match fs::read_dir(path) {
            Ok(listing) => listing.filter_map(|item| Some(item.ok()?.path())).collect(),
            Err(error) => return self.closed.push((path.to_owned(), error.to_string())),
        };
        inside.sort();
        // Of others' folders only what an install left behind is ours.
        let is_ours = |path: &&PathBuf| !is_foreign || super::leftovers::is_install(path);
        for path in inside.iter().filter(is_ours) {
            self.add(path, if is_foreign { DEEPEST } else { depth + 1 });
        }
    }
}
