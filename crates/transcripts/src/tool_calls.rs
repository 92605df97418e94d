//! The arguments of tool calls. The timeline and the audit log have digests only; the arguments are in the transcript
//! of the session. Secrets in them are masked.

use std::collections::HashMap;

use homard_config::redact;
use homard_secrets::{Secrets, is_secret_name};
use serde_json::Value;

use crate::{Error, MessageSource};

/// In place of a masked value.
const MASK: &str = "***";

/// Masks the secrets in arguments.
#[derive(Debug)]
pub struct ArgumentMask(Secrets);

impl ArgumentMask {
    /// Masks these secrets, too.
    pub fn new(secrets: Secrets) -> Self {
        Self(secrets)
    }

    /// Returns the arguments without known secrets, values with the name of a secret, and passwords in commands.
    pub fn masked(&self, arguments: &Value) -> Value {
        let mut masked = redact::redact(arguments);
        self.0.mask_value(&mut masked);
        mask_texts(&mut masked);
        masked
    }
}

/// A tool call in a transcript.
#[derive(Debug)]
pub struct RecordedCall {
    /// The name of the tool.
    pub name: String,
    /// Its arguments, not masked.
    pub arguments: Value,
}

/// Returns the calls of a session by their id; `None` if its key refers to another transcript by now.
pub async fn calls_of(
    source: &mut MessageSource,
    key: &str,
    session_id: Option<&str>,
) -> Result<Option<HashMap<String, RecordedCall>>, Error> {
    let Some(conversation) = source.conversation(key, None).await? else { return Ok(None) };
    if session_id.is_some_and(|id| id != conversation.session_id) {
        return Ok(None);
    }
    let blocks = conversation.messages.iter().flat_map(|message| message["content"].as_array().into_iter().flatten());
    let calls = blocks.filter(|block| block["type"] == "toolCall").filter_map(|block| {
        let text = |name: &str| block[name].as_str().map(str::to_owned);
        Some((text("id")?, RecordedCall { name: text("name")?, arguments: block["arguments"].clone() }))
    });
    Ok(Some(calls.collect()))
}

fn mask_texts(value: &mut Value) {
    match value {
        Value::String(text) => *text = mask_command(text),
        Value::Array(items) => items.iter_mut().for_each(mask_texts),
        Value::Object(fields) => fields.values_mut().for_each(mask_texts),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Masks the values that a command line marks as secrets: `TOKEN=x`, `--password x`, `Bearer x`, `user:x@host`.
fn mask_command(text: &str) -> String {
    let mut masked = String::with_capacity(text.len());
    // True after a word whose next word is a secret.
    let mut is_next_secret = false;
    for piece in text.split_inclusive(char::is_whitespace) {
        let word = piece.trim_end();
        let space = &piece[word.len()..];
        if word.is_empty() {
            masked.push_str(piece);
            continue;
        }
        let bare = word.trim_matches(['"', '\'', ':', ',']);
        let is_scheme = ["bearer", "basic"].iter().any(|scheme| bare.eq_ignore_ascii_case(scheme));
        let (new, next) = match word.split_once('=') {
            _ if is_next_secret && !is_scheme => (MASK.to_owned(), false),
            Some((name, value)) if is_secret(name) && !value.is_empty() => (format!("{name}={MASK}"), false),
            _ => {
                (mask_user_info(word), is_scheme || (is_secret(word) && (word.starts_with('-') || word.ends_with(':'))))
            }
        };
        masked.push_str(&new);
        masked.push_str(space);
        is_next_secret = next;
    }
    masked
}

/// Returns true if an argument or a header with this name has a secret value.
fn is_secret(name: &str) -> bool {
    is_secret_name(name) || name.to_uppercase().contains("AUTHORIZATION")
}

/// Masks the password in a URL such as `https://user:password@host/`.
fn mask_user_info(word: &str) -> String {
    let masked = || {
        let (scheme, rest) = word.split_once("://")?;
        let (user_info, host) = rest.split('/').next()?.rsplit_once('@')?;
        let (user, _) = user_info.split_once(':')?;
        let path = &rest[user_info.len() + 1 + host.len()..];
        Some(format!("{scheme}://{user}:{MASK}@{host}{path}"))
    };
    masked().unwrap_or_else(|| word.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn secrets_on_a_command_line_are_masked() {
        for (command, expected) in [
            ("ls -l /tmp", "ls -l /tmp"),
            ("API_KEY=abc  make\tall", "API_KEY=***  make\tall"),
            ("login --password hunter2 --user me", "login --password *** --user me"),
            ("login --token=abc x", "login --token=*** x"),
            (
                "curl -H 'Authorization: Bearer abc.def' https://x.example",
                "curl -H 'Authorization: Bearer *** https://x.example",
            ),
            ("curl https://me:pw@x.example/a/b", "curl https://me:***@x.example/a/b"),
            ("cat key.pem", "cat key.pem"),
            ("git clone https://x.example/a@b", "git clone https://x.example/a@b"),
        ] {
            assert_eq!(mask_command(command), expected, "{command}");
        }
    }

    #[test]
    fn known_secrets_and_secret_fields_are_masked() {
        let mask = ArgumentMask(Secrets::new(["correct-horse-battery".to_owned()]));
        let masked = mask.masked(&json!({"command": "echo correct-horse-battery", "apiKey": "abcdef", "n": 1}));
        assert!(!masked.to_string().contains("horse") && !masked.to_string().contains("abcdef"), "{masked}");
        assert_eq!(masked["n"], 1);
    }
}
