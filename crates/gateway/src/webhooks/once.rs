//! The key by which a request that comes again is known, whatever else in it is written in another way. Pure.

use homard_proto::RunId;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::{refusal::Refusal, request::Said};

/// The headers that may hold a key.
const HEADERS: [&str; 2] = ["idempotency-key", "x-openclaw-idempotency-key"];
/// How long a key may be, in bytes.
const LONGEST: usize = 255;
/// How the names of all runs of webhooks begin.
pub(super) const PREFIX: &str = "hook-";

/// A key and where it is from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Key {
    /// The sender chose it for this very request.
    Sender(String),
    /// A mapping found it in the body: what the event is called by those who know of it. They may tell of the same event
    /// in other words, as with a later time or another count of attempts.
    Event(String),
}

/// A request that is done once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Once {
    /// What stands for it.
    pub(super) id: String,
    /// A digest of what the sender asked for with it; none where it may be told in other words.
    pub(super) asked: Option<String>,
}

impl Once {
    /// What a request of a family is known by, if it has a key. One of its body counts more than one of its headers,
    /// which anybody on the way can change.
    pub(super) fn of((family, key): (&str, Option<&Key>), said: &Said) -> Result<Option<Self>, Refusal> {
        let header = HEADERS.iter().find_map(|name| said.headers.get(*name)).map(|key| Key::Sender(key.clone()));
        let Some(key) = key.cloned().or(header) else { return Ok(None) };
        let (text, asked) = match &key {
            Key::Sender(text) => (text, Some(digest(&[&canonical(&said.payload)]))),
            Key::Event(text) => (text, None),
        };
        let text = text.trim();
        if text.is_empty() {
            return Ok(None);
        }
        if text.len() > LONGEST {
            return Err(Refusal::invalid(format!("the idempotency key is longer than {LONGEST} bytes")));
        }
        Ok(Some(Self { id: digest(&[family, text]), asked }))
    }

    /// The name of its run.
    pub(super) fn run(&self) -> Result<RunId, Refusal> {
        RunId::parse(&format!("{PREFIX}{}", self.id)).map_err(|error| Refusal::invalid(error.to_string()))
    }
}

/// A digest of texts: 128 bits of it, in hex.
fn digest(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        // Their lengths, so that no two lists of texts look the same.
        hash.update(part.len().to_be_bytes());
        hash.update(part);
    }
    hash.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

/// A value as text, which is the same in whichever order its members come.
fn canonical(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_by_key(|(name, _)| *name);
            let fields =
                fields.into_iter().map(|(name, value)| format!("{}:{}", Value::from(name.as_str()), canonical(value)));
            format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(canonical).collect::<Vec<_>>().join(",")),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_order_of_members_does_not_matter() {
        let read = |text: &str| canonical(&serde_json::from_str(text).unwrap());
        assert_eq!(
            read(r#"{"b": [1, {"d": null, "c": "\u0041"}], "a": true}"#),
            r#"{"a":true,"b":[1,{"c":"A","d":null}]}"#
        );
        assert_ne!(read("[1, 2]"), read("[2, 1]"));
    }

    #[test]
    fn digests_tell_texts_apart_that_read_the_same_together() {
        assert_ne!(digest(&["ab", "c"]), digest(&["a", "bc"]));
        assert_eq!(digest(&["agent", "k"]).len(), 32);
        assert_ne!(json!(digest(&["agent", "k"])), json!(digest(&["mapping", "k"])));
    }
}
