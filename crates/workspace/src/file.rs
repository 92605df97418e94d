//! Reads one workspace file: never outside the workspace, no more than necessary, and without blocking on pipes.

use std::{
    fs::{self, File, Metadata},
    io::{self, ErrorKind, Read, Seek, SeekFrom},
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::{Path, PathBuf},
};

use rustix::fs::{Mode, OFlags, open, openat};

use crate::text::{self, FileText};

/// Maximum size of a file that is read completely, so that its characters can be counted.
const MAX_COUNTED_BYTES: u64 = 1024 * 1024;

/// Maximum number of bytes of a character.
const MAX_CHAR_BYTES: u64 = 4;

/// Number of additional bytes read at the end of a large file, for trailing whitespace that is trimmed.
const TRAILING_BYTES: u64 = 1024;

/// A regular file inside a workspace.
#[derive(Debug)]
pub(crate) struct WorkspaceFile {
    root: PathBuf,
    /// Path from the root, with symlinks resolved.
    relative: PathBuf,
    /// State of the file when it was found.
    pub(crate) state: FileState,
}

/// Identifies a state of a file. Includes the change time (ctime): a file that may no longer be read, or whose old
/// modification time was restored, differs. Two changes within one clock tick that keep the length look alike; that is
/// rare enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileState {
    /// Device and inode number.
    pub(crate) identity: (u64, u64),
    written: (i64, i64),
    changed: (i64, i64),
    bytes: u64,
}

impl FileState {
    fn of(metadata: &Metadata) -> Self {
        Self {
            identity: (metadata.dev(), metadata.ino()),
            written: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
            bytes: metadata.len(),
        }
    }
}

/// Resolves the path of a workspace. `None` if it does not exist; the error is the reason why it cannot be used.
pub(crate) fn root(dir: &Path) -> Result<Option<PathBuf>, String> {
    match dir.canonicalize() {
        Ok(root) => Ok(Some(root)),
        Err(error) if is_missing(&error) => Ok(None),
        Err(error) => Err(read_error(&error)),
    }
}

/// Finds a file below the [`root`] of a workspace: `None` if it does not exist, or why it cannot be used.
pub(crate) fn find(root: &Path, name: impl AsRef<Path>) -> Result<Option<WorkspaceFile>, String> {
    let name = name.as_ref();
    let path = root.join(name);
    let metadata = match path.symlink_metadata() {
        Ok(metadata) => metadata,
        Err(error) if is_missing(&error) => return Ok(None),
        Err(error) => return Err(read_error(&error)),
    };
    let root = root.to_owned();
    if !metadata.is_symlink() && name.components().count() == 1 {
        // No path component can lead elsewhere. This runs for every file in every run, so the second lookup is skipped.
        require_regular(&metadata)?;
        return Ok(Some(WorkspaceFile { root, relative: name.into(), state: FileState::of(&metadata) }));
    }
    let real = match path.canonicalize() {
        Ok(real) => real,
        Err(error) if is_missing(&error) => {
            return Err("broken symbolic link; remove it or replace it with a file".to_owned());
        }
        Err(error) => return Err(read_error(&error)),
    };
    let Ok(relative) = real.strip_prefix(&root).map(Path::to_owned) else {
        return Err(format!("symbolic link to {}, outside the workspace; replace it with a copy", real.display()));
    };
    let metadata = fs::metadata(&real).map_err(|error| read_error(&error))?;
    require_regular(&metadata)?;
    Ok(Some(WorkspaceFile { root, relative, state: FileState::of(&metadata) }))
}

/// Reads as much of a file as the limit can show; also returns the state of the file that was read.
pub(crate) fn read(source: &WorkspaceFile, limit: usize) -> Result<(FileState, FileText), String> {
    let mut file = source.open().map_err(|error| read_error(&error))?;
    // Checked again: the file may have been replaced.
    let metadata = file.metadata().map_err(|error| read_error(&error))?;
    require_regular(&metadata)?;
    let bytes = |chars: usize| MAX_CHAR_BYTES.saturating_mul(chars as u64);
    let whole_limit = MAX_COUNTED_BYTES.max(bytes(limit));
    let text = if metadata.len() <= whole_limit {
        let all = read_bytes(&mut file, whole_limit)?;
        let text = String::from_utf8_lossy(&all);
        FileText::new(strip_bom(&text).trim_end(), limit)
    } else {
        let head = read_bytes(&mut file, bytes(text::head_chars(limit)) + MAX_CHAR_BYTES)?;
        let tail_bytes = bytes(text::tail_chars(limit)) + TRAILING_BYTES;
        file.seek(SeekFrom::Start(metadata.len().saturating_sub(tail_bytes))).map_err(|error| read_error(&error))?;
        let tail = read_bytes(&mut file, tail_bytes)?;
        // The first bytes may be the remainder of a character.
        let rest = tail.iter().take(3).take_while(|byte| **byte & 0xc0 == 0x80).count();
        let (head, tail) = (String::from_utf8_lossy(&head), String::from_utf8_lossy(&tail[rest..]));
        let length = usize::try_from(metadata.len()).unwrap_or(usize::MAX);
        FileText::ends(strip_bom(&head), tail.trim_end(), length, limit)
    };
    Ok((FileState::of(&metadata), text))
}

