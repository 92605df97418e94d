//! Ring buffer of the newest log lines, served by `logs.tail`.
//!
//! The logging subscriber writes here, too, one JSON object per line. A bounded number of bytes is kept. Cursors count
//! from the first byte ever written, so a reader can continue where it stopped.

use std::{
    collections::VecDeque,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

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

/// Result of a read.
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
    pub fn with_location(self, place: String) -> Self {
        self.lock().location = Some(place);
        self
    }

    /// Returns the location of the log.
    pub(crate) fn location(&self) -> String {
        self.lock().location.clone().unwrap_or_else(|| "(memory of the gateway)".to_owned())
    }

    /// Returns the newest lines, or those after a cursor, limited in number and bytes.
    pub(crate) fn read(&self, cursor: Option<u64>, lines: usize, bytes: usize) -> LogPage {
        let book = self.lock();
        let is_reset = cursor.is_some_and(|cursor| cursor < book.begin || cursor > book.end);
        let from = cursor.filter(|_| !is_reset).unwrap_or(book.begin);
        let mut at = book.begin;
        let later: Vec<&String> = book
            .lines
            .iter()
            .filter(|line| {
                let begins = at;
                at += size(line);
                begins >= from
            })
            .collect();
        let mut room = bytes;
        let mut shown: Vec<String> = Vec::new();
        for line in later.iter().rev().take(lines) {
            match room.checked_sub(line.len() + 1) {
                Some(left) => room = left,
                None if shown.is_empty() => room = 0,
                None => break,
            }
            shown.push((*line).clone());
        }
        shown.reverse();
        LogPage { cursor: book.end, size: book.end, is_truncated: shown.len() < later.len(), is_reset, lines: shown }
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
    let Ok(Value::Object(mut event)) = serde_json::from_str::<Value>(line) else { return truncate(line.trim_end()) };
    let mut fields = match event.remove("fields") {
        Some(Value::Object(fields)) => fields,
        _ => Map::new(),
    };
    let text = |from: &mut Map<String, Value>, name: &str| match from.remove(name) {
        Some(Value::String(text)) => text,
        Some(other) => other.to_string(),
        None => String::new(),
    };
    let (message, time) = (text(&mut fields, "message"), text(&mut event, "timestamp"));
    let (level, target) = (text(&mut event, "level"), text(&mut event, "target"));
    let more: String = fields.iter().map(|(name, value)| format!(" {name}={value}")).collect();
    let words = sanitise(&format!("{message}{more}"));
    let line = json!({
        "0": words, "time": time, "level": level.to_lowercase(), "subsystem": target,
        "message": words, "_meta": {"logLevelName": level, "date": time, "name": target},
    });
    let line = line.to_string();
    if line.len() <= MAX_LINE_BYTES { line } else { json!({"0": truncate(&message), "time": time}).to_string() }
}

/// Replaces characters that affect a terminal and that JSON does not escape.
fn sanitise(text: &str) -> String {
    let acts = |char: char| {
        let is_break = matches!(char, '\u{2028}'..='\u{202e}' | '\u{200e}' | '\u{200f}' | '\u{2066}'..='\u{2069}');
        is_break || (char.is_control() && char > ' ')
    };
    text.chars().map(|char| if acts(char) { '\u{fffd}' } else { char }).collect()
}

fn truncate(text: &str) -> String {
    match text.char_indices().nth(MAX_LINE_BYTES / 4) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn book(lines: &[&str]) -> LogBuffer {
        let mut book = LogBuffer::default();
        for line in lines {
            writeln!(book, "{line}").unwrap();
        }
        book
    }

    #[test]
    fn a_reader_goes_on_where_it_was() {
        let mut book = book(&["one", "two"]);
        let all = book.read(None, 10, 1000);
        assert_eq!((all.lines, all.cursor, all.is_truncated), (vec!["one".to_owned(), "two".to_owned()], 8, false));
        assert_eq!(book.read(Some(8), 10, 1000).lines, Vec::<String>::new());
        writeln!(book, "three").unwrap();
        let more = book.read(Some(8), 10, 1000);
        assert_eq!((more.lines, more.cursor, more.is_reset), (vec!["three".to_owned()], 14, false));
    }

    #[test]
    fn a_reader_gets_the_newest_that_it_takes() {
        let book = book(&["one", "two", "three"]);
        let two = book.read(None, 2, 1000);
        assert_eq!((two.lines, two.is_truncated), (vec!["two".to_owned(), "three".to_owned()], true));
        assert_eq!(book.read(None, 10, 7).lines, ["three"]);
        assert_eq!(book.read(None, 10, 1).lines, ["three"]);
    }

    #[test]
    fn old_lines_make_room_and_whoever_missed_them_is_told() {
        let line = "x".repeat(1023);
        let book = book(&vec![line.as_str(); 1030]);
        let seen = book.read(Some(10), 2, 10_000);
        assert_eq!((seen.cursor, seen.lines.len(), seen.is_reset), (1030 * 1024, 2, true));
        assert_eq!(book.read(None, usize::MAX, usize::MAX).lines.len(), 1024);
    }

    #[test]
    fn an_event_is_told_as_clients_read_it() {
        let event = r#"{"timestamp":"2026-01-02T03:04:05Z","level":"WARN","fields":{"message":"gone","port":5},"target":"homard"}"#;
        let book = book(&[event]);
        let line: Value = serde_json::from_str(&book.read(None, 1, 1000).lines[0]).unwrap();
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
    fn r74_what_acts_on_a_screen_is_not_told() {
        let event = json!({"fields": {"message": "a\u{9b}31m\u{202e}b\n\u{1b}[2J", "origin": "\u{2028}"}});
        let line = book(&[&event.to_string()]).read(None, 1, 1000).lines.remove(0);
        assert!(!line.contains(|char: char| char.is_control() || matches!(char, '\u{2028}' | '\u{202e}')), "{line:?}");
    }

    #[test]
    fn a_line_comes_in_parts_and_may_be_no_json() {
        let mut book = LogBuffer::default();
        book.write_all(b"hal").unwrap();
        assert_eq!(book.read(None, 1, 100).lines, Vec::<String>::new());
        book.write_all(b"f\n").unwrap();
        assert_eq!(book.read(None, 1, 100).lines, ["half"]);
    }
}
