//! Repairs a history so that the model's provider accepts it.
//!
//! Crashes, other programs and old versions leave calls without results and results without calls; a provider would
//! reject such a history forever. Providers also differ in what they accept: see [`ProviderPolicy`]. The repair changes the
//! copy that the model sees; the transcript stays as it is.

mod content;
mod ids;
mod pair;
mod policy;
mod turns;

use std::sync::Arc;

use homard_proto::message::Message;

pub use pair::view;
pub use policy::ProviderPolicy;

/// Returns the history in the form that this model's provider accepts.
///
/// Every call has exactly one result, directly after it. User messages are never lost, and valid messages are returned
/// unchanged. The repair is idempotent.
pub fn for_model(history: &[Arc<Message>], policy: &ProviderPolicy) -> Vec<Arc<Message>> {
    let mut history = view(history);
    content::clean(&mut history, policy);
    ids::make_valid(&mut history, policy.ids);
    turns::merge_turns(&mut history, policy);
    history
}

#[cfg(test)]
mod tests;
