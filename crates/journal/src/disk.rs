//! File operations used by the whole crate: private files, syncing, atomic replacement, setting copies aside, and
//! errors that name the file.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, ErrorKind, Read, Seek, SeekFrom, Write},
    os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt},
    path::Path,
};

pub(crate) use homard_stdx::file::missing_is_none;
use homard_store::Error;

/// Builds an error that names the file and the failed operation.
pub(crate) fn failed<'a>(action: &'a str, path: &'a Path) -> impl FnOnce(io::Error) -> Error + 'a {
    move |reason| Error::Disk(format!("cannot {action} {}: {reason}", path.display()))
}

/// Returns options for a file that only its owner may read.
pub(crate) fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(0o600);
    options
}

/// Creates a folder and its parents, accessible to their owner only. Returns true if it is new.
pub(crate) fn make_folder(path: &Path) -> Result<bool, Error> {
    if path.is_dir() {
        return Ok(false);
    }
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed("create directory", path))?;
    Ok(true)
}

/// Makes creations, renames and removals in a folder durable.
pub(crate) fn sync_folder(path: &Path) -> Result<(), Error> {
    homard_stdx::file::sync_folder(path).map_err(failed("sync directory", path))
}

/// Reads a file; `None` if it does not exist.
pub(crate) fn read(path: &Path) -> Result<Option<Vec<u8>>, Error> {
    missing_is_none(fs::read(path)).map_err(failed("read", path))
}

/// Reads a file from an offset on; empty if the file does not exist or ends before.
pub(crate) fn read_from(path: &Path, offset: u64) -> Result<Vec<u8>, Error> {
    let read = || {
        let mut file = File::open(path)?;
        file.seek(SeekFrom::Start(offset))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    missing_is_none(read()).map(Option::unwrap_or_default).map_err(failed("read", path))
}

/// Returns the length of a file; 0 if it does not exist.
pub(crate) fn length(path: &Path) -> Result<u64, Error> {
    let length = missing_is_none(fs::metadata(path).map(|found| found.len()));
    length.map(Option::unwrap_or_default).map_err(failed("read the metadata of", path))
}

/// Writes at an offset of a file in one call; creates the file only for offset 0.
///
/// A partial write is harmless: the retry writes the same bytes to the same place.
pub(crate) fn write_at(path: &Path, offset: u64, bytes: &[u8]) -> Result<(), Error> {
    let write = || {
        // A file that was removed must not reappear with a hole where its lines were.
        let file = private().write(true).create(offset == 0).truncate(false).open(path)?;
        let written = file.write_at(bytes, offset)?;
        let is_complete = written == bytes.len();
        is_complete
            .then_some(())
            .ok_or_else(|| io::Error::new(ErrorKind::StorageFull, "the file was only partially written"))
    };
    write().map_err(failed("write to", path))
}

/// Makes the bytes of a file durable.
pub(crate) fn sync(path: &Path) -> io::Result<()> {
    private().write(true).open(path)?.sync_data()
}

/// Truncates a file and syncs it.
pub(crate) fn truncate(path: &Path, length: u64) -> Result<(), Error> {
    let cut = || {
        let file = private().write(true).open(path)?;
        file.set_len(length)?;
        file.sync_data()
    };
    cut().map_err(failed("truncate the incomplete last line of", path))
}

/// Replaces a file: readers see the old bytes or the new ones, even after a crash.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    homard_stdx::file::replace(path, bytes).map_err(failed("write", path))
}

/// Saves bytes of a file beside it, as `<file>.<why>-<time>`.
pub(crate) fn set_aside(path: &Path, why: &str, bytes: &[u8], now_ms: u64) -> Result<(), Error> {
    let target = path.with_added_extension(format!("{why}-{now_ms}"));
    let keep = || {
        let mut file = private().append(true).create(true).open(&target)?;
        file.write_all(bytes)?;
        file.sync_all()
    };
    keep().map_err(failed("write", &target))?;
    target.parent().map_or(Ok(()), sync_folder)?;
    tracing::warn!(path = %path.display(), aside = %target.display(), why, "saved damaged content of a file aside");
    Ok(())
}

/// Saves bytes of a file beside it unless an earlier copy exists, because files that are only read may be read often.
pub(crate) fn set_aside_once(path: &Path, reason: &str, bytes: &[u8], now_ms: u64) -> Result<(), Error> {
    let is_there = is_aside(path, reason, bytes).map_err(failed("look for saved copies of", path))?;
    if is_there { Ok(()) } else { set_aside(path, reason, bytes, now_ms) }
}

fn is_aside(path: &Path, reason: &str, bytes: &[u8]) -> io::Result<bool> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return Ok(false) };
    let prefix = format!("{}.{reason}-", name.to_string_lossy());
    for item in fs::read_dir(folder)? {
        let item = item?;
        if !item.file_name().to_string_lossy().starts_with(&prefix) || item.metadata()?.len() != bytes.len() as u64 {
            continue;
        }
        let mut copy = Vec::new();
        File::open(item.path())?.read_to_end(&mut copy)?;
        if copy == bytes {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Builds an error for a value that cannot be serialized as JSON; our own types always can.
pub(crate) fn not_serializable(reason: &serde_json::Error) -> Error {
    Error::Disk(format!("cannot serialize a record as JSON: {reason}"))
}
