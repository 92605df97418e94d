//! The messages of a request, built from the history of a session.

use std::sync::Arc;

use homard_proto::message::Message;
use homard_store::repair::{self, ProviderPolicy};
use jiff::tz::TimeZone;

use crate::{client_results, history_limits, notes, timestamps};

/// How the history is shown to a model.
#[derive(Debug, Clone, Copy)]
pub struct HistoryView<'a> {
    /// Time zone of the times before the messages; `None` to send no times.
    pub zone: Option<&'a TimeZone>,
    /// Maximum number of user turns; `None` for no limit.
    pub max_turns: Option<usize>,
    /// What the provider accepts.
    pub policy: &'a ProviderPolicy,
}

/// Builds the messages of a request. Equal entries always give equal bytes, so that the provider's prompt cache matches
/// the beginning.
pub fn conversation(history: &[Arc<Message>], view: HistoryView<'_>) -> Vec<Arc<Message>> {
    let mut messages = client_results::place_results(history.to_vec());
    if let Some(zone) = view.zone {
        messages = timestamps::with_times(messages, zone);
    }
    // Before the repair, which may merge messages: each has its own time and notes.
    messages = repair::for_model(&notes::insert_notes(messages), view.policy);
    if let Some(max_turns) = view.max_turns {
        messages = history_limits::last_turns(messages, max_turns);
    }
    messages
}
