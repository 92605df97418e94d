//! The context of a model request: the system prompt and the history as sent.
//!
//! `setting` has the prompt configuration of an agent, `brief` gathers the inputs when a run starts, `scene` and
//! `prompt` render them; `history`, `zone` and `notes` transform the history, `client_results` moves results of client
//! tools to their calls; `budget` checks that everything fits.

pub(crate) mod background;
pub(crate) mod brief;
pub(crate) mod bring;
pub(crate) mod budget;
pub mod client_results;
pub(crate) mod history;
pub(crate) mod lean;
pub(crate) mod notes;
pub(crate) mod prompt;
pub(crate) mod report;
pub(crate) mod scene;
pub mod setting;
pub mod shortening;
pub(crate) mod strict;
pub(crate) mod zone;

use std::sync::Arc;

use homard_proto::{SessionKey, message::Message};
use homard_store::repair::{self, Policy};

use crate::{hub::Rules, profile::Profile};

/// Builds the messages of a request. Equal entries always give equal bytes, so that the provider's prompt cache matches
/// the beginning.
pub(crate) fn conversation(
    history: &[Arc<Message>],
    policy: &Policy,
    (profile, rules, key): (&Profile, &Rules, &SessionKey),
) -> Vec<Arc<Message>> {
    let mut messages = client_results::placed(history.to_vec());
    if let Some(zone) = &profile.setting.zone {
        messages = zone::with_times(messages, zone);
    }
    // Before the repair, which may merge messages: each has its own time and notes.
    messages = repair::for_model(&notes::spelled_out(messages), policy);
    if let Some(most) = history::limit(&rules.history, key) {
        messages = history::last_turns(messages, most);
    }
    messages
}