impl WorkspaceFile {
    /// Opens the file, folder by folder and without following symlinks: the path had none, so a symlink now was planted
    /// to lead outside. Does not block if the file has become a pipe.
    fn open(&self) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let mut dir = open(&self.root, flags | OFlags::DIRECTORY, Mode::empty())?;
        let mut parts = self.relative.iter().peekable();
        while let Some(part) = parts.next() {
            let kind = if parts.peek().is_some() { OFlags::DIRECTORY } else { OFlags::NONBLOCK | OFlags::NOCTTY };
            dir = openat(&dir, part, flags | kind, Mode::empty())?;
        }
        Ok(File::from(dir))
    }
}

/// Reads the next bytes of a file, if they are text.
fn read_bytes(file: &mut File, max_bytes: u64) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    file.take(max_bytes).read_to_end(&mut bytes).map_err(|error| read_error(&error))?;
    match bytes.contains(&0) {
        true => Err("not text; save it as UTF-8 text".to_owned()),
        false => Ok(bytes),
    }
}

/// Strips the byte order mark that some editors write.
fn strip_bom(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

fn is_missing(error: &io::Error) -> bool {
    error.kind() == ErrorKind::NotFound
}

fn require_regular(metadata: &Metadata) -> Result<(), String> {
    let kind = metadata.file_type();
    let kind_name = match kind {
        _ if kind.is_file() => return Ok(()),
        _ if kind.is_dir() => "a directory",
        _ if kind.is_fifo() => "a pipe",
        _ if kind.is_socket() => "a socket",
        _ => "a device",
    };
    Err(format!("{kind_name}, not a file; replace it with a text file"))
}

fn read_error(error: &io::Error) -> String {
    if error.kind() == ErrorKind::PermissionDenied {
        return "permission denied; give the user that Homard runs as read permission".to_owned();
    }
    format!("cannot be read: {error}")
}

#[cfg(test)]
mod tests {
    use std::{os::unix::fs::symlink, process::Command};

    use super::*;

    /// Reads a file, with `swap` called between finding and opening it.
    fn read_after(swap: impl FnOnce(&Path)) -> Result<FileText, String> {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::create_dir(dir.path().join("docs")).unwrap();
        fs::write(dir.path().join("docs/a.md"), "mine").unwrap();
        fs::write(other.path().join("a.md"), "secret").unwrap();
        symlink("docs/a.md", dir.path().join("AGENTS.md")).unwrap();
        symlink(other.path(), dir.path().join("out")).unwrap();
        let root = root(dir.path()).unwrap().unwrap();
        let source = find(&root, "AGENTS.md").unwrap().unwrap();
        swap(dir.path());
        read(&source, 100).map(|(_, text)| text)
    }

    #[test]
    fn an_unchanged_file_is_read() {
        assert_eq!(read_after(|_| {}), Ok(FileText::Whole { text: "mine".to_owned(), chars: 4 }));
    }

    #[test]
    fn a_symlink_planted_after_the_lookup_is_not_followed() {
        let file = read_after(|dir| {
            fs::remove_file(dir.join("docs/a.md")).unwrap();
            symlink("../out/a.md", dir.join("docs/a.md")).unwrap();
        });
        let folder = read_after(|dir| {
            fs::rename(dir.join("docs"), dir.join("old")).unwrap();
            fs::rename(dir.join("out"), dir.join("docs")).unwrap();
        });
        assert!(file.is_err() && folder.is_err(), "{file:?} {folder:?}");
    }

    #[test]
    fn a_pipe_planted_after_the_lookup_does_not_block() {
        let pipe = read_after(|dir| {
            fs::remove_file(dir.join("docs/a.md")).unwrap();
            assert!(Command::new("mkfifo").arg(dir.join("docs/a.md")).status().unwrap().success());
        });
        assert_eq!(pipe, Err("a pipe, not a file; replace it with a text file".to_owned()));
    }
}
