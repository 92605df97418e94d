//! Making a text short: by tokens, by characters, in the middle or at the end of a line. What was cut is said.

use homard_model::tokens::estimate;

/// What the notes of this file weigh at most.
const NOTE: u64 = 24;

/// The longest beginning of a text that weighs no more than `budget`.
pub(crate) fn head(text: &str, budget: u64) -> &str {
    longest(text, budget, |end| &text[..end])
}

/// The longest end of a text that weighs about `budget`.
fn tail(text: &str, budget: u64) -> &str {
    longest(text, budget, |length| {
        let start = (text.len() - length..=text.len()).find(|&at| text.is_char_boundary(at)).unwrap_or(text.len());
        &text[start..]
    })
}

/// Looks for the longest piece within the budget. Pieces are first doubled and then halved, so that what is far beyond
/// the budget is not read again and again.
fn longest<'a>(text: &'a str, budget: u64, piece: impl Fn(usize) -> &'a str) -> &'a str {
    let fits = |length: usize| estimate(piece(length)) <= budget;
    let boundary = |length: usize| text.floor_char_boundary(length.min(text.len()));
    let mut over = boundary(usize::try_from(budget.saturating_mul(4)).unwrap_or(usize::MAX).max(16));
    while over < text.len() && fits(over) {
        over = boundary(over.saturating_mul(2));
    }
    if fits(over) {
        return piece(over);
    }
    let mut fit = 0_usize;
    loop {
        let middle = boundary(fit.midpoint(over));
        if middle <= fit {
            return piece(fit);
        }
        if fits(middle) { fit = middle } else { over = middle }
    }
}

/// A text within `budget`; what is too much is taken out of its middle, with a note.
pub(crate) fn middle(text: &str, budget: u64) -> String {
    if estimate(text) <= budget {
        return text.to_owned();
    }
    let words = budget.saturating_sub(NOTE);
    let (start, end) = (head(text, words * 2 / 3), tail(text, words / 3));
    let lost = text.len().saturating_sub(start.len() + end.len());
    let short = format!("{start}\n[… {lost} bytes left out …]\n{end}");
    // The end alone may weigh more than inside its text, where it went on with a word.
    if estimate(&short) <= budget { short } else { head(text, budget).to_owned() }
}

/// A text within `budget`, cut at the end of a line, with a note.
pub(crate) fn lines(text: &str, budget: u64) -> String {
    if estimate(text) <= budget {
        return text.to_owned();
    }
    let start = head(text, budget.saturating_sub(NOTE));
    let start = match start.rfind('\n') {
        Some(end) if end > start.len() / 2 => &start[..end],
        _ => start,
    };
    let short = format!("{}\n[… the rest was too long]", start.trim_end());
    if estimate(&short) <= budget { short } else { head(text, budget).to_owned() }
}

/// The beginning of a text on one line, in characters.
pub(crate) fn one_line(text: &str, most: usize) -> String {
    let mut line = String::new();
    let mut length = 0;
    for word in text.split_whitespace() {
        if length > 0 {
            line.push(' ');
            length += 1;
        }
        for letter in word.chars() {
            if length >= most {
                line.push('…');
                return line;
            }
            line.push(letter);
            length += 1;
        }
    }
    line
}

/// A text of at most `most` characters, without its middle, with a note besides.
pub(crate) fn characters(text: &str, most: usize) -> String {
    // Fewer bytes than that are fewer characters.
    if text.len() <= most {
        return text.to_owned();
    }
    let count = text.chars().count();
    if count <= most {
        return text.to_owned();
    }
    let end = most / 3;
    format!("{}\n[… {} characters left out …]\n{}", first(text, most - end), count - most, last(text, end))
}

/// The first characters of a text.
pub(crate) fn first(text: &str, most: usize) -> &str {
    text.char_indices().nth(most).map_or(text, |(end, _)| &text[..end])
}

/// The last characters of a text.
pub(crate) fn last(text: &str, most: usize) -> &str {
    match most.checked_sub(1) {
        Some(before) => text.char_indices().rev().nth(before).map_or(text, |(start, _)| &text[start..]),
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
    fn one_line_ends_with_a_sign_that_there_is_more() {
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
        fn nothing_weighs_more_than_its_budget(text in "([a-z ]{0,40}|[A-Z0-9]{0,40}|[😀漢字\n]{0,40}|[!-/]{0,20}){0,12}", budget in 0u64..200) {
            prop_assert!(estimate(head(&text, budget)) <= budget);
            prop_assert!(estimate(&middle(&text, budget)) <= budget);
            prop_assert!(estimate(&lines(&text, budget)) <= budget);
            if estimate(&text) <= budget {
                prop_assert_eq!(head(&text, budget), &text);
            }
        }
    }
}
