//! A rotated log file: a new one per day and per size limit, with bounded count and age.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

/// A day in milliseconds.
const DAY: u64 = 24 * 60 * 60 * 1000;

/// Rotation limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RotationLimits {
    /// Maximum size of a file in bytes.
    pub(crate) bytes: u64,
    /// Maximum number of rotated files.
    pub(crate) files: usize,
    /// Maximum age of rotated files.
    pub(crate) age: Duration,
}

#[derive(Debug)]
pub(crate) struct LogFile {
    path: PathBuf,
    bounds: RotationLimits,
    now_ms: fn() -> u64,
    file: File,
    size: u64,
    day: u64,
}

/// Returns the path of the n-th rotated file.
pub fn rotated_path(path: &Path, times: usize) -> PathBuf {
    path.with_added_extension(times.to_string())
}

impl LogFile {
    pub(crate) fn open(path: &Path, bounds: RotationLimits, now_ms: fn() -> u64) -> io::Result<Self> {
        if let Some(folder) = path.parent() {
            let is_new = !folder.exists();
            fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
            if is_new {
                // The state directory may be among the created directories, and its opener would not know that it is
                // new and needs a sync.
                folder.ancestors().skip(1).take(2).filter_map(|parent| File::open(parent).ok()).for_each(|parent| {
                    parent.sync_all().ok();
                });
            }
        }
        let file = open_append(path)?;
        let found = file.metadata()?;
        let modified = found.modified()?.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let day = match found.len() {
            0 => now_ms() / DAY,
            _ => u64::try_from(modified.as_millis()).unwrap_or_default() / DAY,
        };
        let log = Self { path: path.to_owned(), bounds, now_ms, file, size: found.len(), day };
        log.prune();
        Ok(log)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Appends a line, in a new file if this one is full or from another day.
    pub(crate) fn add(&mut self, line: &str) -> io::Result<()> {
        let today = (self.now_ms)() / DAY;
        let is_full = self.size + line.len() as u64 + 1 > self.bounds.bytes;
        if self.size > 0 && (is_full || today != self.day) {
            self.rotate()?;
        }
        self.day = today;
        self.file.write_all(format!("{line}\n").as_bytes())?;
        self.size += line.len() as u64 + 1;
        Ok(())
    }

    fn rotate(&mut self) -> io::Result<()> {
        for times in (1..self.bounds.files).rev() {
            ignore_missing(fs::rename(rotated_path(&self.path, times), rotated_path(&self.path, times + 1)))?;
        }
        match self.bounds.files {
            0 => ignore_missing(fs::remove_file(&self.path))?,
            _ => ignore_missing(fs::rename(&self.path, rotated_path(&self.path, 1)))?,
        }
        (self.file, self.size) = (open_append(&self.path)?, 0);
        self.prune();
        Ok(())
    }

    /// Deletes rotated files that are too old or too many.
    fn prune(&self) {
        let now = Duration::from_millis((self.now_ms)());
        for times in 1..1000 {
            let path = rotated_path(&self.path, times);
            let Ok(found) = fs::metadata(&path) else { break };
            let modified = found.modified().ok().and_then(|at| at.duration_since(SystemTime::UNIX_EPOCH).ok());
            let is_old = modified.is_some_and(|modified| now.saturating_sub(modified) > self.bounds.age);
            if is_old || times > self.bounds.files {
                // Retried at the next rotation.
                fs::remove_file(&path).ok();
            }
        }
    }
}

/// Opens the file, readable by its owner only: a log shows whom the user talks to.
fn open_append(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

fn ignore_missing(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, os::unix::fs::PermissionsExt};

    use super::*;

    thread_local! {
        static NOW: Cell<u64> = const { Cell::new(0) };
    }

    fn now() -> u64 {
        NOW.get()
    }

    const BOUNDS: RotationLimits = RotationLimits { bytes: 20, files: 2, age: Duration::from_secs(10 * 24 * 60 * 60) };

    fn kept_texts(path: &Path) -> Vec<String> {
        let all = std::iter::once(path.to_owned()).chain((1..5).map(|times| rotated_path(path, times)));
        all.filter_map(|path| fs::read_to_string(path).ok()).collect()
    }

    #[test]
    fn a_full_file_is_rotated_and_old_files_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("logs/homard.log");
        NOW.set(1000 * DAY);
        let mut log = LogFile::open(&path, BOUNDS, now).unwrap();
        for n in 0..9 {
            log.add(&format!("line {n}..")).unwrap();
        }
        assert_eq!(kept_texts(&path), ["line 8..\n", "line 6..\nline 7..\n", "line 4..\nline 5..\n"]);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(path.parent().unwrap()), mode(&path), mode(&rotated_path(&path, 1))), (0o700, 0o600, 0o600));
    }

    #[test]
    fn a_new_day_and_an_oversized_line_start_a_new_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("homard.log");
        NOW.set(1000 * DAY);
        let mut log = LogFile::open(&path, BOUNDS, now).unwrap();
        log.add("one").unwrap();
        NOW.set(1001 * DAY);
        log.add("two").unwrap();
        log.add(&"x".repeat(40)).unwrap();
        assert_eq!(kept_texts(&path), [&format!("{}\n", "x".repeat(40)), "two\n", "one\n"]);
    }

    #[test]
    fn old_files_are_removed_at_the_next_start() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("homard.log");
        fs::write(rotated_path(&path, 1), "old\n").unwrap();
        let modified = fs::metadata(rotated_path(&path, 1)).unwrap().modified().unwrap();
        let modified_at = modified.duration_since(SystemTime::UNIX_EPOCH).unwrap();
        NOW.set(u64::try_from(modified_at.as_millis()).unwrap() + 11 * DAY);
        LogFile::open(&path, BOUNDS, now).unwrap().add("new").unwrap();
        assert_eq!(kept_texts(&path), ["new\n"]);
    }
}
