//! Files of a log, one per day.

use std::{
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
};

use serde_json::Value;

use crate::{
    chain::Digest,
    verify::{Evidence, VerifyReport, verify},
};

const START: &str = "audit-";
const END: &str = ".jsonl";

/// Number of bytes read at first from the end of a file; multiplied by sixteen until there is no more.
const FIRST_TAIL: u64 = 64 * 1024;

/// Paths of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogPaths {
    /// Folder of its files.
    pub folder: PathBuf,
    /// Key file, outside the folder.
    pub key: PathBuf,
}

impl LogPaths {
    /// Returns the paths in a state directory.
    pub fn in_state(state: &Path) -> Self {
        Self { folder: state.join("audit"), key: state.join("audit.key") }
    }
}

/// A row in a file.
#[derive(Debug, Clone, PartialEq)]
pub struct LogRow {
    /// File name and line number.
    pub location: String,
    /// Content; the text of the line if it is not JSON.
    pub content: Value,
}

/// Returns the file of a day.
pub(crate) fn of_day(folder: &Path, at_ms: u64) -> PathBuf {
    let timestamp = i64::try_from(at_ms).ok().and_then(|timestamp| jiff::Timestamp::from_millisecond(timestamp).ok());
    folder.join(format!("{START}{}{END}", timestamp.unwrap_or_default().strftime("%Y%m%d")))
}

/// Returns the existing files, oldest first; empty if the folder does not exist.
pub(crate) fn all(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let listing = match fs::read_dir(folder) {
        Ok(listing) => listing,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut paths = Vec::new();
    for item in listing {
        let name = item?.file_name();
        let is_ours = name.to_str().is_some_and(|name| name.starts_with(START) && name.ends_with(END));
        paths.extend(is_ours.then(|| folder.join(name)));
    }
    paths.sort();
    Ok(paths)
}

/// Returns all lines of a folder, each with its location.
pub(crate) fn lines(folder: &Path) -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut lines = Vec::new();
    for path in all(folder)? {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let bytes = fs::read(&path)?;
        let content = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
        if !content.is_empty() {
            let numbered = content.split(|byte| *byte == b'\n').enumerate();
            lines.extend(numbered.map(|(index, line)| (format!("{name} line {}", index + 1), line.to_vec())));
        }
    }
    Ok(lines)
}

/// A row, and the lines after it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RowsAfter {
    pub(crate) row: Vec<u8>,
    pub(crate) lines: Vec<Vec<u8>>,
}

/// Returns the last row with this digest and the lines after it; `None` if there is no such row. Reads from the end,
/// and no more than necessary.
pub(crate) fn after(folder: &Path, digest: Digest) -> io::Result<Option<RowsAfter>> {
    let mut later_lines: Vec<Vec<u8>> = Vec::new();
    for path in all(folder)?.iter().rev() {
        let mut size = FIRST_TAIL;
        loop {
            let (start, tail) = tail(path, size)?;
            let content = tail.strip_suffix(b"\n").unwrap_or(&tail);
            let mut lines: Vec<_> = content.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
            if start > 0 || content.is_empty() {
                // The first line may start before the tail.
                lines.remove(0);
            }
            if let Some(position) = lines.iter().rposition(|line| Digest::of(line) == digest) {
                let mut rest = lines.split_off(position);
                let row = rest.remove(0);
                rest.append(&mut later_lines);
                return Ok(Some(RowsAfter { row, lines: rest }));
            }
            if start == 0 {
                lines.append(&mut later_lines);
                later_lines = lines;
                break;
            }
            size = size.saturating_mul(16);
        }
    }
    Ok(None)
}

/// Returns the last `size` bytes of a file, preceded by their offset in the file.
pub(crate) fn tail(path: &Path, size: u64) -> io::Result<(u64, Vec<u8>)> {
    let mut file = File::open(path)?;
    let start = file.metadata()?.len().saturating_sub(size);
    file.seek(SeekFrom::Start(start))?;
    let mut tail = Vec::new();
    file.take(size).read_to_end(&mut tail)?;
    Ok((start, tail))
}

/// Verifies all rows of a folder against external evidence.
pub fn verify_folder(folder: &Path, evidence: &Evidence) -> io::Result<VerifyReport> {
    let lines = lines(folder)?;
    Ok(verify(lines.iter().map(|(location, line)| (location.clone(), line.as_slice())), evidence))
}

/// Returns the rows of a folder, oldest first.
pub fn rows(folder: &Path) -> io::Result<Vec<LogRow>> {
    let parse = |line: Vec<u8>| {
        serde_json::from_slice(&line).unwrap_or_else(|_| String::from_utf8_lossy(&line).into_owned().into())
    };
    Ok(lines(folder)?.into_iter().map(|(location, line)| LogRow { location, content: parse(line) }).collect())
}
