//! Texts from files, models and manifests, made safe and short for the terminal.

use homard_stdx::text::strip_controls;

/// Maximum characters of a description in a list.
pub const MAX_DESCRIPTION: usize = 60;

/// Puts a foreign text on one line, without control characters.
pub fn one_line(text: &str) -> String {
    strip_controls(&text.split_whitespace().collect::<Vec<_>>().join(" "))
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
    }

    #[test]
    fn a_text_with_special_characters_is_quoted_as_one_shell_word() {
        assert_eq!(["a.b", "it's", ""].map(shell_quote), ["a.b", "'it'\\''s'", "''"]);
    }
}
