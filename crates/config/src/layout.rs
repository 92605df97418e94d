//! Source layout of a list or object: its items, and the commas, comments and whitespace around each.
//!
//! Inserting or removing an item changes as little of that as possible: comments outside it always stay.

use std::{iter, mem};

/// Items of a list, or members of an object, and the text between them.
#[derive(Debug)]
pub(crate) struct SourceLayout {
    pub(crate) items: Vec<String>,
    /// Text before each item, and after the last: always one more than there are items.
    gaps: Vec<String>,
}

/// Style of new lines.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LineStyle<'a> {
    /// Line break.
    pub(crate) end: &'a str,
    /// Indentation of the line of the bracket.
    pub(crate) outer: &'a str,
    /// Indentation of the line of an item.
    pub(crate) inner: &'a str,
}

impl SourceLayout {
    /// Creates the layout of a text without its brackets, with the ranges of the items.
    pub(crate) fn new(text: &str, items: impl Iterator<Item = (usize, usize)>) -> Self {
        let mut layout = Self { items: Vec::new(), gaps: Vec::new() };
        let mut end = 0;
        for (start, next) in items {
            layout.gaps.push(text[end..start].to_owned());
            layout.items.push(text[start..next].to_owned());
            end = next;
        }
        layout.gaps.push(text[end..].to_owned());
        layout
    }

    /// Returns the text without brackets.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for (at, gap) in self.gaps.iter().enumerate() {
            text.push_str(gap);
            text.push_str(self.items.get(at).map_or("", String::as_str));
        }
        text
    }

    /// True if it spans several lines.
    pub(crate) fn is_wrapped(&self) -> bool {
        self.gaps.iter().any(|gap| gap.contains(NEWLINES))
    }

    /// True if it is empty and has no comment.
    pub(crate) fn is_blank(&self) -> bool {
        self.items.is_empty() && self.gaps.iter().all(|gap| gap.trim().is_empty())
    }

    /// Returns the indentation of an item that starts its line.
    pub(crate) fn indent(&self, at: usize) -> Option<&str> {
        let gap = self.gaps.get(at).filter(|_| at < self.items.len())?;
        let line = gap.trim_end_matches(is_space);
        line.ends_with(NEWLINES).then(|| &gap[line.len()..])
    }

    /// Inserts an item before the one at `at`, or at the end. With `lines` it gets a line of its own.
    pub(crate) fn insert(&mut self, at: usize, item: String, lines: Option<LineStyle<'_>>) {
        let begins_line = self.indent(at).is_some();
        let gap = mem::take(&mut self.gaps[at]);
        let own_line = lines.map(|lines| format!("{}{}", lines.end, lines.inner));
        let (before, after) = if at > 0 {
            let (comma, rest, extra_comma) = match comma(&gap) {
                Some(comma) => (&gap[..=comma], &gap[comma + 1..], ","),
                None => (",", gap.as_str(), ""),
            };
            let (comments, rest) = rest.split_at(comments_end(rest));
            let is_tight = at < self.items.len() && rest.is_empty();
            let space = if is_tight { " " } else { "" };
            (format!("{comma}{comments}{}", own_line.as_deref().unwrap_or(" ")), format!("{extra_comma}{space}{rest}"))
        } else if self.items.is_empty() {
            around_only_item(&gap, lines)
        } else if let Some(own_line) = own_line.filter(|_| begins_line) {
            let (comments, rest) = gap.split_at(comments_end(&gap));
            (format!("{comments}{own_line}"), format!(",{rest}"))
        } else {
            (gap, ", ".to_owned())
        };
        self.items.insert(at, item);
        self.gaps.splice(at..=at, [before, after]);
    }

    /// Removes an item, and the comma that becomes superfluous.
    pub(crate) fn remove(&mut self, at: usize) {
        self.items.remove(at);
        let after = self.gaps.remove(at + 1);
        let before = mem::take(&mut self.gaps[at]);
        let (before, after) = match comma(&after) {
            Some(comma) if after[..comma].trim().is_empty() => (before, after[comma + 1..].to_owned()),
            Some(comma) => (before, without(&after, comma)),
            None => (comma(&before).map_or_else(|| before.clone(), |comma| without(&before, comma)), after),
        };
        let is_last = at == self.items.len();
        let joined = join(&before, &after, is_last);
        self.gaps[at] = if self.items.is_empty() && joined.trim().is_empty() { String::new() } else { joined };
    }
}

