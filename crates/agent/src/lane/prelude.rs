//! The mark of a transcript that needs a leading user turn for its provider.
//!
//! Gemini rejects a conversation that starts with an assistant message, so a user turn is prepended in the request
//! only. OpenClaw adds an entry to the transcript when it does so for the first time, and Homard does the same.

use std::sync::Arc;

use homard_model::ModelSpec;
use homard_proto::{
    message::Message,
    transcript::{Entry, Kind},
};
use homard_store::repair::{self, ProviderPolicy};
use serde_json::{Map, Value};

/// `customType` of the transcript entry with which OpenClaw records that it prepended a user turn.
const NAME: &str = "google-turn-ordering-bootstrap";

/// True if a user turn is prepended for the model.
pub(super) fn is_needed(history: &[Arc<Message>], spec: &ModelSpec) -> bool {
    if !matches!(history.first().map(AsRef::as_ref), Some(Message::Assistant(_))) {
        return false;
    }
    let repaired = repair::for_model(history, &ProviderPolicy::of(&spec.api, &spec.provider, &spec.model));
    repaired.first().is_some_and(|first| matches!(**first, Message::User(_)) && !history.contains(first))
}

/// Builds the transcript entry.
pub(super) fn mark(at: u64) -> Kind {
    let data = Map::from_iter([("timestamp".to_owned(), at.into())]);
    let fields = [("type", "custom".into()), ("customType", NAME.into()), ("data", Value::Object(data))];
    Kind::Other(fields.map(|(name, value)| (name.to_owned(), value)).into_iter().collect())
}

/// True if an entry is such a mark.
pub(super) fn is_mark(entry: &Entry) -> bool {
    match &entry.kind {
        Kind::Other(fields) => fields.get("customType").is_some_and(|name| name == NAME),
        Kind::Message(_) | Kind::ModelChange(_) => false,
    }
}
