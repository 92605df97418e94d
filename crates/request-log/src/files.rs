//! Files that are named by the digest of their content, up to a total size.

use std::{
    collections::HashMap,
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, ErrorKind, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use crate::PromptId;

/// Size of a block on disk: a file takes at least one.
const BLOCK: u64 = 4096;

/// Name of a file that is being written.
const UNFINISHED: &str = "unfinished";

/// The files of a log.
pub(crate) struct PromptFiles {
    folder: PathBuf,
    max_bytes: u64,
    now_ms: Box<dyn Fn() -> u64 + Send + Sync>,
    /// Files with their size on disk and the time at which they were last used. `None` until the folder was read.
    known: Option<KnownFiles>,
}

type KnownFiles = HashMap<PromptId, (u64, SystemTime)>;

impl PromptFiles {
    pub(crate) fn new(folder: PathBuf, max_bytes: u64, now_ms: Box<dyn Fn() -> u64 + Send + Sync>) -> Self {
        Self { folder, max_bytes, now_ms, known: None }
    }

    /// Writes what is not there yet, and marks the rest as used. Returns what was removed to stay within the size.
    pub(crate) fn put(&mut self, blobs: &[(PromptId, Vec<u8>)]) -> io::Result<Vec<PromptId>> {
        let mut known = match self.known.take() {
            Some(known) => known,
            None => self.scan()?,
        };
        let now = SystemTime::UNIX_EPOCH + Duration::from_millis((self.now_ms)());
        let stored = blobs.iter().try_for_each(|(id, content)| {
            match known.get(id) {
                Some(_) if self.get(*id)?.is_some() => File::open(self.path(*id))?.set_modified(now)?,
                Some(_) | None => self.write(*id, content, now)?,
            }
            known.insert(*id, (on_disk(content.len() as u64), now));
            Ok(())
        });
        let removed = stored.and_then(|()| self.remove_excess(&mut known, blobs));
        self.known = Some(known);
        removed
    }

    /// Returns the content of a file; `None` if it is missing or damaged.
    pub(crate) fn get(&self, id: PromptId) -> io::Result<Option<Vec<u8>>> {
        match fs::read(self.path(id)) {
            Ok(content) => Ok((PromptId::of(&content) == id).then_some(content)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn path(&self, id: PromptId) -> PathBuf {
        self.folder.join(id.to_string())
    }

    /// Reads the names, sizes and times of all files.
    fn scan(&self) -> io::Result<KnownFiles> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        let mut known = HashMap::new();
        for file in fs::read_dir(&self.folder)? {
            let file = file?;
            let Some(id) = file.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            let metadata = file.metadata()?;
            known.insert(id, (on_disk(metadata.len()), metadata.modified()?));
        }
        Ok(known)
    }

    /// Writes a file under another name first, so that no reader sees a part of it.
    fn write(&self, id: PromptId, content: &[u8], now: SystemTime) -> io::Result<()> {
        let unfinished = self.folder.join(UNFINISHED);
        let mut file = open_private(&unfinished)?;
        file.write_all(content)?;
        file.set_modified(now)?;
        fs::rename(unfinished, self.path(id))
    }

    /// Removes the files that were not used for the longest time, if all are too large together. The new ones stay.
    fn remove_excess(&self, known: &mut KnownFiles, new: &[(PromptId, Vec<u8>)]) -> io::Result<Vec<PromptId>> {
        let mut total: u64 = known.values().map(|(size, _)| size).sum();
        let mut removed = Vec::new();
        if total <= self.max_bytes {
            return Ok(removed);
        }
        let is_old = |id: &PromptId| new.iter().all(|(new, _)| new != id);
        let old = known.iter().filter(|(id, _)| is_old(id));
        let mut oldest: Vec<_> = old.map(|(id, (size, used))| (*used, *id, *size)).collect();
        oldest.sort_unstable();
        // A tenth is left free, so that not every new prompt removes another one.
        for (_, id, size) in oldest {
            if total <= self.max_bytes / 10 * 9 {
                break;
            }
            match fs::remove_file(self.path(id)) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => {}
            }
            known.remove(&id);
            removed.push(id);
            total -= size;
        }
        Ok(removed)
    }
}

fn on_disk(bytes: u64) -> u64 {
    bytes.div_ceil(BLOCK).max(1) * BLOCK
}

fn open_private(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)
}
