//! A config text that may be a secret.

use std::fmt;

use schemars::JsonSchema;
use serde::Deserialize;

/// A string of the config. It may be a secret, so debug output omits it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
pub struct Text(String);

impl Text {
    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Text(…)")
    }
}