const NEWLINES: [char; 2] = ['\n', '\r'];

fn is_space(char: char) -> bool {
    char.is_whitespace() && !NEWLINES.contains(&char)
}

/// Returns the text before and after the only item of a container that was empty.
fn around_only_item(gap: &str, lines: Option<LineStyle<'_>>) -> (String, String) {
    let text = gap.trim_end_matches(is_space);
    let body = without_newline(text);
    match lines {
        Some(LineStyle { end, outer, inner }) if gap.trim().is_empty() => {
            (format!("{end}{inner}"), format!("{end}{outer}"))
        }
        None if gap.trim().is_empty() => (String::new(), String::new()),
        Some(LineStyle { end, inner, .. }) => (format!("{body}{end}{inner}"), gap[body.len()..].to_owned()),
        None => (format!("{text} "), gap[text.len()..].to_owned()),
    }
}

/// Returns the text that remains around a removed item.
fn join(before: &str, after: &str, is_last: bool) -> String {
    let left = before.trim_end_matches(is_space);
    let right = after.trim_start_matches(is_space);
    let begins_line = left.ends_with(NEWLINES);
    let ends_line = right.starts_with(NEWLINES);
    let closes = is_last && right.is_empty();
    let line = without_newline(left);
    if begins_line && ends_in_comment(line) {
        // The following text must not become a part of the comment.
        if ends_line { format!("{line}{right}") } else { format!("{before}{right}") }
    } else if begins_line && (ends_line || closes) {
        format!("{line}{after}")
    } else if ends_line {
        format!("{left}{right}")
    } else if closes {
        format!("{left}{after}")
    } else {
        format!("{before}{right}")
    }
}

fn without_newline(text: &str) -> &str {
    text.strip_suffix("\r\n").or_else(|| text.strip_suffix(NEWLINES)).unwrap_or(text)
}

fn without(text: &str, at: usize) -> String {
    format!("{}{}", &text[..at], &text[at + 1..])
}

/// Returns the position of the comma in a gap.
fn comma(gap: &str) -> Option<usize> {
    pieces(gap).find(|(_, piece)| *piece == ",").map(|(at, _)| at)
}

/// True if a gap ends with a line comment.
fn ends_in_comment(gap: &str) -> bool {
    pieces(gap).last().is_some_and(|(_, piece)| piece.starts_with("//"))
}

/// Returns the comments and the other characters of a gap, with their positions.
fn pieces(gap: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut at = 0;
    iter::from_fn(move || {
        let rest = &gap[at..];
        let length = comment(rest).or_else(|| Some(rest.chars().next()?.len_utf8()))?;
        at += length;
        Some((at - length, &rest[..length]))
    })
}

/// Returns the end of the comments on the first line of a gap.
fn comments_end(gap: &str) -> usize {
    let mut end = 0;
    loop {
        let rest = gap[end..].trim_start_matches(is_space);
        match comment(rest) {
            Some(length) => end = gap.len() - rest.len() + length,
            None => return end,
        }
    }
}

/// Returns the length of the comment at the start of a text.
fn comment(text: &str) -> Option<usize> {
    if text.starts_with("//") {
        Some(text.find(NEWLINES).unwrap_or(text.len()))
    } else {
        text.strip_prefix("/*").map(|rest| rest.find("*/").map_or(text.len(), |end| end + 4))
    }
}
