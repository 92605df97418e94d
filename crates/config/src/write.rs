//! Replaces the config file atomically, and keeps old versions.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, ErrorKind},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use homard_stdx::file::{stage, sync_folder};
use sha2::{Digest, Sha256};

use crate::file;

/// Number of old versions that are kept: `.bak`, then `.bak.1` and so on.
const BACKUPS: usize = 5;

/// Maximum number of symlinks that are followed.
const MAX_SYMLINKS: usize = 40;

/// Result of a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteOutcome {
    /// SHA-256 of the file in hex: the base hash for the next writer.
    pub hash: String,
    /// Path of the previous version; `None` if there was no file, or nothing to write.
    pub backup: Option<PathBuf>,
}

/// Why nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The file was changed concurrently.
    #[error("the config changed since it was read; read it again and retry")]
    Conflict,
    /// The new text is not a valid config.
    #[error("the new config is not valid: {0}")]
    Refused(String),
    /// An I/O error.
    #[error("cannot {doing} {}; the config was not changed", path.display())]
    Disk {
        /// Operation that failed.
        doing: &'static str,
        /// Path of the operation.
        path: PathBuf,
        /// Error of the operating system.
        #[source]
        source: io::Error,
    },
}

/// Returns the SHA-256 of a text in hex.
pub fn hash(text: &[u8]) -> String {
    hex::encode(Sha256::digest(text))
}

/// Writes the config file if its hash is still `base_hash` and `validate` accepts the new text.
///
/// A missing file has the hash of an empty one. Symlinks are followed; the backups and the lock (`<file>.lock`, which
/// stays) are next to the target. An unchanged text is not written.
pub fn write(
    path: &Path,
    base_hash: Option<&str>,
    new_text: &str,
    validate: impl FnOnce(&str) -> Result<(), String>,
) -> Result<WriteOutcome, WriteError> {
    let file = target(path)?;
    // Also checked before the lock, so that a refusal leaves no trace, not even a lock file.
    if let Some(unchanged) = unchanged(read(&file)?.as_deref(), base_hash, new_text)? {
        return Ok(unchanged);
    }
    validate(new_text).map_err(WriteError::Refused)?;
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    DirBuilder::new().recursive(true).mode(0o700).create(folder).or_else(failed("create the directory", folder))?;
    let lock = lock(&beside(&file, ".lock"))?;
    let current = read(&file)?;
    if let Some(unchanged) = unchanged(current.as_deref(), base_hash, new_text)? {
        return Ok(unchanged);
    }
    let backup = swap(&file, folder, current.as_deref(), new_text)?;
    drop(lock);
    Ok(WriteOutcome { hash: hash(new_text.as_bytes()), backup })
}

/// Resolves the symlinks of a path; the target need not exist.
fn target(path: &Path) -> Result<PathBuf, WriteError> {
    let mut file = path.to_owned();
    for _ in 0..MAX_SYMLINKS {
        match fs::read_link(&file) {
            Ok(next) => file = file.parent().unwrap_or(Path::new("")).join(next),
            // Not a symlink, or the file does not exist.
            Err(error) if matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::NotFound) => return Ok(file),
            Err(error) => return failed("resolve the symlink", path)(error),
        }
    }
    failed("resolve the symlink", path)(io::Error::other("too many levels of symlinks"))
}

fn read(file: &Path) -> Result<Option<Vec<u8>>, WriteError> {
    file::read(file).or_else(|why| failed("read", file)(io::Error::other(format!("the file {why}"))))
}

fn unchanged(
    current: Option<&[u8]>,
    base_hash: Option<&str>,
    new_text: &str,
) -> Result<Option<WriteOutcome>, WriteError> {
    let current = current.unwrap_or_default();
    let hash = hash(current);
    if base_hash.is_some_and(|base| !base.eq_ignore_ascii_case(&hash)) {
        return Err(WriteError::Conflict);
    }
    Ok((current == new_text.as_bytes()).then_some(WriteOutcome { hash, backup: None }))
}

/// Waits for other writers; the system releases the lock when the file is closed, also by a crash.
fn lock(path: &Path) -> Result<File, WriteError> {
    let open = || OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path);
    let file = open().or_else(failed("open the lock file", path))?;
    file.lock().or_else(failed("lock", path))?;
    Ok(file)
}

