//! Who speaks after whom.

use std::sync::Arc;

use homard_proto::message::{Block, Content, Message, User};

use super::policy::{Policy, Turns};

/// What a provider reads that wants a user to begin.
const BEGINNING: &str = "(The beginning of this conversation is not shown.)";

/// Puts what was said in a row into one message, where the provider wants that.
pub(super) fn arrange(history: &mut Vec<Arc<Message>>, policy: &Policy) {
    match policy.turns {
        Turns::Free => {}
        Turns::OneUser => history.dedup_by(|next, last| join_users(next, last)),
        Turns::OneAssistant => {
            history.dedup_by(|next, last| join_assistants(next, last, policy));
            if matches!(history.first().map(|first| &**first), Some(Message::Assistant(_))) {
                history.insert(0, Arc::new(Message::User(User::text(BEGINNING, 0))));
            }
        }
    }
}

/// Puts two users' messages into one; says whether they were that.
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

/// Puts two answers into one; says whether they were that. Only the last of them may have calls: results stand behind them.
fn join_assistants(next: &Message, last: &mut Arc<Message>, policy: &Policy) -> bool {
    let (Message::Assistant(next), Message::Assistant(_)) = (next, &**last) else { return false };
    if let Message::Assistant(last) = Arc::make_mut(last) {
        let mut joined = next.clone();
        // One that holds reasoning of the model that is asked stays that model's.
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
