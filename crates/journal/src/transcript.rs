//! A transcript on disk: read with patience, never rewritten.

use std::{
    fs::File,
    io::{ErrorKind, Read, Seek, SeekFrom, Write},
    path::Path,
};

use homard_proto::{EntryId, transcript::Entry};
use homard_store::Error;
use serde::Deserialize;
use tracing::warn;

use crate::{append::Target, disk};

/// Where the next line goes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Tail {
    /// The bytes up to the end of the last whole line.
    pub(crate) length: u64,
    /// The last entry: the parent of the next.
    pub(crate) leaf: Option<EntryId>,
}

/// A transcript that was read.
#[derive(Debug)]
pub(crate) struct Transcript {
    /// Its entries in file order.
    pub(crate) entries: Vec<Entry>,
    /// Its end.
    pub(crate) tail: Tail,
}

/// Opens a transcript to read it, and says how long it is; `None` when there is none.
pub(crate) fn open(path: &Path) -> Result<Option<(File, u64)>, Error> {
    match File::open(path).and_then(|file| Ok((file.metadata()?.len(), file))) {
        Ok((length, file)) => Ok(Some((file, length))),
        Err(reason) if reason.kind() == ErrorKind::NotFound => Ok(None),
        Err(reason) => Err(disk::failed("read", path)(reason)),
    }
}

/// Reads the first `length` bytes of a transcript.
///
/// A last line without its end was never acknowledged, so it does not count. A line in the middle that makes no
/// sense is passed by. A file that is no transcript at all is an error, so that nobody writes into it.
pub(crate) fn read(path: &Path, file: &File, length: u64) -> Result<Transcript, Error> {
    let mut bytes = Vec::new();
    file.take(length).read_to_end(&mut bytes).map_err(disk::failed("read", path))?;
    bytes.truncate(bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1));
    let mut lines = bytes.split(|&byte| byte == b'\n');
    if !bytes.is_empty() && !lines.next().is_some_and(is_header) {
        let path = path.display();
        return Err(Error::Corrupt(format!(
            "transcript {path} does not begin with a session header; repair its first line or move the file away"
        )));
    }
    let mut entries: Vec<Entry> = Vec::new();
    let mut passed = 0;
    for line in lines.filter(|line| !line.trim_ascii().is_empty()) {
        match serde_json::from_slice(line) {
            Ok(entry) => entries.push(entry),
            Err(_) => passed += 1,
        }
    }
    if passed > 0 {
        warn!(path = %path.display(), lines = passed, "lines of a transcript make no sense and were passed by");
    }
    let leaf = entries.last().map(|entry| entry.id.clone());
    Ok(Transcript { entries, tail: Tail { length: bytes.len() as u64, leaf } })
}

fn is_header(line: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct First {
        r#type: String,
    }
    serde_json::from_slice(line).is_ok_and(|first: First| first.r#type == "session")
}

/// Moves what follows the last whole line to a file beside the transcript, so that the next line begins on its own.
pub(crate) fn set_torn_aside(target: &mut Target, whole: u64, now_ms: u64) -> Result<(), Error> {
    let aside = target.path.with_added_extension(format!("torn-{now_ms}"));
    let mut torn = Vec::new();
    let mut from = &target.file;
    from.seek(SeekFrom::Start(whole))
        .and_then(|_| from.read_to_end(&mut torn))
        .map_err(disk::failed("read", &target.path))?;
    let keep = || {
        let mut kept = disk::private().append(true).create(true).open(&aside)?;
        kept.write_all(&torn)?;
        kept.sync_all()
    };
    keep().map_err(disk::failed("write", &aside))?;
    aside.parent().map_or(Ok(()), disk::sync_folder)?;
    target.file.set_len(whole).map_err(disk::failed("cut the torn last line of", &target.path))?;
    target.length = whole;
    warn!(path = %target.path.display(), aside = %aside.display(), "the torn last line of a transcript was set aside");
    Ok(())
}
