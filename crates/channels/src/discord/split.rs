//! Splits Markdown into messages. A code block that is cut is closed and opened again, and tables, which Discord does
//! not show, become code blocks.

use unicode_segmentation::UnicodeSegmentation;

use crate::table::Table;

/// Maximum length of a message.
pub(super) const MAX_MESSAGE: usize = 2000;

/// Smallest limit that leaves room for text beside a fence.
const MIN_LIMIT: usize = 40;

/// Maximum length of the line that opens a code block again; without its language if that is longer.
const MAX_OPENING: usize = 16;

/// Limits of a message.
#[derive(Debug, Clone, Copy)]
pub(super) struct MessageLimits {
    /// Maximum length in UTF-16 units, which is at least what Discord counts.
    pub(super) units: usize,
    /// Maximum number of lines.
    pub(super) lines: usize,
}

/// An open code block.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Fence {
    /// The characters that close it.
    marker: String,
    /// The line that opens it again.
    opening: String,
}

/// A line, or a piece of a line that is too long.
#[derive(Debug, Clone)]
struct SourceLine {
    text: String,
    /// True if it continues the piece before it.
    is_continuation: bool,
    /// The code block that is open before it.
    before: Option<Fence>,
    /// The code block that is open after it.
    after: Option<Fence>,
}

/// Splits a text into messages; empty if there is no text.
pub(super) fn messages(markdown: &str, limits: MessageLimits) -> Vec<String> {
    let limits = MessageLimits { units: limits.units.clamp(MIN_LIMIT, MAX_MESSAGE), lines: limits.lines.max(1) };
    let text = tables_as_code(markdown);
    let text = trim_blank_lines(&text);
    if text.trim().is_empty() {
        return Vec::new();
    }
    if units(text) <= limits.units && text.lines().count() <= limits.lines {
        return vec![text.to_owned()];
    }
    let lines = lines(text, limits.units);
    let mut messages = Vec::new();
    let mut start = 0;
    while start < lines.len() {
        let end = end_of_message(&lines, start, limits);
        let message = render(&lines[start..end]);
        let message = trim_blank_lines(&message);
        if !message.trim().is_empty() {
            messages.push(message.to_owned());
        }
        start = end;
    }
    messages
}

/// Returns the end of the message that begins with the line `start`.
fn end_of_message(lines: &[SourceLine], start: usize, limits: MessageLimits) -> usize {
    let fits = |end: &usize| {
        let rendered = render(&lines[start..*end]);
        units(&rendered) <= limits.units && rendered.lines().count() <= limits.lines
    };
    let end = (start + 1..=lines.len()).take_while(fits).last().unwrap_or(start + 1);
    if end == lines.len() {
        return end;
    }
    // Better between paragraphs than within one, and never right after the line that opens a code block.
    let middle = start + (end - start).div_ceil(2);
    let is_gap = |at: &usize| lines[*at].text.trim().is_empty() && lines[*at].before.is_none();
    if let Some(gap) = (middle.max(start + 1)..end).rev().find(is_gap) {
        return gap;
    }
    let opens = |line: &SourceLine| line.before.is_none() && line.after.is_some();
    if end > start + 1 && opens(&lines[end - 1]) { end - 1 } else { end }
}

/// Joins lines to a message, with the code blocks that are cut closed and opened again.
fn render(lines: &[SourceLine]) -> String {
    let mut message = String::new();
    let mut lines = lines.iter().peekable();
    // A block that ends here was closed in the message before already.
    lines.next_if(|line| line.before.is_some() && line.after.is_none());
    if let Some(fence) = lines.peek().and_then(|line| line.before.as_ref()) {
        message.push_str(&fence.opening);
        message.push('\n');
    }
    let mut is_first = true;
    let mut open = None;
    for line in lines {
        if !is_first && !line.is_continuation {
            message.push('\n');
        }
        message.push_str(&line.text);
        (is_first, open) = (false, line.after.as_ref());
    }
    if let Some(fence) = open {
        message.push('\n');
        message.push_str(&fence.marker);
    }
    message
}

