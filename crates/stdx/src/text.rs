//! Shortening and cleaning of texts. Lengths are characters, never bytes that may lie within one.

/// Returns the beginning of a text: at most `max_chars` characters.
pub fn beginning(text: &str, max_chars: usize) -> &str {
    text.char_indices().nth(max_chars).map_or(text, |(end, _)| &text[..end])
}

/// Returns a text; a longer one is cut after `max_chars` characters, and an ellipsis follows.
pub fn truncate(text: &str, max_chars: usize) -> String {
    let kept = beginning(text, max_chars);
    if kept.len() == text.len() { text.to_owned() } else { format!("{kept}…") }
}

/// Returns a text that has at most `max_chars` characters: the last one of a longer text is an ellipsis.
pub fn fit(text: &str, max_chars: usize) -> String {
    let is_short = beginning(text, max_chars).len() == text.len();
    if is_short { text.to_owned() } else { format!("{}…", beginning(text, max_chars.saturating_sub(1))) }
}

/// Puts a text on one line: white space and control characters become single spaces.
pub fn one_line(text: &str) -> String {
    let words = text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join(" ")
}

/// Removes control characters other than line ends and tabs.
pub fn strip_controls(text: &str) -> String {
    text.chars().filter(|&c| !c.is_control() || c == '\n' || c == '\t').collect()
}

/// Returns true for characters that control a terminal or the direction of text, or that separate lines.
pub fn affects_terminal(c: char) -> bool {
    c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_characters() {
        assert_eq!([beginning("äöü", 2), beginning("äöü", 3), beginning("", 1)], ["äö", "äöü", ""]);
        assert_eq!([truncate("äöü", 2), truncate("äöü", 3)], ["äö…", "äöü"]);
        assert_eq!([fit("äöü", 2), fit("äöü", 3), fit("äöü", 0)], ["ä…", "äöü", "…"]);
    }

    #[test]
    fn a_clean_text_controls_nothing() {
        assert_eq!(one_line(" a\r\n\tb\u{7}c "), "a b c");
        assert_eq!(strip_controls("a\u{1b}[2J\tb\r\n"), "a[2J\tb\n");
        assert!("\u{1b}\u{9b}\u{2028}\u{202e}\u{2066}\n".chars().all(affects_terminal));
        assert!(!"aé 🦞\u{200d}".chars().any(affects_terminal));
    }
}
