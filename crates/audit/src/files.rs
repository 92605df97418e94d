//! The files of a folder, one a day, read from the first row to the last.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde_json::Value;

use crate::chain::{Head, Report, verify};

const START: &str = "audit-";
const END: &str = ".jsonl";

/// A row as it stands in a file.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// The file and the line.
    pub place: String,
    /// What it says; the text of the line if it is no JSON.
    pub said: Value,
}

/// The file of a day.
pub(crate) fn of_day(folder: &Path, at_ms: u64) -> PathBuf {
    let at = i64::try_from(at_ms).ok().and_then(|at| jiff::Timestamp::from_millisecond(at).ok());
    folder.join(format!("{START}{}{END}", at.unwrap_or_default().strftime("%Y%m%d")))
}

/// The files that are there, oldest first; none if there is no folder.
pub(crate) fn all(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let listing = match fs::read_dir(folder) {
        Ok(listing) => listing,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut found = Vec::new();
    for item in listing {
        let name = item?.file_name();
        let is_ours = name.to_str().is_some_and(|name| name.starts_with(START) && name.ends_with(END));
        found.extend(is_ours.then(|| folder.join(name)));
    }
    found.sort();
    Ok(found)
}

/// All lines of a folder, each with its place.
fn lines(folder: &Path) -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut lines = Vec::new();
    for path in all(folder)? {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let bytes = fs::read(&path)?;
        let whole = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
        if !whole.is_empty() {
            let numbered = whole.split(|byte| *byte == b'\n').enumerate();
            lines.extend(numbered.map(|(at, line)| (format!("{name} line {}", at + 1), line.to_vec())));
        }
    }
    Ok(lines)
}

/// Looks at everything that is in a folder, and at what is kept elsewhere of the end.
pub fn verify_folder(folder: &Path, kept: Option<Head>) -> io::Result<Report> {
    let lines = lines(folder)?;
    Ok(verify(lines.iter().map(|(place, line)| (place.clone(), line.as_slice())), kept))
}

/// The rows of a folder, oldest first.
pub fn rows(folder: &Path) -> io::Result<Vec<Row>> {
    let read = |line: Vec<u8>| {
        serde_json::from_slice(&line).unwrap_or_else(|_| String::from_utf8_lossy(&line).into_owned().into())
    };
    Ok(lines(folder)?.into_iter().map(|(place, line)| Row { place, said: read(line) }).collect())
}
