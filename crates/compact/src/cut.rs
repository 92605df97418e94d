//! Truncation of texts: by tokens or characters, in the middle or at a line end. A note marks the cut.

use homard_model::tokens::estimate;

/// Maximum tokens of a note in this file.
const NOTE_TOKENS: u64 = 24;

/// Returns the longest prefix of a text within `budget` tokens.
pub(crate) fn head(text: &str, budget: u64) -> &str {
    longest(text, budget, |end| &text[..end])
}

/// Returns the longest suffix of a text within about `budget` tokens.
fn tail(text: &str, budget: u64) -> &str {
    longest(text, budget, |length| {
        let start =
            (text.len() - length..=text.len()).find(|&offset| text.is_char_boundary(offset)).unwrap_or(text.len());
        &text[start..]
    })
}

/// Searches for the longest piece within the budget, first doubling and then bisecting, so that text far beyond the
/// budget is not read repeatedly.
fn longest<'a>(text: &'a str, budget: u64, piece: impl Fn(usize) -> &'a str) -> &'a str {
    let fits = |length: usize| estimate(piece(length)) <= budget;
    let boundary = |length: usize| text.floor_char_boundary(length.min(text.len()));
    let mut upper = boundary(usize::try_from(budget.saturating_mul(4)).unwrap_or(usize::MAX).max(16));
    while upper < text.len() && fits(upper) {
        upper = boundary(upper.saturating_mul(2));
    }
    if fits(upper) {
        return piece(upper);
    }
    let mut lower = 0_usize;
    loop {
        let middle = boundary(lower.midpoint(upper));
        if middle <= lower {
            return piece(lower);
        }
        if fits(middle) { lower = middle } else { upper = middle }
    }
}

/// Truncates a text to `budget` tokens in its middle, with a note.
pub(crate) fn middle(text: &str, budget: u64) -> String {
    if estimate(text) <= budget {
        return text.to_owned();
    }
    let text_budget = budget.saturating_sub(NOTE_TOKENS);
    let (start, end) = (head(text, text_budget * 2 / 3), tail(text, text_budget / 3));
    let omitted = text.len().saturating_sub(start.len() + end.len());
    let short = format!("{start}\n[… {omitted} bytes left out …]\n{end}");
    // The suffix alone may have more tokens than within its text, where it continued a word.
    if estimate(&short) <= budget { short } else { head(text, budget).to_owned() }
}

/// Truncates a text to `budget` tokens at a line end, with a note.
pub(crate) fn lines(text: &str, budget: u64) -> String {
    if estimate(text) <= budget {
        return text.to_owned();
    }
    let start = head(text, budget.saturating_sub(NOTE_TOKENS));
    let start = match start.rfind('\n') {
        Some(end) if end > start.len() / 2 => &start[..end],
        _ => start,
    };
    let short = format!("{}\n[… the rest was too long]", start.trim_end());
    if estimate(&short) <= budget { short } else { head(text, budget).to_owned() }
}

/// Returns the beginning of a text on one line, with at most this many characters.
pub(crate) fn one_line(text: &str, max: usize) -> String {
    let mut line = String::new();
    let mut length = 0;
    for word in text.split_whitespace() {
        if length > 0 {
            line.push(' ');
            length += 1;
        }
        for char in word.chars() {
            if length >= max {
                line.push('…');
                return line;
            }
            line.push(char);
            length += 1;
        }
    }
    line
}

/// Truncates a text to `max` characters in its middle, plus a note.
pub(crate) fn characters(text: &str, max: usize) -> String {
    // Fewer bytes imply fewer characters.
    if text.len() <= max {
        return text.to_owned();
    }
    let count = text.chars().count();
    if count <= max {
        return text.to_owned();
    }
    let end = max / 3;
    format!("{}\n[… {} characters left out …]\n{}", first(text, max - end), count - max, last(text, end))
}

/// Returns the first characters of a text.
pub(crate) fn first(text: &str, max: usize) -> &str {
    text.char_indices().nth(max).map_or(text, |(end, _)| &text[..end])
}

/// Returns the last characters of a text.
pub(crate) fn last(text: &str, max: usize) -> &str {
    match max.checked_sub(1) {
        Some(index) => text.char_indices().rev().nth(index).map_or(text, |(start, _)| &text[start..]),
        None => "",
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn characters_lose_their_middle() {
        assert_eq!(characters("abcdefghij", 10), "abcdefghij");
        assert_eq!(characters("äbcdefghij", 6), "äbcd\n[… 4 characters left out …]\nij");
    }

    #[test]
    fn a_truncated_line_ends_with_an_ellipsis() {
        assert_eq!(one_line("a\n  b\tc", 5), "a b c");
        assert_eq!(one_line("abc def", 4), "abc …");
    }

    #[test]
    fn lines_end_where_a_line_ends() {
        let text = "a line of some words\n".repeat(40);
        let short = lines(&text, 60);
        assert!(short.ends_with("words\n[… the rest was too long]"), "{short}");
    }

    proptest! {
        #[test]
        fn truncated_texts_stay_within_their_budget(text in "([a-z ]{0,40}|[A-Z0-9]{0,40}|[😀漢字\n]{0,40}|[!-/]{0,20}){0,12}", budget in 0u64..200) {
            prop_assert!(estimate(head(&text, budget)) <= budget);
            prop_assert!(estimate(&middle(&text, budget)) <= budget);
            prop_assert!(estimate(&lines(&text, budget)) <= budget);
            if estimate(&text) <= budget {
                prop_assert_eq!(head(&text, budget), &text);
            }
        }
    }
}
