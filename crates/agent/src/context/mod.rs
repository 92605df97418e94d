//! What a model is told: the system prompt before the conversation, and the conversation as it reads it.
//!
//! `setting` says what an agent's prompts are made from, `brief` gathers it when a run begins, `scene` and `prompt` write
//! it; `history`, `zone` and `notes` are what is done to the conversation, `client_results` puts results of
//! the sender's own tools at their calls; `budget` says whether all of it fits.

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

/// The conversation as a model reads it. The same lines give the same bytes every time, so that what a provider
/// remembers of the last request is the beginning of this one.
pub(crate) fn conversation(
    history: &[Arc<Message>],
    policy: &Policy,
    (profile, rules, key): (&Profile, &Rules, &SessionKey),
) -> Vec<Arc<Message>> {
    let mut messages = client_results::placed(history.to_vec());
    if let Some(zone) = &profile.setting.zone {
        messages = zone::with_times(messages, zone);
    }
    // Before the repair, which may make one message of two: each has its own time and its own notes.
    messages = repair::for_model(&notes::spelled_out(messages), policy);
    if let Some(most) = history::limit(&rules.history, key) {
        messages = history::last_turns(messages, most);
    }
    messages
}
