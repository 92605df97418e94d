//! The mark of a transcript that a provider reads with a user's turn before it.
//!
//! Gemini takes no conversation that an assistant begins, so it is shown one that does not; that turn is nowhere but in
//! the request. OpenClaw leaves a line in the transcript when it does so the first time, and so do we.

use std::sync::Arc;

use homard_model::Spec;
use homard_proto::{
    message::Message,
    transcript::{Entry, Kind},
};
use homard_store::repair::{self, Policy};
use serde_json::{Map, Value};

/// How the line calls itself.
const NAME: &str = "google-turn-ordering-bootstrap";

/// Whether the model is shown a turn that nobody took.
pub(super) fn is_needed(history: &[Arc<Message>], spec: &Spec) -> bool {
    if !matches!(history.first().map(AsRef::as_ref), Some(Message::Assistant(_))) {
        return false;
    }
    let shown = repair::for_model(history, &Policy::of(&spec.api, &spec.provider, &spec.model));
    shown.first().is_some_and(|first| matches!(**first, Message::User(_)) && !history.contains(first))
}

/// The line.
pub(super) fn mark(at: u64) -> Kind {
    let data = Map::from_iter([("timestamp".to_owned(), at.into())]);
    let fields = [("type", "custom".into()), ("customType", NAME.into()), ("data", Value::Object(data))];
    Kind::Other(fields.map(|(name, value)| (name.to_owned(), value)).into_iter().collect())
}

/// Whether a line is such a mark.
pub(super) fn is_mark(entry: &Entry) -> bool {
    match &entry.kind {
        Kind::Other(fields) => fields.get("customType").is_some_and(|name| name == NAME),
        Kind::Message(_) | Kind::ModelChange(_) => false,
    }
}
