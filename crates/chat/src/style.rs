//! Styled lines: what the view consists of, and how lines are wrapped.

use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

/// A colour of the terminal's palette, so that it fits the user's theme.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Color {
    /// Errors and removed lines.
    Red,
    /// Success and added lines.
    Green,
    /// Warnings and approvals.
    Yellow,
    /// Keywords.
    Blue,
    /// Numbers.
    Magenta,
    /// Code, names and the prompt.
    Cyan,
    /// Everything secondary.
    Gray,
}

/// TextStyle of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TextStyle {
    /// Colour; the terminal's own if absent.
    pub color: Option<Color>,
    /// Bold.
    pub bold: bool,
    /// Italic.
    pub italic: bool,
    /// Underlined.
    pub underline: bool,
    /// Struck through.
    pub strike: bool,
    /// Foreground and background exchanged.
    pub reverse: bool,
}

impl TextStyle {
    /// No style.
    pub const PLAIN: Self =
        Self { color: None, bold: false, italic: false, underline: false, strike: false, reverse: false };
    /// Secondary text.
    pub const DIM: Self = Self::of(Color::Gray);
    /// Bold text.
    pub const BOLD: Self = Self { bold: true, ..Self::PLAIN };

    /// A colour alone.
    pub const fn of(color: Color) -> Self {
        Self { color: Some(color), ..Self::PLAIN }
    }
}

/// A piece of a line in one style.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// Text without control characters.
    pub text: String,
    /// TextStyle.
    pub style: TextStyle,
}

/// A line.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Line {
    /// Pieces from left to right.
    pub spans: Vec<Span>,
}

impl Line {
    /// A line in one style.
    pub fn of(text: impl Into<String>, style: TextStyle) -> Self {
        Self::default().with(text, style)
    }

    /// An unstyled line.
    pub fn plain(text: impl Into<String>) -> Self {
        Self::of(text, TextStyle::PLAIN)
    }

    /// Appends a piece.
    #[must_use]
    pub fn with(mut self, text: impl Into<String>, style: TextStyle) -> Self {
        self.push(text, style);
        self
    }

    /// Appends a piece.
    pub fn push(&mut self, text: impl Into<String>, style: TextStyle) {
        let text = text.into();
        if text.is_empty() {
            return;
        }
        match self.spans.last_mut() {
            Some(last) if last.style == style => last.text.push_str(&text),
            Some(_) | None => self.spans.push(Span { text, style }),
        }
    }

    /// Appends another line.
    pub fn extend(&mut self, other: Self) {
        for span in other.spans {
            self.push(span.text, span.style);
        }
    }

    /// Columns of the line.
    pub fn width(&self) -> usize {
        self.spans.iter().map(|span| width(&span.text)).sum()
    }

    /// True if there is no text.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Text without styles.
    pub fn text(&self) -> String {
        self.spans.iter().map(|span| span.text.as_str()).collect()
    }

    /// Wraps the line at words, or within words that are too long.
    pub fn wrap(&self, columns: usize) -> Vec<Self> {
        self.wrapped(columns, Break::Words)
    }

    /// Splits the line at exactly the given width.
    pub fn split(&self, columns: usize) -> Vec<Self> {
        self.wrapped(columns, Break::Anywhere)
    }

    /// Returns the beginning that fits, with an ellipsis if something is missing.
    pub fn truncate(self, columns: usize) -> Self {
        if self.width() <= columns {
            return self;
        }
        let mut first = self.split(columns.saturating_sub(1).max(1)).into_iter().next().unwrap_or_default();
        first.push("…", TextStyle::DIM);
        first
    }

    fn wrapped(&self, columns: usize, at: Break) -> Vec<Self> {
        let columns = columns.max(1);
        if self.width() <= columns {
            return vec![self.clone()];
        }
        let mut wrapper = Wrapper { columns, at, lines: Vec::new(), row: Vec::new(), width: 0 };
        for span in &self.spans {
            for grapheme in span.text.graphemes(true) {
                wrapper.push(grapheme, span.style);
            }
        }
        wrapper.finish()
    }
}

/// Where a line may be broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Break {
    Words,
    Anywhere,
}

/// A row while it is filled.
struct Wrapper<'a> {
    columns: usize,
    at: Break,
    lines: Vec<Line>,
    row: Vec<(&'a str, TextStyle)>,
    width: usize,
}

