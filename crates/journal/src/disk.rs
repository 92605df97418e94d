//! The few things that are done to any file: opened for us alone, made durable, replaced whole, or blamed.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, ErrorKind, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::Path,
};

use homard_store::Error;

/// An error that names the file and what was wanted of it.
pub(crate) fn failed<'a>(wanted: &'a str, path: &'a Path) -> impl FnOnce(io::Error) -> Error + 'a {
    move |reason| Error::Disk(format!("cannot {wanted} {}: {reason}", path.display()))
}

/// Options for a file that only its owner may read.
pub(crate) fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(0o600);
    options
}

/// Makes a folder, and those above it, that only its owner may enter. Says whether it is new.
pub(crate) fn make_folder(path: &Path) -> Result<bool, Error> {
    if path.is_dir() {
        return Ok(false);
    }
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed("create folder", path))?;
    Ok(true)
}

/// Makes what was created, renamed or removed in a folder durable.
pub(crate) fn sync_folder(path: &Path) -> Result<(), Error> {
    File::open(path).and_then(|folder| folder.sync_all()).map_err(failed("sync folder", path))
}

/// The bytes of a file, or `None` when there is none.
pub(crate) fn read(path: &Path) -> Result<Option<Vec<u8>>, Error> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(reason) if reason.kind() == ErrorKind::NotFound => Ok(None),
        Err(reason) => Err(failed("read", path)(reason)),
    }
}

/// Replaces a file whole: a reader sees the old bytes or the new ones, also after a crash.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let draft = path.with_added_extension("tmp");
    let write = || {
        let mut file = private().write(true).create(true).truncate(true).open(&draft)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&draft, path)
    };
    write().map_err(failed("write", path))?;
    path.parent().map_or(Ok(()), sync_folder)
}

/// An error for a value that has no JSON; our own types all have.
pub(crate) fn unwritable(reason: &serde_json::Error) -> Error {
    Error::Disk(format!("a record cannot be written as JSON: {reason}"))
}
