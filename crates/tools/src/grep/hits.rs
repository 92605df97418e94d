//! Matching lines of one file with their context.

use std::{fs::File, io};

use grep_matcher::Matcher;
use grep_searcher::{
    BinaryDetection, Searcher, SearcherBuilder, Sink, SinkContext, SinkContextKind, SinkError, SinkMatch,
};
use tokio_util::sync::CancellationToken;

use super::Search;
use crate::{page::char_start, stoppable::Stoppable};

/// Maximum length of a searched line in bytes, so that a file without line breaks cannot exhaust memory.
const MAX_LINE: usize = 8 * 1024 * 1024;

/// Maximum number of characters shown of a line.
const SHOWN: usize = 500;

/// Number of characters shown before a match that is far into its line.
const LEAD: usize = 100;

/// Matches of a file.
#[derive(Debug, Default)]
pub(super) struct Hits {
    /// Lines to show, in order.
    pub(super) lines: Vec<Line>,
    /// Number of matching lines; one more than the limit means that there are more.
    pub(super) count: usize,
    /// True if the file is binary, in which case nothing of it is shown.
    pub(super) is_binary: bool,
    /// True if the file could not be searched to its end.
    pub(super) is_unreadable: bool,
}

/// A line to show.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) number: u64,
    pub(super) text: String,
    pub(super) kind: Kind,
    /// True if only a part of it is shown.
    pub(super) is_cut: bool,
}

/// Why a line is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Match,
    Before,
    After,
}

/// Searches files one after the other.
pub(super) struct Hunter<'a> {
    search: &'a Search,
    searcher: Searcher,
    cancel: &'a CancellationToken,
}

impl<'a> Hunter<'a> {
    pub(super) fn new(search: &'a Search, cancel: &'a CancellationToken) -> Self {
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
    pub(super) fn hunt(&mut self, file: File) -> Hits {
        let mut basket = Basket { search: self.search, hits: Hits::default() };
        let reader = Stoppable::new(file, self.cancel);
        let searched = self.searcher.search_reader(&self.search.matcher, reader, &mut basket);
        let mut hits = basket.hits;
        hits.is_unreadable = searched.is_err();
        if hits.is_binary {
            hits.lines.clear();
            hits.count = 0;
        }
        hits
    }
}

struct Basket<'a> {
    search: &'a Search,
    hits: Hits,
}

impl Sink for Basket<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> Result<bool, io::Error> {
        self.hits.count += 1;
        if self.hits.count > self.search.limit {
            return Ok(false);
        }
        let at = self.search.matcher.find(found.bytes()).map_err(io::Error::error_message)?;
        self.hits.lines.push(Line::of(found.bytes(), found.line_number(), Kind::Match, at.map_or(0, |at| at.start())));
        Ok(true)
    }

    fn context(&mut self, _: &Searcher, found: &SinkContext<'_>) -> Result<bool, io::Error> {
        let kind = match found.kind() {
            SinkContextKind::Before => Kind::Before,
            SinkContextKind::After | SinkContextKind::Other => Kind::After,
        };
        self.hits.lines.push(Line::of(found.bytes(), found.line_number(), kind, 0));
        Ok(true)
    }

    fn binary_data(&mut self, _: &Searcher, _: u64) -> Result<bool, io::Error> {
        self.hits.is_binary = true;
        Ok(false)
    }
}

impl Line {
    fn of(bytes: &[u8], number: Option<u64>, kind: Kind, at: usize) -> Self {
        let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
        // If the match is near the end of a long line, the shown part starts shortly before it.
        let start = if at <= SHOWN - LEAD { 0 } else { char_start(bytes, at - LEAD) };
        // A character has at most four bytes.
        let end = bytes.len().min(start + 4 * SHOWN);
        let rest = String::from_utf8_lossy(&bytes[start..end]);
        let mut text: String = rest.chars().take(SHOWN).collect();
        let goes_on = end < bytes.len() || rest.chars().nth(SHOWN).is_some();
        if start > 0 {
            text.insert(0, '…');
        }
        if goes_on {
            text.push('…');
        }
        Self { number: number.unwrap_or(0), text, kind, is_cut: start > 0 || goes_on }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(line: &str, at: usize) -> (String, bool) {
        let line = Line::of(line.as_bytes(), Some(1), Kind::Match, at);
        (line.text, line.is_cut)
    }

    #[test]
    fn a_long_line_is_shown_around_its_match() {
        assert_eq!(shown("short é\r\n", 3), ("short é".to_owned(), false));
        assert_eq!(shown(&"é".repeat(500), 0), ("é".repeat(500), false));
        assert_eq!(shown(&"é".repeat(501), 0), ("é".repeat(500) + "…", true));
        let long = "é".repeat(1000) + "here" + &"ü".repeat(1000);
        assert_eq!(shown(&long, 2000), (format!("…{}here{}…", "é".repeat(50), "ü".repeat(446)), true));
        assert_eq!(shown(&("x".repeat(600) + "end"), 600), (format!("…{}end", "x".repeat(100)), true));
    }
}
