//! Messages of platforms without the secret that they may repeat.

use homard_stdx::{Secret, text};

/// Maximum length of a platform's message in an error, in characters.
const MAX_EXCERPT_CHARS: usize = 300;

/// Returns the beginning of a platform's message, on one line and with the secret removed.
pub(crate) fn excerpt(message: &str, secret: &Secret) -> String {
    let secret = secret.expose();
    let message = if secret.is_empty() { message.to_owned() } else { message.replace(secret, "…") };
    text::truncate(&text::one_line(&message), MAX_EXCERPT_CHARS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_is_one_short_line_without_the_secret() {
        let secret = Secret::from("123:abc");
        assert_eq!(excerpt("no bot\n at /bot123:abc/getMe\u{7}", &secret), "no bot at /bot…/getMe");
        assert_eq!(excerpt(&"é".repeat(999), &Secret::from("")), format!("{}…", "é".repeat(MAX_EXCERPT_CHARS)));
    }
}
