//! The `memory_get` tool: reads lines of a memory file.

use std::{
    io::{self, BufRead, BufReader, Read},
    sync::Arc,
};

use async_trait::async_trait;
use homard_agent::tool::{Tool, ToolClass, ToolCx, ToolResult, ToolSpec};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{MemorySettings, files::is_memory, json_result};
use crate::{
    Error,
    cancel_reader::CancelReader,
    error::{ArgumentError, MachineError, PathError},
    on_disk,
    page::char_start,
};

/// Maximum size of a result in bytes.
const MAX_BYTES: usize = 50 * 1024;

/// Reads lines of a memory file.
#[derive(Debug)]
pub struct MemoryGet {
    settings: Arc<MemorySettings>,
}

#[derive(Deserialize)]
struct Args {
    path: String,
    from: Option<f64>,
    lines: Option<f64>,
}

impl MemoryGet {
    /// Creates the tool with these settings.
    pub fn new(settings: Arc<MemorySettings>) -> Self {
        Self { settings }
    }
}

#[async_trait]
impl Tool for MemoryGet {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "memory_get".to_owned(),
            description: "Read MEMORY.md or a note in memory/, or some lines of it, after memory_search has found it. \
                          Returns at most 50 KiB; nextFrom says where to read on."
                .to_owned(),
            parameters: json!({
                "type": "object",
                "required": ["path"],
                "properties": {
                    "path": {"type": "string", "description": "MEMORY.md, memory.md or a note below memory/"},
                    "from": {"type": "integer", "minimum": 1, "description": "First line to return, counted from 1"},
                    "lines": {"type": "integer", "minimum": 1, "description": "How many lines to return at most"},
                    "corpus": {
                        "type": "string",
                        "enum": ["memory", "wiki", "all"],
                        "description": "What to read from; only memory is supported",
                    },
                },
            }),
        }
    }

    fn class(&self) -> ToolClass {
        ToolClass::Read
    }

    async fn call(&self, cx: ToolCx, arguments: Value) -> ToolResult {
        let settings = self.settings.clone();
        on_disk("memory_get", arguments, move |arguments| get(&settings, &cx, &arguments)).await
    }
}

fn get(settings: &MemorySettings, cx: &ToolCx, arguments: &Args) -> Result<ToolResult, Error> {
    let guard = settings.files.open(settings.workspace(cx))?;
    let path = guard.normalize(&arguments.path)?;
    if !is_memory(&path) {
        return Err(Error::Argument(ArgumentError::NotMemory { path: arguments.path.clone() }));
    }
    let path = path.display().to_string();
    let file = match guard.file(&path) {
        // Not an error: for example, there are no notes for that day.
        Err(Error::Path(PathError::Missing { .. }) | Error::Path(PathError::MissingWithSuggestion { .. })) => {
            return Ok(json_result(json!({"path": path, "text": "", "missing": true})));
        }
        found => found?,
    };
    // `as` saturates: out-of-range values become the first line, or more lines than any file has.
    let from = arguments.from.map_or(1, |from| (from as u64).max(1));
    let lines = arguments.lines.map_or(u64::MAX, |lines| (lines as u64).max(1));
    let mut file = BufReader::new(CancelReader::new(file, &cx.cancel));
    let part = read_lines(&mut file, from, lines)
        .map_err(|source| Error::Machine(MachineError::Io { path: path.clone(), source }))?;
    let mut payload = json!({"path": path, "text": String::from_utf8_lossy(&part.bytes)});
    if part.is_cut {
        payload["truncated"] = json!(true);
    }
    if let Some(next) = part.next {
        payload["nextFrom"] = json!(next);
    }
    Ok(json_result(payload))
}

/// Some lines of a file.
struct FileLines {
    bytes: Vec<u8>,
    /// The next line to read, if there is one.
    next: Option<u64>,
    /// True if the result was truncated.
    is_cut: bool,
}

fn read_lines(file: &mut impl BufRead, from: u64, lines: u64) -> io::Result<FileLines> {
    let mut part = FileLines { bytes: Vec::new(), next: None, is_cut: false };
    for _ in 1..from {
        if file.skip_until(b'\n')? == 0 {
            return Ok(part);
        }
    }
    for count in 0..lines {
        let before = part.bytes.len();
        // One byte more than fits, to detect whether the line fits.
        let remaining = (MAX_BYTES - before) as u64 + 1;
        if file.by_ref().take(remaining).read_until(b'\n', &mut part.bytes)? == 0 {
            return Ok(part);
        }
        if part.bytes.len() > MAX_BYTES {
            // Of a line longer than the limit, only the beginning can be shown.
            let is_alone = count == 0;
            part.bytes.truncate(if is_alone { char_start(&part.bytes, MAX_BYTES) } else { before });
            let next = from.saturating_add(count).saturating_add(u64::from(is_alone));
            return Ok(FileLines { next: Some(next), is_cut: true, ..part });
        }
    }
    if !file.fill_buf()?.is_empty() {
        part.next = Some(from.saturating_add(lines));
    }
    Ok(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(text: &str, from: u64) -> (usize, Option<u64>, bool) {
        let part = read_lines(&mut text.as_bytes(), from, u64::MAX).unwrap();
        (part.bytes.len(), part.next, part.is_cut)
    }

    #[test]
    fn a_long_text_is_cut_after_a_line() {
        let text = format!("{}\n", "x".repeat(1023)).repeat(60);
        assert_eq!(cut(&text, 1), (50 * 1024, Some(51), true));
        assert_eq!(cut(&text, 51), (10 * 1024, None, false));
    }

    #[test]
    fn a_long_line_is_cut_between_characters() {
        let text = format!("{}\nmore", "日".repeat(20_000));
        assert_eq!(cut(&text, 1), (51_198, Some(2), true));
        assert_eq!(cut(&text, 2), (4, None, false));
    }
}
