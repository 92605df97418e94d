//! Formats the lines found, within limits on matches and bytes.

use homard_agent::tool::ToolResult;
use serde_json::{Map, Value, json};

use super::{
    GrepSearch,
    hits::{FileMatches, LineKind, MatchLine},
};

/// Maximum size of a result in bytes.
const MAX_BYTES: usize = 50 * 1024;

/// A result under construction.
#[derive(Debug)]
pub(super) struct GrepOutput<'a> {
    search: &'a GrepSearch,
    text: String,
    matches: usize,
    /// The limit that was reached, if any.
    reached_limit: Option<ReachedLimit>,
    has_cut_lines: bool,
    /// Number of files and directories that could not be searched.
    pub(super) unreadable: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReachedLimit {
    Matches,
    Bytes,
}

impl<'a> GrepOutput<'a> {
    pub(super) fn new(search: &'a GrepSearch) -> Self {
        Self { search, text: String::new(), matches: 0, reached_limit: None, has_cut_lines: false, unreadable: 0 }
    }

    pub(super) fn is_full(&self) -> bool {
        self.reached_limit.is_some()
    }

    /// Adds the matches of the next file, as far as the limits allow.
    pub(super) fn add(&mut self, path: &str, hits: &FileMatches) {
        self.unreadable += usize::from(hits.is_unreadable);
        let remaining = self.search.limit - self.matches;
        let mut added = 0;
        let mut previous = None;
        for line in &hits.lines {
            // Context lines after the last match are still included; those before the next match are not.
            if self.is_full() || (added == remaining && line.kind != LineKind::After) {
                break;
            }
            added += usize::from(line.kind == LineKind::Match);
            let is_apart = previous.is_none_or(|previous| previous + 1 != line.number);
            self.line(path, line, is_apart && self.search.context > 0);
            previous = Some(line.number);
        }
        self.matches += added;
        if hits.count > added {
            self.reached_limit.get_or_insert(ReachedLimit::Matches);
        }
    }

    fn line(&mut self, path: &str, line: &MatchLine, is_apart: bool) {
        let gap = if is_apart && !self.text.is_empty() { "--\n" } else { "" };
        let (number, text) = (line.number, &line.text);
        let formatted = match line.kind {
            LineKind::Match => format!("{gap}{path}:{number}: {text}\n"),
            LineKind::Before | LineKind::After => format!("{gap}{path}-{number}- {text}\n"),
        };
        if self.text.len() + formatted.len() > MAX_BYTES {
            self.reached_limit = Some(ReachedLimit::Bytes);
            return;
        }
        self.text.push_str(&formatted);
        self.has_cut_lines |= line.is_cut;
    }

    /// Builds the tool result.
    pub(super) fn into_result(self) -> ToolResult {
        let (mut notices, mut details) = (Vec::new(), Map::new());
        let limit = self.search.limit;
        match self.reached_limit {
            None => {}
            Some(ReachedLimit::Matches) => {
                notices.push(format!("[There are more than {limit}. Use a larger limit, or a narrower pattern.]"));
                details.insert("matchLimitReached".to_owned(), json!(limit));
            }
            Some(ReachedLimit::Bytes) => {
                notices.push("[There are more than fit in 50 KiB. Use a narrower pattern.]".to_owned());
                let truncation = json!({"truncated": true, "truncatedBy": "bytes", "maxBytes": MAX_BYTES});
                details.insert("truncation".to_owned(), truncation);
            }
        }
        if self.has_cut_lines {
            notices.push("[Long lines are cut to 500 characters. Use read to see more of them.]".to_owned());
            details.insert("linesTruncated".to_owned(), json!(true));
        }
        if self.unreadable > 0 {
            notices.push(format!("[{} files or directories could not be searched.]", self.unreadable));
        }
        let mut text = if self.text.is_empty() { "(no matches)\n".to_owned() } else { self.text };
        if !notices.is_empty() {
            text.push_str(&format!("\n{}", notices.join("\n")));
        }
        let details = (!details.is_empty()).then_some(Value::Object(details));
        ToolResult { details, ..ToolResult::text(text.trim_end_matches('\n')) }
    }
}