impl<'a> Wrapper<'a> {
    fn push(&mut self, grapheme: &'a str, style: TextStyle) {
        let columns = width(grapheme);
        if self.width + columns > self.columns && !self.row.is_empty() {
            if self.at == Break::Words && grapheme == " " {
                // A space at the end of a line is not shown; a wrapped line does not begin with one.
                return self.break_at(self.row.len());
            }
            let space = self.row.iter().rposition(|(grapheme, _)| *grapheme == " ");
            match space {
                // Indentation is no place to break.
                Some(space)
                    if self.at == Break::Words && self.row[..space].iter().any(|(grapheme, _)| *grapheme != " ") =>
                {
                    self.break_at(space + 1);
                }
                Some(_) | None => self.break_at(self.row.len()),
            }
        }
        if self.at == Break::Words && grapheme == " " && self.row.is_empty() && !self.lines.is_empty() {
            return;
        }
        self.row.push((grapheme, style));
        self.width += columns;
    }

    fn break_at(&mut self, index: usize) {
        let rest = self.row.split_off(index);
        if self.at == Break::Words {
            while self.row.last().is_some_and(|(grapheme, _)| *grapheme == " ") {
                self.row.pop();
            }
        }
        let mut line = Line::default();
        for (grapheme, style) in self.row.drain(..) {
            line.push(grapheme, style);
        }
        self.lines.push(line);
        self.row = rest;
        self.width = self.row.iter().map(|(grapheme, _)| width(grapheme)).sum();
    }

    fn finish(mut self) -> Vec<Line> {
        if !self.row.is_empty() || self.lines.is_empty() {
            self.break_at(self.row.len());
        }
        self.lines
    }
}

/// Columns that a text takes.
pub fn width(text: &str) -> usize {
    if text.is_ascii() { text.len() } else { text.width() }
}

/// Puts a prefix before the first line and another one before the others.
pub fn prefixed(lines: Vec<Line>, first: &Line, rest: &Line) -> Vec<Line> {
    let with_prefix = |(index, line): (usize, Line)| {
        if line.is_empty() && index > 0 {
            return line;
        }
        let mut prefixed = if index == 0 { first.clone() } else { rest.clone() };
        prefixed.extend(line);
        prefixed
    };
    lines.into_iter().enumerate().map(with_prefix).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn wrapped(text: &str, columns: usize) -> Vec<String> {
        Line::plain(text).wrap(columns).iter().map(Line::text).collect()
    }

    #[test]
    fn lines_break_at_words() {
        assert_eq!(wrapped("the quick brown fox", 9), ["the quick", "brown fox"]);
        assert_eq!(wrapped("the quick  brown", 9), ["the quick", "brown"]);
        assert_eq!(wrapped("abcdefghij kl", 4), ["abcd", "efgh", "ij", "kl"]);
        assert_eq!(wrapped("  indented words", 10), ["  indented", "words"]);
        assert_eq!(wrapped("日本語の文章", 5), ["日本", "語の", "文章"]);
        assert_eq!(wrapped("", 5), [""]);
        let split: Vec<_> = Line::plain("ab cd").split(3).iter().map(Line::text).collect();
        assert_eq!(split, ["ab ", "cd"]);
    }

    #[test]
    fn a_truncated_line_ends_with_an_ellipsis() {
        assert_eq!(Line::plain("abcdef").truncate(4).text(), "abc…");
        assert_eq!(Line::plain("abcd").truncate(4).text(), "abcd");
    }

    proptest! {
        #[test]
        fn wrapping_keeps_every_character_but_spaces(text in "[a-c é日👍 ]{0,60}", columns in 2_usize..12) {
            let lines = Line::plain(text.clone()).wrap(columns);
            prop_assert!(lines.iter().all(|line| line.width() <= columns));
            let joined: String = lines.iter().map(Line::text).collect();
            let visible = |text: &str| text.chars().filter(|char| *char != ' ').collect::<String>();
            prop_assert_eq!(visible(&joined), visible(&text));
        }

        #[test]
        fn splitting_keeps_every_character(text in "[a-c é日 ]{0,60}", columns in 2_usize..12) {
            let lines = Line::plain(text.clone()).split(columns);
            prop_assert!(lines.iter().all(|line| line.width() <= columns));
            prop_assert_eq!(lines.iter().map(Line::text).collect::<String>(), text);
        }
    }
}