/// Puts the new text in place. Everything that needs disk space is done first, so that only renames follow.
fn swap(file: &Path, folder: &Path, current: Option<&[u8]>, new_text: &str) -> Result<Option<PathBuf>, WriteError> {
    let mode = match fs::metadata(file) {
        Ok(metadata) => metadata.permissions().mode() & 0o600,
        Err(_) => 0o600,
    };
    let prepare = |path: &Path, content: &[u8]| {
        let staged = stage(path, content)?;
        fs::set_permissions(staged.path(), fs::Permissions::from_mode(mode)).map(|()| staged)
    };
    let failed_staging = || failed("write a temporary file next to", file);
    let next = prepare(file, new_text.as_bytes()).or_else(failed_staging())?;
    let backup = match current {
        Some(current) => {
            let backup = backup_path(file, 0);
            let copy = prepare(&backup, current).or_else(failed_staging())?;
            rotate(file)?;
            copy.rename().or_else(failed("write the backup", &backup))?;
            Some(backup)
        }
        None => None,
    };
    next.rename().or_else(failed("replace", file))?;
    // The new text is in place; only whether its name survives a power cut is open.
    if let Err(error) = sync_folder(folder) {
        tracing::warn!(%error, folder = %folder.display(), "failed to sync the config directory");
    }
    Ok(backup)
}

/// Returns the path of a backup; the newest has the age 0.
fn backup_path(file: &Path, age: usize) -> PathBuf {
    if age == 0 { beside(file, ".bak") } else { beside(file, &format!(".bak.{age}")) }
}

