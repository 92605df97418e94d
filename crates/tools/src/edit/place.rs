//! Where in a text another one is: exactly, or else but for what models do not see or do not keep.
//!
//! There are two looks at a text, the second only if the first found nothing: as it is but for the kind of its line
//! breaks; and without the white space at the ends of lines, with plain quotes, dashes and spaces. Each must find one place.

use std::ops::Range;

use crate::text::{plain, with_plain_breaks};

/// How many places are counted before it is enough.
const ENOUGH: usize = 1000;

/// Where a text was found.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The bytes that it takes up.
    pub(super) range: Range<usize>,
    /// Whether only the second look found it.
    pub(super) is_loose: bool,
}

/// Why a text has no place.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Miss {
    /// It is not there.
    Nowhere,
    /// It is there that often.
    Often(usize),
}

/// Finds the one place of a text that is not empty.
pub(super) fn place(content: &str, wanted: &str) -> Result<Place, Miss> {
    let wanted = with_plain_breaks(wanted);
    let seen = Seen::new(content, str::to_owned);
    match only(&seen.text, &wanted, |_| true) {
        Err(Miss::Nowhere) => {}
        found => return found.map(|range| Place { range: seen.original(range), is_loose: false }),
    }
    let seen = Seen::new(content, bare);
    let bared: Vec<String> = wanted.split('\n').map(bare).collect();
    let bared = bared.join("\n");
    if bared.trim().is_empty() {
        return Err(Miss::Nowhere);
    }
    // White space that is overlooked at the end of what is wanted must be at the end of a line, too.
    let needs_end = wanted.ends_with(|last: char| last != '\n' && last.is_whitespace());
    let fits = |end: usize| !needs_end || matches!(seen.text.as_bytes().get(end), None | Some(b'\n'));
    only(&seen.text, &bared, fits).map(|range| Place { range: seen.original(range), is_loose: true })
}

/// A line without what is overlooked in a loose look.
fn bare(line: &str) -> String {
    line.trim_end().chars().map(plain).collect()
}

/// The only place of a text, where places may overlap and must have an end that fits.
fn only(content: &str, wanted: &str, fits: impl Fn(usize) -> bool) -> Result<Range<usize>, Miss> {
    let step = wanted.chars().next().map_or(1, char::len_utf8);
    let mut first = None;
    let mut count = 0;
    let mut from = 0;
    while let Some(at) = content.get(from..).and_then(|rest| rest.find(wanted)).filter(|_| count < ENOUGH) {
        let start = from + at;
        if fits(start + wanted.len()) {
            first.get_or_insert(start);
            count += 1;
        }
        from = start + step;
    }
    match first {
        None => Err(Miss::Nowhere),
        Some(start) if count == 1 => Ok(start..start + wanted.len()),
        Some(_) => Err(Miss::Often(count)),
    }
}

/// A text as a look sees it, line by line, and where each line is in the original.
struct Seen<'a> {
    content: &'a str,
    text: String,
    lines: Vec<Line>,
}

struct Line {
    /// Where it starts in what is seen.
    seen: usize,
    /// What it takes up of the original, without its line break.
    original: Range<usize>,
}

impl<'a> Seen<'a> {
    /// A look must see each character as one, and may only leave out some at the end of a line.
    fn new(content: &'a str, look: impl Fn(&str) -> String) -> Self {
        let mut seen = Self { content, text: String::new(), lines: Vec::new() };
        let mut start = 0;
        for line in content.split_inclusive('\n') {
            let unbroken = line.strip_suffix("\r\n").or(line.strip_suffix('\n'));
            let bare = unbroken.unwrap_or(line);
            seen.lines.push(Line { seen: seen.text.len(), original: start..start + bare.len() });
            seen.text.push_str(&look(bare));
            if unbroken.is_some() {
                seen.text.push('\n');
            }
            start += line.len();
        }
        if content.is_empty() || content.ends_with('\n') {
            seen.lines.push(Line { seen: seen.text.len(), original: start..start });
        }
        seen
    }

    fn original(&self, range: Range<usize>) -> Range<usize> {
        let start = self.position(range.start);
        let line = self.line(range.end);
        let ends_line = matches!(self.text.as_bytes().get(range.end), None | Some(b'\n'));
        // What was left out at the end of a line goes with it, unless nothing of that line was seen.
        let end = if ends_line && range.end > line.seen { line.original.end } else { self.position(range.end) };
        start..end.max(start)
    }

    fn line(&self, at: usize) -> &Line {
        // There is a line that starts at 0, so one is always before.
        &self.lines[self.lines.partition_point(|line| line.seen <= at) - 1]
    }

