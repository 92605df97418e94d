//! Ring buffer of the newest log lines, served by `logs.tail`.
//!
//! The logging subscriber writes here, too, one JSON object per line. A bounded number of bytes is kept. Cursors count
//! from the first byte ever written, so a reader can continue where it stopped.

use std::{
    collections::VecDeque,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use homard_stdx::text::{affects_terminal, truncate};
use serde_json::{Map, Value, json};

/// Maximum number of bytes kept.
const MAX_BYTES: usize = 1024 * 1024;
/// Maximum length of a line in bytes.
const MAX_LINE_BYTES: usize = 16 * 1024;

/// Ring buffer of log lines. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct LogBuffer(Arc<Mutex<LogLines>>);

#[derive(Debug, Default)]
struct LogLines {
    lines: VecDeque<String>,
    /// Offset of the first line that is kept.
    begin: u64,
    /// Offset of the end of the last line.
    end: u64,
    /// Incomplete last line.
    partial: Vec<u8>,
    /// Location of the persistent log, if there is one.
    location: Option<String>,
}

/// Lines returned by one read of the log buffer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LogPage {
    /// Offset to continue from.
    pub(crate) cursor: u64,
    /// Total number of bytes ever written.
    pub(crate) size: u64,
    pub(crate) lines: Vec<String>,
    /// True if there were more lines than the reader's limits allow.
    pub(crate) is_truncated: bool,
    /// True if the cursor is not valid any more: unread lines were dropped, or it is from an earlier process.
    pub(crate) is_reset: bool,
}

impl LogBuffer {
    /// Sets the location of the persistent log.
    pub fn with_location(self, location: String) -> Self {
        self.lock().location = Some(location);
        self
    }

    /// Returns the location of the log.
    pub(crate) fn location(&self) -> String {
        self.lock().location.clone().unwrap_or_else(|| "(memory of the gateway)".to_owned())
    }

    /// Returns the newest lines, or those after a cursor, limited in number and bytes.
    pub(crate) fn read(&self, cursor: Option<u64>, lines: usize, bytes: usize) -> LogPage {
        let buffer = self.lock();
        let is_reset = cursor.is_some_and(|cursor| cursor < buffer.begin || cursor > buffer.end);
        let start = cursor.filter(|_| !is_reset).unwrap_or(buffer.begin);
        let mut at = buffer.begin;
        let unread: Vec<&String> = buffer
            .lines
            .iter()
            .filter(|line| {
                let line_start = at;
                at += size(line);
                line_start >= start
            })
            .collect();
        let mut bytes_left = bytes;
        let mut page: Vec<String> = Vec::new();
        for line in unread.iter().rev().take(lines) {
            match bytes_left.checked_sub(line.len() + 1) {
                Some(rest) => bytes_left = rest,
                None if page.is_empty() => bytes_left = 0,
                None => break,
            }
            page.push((*line).clone());
        }
        page.reverse();
        LogPage { cursor: buffer.end, size: buffer.end, is_truncated: page.len() < unread.len(), is_reset, lines: page }
    }

    fn lock(&self) -> MutexGuard<'_, LogLines> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl io::Write for LogBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.lock().write(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl LogLines {
    fn write(&mut self, bytes: &[u8]) {
        self.partial.extend_from_slice(bytes);
        while let Some(at) = self.partial.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.partial.drain(..=at).collect();
            self.add(client_line(&String::from_utf8_lossy(&line)));
        }
        // Real log lines are shorter.
        self.partial.truncate(4 * MAX_LINE_BYTES);
    }

    fn add(&mut self, line: String) {
        self.end += size(&line);
        self.lines.push_back(line);
        while self.end - self.begin > MAX_BYTES as u64 {
            let Some(oldest) = self.lines.pop_front() else { break };
            self.begin += size(&oldest);
        }
    }
}

/// Length of a line including its newline.
fn size(line: &str) -> u64 {
    line.len() as u64 + 1
}