/// Rotates the backups, so that the path of the newest is free.
fn rotate(file: &Path) -> Result<(), WriteError> {
    for age in (1..BACKUPS).rev() {
        let (from, to) = (backup_path(file, age - 1), backup_path(file, age));
        match fs::rename(&from, &to) {
            Err(error) if error.kind() != ErrorKind::NotFound => return failed("rename the backup", &from)(error),
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}

fn beside(file: &Path, end: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(end);
    name.into()
}

fn failed<T>(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Result<T, WriteError> {
    let path = path.to_owned();
    move |source| Err(WriteError::Disk { doing, path, source })
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, os::unix::fs::symlink, process::Command, thread};

    use super::*;

    const EMPTY_HASH: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    fn plain(path: &Path, text: &str) -> Result<WriteOutcome, String> {
        write(path, None, text, |_| Ok(())).map_err(|error| error.to_string())
    }

    /// Returns every file of a folder except the lock, with its text.
    fn files(folder: &Path) -> BTreeMap<String, String> {
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let named = entries.map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), path));
        let files = named.filter(|(name, path)| !name.ends_with(".lock") && path.is_file());
        files.map(|(name, path)| (name, fs::read_to_string(path).unwrap())).collect()
    }

    fn table(files: &[(&str, &str)]) -> BTreeMap<String, String> {
        files.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn the_last_five_versions_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("new/a.json");
        assert_eq!(plain(&file, "0"), Ok(WriteOutcome { hash: hash(b"0"), backup: None }));
        let backup = Some(folder.path().join("new/a.json.bak"));
        for text in ["1", "2", "3", "4", "5", "6"] {
            assert_eq!(plain(&file, text), Ok(WriteOutcome { hash: hash(text.as_bytes()), backup: backup.clone() }));
        }
        let expected = [
            ("a.json", "6"),
            ("a.json.bak", "5"),
            ("a.json.bak.1", "4"),
            ("a.json.bak.2", "3"),
            ("a.json.bak.3", "2"),
            ("a.json.bak.4", "1"),
        ];
        assert_eq!(files(&folder.path().join("new")), table(&expected));
        assert_eq!((mode(&file), mode(&folder.path().join("new"))), (0o600, 0o700));
    }

    #[test]
    fn an_unchanged_text_is_not_written() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.json");
        fs::write(&file, "{}").unwrap();
        let refuse = |_: &str| Err("never asked".to_owned());
        let written = write(&file, Some(&hash(b"{}")), "{}", refuse).unwrap();
        assert_eq!(written, WriteOutcome { hash: hash(b"{}"), backup: None });
        let written = write(&folder.path().join("none/b.json"), Some(EMPTY_HASH), "", refuse).unwrap();
        assert_eq!(written, WriteOutcome { hash: EMPTY_HASH.to_owned(), backup: None });
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_rejected_write_leaves_no_trace() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.json");
        fs::write(&file, "{}").unwrap();
        let refused = write(&file, None, "{a: 1}", |text| Err(format!("{text} has a")));
        assert_eq!(refused.unwrap_err().to_string(), "the new config is not valid: {a: 1} has a");
        let conflict = write(&file, Some(EMPTY_HASH), "{a: 1}", |_| Ok(()));
        let message = "the config changed since it was read; read it again and retry";
        assert_eq!(conflict.unwrap_err().to_string(), message);
        let missing = write(&folder.path().join("b.json"), Some(&hash(b"{}")), "{a: 1}", |_| Ok(()));
        assert_eq!(missing.unwrap_err().to_string(), message);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        assert_eq!(files(folder.path()), table(&[("a.json", "{}")]));
    }

    #[test]
    fn permissions_are_never_widened() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.json");
        for (before, after) in [(0o644, 0o600), (0o400, 0o400), (0o640, 0o600)] {
            fs::write(&file, "{}").unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(before)).unwrap();
            plain(&file, "{a: 1}").unwrap();
            assert_eq!((mode(&file), mode(&folder.path().join("a.json.bak"))), (after, after));
            fs::remove_file(&file).unwrap();
        }
    }

    #[test]
    fn a_symlink_stays_and_its_target_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let (links, real) = (folder.path().join("links"), folder.path().join("real"));
        fs::create_dir(&links).unwrap();
        fs::create_dir(&real).unwrap();
        fs::write(real.join("a.json"), "0").unwrap();
        symlink("../real/a.json", links.join("one")).unwrap();
        symlink("one", links.join("two")).unwrap();
        plain(&links.join("two"), "1").unwrap();
        assert_eq!(files(&real), table(&[("a.json", "1"), ("a.json.bak", "0")]));
        assert_eq!(fs::read_link(links.join("two")).unwrap(), Path::new("one"));
        symlink("../real/new.json", links.join("three")).unwrap();
        plain(&links.join("three"), "n").unwrap();
        assert_eq!(fs::read_to_string(real.join("new.json")).unwrap(), "n");
        symlink("loop", links.join("loop")).unwrap();
        let name = links.join("loop");
        let message = format!("cannot resolve the symlink {}; the config was not changed", name.display());
        assert_eq!(plain(&name, "1"), Err(message));
    }

    #[test]
    fn a_failure_leaves_the_old_file_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.json");
        for (name, text) in [("a.json", "0"), ("a.json.bak", "b"), ("a.json.bak.3", "3")] {
            fs::write(folder.path().join(name), text).unwrap();
        }
        let before = files(folder.path());
        // A file cannot replace a folder, not even as root.
        fs::create_dir(folder.path().join("a.json.bak.4")).unwrap();
        let message = format!("cannot rename the backup {}.bak.3; the config was not changed", file.display());
        assert_eq!(plain(&file, "1"), Err(message));
        assert_eq!(files(folder.path()), before);
        let message = format!("cannot read {}; the config was not changed", folder.path().display());
        assert_eq!(plain(folder.path(), "1"), Err(message));
        let below = file.join("below");
        let message = format!("cannot resolve the symlink {}; the config was not changed", below.display());
        assert_eq!(plain(&below, "1"), Err(message));
        // No file can be created there, not even by root.
        let message = "cannot open the lock file /proc/a.json.lock; the config was not changed";
        assert_eq!(plain(Path::new("/proc/a.json"), "1"), Err(message.to_owned()));
    }

    // Runs itself again with a file size limit, like on a full disk; the signal for that is ignored.
    #[test]
    fn a_full_disk_leaves_the_old_file_and_nothing_else() {
        let limits = fs::read_to_string("/proc/self/limits").unwrap();
        let limit = limits.lines().find(|line| line.starts_with("Max file size")).unwrap();
        if limit.split_whitespace().nth(3) != Some("0") {
            let name = "write::tests::a_full_disk_leaves_the_old_file_and_nothing_else";
            let script = "trap '' XFSZ; ulimit -f 0; exec \"$0\" --exact \"$1\"";
            let program = std::env::current_exe().unwrap();
            let output = Command::new("sh").args(["-c", script]).arg(program).arg(name).output().unwrap();
            let stdout = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && stdout.contains("1 passed"), "{stdout}");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.json");
        File::create(&file).unwrap();
        let message = format!("cannot write a temporary file next to {}; the config was not changed", file.display());
        assert_eq!(plain(&file, "1"), Err(message));
        assert_eq!(files(folder.path()), table(&[("a.json", "")]));
    }

    #[test]
    fn one_of_several_writers_with_the_same_base_wins() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.json");
        let won = thread::scope(|scope| {
            let writers: Vec<_> = (0..8)
                .map(|at| {
                    let file = &file;
                    scope.spawn(move || write(file, Some(EMPTY_HASH), &format!("{at}"), |_| Ok(())).is_ok())
                })
                .collect();
            writers.into_iter().map(|writer| writer.join().unwrap()).filter(|won| *won).count()
        });
        assert_eq!(won, 1);
        assert_eq!(files(folder.path()).len(), 1);
    }

    #[test]
    fn a_writer_waits_for_the_lock() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.json");
        let guard = lock(&beside(&file, ".lock")).unwrap();
        thread::scope(|scope| {
            let writer = scope.spawn(|| plain(&file, "late"));
            // Whenever it runs, it finds what was written under the lock.
            fs::write(&file, "early").unwrap();
            drop(guard);
            writer.join().unwrap().unwrap();
        });
        assert_eq!(files(folder.path()), table(&[("a.json", "late"), ("a.json.bak", "early")]));
    }
}
