//! Matching lines of one file with their context.

use std::{fs::File, io};

use grep_matcher::Matcher;
use grep_searcher::{
    BinaryDetection, Searcher, SearcherBuilder, Sink, SinkContext, SinkContextKind, SinkError, SinkMatch,
};
use tokio_util::sync::CancellationToken;

use super::GrepSearch;
use crate::{cancel_reader::CancelReader, page::char_start};

/// Maximum length of a searched line in bytes, so that a file without line breaks cannot exhaust memory.
const MAX_LINE: usize = 8 * 1024 * 1024;

/// Maximum number of characters shown of a line.
const MAX_SHOWN_CHARS: usize = 500;

/// Number of characters shown before a match that is far into its line.
const LEAD_CHARS: usize = 100;

/// Matches of a file.
#[derive(Debug, Default)]
pub(super) struct FileMatches {
    /// Lines to show, in order.
    pub(super) lines: Vec<MatchLine>,
    /// Number of matching lines; one more than the limit means that there are more.
    pub(super) count: usize,
    /// True if the file is binary, in which case nothing of it is shown.
    pub(super) is_binary: bool,
    /// True if the file could not be searched to its end.
    pub(super) is_unreadable: bool,
}

/// A line to show.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct MatchLine {
    pub(super) number: u64,
    pub(super) text: String,
    pub(super) kind: LineKind,
    /// True if only a part of it is shown.
    pub(super) is_cut: bool,
}

/// Why a line is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineKind {
    Match,
    Before,
    After,
}

/// Searches files one after the other.
pub(super) struct FileSearcher<'a> {
    search: &'a GrepSearch,
    searcher: Searcher,
    cancel: &'a CancellationToken,
}

impl<'a> FileSearcher<'a> {
    pub(super) fn new(search: &'a GrepSearch, cancel: &'a CancellationToken) -> Self {
        let searcher = SearcherBuilder::new()
            .line_terminator(grep_matcher::LineTerminator::crlf())
            .before_context(search.context)
            .after_context(search.context)
            .heap_limit(Some(MAX_LINE))
            .binary_detection(BinaryDetection::quit(0))
            .build();
        Self { search, searcher, cancel }
    }

    /// Searches a file.
    pub(super) fn search_file(&mut self, file: File) -> FileMatches {
        let mut sink = MatchSink { search: self.search, hits: FileMatches::default() };
        let reader = CancelReader::new(file, self.cancel);
        let searched = self.searcher.search_reader(&self.search.matcher, reader, &mut sink);
        let mut hits = sink.hits;
        hits.is_unreadable = searched.is_err();
        if hits.is_binary {
            hits.lines.clear();
            hits.count = 0;
        }
        hits
    }
}

struct MatchSink<'a> {
    search: &'a GrepSearch,
    hits: FileMatches,
}

impl Sink for MatchSink<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> Result<bool, io::Error> {
        self.hits.count += 1;
        if self.hits.count > self.search.limit {
            return Ok(false);
        }
        let position = self.search.matcher.find(found.bytes()).map_err(io::Error::error_message)?;
        self.hits.lines.push(MatchLine::of(
            found.bytes(),
            found.line_number(),
            LineKind::Match,
            position.map_or(0, |position| position.start()),
        ));
        Ok(true)
    }

    fn context(&mut self, _: &Searcher, found: &SinkContext<'_>) -> Result<bool, io::Error> {
        let kind = match found.kind() {
            SinkContextKind::Before => LineKind::Before,
            SinkContextKind::After | SinkContextKind::Other => LineKind::After,
        };
        self.hits.lines.push(MatchLine::of(found.bytes(), found.line_number(), kind, 0));
        Ok(true)
    }

    fn binary_data(&mut self, _: &Searcher, _: u64) -> Result<bool, io::Error> {
        self.hits.is_binary = true;
        Ok(false)
    }
}

impl MatchLine {
    fn of(bytes: &[u8], number: Option<u64>, kind: LineKind, match_start: usize) -> Self {
        let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
        // If the match is near the end of a long line, the shown part starts shortly before it.
        let start =
            if match_start <= MAX_SHOWN_CHARS - LEAD_CHARS { 0 } else { char_start(bytes, match_start - LEAD_CHARS) };
        // A character has at most four bytes.
        let end = bytes.len().min(start + 4 * MAX_SHOWN_CHARS);
        let window = String::from_utf8_lossy(&bytes[start..end]);
        let mut text: String = window.chars().take(MAX_SHOWN_CHARS).collect();
        let continues = end < bytes.len() || window.chars().nth(MAX_SHOWN_CHARS).is_some();
        if start > 0 {
            text.insert(0, '…');
        }
        if continues {
            text.push('…');
        }
        Self { number: number.unwrap_or(0), text, kind, is_cut: start > 0 || continues }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown_text(line: &str, at: usize) -> (String, bool) {
        let line = MatchLine::of(line.as_bytes(), Some(1), LineKind::Match, at);
        (line.text, line.is_cut)
    }

    #[test]
    fn a_long_line_is_shown_around_its_match() {
        assert_eq!(shown_text("short é\r\n", 3), ("short é".to_owned(), false));
        assert_eq!(shown_text(&"é".repeat(500), 0), ("é".repeat(500), false));
        assert_eq!(shown_text(&"é".repeat(501), 0), ("é".repeat(500) + "…", true));
        let long = "é".repeat(1000) + "here" + &"ü".repeat(1000);
        assert_eq!(shown_text(&long, 2000), (format!("…{}here{}…", "é".repeat(50), "ü".repeat(446)), true));
        assert_eq!(shown_text(&("x".repeat(600) + "end"), 600), (format!("…{}end", "x".repeat(100)), true));
    }
}
