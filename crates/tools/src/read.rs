//! `read`: a text file, or a page of it.

use std::{
    io::{self, BufRead, BufReader},
    path::Path,
};

use async_trait::async_trait;
use homard_agent::tool::{Tool, ToolClass, ToolCx, ToolResult, ToolSpec};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{Error, beneath::Beneath, either, on_disk};

/// How many lines one answer holds at most.
const MAX_LINES: u64 = 2000;

/// How many bytes of a file one answer holds at most.
const MAX_BYTES: usize = 50 * 1024;

/// How much of a file decides whether it is text.
const SAMPLE: usize = 8 * 1024;

/// Reads a text file, or a page of it.
#[derive(Debug, Clone, Copy)]
pub struct Read;

#[derive(Deserialize)]
struct Arguments {
    path: Option<String>,
    file_path: Option<String>,
    offset: Option<f64>,
    limit: Option<f64>,
}

#[async_trait]
impl Tool for Read {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "read".to_owned(),
            description: "Read a text file of the workspace. Returns at most 2000 lines or 50 KiB; a longer file ends \
                          with a notice that gives the offset to go on with."
                .to_owned(),
            parameters: json!({
                "type": "object",
                "required": [],
                "properties": {
                    "path": {"type": "string", "description": "The file, relative to the workspace"},
                    "offset": {"type": "number", "description": "First line to return, counted from 1"},
                    "limit": {"type": "number", "description": "How many lines to return at most"},
                    "file_path": {"type": "string", "description": "Another name for path"},
                },
            }),
        }
    }

    fn class(&self) -> ToolClass {
        ToolClass::Read
    }

    async fn call(&self, cx: ToolCx, arguments: Value) -> ToolResult {
        on_disk("read", arguments, move |arguments| read(&cx.workdir, arguments)).await
    }
}

fn read(workdir: &Path, arguments: Arguments) -> Result<String, Error> {
    let path = either(arguments.path, arguments.file_path)?;
    let file = Beneath::open(workdir)?.file(&path)?;
    let mut file = BufReader::with_capacity(SAMPLE, file);
    let failed = |source| Error::Io { path: path.clone(), source };
    if !is_text(file.fill_buf().map_err(failed)?) {
        return Err(Error::Binary { path });
    }
    // `as` saturates: nonsense becomes the first line, or more lines than any file has.
    let offset = arguments.offset.map_or(1, |offset| (offset as u64).max(1));
    let limit = arguments.limit.map_or(MAX_LINES, |limit| (limit as u64).clamp(1, MAX_LINES));
    let skipped = skip(&mut file, offset - 1).map_err(failed)?;
    let at_end = file.fill_buf().map_err(failed)?.is_empty();
    match (at_end, offset) {
        (true, 1) => return Ok("(empty file)".to_owned()),
        (true, _) => return Err(Error::PastEnd { path, offset, lines: skipped }),
        (false, _) => {}
    }
    let page = Page::take(&mut file, limit).map_err(failed)?;
    Ok(page.tell(&path, offset))
}

/// Text has no NUL bytes, and few that are not UTF-8.
fn is_text(sample: &[u8]) -> bool {
    let shown = String::from_utf8_lossy(sample);
    let broken = shown.chars().filter(|&c| c == char::REPLACEMENT_CHARACTER).count();
    !sample.contains(&0) && broken <= shown.chars().count() / 10
}

fn skip(file: &mut impl BufRead, lines: u64) -> io::Result<u64> {
    for skipped in 0..lines {
        if file.skip_until(b'\n')? == 0 {
            return Ok(skipped);
        }
    }
    Ok(lines)
}

struct Page {
    bytes: Vec<u8>,
    lines: u64,
    rest: Rest,
}

/// What the file has after the page.
enum Rest {
    Nothing,
    Lines,
    /// The only line of the page is longer than a page.
    Line,
}

impl Page {
    fn take(file: &mut impl BufRead, limit: u64) -> io::Result<Self> {
        let mut page = Self { bytes: Vec::new(), lines: 0, rest: Rest::Nothing };
        while page.lines < limit {
            let before = page.bytes.len();
            // One byte more than fits, to see whether the line does.
            let room = (MAX_BYTES - before) as u64 + 1;
            if io::Read::take(&mut *file, room).read_until(b'\n', &mut page.bytes)? == 0 {
                return Ok(page);
            }
            if page.bytes.len() > MAX_BYTES {
                let keep = if page.lines == 0 { char_start(&page.bytes, MAX_BYTES) } else { before };
                page.rest = if page.lines == 0 { Rest::Line } else { Rest::Lines };
                page.bytes.truncate(keep);
                return Ok(page);
            }
            page.lines += 1;
        }
        if !file.fill_buf()?.is_empty() {
            page.rest = Rest::Lines;
        }
        Ok(page)
    }

    fn tell(self, path: &str, offset: u64) -> String {
        let next = offset.saturating_add(self.lines.max(1));
        let mut notices = Vec::new();
        match self.rest {
            Rest::Nothing => {}
            Rest::Lines => notices.push(format!(
                "[Lines {offset} to {last} of {path}, which goes on. Use offset={next} to read on.]",
                last = next - 1
            )),
            Rest::Line => notices.push(format!(
                "[Line {offset} of {path} is longer than 50 KiB; only its beginning is shown. Use exec to cut out more \
                 of it, or offset={next} to read on after it.]"
            )),
        }
        let text = String::from_utf8(self.bytes).unwrap_or_else(|error| {
            notices.push("[Bytes that are not UTF-8 are shown as \u{fffd}.]".to_owned());
            String::from_utf8_lossy(error.as_bytes()).into_owned()
        });
        if notices.is_empty() {
            return text;
        }
        format!("{}\n\n{}", text.strip_suffix('\n').unwrap_or(&text), notices.join("\n"))
    }
}

/// The last place at or before `at` where a character starts, so that a cut leaves whole ones.
fn char_start(bytes: &[u8], at: usize) -> usize {
    let is_inside = |at: usize| bytes.get(at).is_some_and(|byte| byte & 0xC0 == 0x80);
    (at.saturating_sub(3)..=at).rev().find(|&at| !is_inside(at)).unwrap_or(at)
}
