//! Locates a text in another one, exactly or with tolerance for details that models do not see or reproduce.
//!
//! There are two passes, the second only if the first found nothing: an exact one that ignores the kind of line breaks,
//! and a loose one that also ignores white space at line ends and normalizes quotes, dashes and spaces. Each must find
//! exactly one match.

use std::ops::Range;

use crate::text::{to_ascii_punctuation, to_lf};

/// Maximum number of matches that are counted.
const MAX_MATCHES: usize = 1000;

/// A match.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TextMatch {
    /// Byte range of the match.
    pub(super) range: Range<usize>,
    /// True if only the loose pass found it.
    pub(super) is_loose: bool,
}

/// Why there is no unique match.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NoMatch {
    /// No match.
    NotFound,
    /// This many matches.
    Ambiguous(usize),
}

/// Finds the only match of a non-empty text.
pub(super) fn locate(content: &str, wanted: &str) -> Result<TextMatch, NoMatch> {
    let wanted = to_lf(wanted);
    let normalized = NormalizedText::new(content, str::to_owned);
    match unique_match(&normalized.text, &wanted, |_| true) {
        Err(NoMatch::NotFound) => {}
        found => return found.map(|range| TextMatch { range: normalized.original(range), is_loose: false }),
    }
    let normalized = NormalizedText::new(content, normalize_line);
    let wanted_lines: Vec<String> = wanted.split('\n').map(normalize_line).collect();
    let wanted_lines = wanted_lines.join("\n");
    if wanted_lines.trim().is_empty() {
        return Err(NoMatch::NotFound);
    }
    // If trailing white space of the wanted text is ignored, the match must end at a line end.
    let needs_end = wanted.ends_with(|last: char| last != '\n' && last.is_whitespace());
    let fits = |end: usize| !needs_end || matches!(normalized.text.as_bytes().get(end), None | Some(b'\n'));
    unique_match(&normalized.text, &wanted_lines, fits)
        .map(|range| TextMatch { range: normalized.original(range), is_loose: true })
}

/// Normalizes a line for the loose pass.
fn normalize_line(line: &str) -> String {
    line.trim_end().chars().map(to_ascii_punctuation).collect()
}

/// Returns the only match, counting overlapping matches, whose end satisfies `fits`.
fn unique_match(content: &str, wanted: &str, fits: impl Fn(usize) -> bool) -> Result<Range<usize>, NoMatch> {
    let step = wanted.chars().next().map_or(1, char::len_utf8);
    let mut first = None;
    let mut count = 0;
    let mut from = 0;
    while let Some(at) = content.get(from..).and_then(|rest| rest.find(wanted)).filter(|_| count < MAX_MATCHES) {
        let start = from + at;
        if fits(start + wanted.len()) {
            first.get_or_insert(start);
            count += 1;
        }
        from = start + step;
    }
    match first {
        None => Err(NoMatch::NotFound),
        Some(start) if count == 1 => Ok(start..start + wanted.len()),
        Some(_) => Err(NoMatch::Ambiguous(count)),
    }
}

/// A text as normalized for a pass, with the position of each line in the original.
struct NormalizedText<'a> {
    content: &'a str,
    text: String,
    lines: Vec<LineSpan>,
}

struct LineSpan {
    /// Start in the normalized text.
    start: usize,
    /// Byte range in the original, without the line break.
    original: Range<usize>,
}

impl<'a> NormalizedText<'a> {
    /// `normalize` must map each character to one character and may only drop characters at the end of a line.
    fn new(content: &'a str, normalize: impl Fn(&str) -> String) -> Self {
        let mut normalized = Self { content, text: String::new(), lines: Vec::new() };
        let mut start = 0;
        for line in content.split_inclusive('\n') {
            let without_break = line.strip_suffix("\r\n").or(line.strip_suffix('\n'));
            let bare = without_break.unwrap_or(line);
            normalized.lines.push(LineSpan { start: normalized.text.len(), original: start..start + bare.len() });
            normalized.text.push_str(&normalize(bare));
            if without_break.is_some() {
                normalized.text.push('\n');
            }
            start += line.len();
        }
        if content.is_empty() || content.ends_with('\n') {
            normalized.lines.push(LineSpan { start: normalized.text.len(), original: start..start });
        }
        normalized
    }

    fn original(&self, range: Range<usize>) -> Range<usize> {
        let start = self.position(range.start);
        let line = self.line(range.end);
        let ends_line = matches!(self.text.as_bytes().get(range.end), None | Some(b'\n'));
        // White space dropped at the end of a line belongs to the match, unless the match includes nothing of that
        // line.
        let end = if ends_line && range.end > line.start { line.original.end } else { self.position(range.end) };
        start..end.max(start)
    }

    fn line(&self, at: usize) -> &LineSpan {
        // The first line starts at 0, so there is always one at or before `at`.
        &self.lines[self.lines.partition_point(|line| line.start <= at) - 1]
    }

