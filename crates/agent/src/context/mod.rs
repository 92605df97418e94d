//! The context of a model request: the system prompt and the history as sent.
//!
//! `prompt_config` has the prompt configuration of an agent, `gather` gathers the inputs when a run starts, `prompt`
//! renders the `prompt_input`; `history`, `timestamps` and `notes` transform the history, `client_results` moves
//! results of client tools to their calls; `budget` checks that everything fits.

pub(crate) mod attachments;
pub(crate) mod background;
pub(crate) mod budget;
pub mod client_results;
pub(crate) mod compact_tools;
pub(crate) mod gather;
pub(crate) mod history;
pub(crate) mod notes;
pub(crate) mod prompt;
pub mod prompt_config;
pub(crate) mod prompt_input;
pub(crate) mod report;
pub mod shortening;
pub(crate) mod strict;
pub(crate) mod timestamps;

use std::sync::Arc;

use homard_proto::{SessionKey, message::Message};
use homard_store::repair::{self, ProviderPolicy};

use crate::{hub::HubRules, profile::Profile};

/// Builds the messages of a request. Equal entries always give equal bytes, so that the provider's prompt cache matches
/// the beginning.
pub(crate) fn conversation(
    history: &[Arc<Message>],
    policy: &ProviderPolicy,
    (profile, rules, key): (&Profile, &HubRules, &SessionKey),
) -> Vec<Arc<Message>> {
    let mut messages = client_results::place_results(history.to_vec());
    if let Some(zone) = &profile.prompt.zone {
        messages = timestamps::with_times(messages, zone);
    }
    // Before the repair, which may merge messages: each has its own time and notes.
    messages = repair::for_model(&notes::insert_notes(messages), policy);
    if let Some(max_turns) = history::limit(&rules.history, key) {
        messages = history::last_turns(messages, max_turns);
    }
    messages
}
