//! Tolerant parser of transcripts, and their repaired form.
//!
//! Pure: whether and when a file is rewritten is decided elsewhere.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
};

use homard_proto::{
    EntryId, SessionId,
    transcript::{Entry, Header, Kind, VERSION},
};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::migrate;

/// A parsed transcript.
#[derive(Debug, Default)]
pub(crate) struct ParsedTranscript<'a> {
    /// Valid entries, in file order.
    pub(crate) entries: Vec<Entry>,
    /// Lines of the repaired file: every line that is kept, the header first.
    lines: Vec<Cow<'a, [u8]>>,
    /// Number of damaged lines, counting a missing header.
    pub(crate) damaged: usize,
    /// True if lines written by an older version had to be migrated.
    pub(crate) is_old: bool,
    /// How the file ends.
    pub(crate) end: TranscriptTail,
}

/// How a transcript ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum TranscriptTail {
    /// With a complete line.
    #[default]
    Whole,
    /// With a complete line that lacks only its line break.
    NoLineBreak,
    /// With a partial line, which was never acknowledged and is ignored. Contains the end of the last complete line.
    Torn(usize),
}

impl ParsedTranscript<'_> {
    /// True if lines can be appended to the file as it is.
    pub(crate) fn is_intact(&self) -> bool {
        !self.must_be_rewritten() && self.end == TranscriptTail::Whole
    }

    /// True if the file has to be rewritten before lines are appended.
    pub(crate) fn must_be_rewritten(&self) -> bool {
        self.damaged > 0 || self.is_old
    }

    /// Last entry: the parent of the next one.
    pub(crate) fn leaf(&self) -> Option<EntryId> {
        self.entries.last().map(|entry| entry.id.clone())
    }

    /// Returns the content of the repaired file.
    pub(crate) fn repaired_text(&self) -> Vec<u8> {
        self.lines.iter().flat_map(|line| line.iter().chain(b"\n")).copied().collect()
    }
}

/// Parses a transcript. Lines that are not JSON objects are damaged: they yield no entries and are not in the repaired
/// file. JSON objects that are not valid entries in this version yield none either, but stay in the file.
pub(crate) fn read<'a>(bytes: &'a [u8], session: &SessionId) -> ParsedTranscript<'a> {
    let complete_length = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
    let (mut text, tail) = bytes.split_at(complete_length);
    let mut parser = TranscriptParser::default();
    if !tail.is_empty() {
        let is_complete = matches!(serde_json::from_slice(tail), Ok(Value::Object(_)));
        parser.found.end =
            if is_complete { TranscriptTail::NoLineBreak } else { TranscriptTail::Torn(complete_length) };
        text = if is_complete { bytes } else { text };
    }
    let mut lines = text.split(|&byte| byte == b'\n').filter(|line| !line.trim_ascii().is_empty()).peekable();
    if lines.peek().is_some_and(|first| parser.parse_header(first)) {
        lines.next();
    } else if lines.peek().is_some() {
        parser.found.damaged += 1;
    }
    lines.for_each(|line| parser.parse_line(line));
    let mut found = parser.found;
    if parser.version.is_none() && !text.is_empty() {
        let timestamp = found.entries.first().map_or("1970-01-01T00:00:00.000Z", |entry| &entry.timestamp);
        let header = Header::new(session.clone(), timestamp.to_owned(), String::new());
        found.lines.insert(0, Cow::Owned(line(&header)));
    }
    found
}

#[derive(Default)]
struct TranscriptParser<'a> {
    found: ParsedTranscript<'a>,
    /// Version in the header; `None` if there is none.
    version: Option<u64>,
    /// Ids of all lines so far, with a slot for the header, for versions that refer to line numbers.
    ids: Vec<Option<EntryId>>,
    /// Set once a damaged line was skipped.
    gap: Option<Gap>,
}

/// Reparents entries after damaged lines: children of a lost line are attached to the line before the damage.
struct Gap {
    /// Ids of all entries that were read.
    known: HashSet<EntryId>,
    /// Last entry before the newest damaged line.
    before: Option<EntryId>,
    /// New parents of the children of lost entries, by lost parent.
    new_parents: HashMap<EntryId, Option<EntryId>>,
}

