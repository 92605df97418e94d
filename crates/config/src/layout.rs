//! A list or an object as it is written: its items, and around each the commas, comments and blanks of the user.
//!
//! An item comes or goes with as little of that as can be: comments outside it always stay.

use std::{iter, mem};

/// The items of a list, or the members of an object, and the text between them.
#[derive(Debug)]
pub(crate) struct Layout {
    pub(crate) items: Vec<String>,
    /// What is before each item, and after the last: always one more than there are items.
    gaps: Vec<String>,
}

/// How new lines are written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lines<'a> {
    /// What ends a line.
    pub(crate) end: &'a str,
    /// What the line of the bracket begins with.
    pub(crate) outer: &'a str,
    /// What the line of an item begins with.
    pub(crate) inner: &'a str,
}

impl Layout {
    /// Of a text without its brackets, and where the items are in it.
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

    /// The text without brackets.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for (at, gap) in self.gaps.iter().enumerate() {
            text.push_str(gap);
            text.push_str(self.items.get(at).map_or("", String::as_str));
        }
        text
    }

    /// Whether it goes over several lines.
    pub(crate) fn is_wrapped(&self) -> bool {
        self.gaps.iter().any(|gap| gap.contains(NEWLINES))
    }

    /// Whether it holds nothing, not even a comment.
    pub(crate) fn is_blank(&self) -> bool {
        self.items.is_empty() && self.gaps.iter().all(|gap| gap.trim().is_empty())
    }

    /// The indentation of an item that begins its line.
    pub(crate) fn indent(&self, at: usize) -> Option<&str> {
        let gap = self.gaps.get(at).filter(|_| at < self.items.len())?;
        let line = gap.trim_end_matches(is_space);
        line.ends_with(NEWLINES).then(|| &gap[line.len()..])
    }

    /// Puts an item in front of the one at `at`, or at the end. With `lines` it gets a line of its own.
    pub(crate) fn insert(&mut self, at: usize, item: String, lines: Option<Lines<'_>>) {
        let begins_line = self.indent(at).is_some();
        let gap = mem::take(&mut self.gaps[at]);
        let own_line = lines.map(|lines| format!("{}{}", lines.end, lines.inner));
        let (before, after) = if at > 0 {
            let (comma, rest, again) = match comma(&gap) {
                Some(comma) => (&gap[..=comma], &gap[comma + 1..], ","),
                None => (",", gap.as_str(), ""),
            };
            let (remarks, rest) = rest.split_at(remarks(rest));
            let is_tight = at < self.items.len() && rest.is_empty();
            let space = if is_tight { " " } else { "" };
            (format!("{comma}{remarks}{}", own_line.as_deref().unwrap_or(" ")), format!("{again}{space}{rest}"))
        } else if self.items.is_empty() {
            alone(&gap, lines)
        } else if let Some(own_line) = own_line.filter(|_| begins_line) {
            let (remarks, rest) = gap.split_at(remarks(&gap));
            (format!("{remarks}{own_line}"), format!(",{rest}"))
        } else {
            (gap, ", ".to_owned())
        };
        self.items.insert(at, item);
        self.gaps.splice(at..=at, [before, after]);
    }

    /// Takes an item out, and the comma that nobody needs then.
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

/// What is around the only item of what held none.
fn alone(gap: &str, lines: Option<Lines<'_>>) -> (String, String) {
    let text = gap.trim_end_matches(is_space);
    let body = without_newline(text);
    match lines {
        Some(Lines { end, outer, inner }) if gap.trim().is_empty() => {
            (format!("{end}{inner}"), format!("{end}{outer}"))
        }
        None if gap.trim().is_empty() => (String::new(), String::new()),
        Some(Lines { end, inner, .. }) => (format!("{body}{end}{inner}"), gap[body.len()..].to_owned()),
        None => (format!("{text} "), gap[text.len()..].to_owned()),
    }
}

/// What is left around an item that goes.
fn join(before: &str, after: &str, is_last: bool) -> String {
    let left = before.trim_end_matches(is_space);
    let right = after.trim_start_matches(is_space);
    let begins_line = left.ends_with(NEWLINES);
    let ends_line = right.starts_with(NEWLINES);
    let closes = is_last && right.is_empty();
    let line = without_newline(left);
    if begins_line && ends_in_remark(line) {
        // What follows must not become a part of the comment.
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

/// Where the comma of a gap is.
fn comma(gap: &str) -> Option<usize> {
    pieces(gap).find(|(_, piece)| *piece == ",").map(|(at, _)| at)
}

/// Whether a gap ends with a comment that takes the rest of its line.
fn ends_in_remark(gap: &str) -> bool {
    pieces(gap).last().is_some_and(|(_, piece)| piece.starts_with("//"))
}

/// The comments and the other characters of a gap, and where they are.
fn pieces(gap: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut at = 0;
    iter::from_fn(move || {
        let rest = &gap[at..];
        let length = comment(rest).or_else(|| Some(rest.chars().next()?.len_utf8()))?;
        at += length;
        Some((at - length, &rest[..length]))
    })
}

/// Where the comments end that stand on the line on which a gap begins.
fn remarks(gap: &str) -> usize {
    let mut end = 0;
    loop {
        let rest = gap[end..].trim_start_matches(is_space);
        match comment(rest) {
            Some(length) => end = gap.len() - rest.len() + length,
            None => return end,
        }
    }
}

/// How long the comment is with which a text begins.
fn comment(text: &str) -> Option<usize> {
    if text.starts_with("//") {
        Some(text.find(NEWLINES).unwrap_or(text.len()))
    } else {
        text.strip_prefix("/*").map(|rest| rest.find("*/").map_or(text.len(), |end| end + 4))
    }
}
