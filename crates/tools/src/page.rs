//! A page of a text file: as many whole lines as fit, and a notice that says how to continue.

use std::io::{self, BufRead, Read as _};

use homard_agent::tool::ToolResult;
use serde_json::json;

/// Maximum number of lines in a page.
pub(crate) const MAX_LINES: u64 = 2000;

/// Maximum size of a page in bytes.
const MAX_BYTES: usize = 50 * 1024;

/// Where a page starts.
#[derive(Debug, Clone, Copy)]
pub(crate) enum PageStart {
    /// At a line, counted from 1, with its byte offset.
    Line { number: u64, byte: u64 },
    /// At a byte offset.
    Byte(u64),
}

/// Some lines of a file.
#[derive(Debug)]
pub(crate) struct FilePage {
    bytes: Vec<u8>,
    lines: u64,
    rest: PageEnd,
}

/// What follows the page in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PageEnd {
    Nothing,
    /// More lines than requested.
    Lines,
    /// More than fits into a page.
    Bytes,
    /// The rest of the page's only line, which is longer than a page.
    Line,
}

impl FilePage {
    /// Reads the next lines, at most `limit`.
    pub(crate) fn read(file: &mut impl BufRead, limit: u64) -> io::Result<Self> {
        let mut page = Self { bytes: Vec::new(), lines: 0, rest: PageEnd::Nothing };
        while page.lines < limit {
            let before = page.bytes.len();
            // One byte more than fits, to detect whether the line fits.
            let remaining = (MAX_BYTES - before) as u64 + 1;
            if file.take(remaining).read_until(b'\n', &mut page.bytes)? == 0 {
                return Ok(page);
            }
            if page.bytes.len() > MAX_BYTES {
                let keep = if page.lines == 0 { char_start(&page.bytes, MAX_BYTES) } else { before };
                page.rest = if page.lines == 0 { PageEnd::Line } else { PageEnd::Bytes };
                page.bytes.truncate(keep);
                return Ok(page);
            }
            page.lines += 1;
        }
        if !file.fill_buf()?.is_empty() {
            page.rest = PageEnd::Lines;
        }
        Ok(page)
    }

    /// Builds the tool result.
    pub(crate) fn into_result(self, path: &str, start: PageStart) -> ToolResult {
        let mut notices: Vec<String> = self.notice(path, start).into_iter().collect();
        let truncated_by = match self.rest {
            PageEnd::Lines if self.lines == MAX_LINES => Some("lines"),
            PageEnd::Nothing | PageEnd::Lines => None,
            PageEnd::Bytes | PageEnd::Line => Some("bytes"),
        };
        let details = truncated_by.map(|by| {
            json!({"truncation": {
                "truncated": true,
                "truncatedBy": by,
                "outputLines": self.lines,
                "outputBytes": self.bytes.len(),
                "maxLines": MAX_LINES,
                "maxBytes": MAX_BYTES,
                "firstLineExceedsLimit": self.rest == PageEnd::Line,
            }})
        });
        let mut text = String::from_utf8(self.bytes).unwrap_or_else(|error| {
            notices.push("[Bytes that are not UTF-8 are shown as \u{fffd}.]".to_owned());
            String::from_utf8_lossy(error.as_bytes()).into_owned()
        });
        if !notices.is_empty() {
            text = format!("{}\n\n{}", text.strip_suffix('\n').unwrap_or(&text), notices.join("\n"));
        }
        ToolResult { details, ..ToolResult::text(text) }
    }

    fn notice(&self, path: &str, start: PageStart) -> Option<String> {
        let end = |byte: u64| byte.saturating_add(self.bytes.len() as u64);
        let notice = match (self.rest, start) {
            (PageEnd::Nothing, _) => return None,
            (PageEnd::Lines | PageEnd::Bytes, PageStart::Line { number, .. }) => {
                let next = number.saturating_add(self.lines);
                let last = next - 1;
                format!("[Lines {number} to {last} of {path}; the file continues. Use offset={next} to read on.]")
            }
            (PageEnd::Line, PageStart::Line { number, byte }) => format!(
                "[Line {number} of {path} is longer than 50 KiB; only its beginning is shown. Use cursor={} to read on \
                 in it, or offset={} to read on after it.]",
                end(byte),
                number.saturating_add(1)
            ),
            (PageEnd::Lines | PageEnd::Bytes | PageEnd::Line, PageStart::Byte(byte)) => {
                format!("[{path} continues after these bytes. Use cursor={} to read on.]", end(byte))
            }
        };
        Some(notice)
    }
}

/// Returns the last character boundary at or before `at`.
pub(crate) fn char_start(bytes: &[u8], at: usize) -> usize {
    let is_inside = |at: usize| bytes.get(at).is_some_and(|byte| byte & 0xC0 == 0x80);
    (at.saturating_sub(3)..=at).rev().find(|&at| !is_inside(at)).unwrap_or(at)
}
