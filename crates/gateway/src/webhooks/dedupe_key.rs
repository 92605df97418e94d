//! Idempotency keys of webhook requests. Pure.

use homard_proto::RunId;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::{rejection::WebhookRejection, request::WebhookRequest};

/// Headers that may contain a key.
const HEADERS: [&str; 2] = ["idempotency-key", "x-openclaw-idempotency-key"];
/// Maximum length of a key in bytes.
const MAX_KEY_BYTES: usize = 255;
/// Prefix of the run ids of webhooks.
pub(super) const PREFIX: &str = "hook-";

/// A key and its origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum IdempotencyKey {
    /// Chosen by the sender for this very request.
    Sender(String),
    /// Extracted from the body by a mapping: the event's id in its source system. The same event may be reported in
    /// different words, such as with a later time or another retry count.
    Event(String),
}

/// Identity of a request that is processed once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DedupeKey {
    /// Digest of family and key.
    pub(super) id: String,
    /// Digest of the body, to detect conflicting requests; `None` where the same event may differ.
    pub(super) body_digest: Option<String>,
}

impl DedupeKey {
    /// Returns the identity of a request, if it has a key. A key in the body takes precedence over one in a header,
    /// which intermediaries can change.
    pub(super) fn of(
        family: &str,
        key: Option<&IdempotencyKey>,
        request: &WebhookRequest,
    ) -> Result<Option<Self>, WebhookRejection> {
        let header =
            HEADERS.iter().find_map(|name| request.headers.get(*name)).map(|key| IdempotencyKey::Sender(key.clone()));
        let Some(key) = key.cloned().or(header) else { return Ok(None) };
        let (text, body_digest) = match &key {
            IdempotencyKey::Sender(text) => (text, Some(digest(&[&canonical(&request.payload)]))),
            IdempotencyKey::Event(text) => (text, None),
        };
        let text = text.trim();
        if text.is_empty() {
            return Ok(None);
        }
        if text.len() > MAX_KEY_BYTES {
            return Err(WebhookRejection::invalid(format!("the idempotency key is longer than {MAX_KEY_BYTES} bytes")));
        }
        Ok(Some(Self { id: digest(&[family, text]), body_digest }))
    }

    /// Returns its run id.
    pub(super) fn run_id(&self) -> Result<RunId, WebhookRejection> {
        RunId::parse(&format!("{PREFIX}{}", self.id)).map_err(|error| WebhookRejection::invalid(error.to_string()))
    }
}

/// Digest of a list of texts: 128 bits in hex.
fn digest(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        // The lengths are included, so that different lists cannot collide.
        hash.update(part.len().to_be_bytes());
        hash.update(part);
    }
    hex::encode(&hash.finalize()[..16])
}

/// Serialises a value independent of the order of its members.
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