/// Splits a text into lines that fit into a message.
fn lines(text: &str, limit: usize) -> Vec<SourceLine> {
    let mut open: Option<Fence> = None;
    let mut lines = Vec::new();
    for text in text.lines() {
        let before = open.clone();
        match &open {
            Some(fence) if closes(text, fence) => open = None,
            Some(_) => {}
            None => open = opening(text),
        }
        let fence = open.as_ref().or(before.as_ref());
        let reserved = fence.map_or(0, |fence| units(&fence.opening) + units(&fence.marker) + 2);
        let limit = limit.saturating_sub(reserved).max(2);
        for (at, piece) in pieces(text, limit).into_iter().enumerate() {
            let before = if at == 0 { before.clone() } else { open.clone() };
            lines.push(SourceLine { text: piece, is_continuation: at > 0, before, after: open.clone() });
        }
    }
    lines
}

/// Returns the code block that a line opens.
fn opening(line: &str) -> Option<Fence> {
    let text = line.trim_start();
    let marker: String = ["`", "~"].iter().find_map(|c| {
        let length = text.len() - text.trim_start_matches(c).len();
        (length >= 3).then(|| c.repeat(length))
    })?;
    // An info string with a backtick is inline code.
    if text[marker.len()..].contains('`') || marker.len() > MAX_OPENING {
        return None;
    }
    let opening = if units(text.trim_end()) <= MAX_OPENING { text.trim_end().to_owned() } else { marker.clone() };
    Some(Fence { marker, opening })
}

/// True if a line closes a code block.
fn closes(line: &str, fence: &Fence) -> bool {
    let text = line.trim();
    text.starts_with(&fence.marker) && text.chars().all(|c| fence.marker.starts_with(c))
}

/// Cuts a line into pieces of at most `limit` units, after spaces if possible.
fn pieces(line: &str, limit: usize) -> Vec<String> {
    let mut pieces = Vec::new();
    let mut rest = line;
    while units(rest) > limit {
        let mut end = 0;
        let mut length = 0;
        for grapheme in rest.graphemes(true) {
            length += units(grapheme);
            if length > limit {
                break;
            }
            end += grapheme.len();
        }
        if end == 0 {
            // A single grapheme that is too long is cut between its characters.
            end = rest.chars().next().map_or(rest.len(), char::len_utf8);
        }
        let space = rest[..end].rfind(' ').map(|at| at + 1).filter(|at| *at >= end / 2);
        let (piece, after) = rest.split_at(space.unwrap_or(end));
        pieces.push(piece.to_owned());
        rest = after;
    }
    pieces.push(rest.to_owned());
    pieces
}

/// Replaces tables by code blocks with columns of fixed width.
fn tables_as_code(markdown: &str) -> String {
    let mut output: Vec<String> = Vec::new();
    let mut open: Option<Fence> = None;
    let mut lines = markdown.lines().peekable();
    while let Some(line) = lines.next() {
        let is_table = open.is_none() && line.contains('|') && lines.peek().is_some_and(|next| is_delimiter(next));
        if is_table {
            lines.next();
            let mut table = Table::default();
            push_row(&mut table, line);
            while let Some(row) = lines.next_if(|next| next.contains('|') && !next.trim().is_empty()) {
                push_row(&mut table, row);
            }
            output.extend(["```".to_owned(), table.write(), "```".to_owned()]);
            continue;
        }
        match &open {
            Some(fence) if closes(line, fence) => open = None,
            Some(_) => {}
            None => open = opening(line),
        }
        output.push(line.to_owned());
    }
    output.join("\n")
}

/// True if a line separates the header of a table from its rows.
fn is_delimiter(line: &str) -> bool {
    let text = line.trim();
    let is_cell = |cell: &str| {
        let cell = cell.trim();
        let dashes = cell.trim_start_matches(':').trim_end_matches(':');
        !dashes.is_empty() && dashes.bytes().all(|byte| byte == b'-')
    };
    text.contains('|') && text.trim_matches('|').split('|').all(is_cell)
}

fn push_row(table: &mut Table, line: &str) {
    table.begin_row();
    let text = line.trim();
    let text = text.strip_prefix('|').unwrap_or(text);
    let text = text.strip_suffix('|').filter(|text| !text.ends_with('\\')).unwrap_or(text);
    // An escaped bar is part of its cell.
    for cell in text.replace("\\|", "\u{0}").split('|') {
        table.begin_cell();
        table.push(&cell.trim().replace('\u{0}', "|").replace("```", "'''"));
    }
}

