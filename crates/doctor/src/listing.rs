//! Lists the state directory once for all checks.

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// Maximum depth and number of entries; a state directory has nothing relevant beyond.
const MAX_DEPTH: usize = 6;
const MAX_ENTRIES: usize = 200_000;

/// Directories of agents and extensions, which are not examined.
const EXCLUDED: [&str; 4] = ["workspace", "extensions", "skills", "hooks"];

/// A file or directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileInfo {
    pub path: PathBuf,
    pub mode: u32,
    pub owner: u32,
    pub is_folder: bool,
    /// Modification time in milliseconds since the epoch.
    pub changed_ms: u64,
}

impl FileInfo {
    /// Examines a file or directory; `None` if it is a symlink or does not exist.
    pub fn read(path: &Path) -> io::Result<Option<Self>> {
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

    /// Returns the file name.
    pub fn name(&self) -> &str {
        self.path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
    }
}

/// The entries of the state directory, itself first, and the directories that could not be read, with the reason.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StateListing {
    pub entries: Vec<FileInfo>,
    pub unreadable: Vec<(PathBuf, String)>,
}

impl StateListing {
    /// Lists everything.
    pub fn of(state: &Path) -> Self {
        let mut listing = Self::default();
        listing.add(state, 0);
        listing
    }

    fn add(&mut self, path: &Path, depth: usize) {
        let file = match FileInfo::read(path) {
            Ok(Some(file)) => file,
            Ok(None) => return,
            Err(error) => return self.unreadable.push((path.to_owned(), error.to_string())),
        };
        let is_walked = file.is_folder && depth < MAX_DEPTH && self.entries.len() < MAX_ENTRIES;
        let is_excluded = depth == 1 && EXCLUDED.iter().any(|name| file.name().starts_with(name));
        self.entries.push(file);
        if !is_walked {
            return;
        }
        let mut children: Vec<PathBuf> = match fs::read_dir(path) {
            Ok(listing) => listing.filter_map(|item| Some(item.ok()?.path())).collect(),
            Err(error) => return self.unreadable.push((path.to_owned(), error.to_string())),
        };
        children.sort();
        // In directories that are not examined, only the remains of interrupted installations count.
        let is_ours = |path: &&PathBuf| !is_excluded || crate::leftovers::is_install(path);
        for path in children.iter().filter(is_ours) {
            self.add(path, if is_excluded { MAX_DEPTH } else { depth + 1 });
        }
    }
}
