//! Secret strings: tokens and shared secrets.

use std::fmt;

use subtle::ConstantTimeEq;

/// Maximum length of a platform's message in an error, in characters.
const MAX_EXCERPT_CHARS: usize = 300;

/// A string that is not shown in logs, errors and debug output.
#[derive(Clone)]
pub struct Secret(String);

impl Secret {
    /// Returns the string itself, for sending.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }

    /// Compares in constant time for texts of the same length.
    pub(crate) fn equals(&self, candidate: &str) -> bool {
        bool::from(self.0.as_bytes().ct_eq(candidate.as_bytes()))
    }

    /// Returns the beginning of a platform's message, on one line and with the secret removed.
    pub(crate) fn excerpt(&self, text: &str) -> String {
        let text = if self.0.is_empty() { text.to_owned() } else { text.replace(&self.0, "…") };
        let words: Vec<&str> =
            text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty()).collect();
        let mut line = words.join(" ");
        if let Some((limit, _)) = line.char_indices().nth(MAX_EXCERPT_CHARS) {
            line.truncate(limit);
            line.push('…');
        }
        line
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_not_shown() {
        let secret = Secret::from("123:abc");
        assert_eq!(format!("{secret:?}"), "Secret(…)");
        assert_eq!(secret.excerpt("no bot\n at /bot123:abc/getMe\u{7}"), "no bot at /bot…/getMe");
        assert_eq!(Secret::from("").excerpt(&"é".repeat(999)), format!("{}…", "é".repeat(MAX_EXCERPT_CHARS)));
    }

    #[test]
    fn a_secret_equals_only_the_same_text() {
        let secret = Secret::from("abc");
        assert_eq!(
            ["abc", "abd", "ab", "abcd", ""].map(|candidate| secret.equals(candidate)),
            [true, false, false, false, false]
        );
    }
}
