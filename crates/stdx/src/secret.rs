//! Secret strings: keys, tokens and header values that must not be logged.

use std::fmt;

use subtle::ConstantTimeEq;

/// A string that is not shown in logs, errors and debug output.
#[derive(Clone)]
pub struct Secret(String);

impl Secret {
    /// Returns the string itself, for sending and storing it.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Compares in constant time for texts of the same length.
    pub fn equals(&self, candidate: &str) -> bool {
        bool::from(self.0.as_bytes().ct_eq(candidate.as_bytes()))
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        self.equals(&other.0)
    }
}

impl Eq for Secret {}

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
        assert_eq!(format!("{:?}", Some(Secret::from("123:abc"))), "Some(Secret(…))");
    }

    #[test]
    fn a_secret_equals_only_the_same_text() {
        let secret = Secret::from("abc");
        let candidates = ["abc", "abd", "ab", "abcd", ""];
        assert_eq!(candidates.map(|candidate| secret.equals(candidate)), [true, false, false, false, false]);
    }
}
