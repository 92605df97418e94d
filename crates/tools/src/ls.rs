//! `ls`: what is in a directory.

use std::{
    collections::BTreeMap,
    ffi::{CStr, CString},
    os::fd::OwnedFd,
    path::Path,
};

use async_trait::async_trait;
use homard_agent::tool::{Tool, ToolClass, ToolCx, ToolResult, ToolSpec};
use rustix::{
    fs::{AtFlags, Dir, DirEntry, FileType, statat},
    io::Errno,
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{Error, beneath::Beneath, on_disk};

/// How many entries one answer holds at most. A name has at most 255 bytes, so this bounds the bytes too.
const MAX_ENTRIES: usize = 500;

/// Lists a directory.
#[derive(Debug, Clone, Copy)]
pub struct Ls;

#[derive(Deserialize)]
struct Arguments {
    path: Option<String>,
    limit: Option<f64>,
}

#[async_trait]
impl Tool for Ls {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "ls".to_owned(),
            description: "List a directory of the workspace, hidden entries included, sorted by name. Directories end \
                          with /. Returns at most 500 entries."
                .to_owned(),
            parameters: json!({
                "type": "object",
                "required": [],
                "properties": {
                    "path": {"type": "string", "description": "The directory; the workspace itself by default"},
                    "limit": {"type": "number", "description": "How many entries to return at most"},
                },
            }),
        }
    }

    fn class(&self) -> ToolClass {
        ToolClass::Read
    }

    async fn call(&self, cx: ToolCx, arguments: Value) -> ToolResult {
        on_disk("ls", arguments, move |arguments| ls(&cx.workdir, &arguments)).await
    }
}

fn ls(workdir: &Path, arguments: &Arguments) -> Result<String, Error> {
    let path = arguments.path.as_deref().unwrap_or(".");
    // `as` saturates, so nonsense becomes the nearest limit.
    let limit = arguments.limit.map_or(MAX_ENTRIES, |limit| (limit as usize).clamp(1, MAX_ENTRIES));
    let beneath = Beneath::open(workdir)?;
    let directory = beneath.directory(path)?;
    let (names, total) = list(&directory, limit).map_err(|errno| beneath.explain(path, errno))?;
    let mut lines: Vec<String> = names.iter().map(|(name, kind)| shown(name, *kind)).collect();
    match total.checked_sub(lines.len()) {
        _ if total == 0 => lines.push("(empty directory)".to_owned()),
        None | Some(0) => {}
        Some(left_out) => lines.push(format!(
            "\n[{left_out} of {total} entries are left out. List a directory further down, or use exec to filter.]"
        )),
    }
    Ok(lines.join("\n"))
}

/// The first `limit` entries in order of their names, and how many there are.
fn list(directory: &OwnedFd, limit: usize) -> Result<(BTreeMap<CString, FileType>, usize), Errno> {
    let mut first = BTreeMap::new();
    let mut total = 0;
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        total += 1;
        first.insert(name.to_owned(), kind(directory, &entry));
        if first.len() > limit {
            first.pop_last();
        }
    }
    Ok((first, total))
}

fn kind(directory: &OwnedFd, entry: &DirEntry) -> FileType {
    let told = entry.file_type();
    if told != FileType::Unknown {
        return told;
    }
    // Some file systems do not tell.
    statat(directory, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW)
        .map_or(FileType::Unknown, |stat| FileType::from_raw_mode(stat.st_mode))
}

fn shown(name: &CStr, kind: FileType) -> String {
    let name = name.to_string_lossy();
    // A line break in a name must not look like two entries.
    let name = if name.contains(char::is_control) { name.escape_debug().to_string() } else { name.into_owned() };
    if kind == FileType::Directory { name + "/" } else { name }
}