/// Converts a line to the format that clients expect: message, time, level and target, the last three also in `_meta`.
fn client_line(line: &str) -> String {
    let Ok(Value::Object(mut event)) = serde_json::from_str::<Value>(line) else {
        return truncate(line.trim_end(), MAX_LINE_BYTES / 4);
    };
    let mut fields = match event.remove("fields") {
        Some(Value::Object(fields)) => fields,
        _ => Map::new(),
    };
    let take_text = |map: &mut Map<String, Value>, name: &str| match map.remove(name) {
        Some(Value::String(take_text)) => take_text,
        Some(other) => other.to_string(),
        None => String::new(),
    };
    let (message, time) = (take_text(&mut fields, "message"), take_text(&mut event, "timestamp"));
    let (level, target) = (take_text(&mut event, "level"), take_text(&mut event, "target"));
    let extra: String = fields.iter().map(|(name, value)| format!(" {name}={value}")).collect();
    let text = sanitise(&format!("{message}{extra}"));
    let line = json!({
        "0": text, "time": time, "level": level.to_lowercase(), "subsystem": target,
        "message": text, "_meta": {"logLevelName": level, "date": time, "name": target},
    });
    let line = line.to_string();
    if line.len() <= MAX_LINE_BYTES {
        line
    } else {
        json!({"0": truncate(&message, MAX_LINE_BYTES / 4), "time": time}).to_string()
    }
}

/// Replaces characters that affect a terminal and that JSON does not escape.
fn sanitise(text: &str) -> String {
    let is_unsafe = |char: char| char > ' ' && affects_terminal(char);
    text.chars().map(|char| if is_unsafe(char) { '\u{fffd}' } else { char }).collect()
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn buffer(lines: &[&str]) -> LogBuffer {
        let mut buffer = LogBuffer::default();
        for line in lines {
            writeln!(buffer, "{line}").unwrap();
        }
        buffer
    }

    #[test]
    fn reading_continues_at_the_cursor() {
        let mut buffer = buffer(&["one", "two"]);
        let all = buffer.read(None, 10, 1000);
        assert_eq!((all.lines, all.cursor, all.is_truncated), (vec!["one".to_owned(), "two".to_owned()], 8, false));
        assert_eq!(buffer.read(Some(8), 10, 1000).lines, Vec::<String>::new());
        writeln!(buffer, "three").unwrap();
        let next_page = buffer.read(Some(8), 10, 1000);
        assert_eq!((next_page.lines, next_page.cursor, next_page.is_reset), (vec!["three".to_owned()], 14, false));
    }

    #[test]
    fn limits_keep_the_newest_lines() {
        let buffer = buffer(&["one", "two", "three"]);
        let two = buffer.read(None, 2, 1000);
        assert_eq!((two.lines, two.is_truncated), (vec!["two".to_owned(), "three".to_owned()], true));
        assert_eq!(buffer.read(None, 10, 7).lines, ["three"]);
        assert_eq!(buffer.read(None, 10, 1).lines, ["three"]);
    }

    #[test]
    fn old_lines_are_dropped_and_a_stale_cursor_is_reset() {
        let line = "x".repeat(1023);
        let buffer = buffer(&vec![line.as_str(); 1030]);
        let page = buffer.read(Some(10), 2, 10_000);
        assert_eq!((page.cursor, page.lines.len(), page.is_reset), (1030 * 1024, 2, true));
        assert_eq!(buffer.read(None, usize::MAX, usize::MAX).lines.len(), 1024);
    }

    #[test]
    fn an_event_is_formatted_for_clients() {
        let event = r#"{"timestamp":"2026-01-02T03:04:05Z","level":"WARN","fields":{"message":"gone","port":5},"target":"homard"}"#;
        let buffer = buffer(&[event]);
        let line: Value = serde_json::from_str(&buffer.read(None, 1, 1000).lines[0]).unwrap();
        assert_eq!(
            line,
            json!({
                "0": "gone port=5", "time": "2026-01-02T03:04:05Z", "level": "warn", "subsystem": "homard",
                "message": "gone port=5",
                "_meta": {"logLevelName": "WARN", "date": "2026-01-02T03:04:05Z", "name": "homard"},
            })
        );
    }

    #[test]
    fn r74_terminal_control_characters_are_replaced() {
        let event = json!({"fields": {"message": "a\u{9b}31m\u{202e}b\n\u{1b}[2J", "origin": "\u{2028}"}});
        let line = buffer(&[&event.to_string()]).read(None, 1, 1000).lines.remove(0);
        assert!(!line.contains(|char: char| char.is_control() || matches!(char, '\u{2028}' | '\u{202e}')), "{line:?}");
    }

    #[test]
    fn a_line_may_arrive_in_parts_and_may_not_be_json() {
        let mut buffer = LogBuffer::default();
        buffer.write_all(b"hal").unwrap();
        assert_eq!(buffer.read(None, 1, 100).lines, Vec::<String>::new());
        buffer.write_all(b"f\n").unwrap();
        assert_eq!(buffer.read(None, 1, 100).lines, ["half"]);
    }
}
