//! Texts from files, models and manifests, made safe and short for the terminal.

/// Maximum characters of a description in a list.
pub const MAX_DESCRIPTION: usize = 60;

/// Removes control characters other than line ends and tabs.
pub fn strip_controls(text: &str) -> String {
    text.chars().filter(|&c| !c.is_control() || c == '\n' || c == '\t').collect()
}

/// Puts a foreign text on one line, without control characters.
pub fn one_line(text: &str) -> String {
    strip_controls(&text.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Truncates a text to at most `max_chars` characters, ending in an ellipsis.
pub fn truncate(text: &str, max_chars: usize) -> String {
    if text.chars().count() <= max_chars {
        return text.to_owned();
    }
    text.chars().take(max_chars - 1).chain(['…']).collect()
}

/// Quotes a text as one shell word.
pub fn shell_quote(text: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | '/' | '@' | ':');
    let is_word = !text.is_empty() && text.chars().all(is_plain);
    if is_word { text.to_owned() } else { format!("'{}'", text.replace('\'', "'\\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_foreign_text_cannot_control_the_terminal() {
        assert_eq!(one_line("a\u{1b}[2J\n  b\tc"), "a[2J b c");
        assert_eq!(truncate("abcdef", 4), "abc…");
    }

    #[test]
    fn a_text_with_special_characters_is_quoted_as_one_shell_word() {
        assert_eq!(["a.b", "it's", ""].map(shell_quote), ["a.b", "'it'\\''s'", "''"]);
    }
}
