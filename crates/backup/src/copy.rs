//! Copies directories with their permissions.

use std::{
    fs::{self, DirBuilder},
    io,
    os::unix::fs::{DirBuilderExt as _, symlink},
    path::Path,
};

use crate::{Error, disk};

/// What was copied.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct CopyCount {
    /// Number of files.
    pub files: usize,
    /// Their bytes.
    pub bytes: u64,
    /// Neither files, directories nor links.
    pub skipped: usize,
}

/// Creates a directory that only the user can read.
pub(crate) fn private_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)
}

/// Creates a new directory, with its parents.
pub(crate) fn create(path: &Path) -> Result<(), Error> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(disk("create", parent))?;
    }
    match private_folder(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            Err(Error::Exists(format!("{} already exists; choose a new directory", path.display())))
        }
        created => created.map_err(disk("create", path)),
    }
}

/// Copies the content of a directory into an existing one, with permissions. Links stay links.
pub(crate) fn copy(
    from: &Path,
    to: &Path,
    is_left_out: &dyn Fn(&Path) -> bool,
    count: &mut CopyCount,
) -> Result<(), Error> {
    let entries = fs::read_dir(from).and_then(Iterator::collect::<io::Result<Vec<_>>>);
    for entry in entries.map_err(disk("read", from))? {
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if is_left_out(&source) {
            continue;
        }
        // A running gateway may have removed it since.
        let Ok(metadata) = fs::symlink_metadata(&source) else { continue };
        let kind = metadata.file_type();
        if kind.is_dir() {
            private_folder(&target).map_err(disk("create", &target))?;
            copy(&source, &target, is_left_out, count)?;
            fs::set_permissions(&target, metadata.permissions()).map_err(disk("set the permissions of", &target))?;
        } else if kind.is_symlink() {
            let points_to = fs::read_link(&source).map_err(disk("read", &source))?;
            symlink(points_to, &target).map_err(disk("create", &target))?;
        } else if kind.is_file() {
            copy_file(&source, &target, count)?;
        } else {
            count.skipped += 1;
        }
    }
    Ok(())
}

/// Copies a file; one that was removed meanwhile is left out.
pub(crate) fn copy_file(source: &Path, target: &Path, count: &mut CopyCount) -> Result<(), Error> {
    match fs::copy(source, target) {
        Ok(bytes) => {
            count.files += 1;
            count.bytes += bytes;
            Ok(())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound && !source.exists() => Ok(()),
        Err(reason) => {
            Err(Error::Disk { action: format!("cannot copy {} to {}", source.display(), target.display()), reason })
        }
    }
}