    fn position(&self, at: usize) -> usize {
        let line = self.line(at);
        let before = self.text[line.seen..at].chars().count();
        let original = &self.content[line.original.clone()];
        line.original.start + original.char_indices().nth(before).map_or(original.len(), |(at, _)| at)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn found<'a>(content: &'a str, wanted: &str) -> Result<(&'a str, bool), Miss> {
        place(content, wanted).map(|place| (&content[place.range], place.is_loose))
    }

    #[test]
    fn an_exact_place_is_found_first() {
        assert_eq!(found("it's it’s", "it’s"), Ok(("it’s", false)));
        assert_eq!(found("\u{feff}first\n", "first"), Ok(("first", false)));
    }

    #[test]
    fn line_breaks_need_not_be_the_same() {
        assert_eq!(found("one\r\ntwo\r\nthree\r\n", "one\ntwo\n"), Ok(("one\r\ntwo\r\n", false)));
        assert_eq!(found("one\ntwo\nthree\n", "two\r\nthree"), Ok(("two\nthree", false)));
        assert_eq!(found("one\r\ntwo", "\ntwo"), Ok(("\r\ntwo", false)));
        assert_eq!(found("é\r\n\r\nü", "é\n\nü"), Ok(("é\r\n\r\nü", false)));
    }

    #[test]
    fn the_ends_of_lines_and_typography_need_not_be_the_same() {
        assert_eq!(found("a  \nb\t\nc", "a\nb"), Ok(("a  \nb\t", true)));
        assert_eq!(found("a  \r\n  \r\nc", "a\n\nc"), Ok(("a  \r\n  \r\nc", true)));
        assert_eq!(found("say “hé” – now", "\"hé\" - n"), Ok(("“hé” – n", true)));
        assert_eq!(found("a\u{a0}b", "a b"), Ok(("a\u{a0}b", true)));
        assert_eq!(found("let x =\nlet y =1", "let x = "), Ok(("let x =", true)));
        assert_eq!(found("a \n   \nb", "a\n"), Ok(("a \n", true)));
        assert_eq!(found("a \n   ", "a\n"), Ok(("a \n", true)));
        assert_eq!(found("a \nb  ", "a\nb"), Ok(("a \nb  ", true)));
    }

    #[test]
    fn what_is_not_there_or_there_twice_has_no_place() {
        assert_eq!(found("abc", "abd"), Err(Miss::Nowhere));
        assert_eq!(found("", "a"), Err(Miss::Nowhere));
        assert_eq!(found("aaa", "aa"), Err(Miss::Often(2)), "places overlap");
        assert_eq!(found("a\r\nb\r\na\nb", "a\nb"), Err(Miss::Often(2)), "line breaks do not tell them apart");
        assert_eq!(found("‘a’ ‛a’", "'a'"), Err(Miss::Often(2)));
        assert_eq!(found("let y =1", "let y = "), Err(Miss::Nowhere), "the space is not at the end of a line");
        assert_eq!(found("a\n\nb", "  "), Err(Miss::Nowhere), "blank lines are not a place");
        assert_eq!(found(&"ab".repeat(5000), "ab"), Err(Miss::Often(ENOUGH)));
    }

    /// What both looks see of a text.
    fn bared(text: &str) -> String {
        with_plain_breaks(text).split('\n').map(bare).collect::<Vec<_>>().join("\n")
    }

    proptest! {
        #[test]
        fn what_is_found_looks_like_what_is_wanted(content in "[ab\u{e9} '\u{2019}\\-\u{2013}\t\r\n]{0,40}", wanted in "[ab\u{e9} '\\-\r\n]{1,6}") {
            if let Ok(place) = place(&content, &wanted) {
                prop_assert_eq!(bared(&content[place.range]), bared(&wanted));
            }
        }

        #[test]
        fn what_is_there_has_a_place(content in "[ab\u{e9}'\u{2019}\r\n]{1,40}", from in 0..40_usize, length in 1..6_usize) {
            let from = from % content.chars().count();
            let wanted: String = content.chars().skip(from).take(length).collect();
            // Half a line break is not a text that anybody wants.
            prop_assume!(!wanted.ends_with('\r') && !wanted.starts_with('\n'));
            let found = place(&content, &wanted).map(|place| with_plain_breaks(&content[place.range]));
            let is_there = match &found {
                Ok(found) => *found == with_plain_breaks(&wanted),
                Err(Miss::Often(count)) => *count > 1,
                Err(Miss::Nowhere) => false,
            };
            prop_assert!(is_there, "{:?}", found);
        }
    }
}