impl<'a> TranscriptParser<'a> {
    fn parse_header(&mut self, text: &'a [u8]) -> bool {
        let Ok(Value::Object(mut header)) = serde_json::from_slice(text) else { return false };
        if header.get("type").and_then(Value::as_str) != Some("session") {
            return false;
        }
        let version = header.get("version").and_then(Value::as_u64).unwrap_or(1);
        self.version = Some(version);
        self.ids.push(None);
        if version < VERSION.into() {
            self.found.is_old = true;
            header.insert("version".to_owned(), VERSION.into());
            self.found.lines.push(Cow::Owned(line(&header)));
        } else {
            self.found.lines.push(Cow::Borrowed(text));
        }
        true
    }

    fn parse_line(&mut self, text: &'a [u8]) {
        let is_current = self.version.is_none_or(|version| version >= VERSION.into());
        if is_current && let Ok(entry) = serde_json::from_slice::<Entry>(text) {
            self.accept(text, entry, false);
            return;
        }
        let Ok(Value::Object(mut fields)) = serde_json::from_slice(text) else {
            self.skip_damaged_line();
            return;
        };
        let completed = migrate::complete(&mut fields, &self.ids, self.found.entries.last());
        match serde_json::from_value(Value::Object(fields)) {
            Ok(entry) => {
                self.found.is_old |= completed;
                self.accept(text, entry, completed);
            }
            Err(_) => self.keep(text),
        }
    }

    /// Keeps a line that another version may understand.
    fn keep(&mut self, text: &'a [u8]) {
        self.ids.push(None);
        self.found.lines.push(Cow::Borrowed(text));
    }

    /// Skips a damaged line. Later entries whose parent was lost are attached to the last entry before it.
    fn skip_damaged_line(&mut self) {
        self.found.damaged += 1;
        self.ids.push(None);
        let entries = &self.found.entries;
        let before = entries.last().map(|entry| entry.id.clone());
        let gap = self.gap.get_or_insert_with(|| Gap {
            known: entries.iter().map(|entry| entry.id.clone()).collect(),
            before: None,
            new_parents: HashMap::new(),
        });
        gap.before = before;
    }

    /// Adds an entry, after correcting its parent if the line does not name one or names a lost entry. `is_changed` is
    /// true if the entry already differs from its line `text`, so that the repaired file needs a new line.
    fn accept(&mut self, text: &'a [u8], mut entry: Entry, mut is_changed: bool) {
        if is_second_header(&entry) {
            self.keep(text);
            return;
        }
        if entry.parent_id.is_none() && !self.found.entries.is_empty() && !has_parent_field(text) && !is_changed {
            // The line has no parent field, unlike a root, whose field is `null`: an old version or another program
            // wrote it. As a root it would cut off all entries before it, so it follows the previous entry.
            entry.parent_id = self.found.leaf();
        }
        if let Some(gap) = &mut self.gap {
            // The parent was lost with a damaged line.
            if let Some(parent) = entry.parent_id.as_ref().filter(|parent| !gap.known.contains(*parent)) {
                entry.parent_id = gap.new_parents.entry(parent.clone()).or_insert_with(|| gap.before.clone()).clone();
                is_changed = true;
            }
            gap.known.insert(entry.id.clone());
        }
        self.ids.push(Some(entry.id.clone()));
        self.found.lines.push(if is_changed { Cow::Owned(line(&entry)) } else { Cow::Borrowed(text) });
        self.found.entries.push(entry);
    }
}

/// True if an entry is a header after the first line. Such a line is kept, but is not an entry.
fn is_second_header(entry: &Entry) -> bool {
    let Kind::Other(fields) = &entry.kind else { return false };
    fields.get("type").and_then(Value::as_str) == Some("session")
}

/// True if a line has a parent field, even if its value is `null`.
fn has_parent_field(text: &[u8]) -> bool {
    serde_json::from_slice(text).is_ok_and(|fields: Map<String, Value>| fields.contains_key("parentId"))
}