    fn position(&self, at: usize) -> usize {
        let line = self.line(at);
        let before = self.text[line.start..at].chars().count();
        let original = &self.content[line.original.clone()];
        line.original.start + original.char_indices().nth(before).map_or(original.len(), |(at, _)| at)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn locate_text<'a>(content: &'a str, wanted: &str) -> Result<(&'a str, bool), NoMatch> {
        locate(content, wanted).map(|found| (&content[found.range], found.is_loose))
    }

    #[test]
    fn an_exact_match_is_preferred() {
        assert_eq!(locate_text("it's it’s", "it’s"), Ok(("it’s", false)));
        assert_eq!(locate_text("\u{feff}first\n", "first"), Ok(("first", false)));
    }

    #[test]
    fn line_breaks_may_differ() {
        assert_eq!(locate_text("one\r\ntwo\r\nthree\r\n", "one\ntwo\n"), Ok(("one\r\ntwo\r\n", false)));
        assert_eq!(locate_text("one\ntwo\nthree\n", "two\r\nthree"), Ok(("two\nthree", false)));
        assert_eq!(locate_text("one\r\ntwo", "\ntwo"), Ok(("\r\ntwo", false)));
        assert_eq!(locate_text("é\r\n\r\nü", "é\n\nü"), Ok(("é\r\n\r\nü", false)));
    }

    #[test]
    fn trailing_spaces_and_typography_may_differ() {
        assert_eq!(locate_text("a  \nb\t\nc", "a\nb"), Ok(("a  \nb\t", true)));
        assert_eq!(locate_text("a  \r\n  \r\nc", "a\n\nc"), Ok(("a  \r\n  \r\nc", true)));
        assert_eq!(locate_text("say “hé” – now", "\"hé\" - n"), Ok(("“hé” – n", true)));
        assert_eq!(locate_text("a\u{a0}b", "a b"), Ok(("a\u{a0}b", true)));
        assert_eq!(locate_text("let x =\nlet y =1", "let x = "), Ok(("let x =", true)));
        assert_eq!(locate_text("a \n   \nb", "a\n"), Ok(("a \n", true)));
        assert_eq!(locate_text("a \n   ", "a\n"), Ok(("a \n", true)));
        assert_eq!(locate_text("a \nb  ", "a\nb"), Ok(("a \nb  ", true)));
    }

    #[test]
    fn missing_and_ambiguous_texts_do_not_match() {
        assert_eq!(locate_text("abc", "abd"), Err(NoMatch::NotFound));
        assert_eq!(locate_text("", "a"), Err(NoMatch::NotFound));
        assert_eq!(locate_text("aaa", "aa"), Err(NoMatch::Ambiguous(2)), "places overlap");
        assert_eq!(
            locate_text("a\r\nb\r\na\nb", "a\nb"),
            Err(NoMatch::Ambiguous(2)),
            "line breaks do not tell them apart"
        );
        assert_eq!(locate_text("‘a’ ‛a’", "'a'"), Err(NoMatch::Ambiguous(2)));
        assert_eq!(
            locate_text("let y =1", "let y = "),
            Err(NoMatch::NotFound),
            "the space is not at the end of a line"
        );
        assert_eq!(locate_text("a\n\nb", "  "), Err(NoMatch::NotFound), "blank lines are not a place");
        assert_eq!(locate_text(&"ab".repeat(5000), "ab"), Err(NoMatch::Ambiguous(MAX_MATCHES)));
    }

    /// The text as the loose pass normalizes it.
    fn bared(text: &str) -> String {
        to_lf(text).split('\n').map(normalize_line).collect::<Vec<_>>().join("\n")
    }

    proptest! {
        #[test]
        fn a_match_equals_the_wanted_text_after_normalization(content in "[ab\u{e9} '\u{2019}\\-\u{2013}\t\r\n]{0,40}", wanted in "[ab\u{e9} '\\-\r\n]{1,6}") {
            if let Ok(found) = locate(&content, &wanted) {
                prop_assert_eq!(bared(&content[found.range]), bared(&wanted));
            }
        }

        #[test]
        fn an_existing_text_is_located(content in "[ab\u{e9}'\u{2019}\r\n]{1,40}", from in 0..40_usize, length in 1..6_usize) {
            let from = from % content.chars().count();
            let wanted: String = content.chars().skip(from).take(length).collect();
            // Half of a CRLF is not a realistic search text.
            prop_assume!(!wanted.ends_with('\r') && !wanted.starts_with('\n'));
            let found = locate(&content, &wanted).map(|text_match| to_lf(&content[text_match.range]));
            let is_there = match &found {
                Ok(found) => *found == to_lf(&wanted),
                Err(NoMatch::Ambiguous(count)) => *count > 1,
                Err(NoMatch::NotFound) => false,
            };
            prop_assert!(is_there, "{:?}", found);
        }
    }
}
