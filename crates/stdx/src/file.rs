//! Atomic replacement of files, with one policy: who reads the file sees the old bytes or the new ones, also after a
//! crash or a power cut, and only its owner can read it.

use std::{
    fs::File,
    io::{self, ErrorKind, Write},
    path::{Path, PathBuf},
};

use tempfile::NamedTempFile;

/// Replaces a file, or creates it. Its folder must exist.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    stage(path, bytes)?.commit()
}

/// Writes the new content of a file to a temporary file beside it, which is on disk when this returns.
pub fn stage(path: &Path, bytes: &[u8]) -> io::Result<StagedFile> {
    stage_with(path, |file| file.write_all(bytes))
}

/// Like [`stage`], with content that `write` writes.
pub fn stage_with(path: &Path, write: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<StagedFile> {
    // Created with mode 0600.
    let mut file = NamedTempFile::new_in(folder(path))?;
    write(file.as_file_mut())?;
    file.as_file().sync_all()?;
    Ok(StagedFile { file, path: path.to_owned() })
}

/// The new content of a file, before it takes the place of the old one. Removed when dropped.
#[derive(Debug)]
pub struct StagedFile {
    file: NamedTempFile,
    path: PathBuf,
}

impl StagedFile {
    /// Returns the path of the temporary file.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Puts the content in place; it is on disk under its name when this returns.
    pub fn commit(self) -> io::Result<()> {
        let path = self.path.clone();
        self.rename()?;
        sync_folder(folder(&path))
    }

    /// Puts the content in place; whether its name survives a power cut is open until the folder is synced.
    pub fn rename(self) -> io::Result<()> {
        self.file.persist(&self.path).map(drop).map_err(|error| error.error)
    }
}

/// Makes creations, renames and removals in a folder durable.
pub fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Maps a "not found" error to `None`.
pub fn missing_is_none<T>(outcome: io::Result<T>) -> io::Result<Option<T>> {
    match outcome {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    #[test]
    fn a_replaced_file_is_private_and_leaves_nothing_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        for text in ["one", "two"] {
            replace(&path, text.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        drop(stage(&path, b"three").unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), "two");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_missing_file_is_none() {
        let folder = tempfile::tempdir().unwrap();
        assert!(missing_is_none(fs::read(folder.path().join("a"))).unwrap().is_none());
        assert!(missing_is_none(fs::read(folder.path())).is_err());
    }
}