/// Removes empty lines at both ends. The indentation of the first line is kept.
fn trim_blank_lines(text: &str) -> &str {
    let text = text.trim_end();
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        if !line.trim().is_empty() {
            break;
        }
        start += line.len();
    }
    &text[start..]
}

/// Returns the length of a text in UTF-16 units.
pub(super) fn units(text: &str) -> usize {
    text.chars().map(char::len_utf16).sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn split(text: &str, units: usize, lines: usize) -> Vec<String> {
        messages(text, MessageLimits { units, lines })
    }

    #[test]
    fn a_short_text_is_one_message() {
        assert_eq!(split("hi", 2000, 17), ["hi"]);
        assert_eq!(split(&"x".repeat(2000), 2000, 17), ["x".repeat(2000)]);
        assert_eq!(split(" \n\t\n ", 2000, 17), Vec::<String>::new());
        assert_eq!(split("\n\n  indented\n\n", 2000, 17), ["  indented"]);
    }

    #[test]
    fn a_long_text_is_cut_between_paragraphs_then_lines_then_words() {
        let paragraphs = format!("{}\n\n{}", "a".repeat(30), "b".repeat(30));
        assert_eq!(split(&paragraphs, 50, 17), ["a".repeat(30), "b".repeat(30)]);
        let lines = format!("{}\n{}", "a".repeat(30), "b".repeat(30));
        assert_eq!(split(&lines, 50, 17), ["a".repeat(30), "b".repeat(30)]);
        assert_eq!(split(&"word ".repeat(12), 40, 17), ["word ".repeat(8).trim_end(), "word ".repeat(4).trim_end()]);
        assert_eq!(split(&"🦞".repeat(30), 40, 17), ["🦞".repeat(20), "🦞".repeat(10)]);
    }

    #[test]
    fn a_code_block_that_is_cut_is_closed_and_opened_again() {
        let text = "Look:\n\n```rust\nlet first = 1;\nlet second = 2;\nlet third = 3;\n```\nDone.";
        assert_eq!(
            split(text, 50, 17),
            ["Look:\n\n```rust\nlet first = 1;\nlet second = 2;\n```", "```rust\nlet third = 3;\n```\nDone."]
        );
        // A fence of four is not closed by one of three.
        let nested = "````\n```\na\nb\n```\n````\nend";
        assert_eq!(split(nested, 2000, 4), ["````\n```\na\n````", "````\nb\n```\n````", "end"]);
    }

    #[test]
    fn a_text_with_many_lines_is_cut_by_lines() {
        let text: Vec<String> = (0..40).map(|n| format!("- {n}")).collect();
        let messages = split(&text.join("\n"), 2000, 17);
        assert_eq!(messages.iter().map(|message| message.lines().count()).collect::<Vec<_>>(), [17, 17, 6]);
        assert_eq!(messages.join("\n"), text.join("\n"));
    }

    #[test]
    fn a_table_becomes_a_code_block() {
        let text = "Prices:\n\n| a | long name |\n|---|:--:|\n| 1 | x \\| y |\n\nEnd | of it";
        assert_eq!(
            split(text, 2000, 17),
            ["Prices:\n\n```\na | long name\n--+----------\n1 | x | y\n```\n\nEnd | of it"]
        );
        let code = "```\n| a |\n|---|\n```";
        assert_eq!(split(code, 2000, 17), [code]);
    }

    proptest! {
        #[test]
        fn messages_fit_and_lose_no_words(text in "([a-z🦞é]{1,9}[ \n]{1,2}|```[a-z]{0,3}\n){0,60}", limit in 40..80_usize) {
            let messages = split(&text, limit, 7);
            for message in &messages {
                prop_assert!(units(message) <= limit, "{message:?}");
                prop_assert!(!message.trim().is_empty());
            }
            let letters = |text: &str| text.chars().filter(|c| matches!(c, '🦞' | 'é')).count();
            let all: usize = messages.iter().map(|message| letters(message)).sum();
            prop_assert_eq!(all, letters(&text));
        }
    }
}
