//! Enforces the order of roles.

use std::sync::Arc;

use homard_proto::message::{Block, Content, Message, User};

use super::policy::{ProviderPolicy, TurnPolicy};

/// First message for providers that require a user message at the start.
const FIRST_MESSAGE: &str = "(The beginning of this conversation is not shown.)";

/// Merges consecutive messages of one role, if the provider requires it. Also adds a first user message for providers
/// that reject a history that starts with an assistant message.
pub(super) fn merge_turns(history: &mut Vec<Arc<Message>>, policy: &ProviderPolicy) {
    match policy.turns {
        TurnPolicy::Free => {}
        TurnPolicy::OneUser => history.dedup_by(|next, last| join_users(next, last)),
        TurnPolicy::OneAssistant => {
            history.dedup_by(|next, last| join_assistants(next, last, policy));
            if matches!(history.first().map(|first| &**first), Some(Message::Assistant(_))) {
                history.insert(0, Arc::new(Message::User(User::text(FIRST_MESSAGE, 0))));
            }
        }
    }
}

/// Merges two user messages; returns true if both were.
fn join_users(next: &Message, last: &mut Arc<Message>) -> bool {
    let (Message::User(next), Message::User(_)) = (next, &**last) else { return false };
    if let Message::User(last) = Arc::make_mut(last) {
        let mut content = blocks(&last.content);
        content.extend(blocks(&next.content));
        last.content = Content::Blocks(content);
    }
    true
}

fn blocks(content: &Content) -> Vec<Block> {
    match content {
        Content::Text(text) => vec![Block::text(text)],
        Content::Blocks(blocks) => blocks.clone(),
    }
}

/// Merges two assistant messages; returns true if both were. Only the last one can have calls, because results follow
/// calls.
fn join_assistants(next: &Message, last: &mut Arc<Message>, policy: &ProviderPolicy) -> bool {
    let (Message::Assistant(next), Message::Assistant(_)) = (next, &**last) else { return false };
    if let Message::Assistant(last) = Arc::make_mut(last) {
        let mut joined = next.clone();
        // A message that contains reasoning of the requested model keeps that model's name.
        if policy.wrote(last) {
            joined.api.clone_from(&last.api);
            joined.provider.clone_from(&last.provider);
            joined.model.clone_from(&last.model);
        }
        joined.content = std::mem::take(&mut last.content);
        joined.content.extend_from_slice(&next.content);
        *last = joined;
    }
    true
}
