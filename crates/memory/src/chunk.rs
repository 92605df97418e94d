//! Splits a text into passages of limited size, each a range of lines.

/// Maximum size of a passage: 400 tokens of about four bytes.
const MAX_PASSAGE_BYTES: usize = 400 * 4;

/// Overlap of consecutive passages, so that text across a boundary is found: 80 tokens.
const OVERLAP: usize = 80 * 4;

/// A passage: a part of a text that is indexed, and found, as a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Passage<'a> {
    /// First line, counted from 1.
    pub(crate) start: u64,
    /// Last line.
    pub(crate) end: u64,
    pub(crate) text: &'a str,
}

/// A line, or a part of a line that is longer than a passage.
#[derive(Clone, Copy)]
struct LinePiece {
    line: u64,
    from: usize,
    to: usize,
}

/// Splits a text into passages. Blank ones are omitted.
pub(crate) fn passages(text: &str) -> Vec<Passage<'_>> {
    let pieces = pieces(text);
    let mut found = Vec::new();
    let mut first = 0;
    while let Some(&begin) = pieces.get(first) {
        let fits = |piece: &&LinePiece| piece.to - begin.from <= MAX_PASSAGE_BYTES;
        let last = first + pieces[first..].iter().take_while(fits).count().max(1) - 1;
        let end = pieces[last];
        let passage = &text[begin.from..end.to];
        if !passage.trim().is_empty() {
            found.push(Passage { start: begin.line, end: end.line, text: passage });
        }
        if last + 1 == pieces.len() {
            break;
        }
        // The next passage repeats the pieces within the overlap, but starts at least one piece later than this one.
        let repeated = pieces[first + 1..=last].iter().rev().take_while(|piece| end.to - piece.from <= OVERLAP).count();
        first = last + 1 - repeated;
    }
    found
}

fn pieces(text: &str) -> Vec<LinePiece> {
    let mut pieces = Vec::new();
    let mut from = 0;
    for (number, line) in (1..).zip(text.split_inclusive('\n')) {
        let end = from + line.len();
        while from < end {
            let to = text.floor_char_boundary(end.min(from + MAX_PASSAGE_BYTES));
            pieces.push(LinePiece { line: number, from, to });
            from = to;
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lines(text: &str) -> Vec<(u64, u64)> {
        passages(text).iter().map(|chunk| (chunk.start, chunk.end)).collect()
    }

    #[test]
    fn a_short_text_is_one_passage() {
        assert_eq!(passages("one\ntwo\n"), [Passage { start: 1, end: 2, text: "one\ntwo\n" }]);
    }

    #[test]
    fn a_text_without_words_has_no_passages() {
        assert_eq!((passages(""), passages(" \n\n\t\n")), (Vec::new(), Vec::new()));
    }

    #[test]
    fn neighbours_share_lines() {
        let line = "x".repeat(99) + "\n";
        assert_eq!(lines(&line.repeat(40)), [(1, 16), (14, 29), (27, 40)]);
    }

    #[test]
    fn a_long_line_is_cut_between_characters() {
        let text = "日".repeat(1200);
        let found = passages(&text);
        assert_eq!(found.iter().map(|chunk| chunk.text.len()).collect::<Vec<_>>(), [1599, 1599, 402]);
        assert!(found.iter().all(|chunk| (chunk.start, chunk.end) == (1, 1)));
    }

    proptest! {
        #[test]
        fn every_word_is_in_some_passage_of_bounded_size(words in prop::collection::vec("[a-zä日\r]{1,40}", 0..150), gap in "[ \n]{1,3}") {
            let text = words.join(&gap);
            let found = passages(&text);
            prop_assert!(found.iter().all(|chunk| chunk.text.len() <= MAX_PASSAGE_BYTES));
            let count = text.split_inclusive('\n').count() as u64;
            prop_assert!(found.iter().all(|chunk| 1 <= chunk.start && chunk.start <= chunk.end && chunk.end <= count));
            for line in text.lines().filter(|line| line.len() <= MAX_PASSAGE_BYTES) {
                prop_assert!(line.trim().is_empty() || found.iter().any(|chunk| chunk.text.contains(line)));
            }
        }
    }
}
