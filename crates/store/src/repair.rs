//! A history that the model's provider takes.
//!
//! Crashes, other programs and old versions leave calls without results and results without calls; a provider refuses
//! such a history for ever. Providers also differ in what they take: see [`Policy`]. The repair is in the copy that the
//! model sees; the transcript stays as it is.

mod content;
mod ids;
mod pair;
mod policy;
mod turns;

use std::sync::Arc;

use homard_proto::message::Message;

pub use pair::view;
pub use policy::Policy;

/// The history as this model's provider takes it.
///
/// Every call has exactly one result, right behind it. What a user said is never lost, and what already fits comes back
/// as it is. Repairing twice changes nothing more.
pub fn for_model(history: &[Arc<Message>], policy: &Policy) -> Vec<Arc<Message>> {
    let mut history = view(history);
    content::clean(&mut history, policy);
    ids::settle(&mut history, policy.ids);
    turns::arrange(&mut history, policy);
    history
}

#[cfg(test)]
mod tests;
