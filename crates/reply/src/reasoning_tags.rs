//! Splits reasoning in tags from the answer after it, for providers without a separate field.

use crate::tags::{self, TagMatch, TagName, TagSide};

/// Splits the reasoning before an answer from it; `None` if there is none or it is not closed. The answer is the
/// unchanged text after it.
pub fn split_reasoning(text: &str) -> Option<(String, &str)> {
    let mut rest = text;
    let mut parts = Vec::new();
    while let Some((part, following)) = first(rest.trim_start()) {
        parts.push(part.trim());
        rest = following;
    }
    let parts: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    (rest.len() < text.len() && !parts.is_empty()).then(|| (parts.join("\n"), rest.trim_start()))
}

/// Returns the reasoning at the start of a text, and the text after it.
fn first(text: &str) -> Option<(&str, &str)> {
    let inner = after(text, TagSide::Open)?;
    let mut from = 0;
    loop {
        let at = from + inner[from..].find('<')?;
        match after(&inner[at..], TagSide::Close) {
            Some(following) => return Some((&inner[..at], following)),
            None => from = at + 1,
        }
    }
}

/// Returns the text after a think tag at its start.
fn after(text: &str, side: TagSide) -> Option<&str> {
    let end = text.strip_prefix('<')?.find('>')? + 2;
    match tags::match_tag(&text[..end]) {
        TagMatch::Match(tag) if tag.name == TagName::Think && tag.side == side => Some(&text[end..]),
        TagMatch::Match(_) | TagMatch::Partial | TagMatch::NoMatch => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasoning_before_an_answer_is_split_off() {
        assert_eq!(split_reasoning("<think>a < b\n</think>\n\nYes  [[x]]"), Some(("a < b".to_owned(), "Yes  [[x]]")));
        assert_eq!(split_reasoning(" <Thinking>1</thinking> <think>2</think>3"), Some(("1\n2".to_owned(), "3")));
    }

    #[test]
    fn other_tags_and_unclosed_reasoning_stay() {
        for text in ["", "Yes <think>a</think>", "<think>a", "<b>a</b>", "<think></think>Yes", "</think>Yes", "< 3"] {
            assert_eq!(split_reasoning(text), None, "{text}");
        }
    }
}
