//! Texts that must not be seen: keys and header values.

use std::fmt;

/// How much of a provider's words goes into an error's message.
const EXCERPT: usize = 600;

/// A shorter value is a placeholder such as `none`; cutting it out would only garble the words.
const SHORTEST: usize = 8;

/// A text that no log, error or debug output shows.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// The text itself, for the place that sends it and the one that keeps it.
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

/// A provider's words without secrets, which providers do echo.
pub(crate) fn redacted<'a>(text: &str, secrets: impl IntoIterator<Item = &'a Secret>) -> String {
    let mut text = text.to_owned();
    for secret in secrets {
        let secret = secret.expose().trim();
        if secret.len() >= SHORTEST {
            text = text.replace(secret, "…");
        }
    }
    text
}

/// The head of what a provider said, on one line and without secrets.
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
