//! The `find` tool: finds files and directories by name.

use std::path::Path;

use async_trait::async_trait;
use homard_agent::tool::{Tool, ToolClass, ToolCx, ToolResult, ToolSpec};
use rustix::fs::FileType;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::{Error, FileAccess, error::StoppedError, glob::Glob, ls::one_line, on_disk, walk::TreeWalk};

/// Default number of results.
const LIMIT: usize = 1000;

/// Maximum number of results.
const MAX_LIMIT: usize = 10_000;

/// Maximum size of a result in bytes.
const MAX_BYTES: usize = 50 * 1024;

/// Finds files by their names.
#[derive(Debug, Clone, Default)]
pub struct Find {
    files: FileAccess,
}

impl Find {
    pub(crate) fn new(files: FileAccess) -> Self {
        Self { files }
    }
}

#[derive(Deserialize)]
struct Args {
    pattern: String,
    path: Option<String>,
    limit: Option<f64>,
}

#[async_trait]
impl Tool for Find {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "find".to_owned(),
            description: "Find files and directories of the workspace by a glob pattern, hidden ones included. What \
                          .gitignore names is left out, and so is .git. Directories end with /. Returns at most 1000 \
                          paths or 50 KiB."
                .to_owned(),
            parameters: json!({
                "type": "object",
                "required": ["pattern"],
                "properties": {
                    "pattern": {
                        "type": "string",
                        "description": "Such as *.ts for names, or src/**/*.spec.ts for paths below the directory",
                    },
                    "path": {"type": "string", "description": "The directory; the workspace itself by default"},
                    "limit": {"type": "number", "description": "How many paths to return at most; 1000 by default"},
                },
            }),
        }
    }

    fn class(&self) -> ToolClass {
        ToolClass::Read
    }

    async fn call(&self, cx: ToolCx, arguments: Value) -> ToolResult {
        let files = self.files.clone();
        on_disk("find", arguments, move |arguments| find(&cx, &files, &arguments)).await
    }
}

fn find(cx: &ToolCx, files: &FileAccess, arguments: &Args) -> Result<ToolResult, Error> {
    let glob = Glob::parse(&arguments.pattern)?;
    let path = arguments.path.as_deref().unwrap_or(".");
    // `as` saturates, so out-of-range values become the nearest limit.
    let limit = arguments.limit.map_or(LIMIT, |limit| (limit as usize).clamp(1, MAX_LIMIT));
    let (guard, inside) = files.open_for_reading(cx, path)?;
    let mut walk = TreeWalk::new(&guard, &inside, &cx.cancel)?;
    let mut text = String::new();
    let mut count = 0;
    let (mut notices, mut details) = (Vec::new(), Map::new());
    for entry in walk.by_ref().filter(|entry| glob.is_match(&entry.path)) {
        let mut line = display_path(path, &entry.path);
        if entry.kind == FileType::Directory {
            line.push('/');
        }
        if count == limit {
            notices.push(format!("[There are more than {limit}. Use a larger limit, or a narrower pattern.]"));
            details.insert("resultLimitReached".to_owned(), json!(limit));
            break;
        }
        if text.len() + line.len() > MAX_BYTES {
            notices.push("[There are more than fit in 50 KiB. Use a narrower pattern.]".to_owned());
            let truncation = json!({"truncated": true, "truncatedBy": "bytes", "maxBytes": MAX_BYTES});
            details.insert("truncation".to_owned(), truncation);
            break;
        }
        text.push_str(&line);
        text.push('\n');
        count += 1;
    }
    if cx.cancel.is_cancelled() {
        return Err(Error::Stopped(StoppedError::Interrupted));
    }
    if walk.unreadable > 0 {
        notices.push(format!("[{} directories could not be read.]", walk.unreadable));
    }
    if count == 0 {
        text.push_str("(nothing found)\n");
    }
    if !notices.is_empty() {
        text.push_str(&format!("\n{}", notices.join("\n")));
    }
    let details = (!details.is_empty()).then_some(Value::Object(details));
    Ok(ToolResult { details, ..ToolResult::text(text.trim_end_matches('\n')) })
}

/// Formats a path as other tools accept it: prefixed with the searched directory as the call named it.
pub(crate) fn display_path(directory: &str, path: &Path) -> String {
    let path = if directory == "." { path.to_owned() } else { Path::new(directory).join(path) };
    one_line(path.to_string_lossy())
}