/// Serializes a value as one line without its line break. Our own types, and values that were parsed from JSON, always
/// serialize.
fn line(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = r#"{"type":"session","version":3,"id":"s","timestamp":"t","cwd":"/"}"#;

    fn said(id: &str, parent: &str) -> String {
        format!(
            r#"{{"type":"message","id":"{id}","parentId":{parent},"timestamp":"t","message":{{"role":"user","content":"{id}","timestamp":1}}}}"#
        )
    }

    fn file(lines: &[&str]) -> Vec<u8> {
        lines.iter().flat_map(|line| [line, "\n"]).collect::<String>().into_bytes()
    }

    fn format_entries(parsed: &ParsedTranscript<'_>) -> Vec<String> {
        let name = |id: &Option<EntryId>| id.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string);
        parsed.entries.iter().map(|entry| format!("{}<{}", name(&entry.parent_id), entry.id)).collect()
    }

    fn session() -> SessionId {
        SessionId::parse("s").unwrap()
    }

    #[test]
    fn children_of_a_damaged_line_follow_the_line_before_it() {
        let bytes = file(&[
            HEADER,
            &said("a", "null"),
            "{\"type\":",
            &said("c", "\"b\""),
            &said("d", "\"c\""),
            &said("e", "\"b\""),
        ]);
        let parsed = read(&bytes, &session());
        assert_eq!(format_entries(&parsed), ["-<a", "a<c", "c<d", "a<e"]);
        assert_eq!((parsed.damaged, parsed.is_old, parsed.end), (1, false, TranscriptTail::Whole));
        let repaired = parsed.repaired_text();
        let again = read(&repaired, &session());
        assert!(again.is_intact());
        assert_eq!(again.entries, parsed.entries);
    }

    #[test]
    fn a_missing_header_is_damage_and_is_generated() {
        let bytes = file(&[&said("a", "null")]);
        let parsed = read(&bytes, &session());
        assert_eq!((format_entries(&parsed), parsed.damaged), (vec!["-<a".to_owned()], 1));
        let repaired = String::from_utf8(parsed.repaired_text()).unwrap();
        assert!(
            repaired.starts_with(r#"{"type":"session","version":3,"id":"s","timestamp":"t","cwd":""}"#),
            "{repaired}"
        );
        assert!(read(b"", &session()).is_intact());
        assert_eq!(read(b"{\"typ", &session()).end, TranscriptTail::Torn(0));
    }

    #[test]
    fn unknown_lines_stay_in_the_file_and_yield_no_entries() {
        let unknown =
            r#"{"type":"message","id":"under_score","parentId":null,"timestamp":"t","message":{"role":"user"}}"#;
        let bytes = file(&[HEADER, unknown, HEADER, &said("a", "null")]);
        let parsed = read(&bytes, &session());
        assert_eq!(format_entries(&parsed), ["-<a"]);
        assert!(parsed.is_intact());
        assert_eq!(parsed.repaired_text(), bytes);
    }

    #[test]
    fn a_line_without_a_parent_field_follows_the_previous_line() {
        let orphan = r#"{"type":"message","id":"b","timestamp":"t","message":{"role":"user","content":"b"}}"#;
        let bytes = file(&[HEADER, &said("a", "null"), orphan, &said("c", "null")]);
        let parsed = read(&bytes, &session());
        assert_eq!(format_entries(&parsed), ["-<a", "a<b", "-<c"]);
        assert!(parsed.is_intact());
    }

    #[test]
    fn a_complete_last_line_counts_without_its_line_break() {
        let mut bytes = file(&[HEADER, &said("a", "null")]);
        bytes.pop();
        let parsed = read(&bytes, &session());
        assert_eq!((format_entries(&parsed), parsed.end), (vec!["-<a".to_owned()], TranscriptTail::NoLineBreak));
        bytes.pop();
        assert_eq!(read(&bytes, &session()).end, TranscriptTail::Torn(HEADER.len() + 1));
    }
}
