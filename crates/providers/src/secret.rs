//! Messages of providers without the secrets that they may repeat.

use homard_stdx::{Secret, text};

/// Maximum number of characters of a provider's message in an error.
const EXCERPT: usize = 600;

/// Minimum length of a secret; a shorter value is a placeholder such as `none`, and redacting it would only garble the
/// text.
const MIN_LENGTH: usize = 8;

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
    text::truncate(&text::one_line(&redacted(text, secrets)), EXCERPT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_is_one_short_line_without_secrets() {
        let secrets = [Secret::from("sk-12345\n"), Secret::from("key"), Secret::from("")];
        assert_eq!(excerpt("bad\r\n\tkey: sk-12345.\u{7}", &secrets), "bad key: ….");
        let long = excerpt(&format!("{}sk-12345", "é".repeat(EXCERPT - 3)), &secrets);
        assert_eq!(long, format!("{}…", "é".repeat(EXCERPT - 3)));
        assert_eq!(excerpt(&"x".repeat(9_999), []), format!("{}…", "x".repeat(EXCERPT)));
    }
}
