//! The `ls` tool: lists a directory.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    ffi::{CStr, CString},
    os::fd::OwnedFd,
};

use async_trait::async_trait;
use homard_agent::tool::{Tool, ToolClass, ToolCx, ToolResult, ToolSpec};
use rustix::{
    fs::{AtFlags, Dir, DirEntry, FileType, statat},
    io::Errno,
};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{Error, FileAccess, error::StoppedError, on_disk};

/// Maximum number of entries in a result. A name has at most 255 bytes, so this also bounds the size.
const MAX_ENTRIES: usize = 500;

/// Lists a directory.
#[derive(Debug, Clone, Default)]
pub struct Ls {
    files: FileAccess,
}

impl Ls {
    pub(crate) fn new(files: FileAccess) -> Self {
        Self { files }
    }
}

#[derive(Deserialize)]
struct Args {
    path: Option<String>,
    limit: Option<f64>,
    after: Option<String>,
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
                    "after": {"type": "string", "description": "The name after which to go on, as the notice gave it"},
                },
            }),
        }
    }

    fn class(&self) -> ToolClass {
        ToolClass::Read
    }

    async fn call(&self, cx: ToolCx, arguments: Value) -> ToolResult {
        let files = self.files.clone();
        on_disk("ls", arguments, move |arguments| ls(&cx, &files, &arguments)).await
    }
}

fn ls(cx: &ToolCx, files: &FileAccess, arguments: &Args) -> Result<ToolResult, Error> {
    let path = arguments.path.as_deref().unwrap_or(".");
    // `as` saturates, so out-of-range values become the nearest limit.
    let limit = arguments.limit.map_or(MAX_ENTRIES, |limit| (limit as usize).clamp(1, MAX_ENTRIES));
    let after = arguments.after.as_deref().map(|after| after.strip_suffix('/').unwrap_or(after));
    let (guard, inside) = files.open_for_reading(cx, path)?;
    let directory = guard.directory(&inside)?;
    let DirectoryListing { first, total } = DirectoryListing::of(&directory, limit, after, &cx.cancel)
        .map_err(|errno| guard.map_errno(path, errno))?
        .ok_or(Error::Stopped(StoppedError::Interrupted))?;
    let left_out = total - first.len();
    let mut lines: Vec<String> = first.iter().map(|(name, kind)| display_name(name, *kind)).collect();
    match first.last_key_value() {
        None => lines.push(if after.is_some() { "(nothing more)" } else { "(empty directory)" }.to_owned()),
        Some((last, _)) if left_out > 0 => lines.push(format!(
            "\n[{left_out} of {total} entries are left out. Use after={:?} to go on.]",
            last.to_string_lossy()
        )),
        Some(_) => {}
    }
    let details = (left_out > 0).then(|| json!({"entryLimitReached": limit}));
    Ok(ToolResult { details, ..ToolResult::text(lines.join("\n")) })
}

/// Entries of a directory.
struct DirectoryListing {
    /// The first entries, by name.
    first: BTreeMap<CString, FileType>,
    /// Total number of entries.
    total: usize,
}

impl DirectoryListing {
    /// Lists entries after a name; `None` if the run was cancelled meanwhile.
    fn of(
        directory: &OwnedFd,
        limit: usize,
        after: Option<&str>,
        cancel: &CancellationToken,
    ) -> Result<Option<Self>, Errno> {
        let mut listed = Self { first: BTreeMap::new(), total: 0 };
        for entry in Dir::read_from(directory)? {
            let entry = entry?;
            let name = entry.file_name();
            let is_before = after.is_some_and(|after| name.to_bytes() <= after.as_bytes());
            if is_before || matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            if cancel.is_cancelled() {
                return Ok(None);
            }
            listed.total += 1;
            if listed.first.len() < limit || listed.first.last_key_value().is_some_and(|(last, _)| name < last) {
                listed.first.insert(name.to_owned(), kind(directory, &entry));
            }
            if listed.first.len() > limit {
                listed.first.pop_last();
            }
        }
        Ok(Some(listed))
    }
}

/// Returns the type of an entry.
pub(crate) fn kind(directory: &OwnedFd, entry: &DirEntry) -> FileType {
    let file_type = entry.file_type();
    if file_type != FileType::Unknown {
        return file_type;
    }
    // Some file systems do not report the type in directory entries.
    statat(directory, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW)
        .map_or(FileType::Unknown, |stat| FileType::from_raw_mode(stat.st_mode))
}

fn display_name(name: &CStr, kind: FileType) -> String {
    let name = one_line(name.to_string_lossy());
    if kind == FileType::Directory { name + "/" } else { name }
}

/// Escapes a name with control characters: a line break in it must not look like two names.
pub(crate) fn one_line(name: Cow<'_, str>) -> String {
    if name.contains(char::is_control) { name.escape_debug().to_string() } else { name.into_owned() }
}
