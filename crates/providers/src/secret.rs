//! Secrets: keys and header values that must not be logged.

use std::fmt;

/// Maximum number of characters of a provider's message in an error.
const EXCERPT: usize = 600;

/// Minimum length of a secret; a shorter value is a placeholder such as `none`, and redacting it would only garble the
/// text.
const MIN_LENGTH: usize = 8;

/// A string that is never shown in logs, errors or debug output.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Returns the string itself, for sending and storing it.
    pub fn expose(&self) -> &str {
        &self.0
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

/// Redacts secrets in a provider's message; some providers echo the API key in errors.
pub(crate) fn redacted<'a>(text: &str, secrets: impl IntoIterator<Item = &'a Secret>) -> String {
    let mut text = text.to_owned();
    for secret in secrets {
        let secret = secret.expose().trim();
        if secret.len() >= MIN_LENGTH {
            text = text.replace(secret, "…");
        }
    }
    text
}

/// Returns the beginning of a provider's message, on one line and without secrets.
pub(crate) fn excerpt<'a>(text: &str, secrets: impl IntoIterator<Item = &'a Secret>) -> String {
    let text = redacted(text, secrets);
    let mut line = String::new();
    for word in text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty()) {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    if let Some((cut, _)) = line.char_indices().nth(EXCERPT) {
        line.truncate(cut);
        line.push('…');
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_not_shown() {
        assert_eq!(format!("{:?}", Some(Secret::from("sk-1234"))), "Some(Secret(…))");
    }

    #[test]
    fn an_excerpt_is_one_short_line_without_secrets() {
        let secrets = [Secret::from("sk-12345\n"), Secret::from("key"), Secret::from("")];
        assert_eq!(excerpt("bad\r\n\tkey: sk-12345.\u{7}", &secrets), "bad key: ….");
        let long = excerpt(&format!("{}sk-12345", "é".repeat(EXCERPT - 3)), &secrets);
        assert_eq!(long, format!("{}…", "é".repeat(EXCERPT - 3)));
        assert_eq!(excerpt(&"x".repeat(9_999), []), format!("{}…", "x".repeat(EXCERPT)));
    }
}
