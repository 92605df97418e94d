//! A text of the config, with `${NAME}` filled in from the environment.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{self, Visitor},
};

use crate::paths;

/// A text of the config. It may be a secret, so it is not shown in debug output.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Text(String);

impl Text {
    /// The text itself.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Text(…)")
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        /// A failure inside a visitor is told with the place of the text, a later one with that of the object around it.
        struct Filled;

        impl Visitor<'_> for Filled {
            type Value = Text;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Text, E> {
                let variable = |name: &str| paths::env(name).and_then(|value| value.into_string().ok());
                fill(text, variable).map(Text).map_err(E::custom)
            }
        }

        deserializer.deserialize_str(Filled)
    }
}

/// Fills in `${NAME}`. `$${NAME}` stays `${NAME}`, and so does whatever is not a name in capitals.
fn fill(text: &str, variable: impl Fn(&str) -> Option<String>) -> Result<String, String> {
    let mut filled = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let (before, tail) = (&rest[..at], &rest[at + 2..]);
        let name = tail.split_once('}').map(|(name, _)| name).filter(|name| is_name(name));
        let Some(name) = name else {
            filled.push_str(&rest[..at + 2]);
            rest = tail;
            continue;
        };
        match before.strip_suffix('$') {
            Some(before) => {
                filled.push_str(before);
                filled.push_str(&format!("${{{name}}}"));
            }
            None => {
                filled.push_str(before);
                let value =
                    variable(name).ok_or_else(|| format!("needs the environment variable {name}, which is not set"))?;
                filled.push_str(&value);
            }
        }
        rest = &tail[name.len() + 1..];
    }
    filled.push_str(rest);
    Ok(filled)
}

fn is_name(text: &str) -> bool {
    let head = |c: char| c.is_ascii_uppercase() || c == '_';
    text.starts_with(head) && text.chars().all(|c| head(c) || c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_filled_in() {
        let filled = |text| fill(text, |name| (name == "KEY_1").then(|| "sk-1".to_owned()));
        assert_eq!(filled("Bearer ${KEY_1}!").unwrap(), "Bearer sk-1!");
        assert_eq!(filled("${KEY_1}${KEY_1}").unwrap(), "sk-1sk-1");
        assert_eq!(filled("$${KEY_1} ${lower} ${} ${KEY_1").unwrap(), "${KEY_1} ${lower} ${} ${KEY_1");
        assert_eq!(filled("${OTHER}").unwrap_err(), "needs the environment variable OTHER, which is not set");
    }
}
