//! History limits: the number of recent turns of a chat that a model sees, if configured.

use std::{collections::BTreeMap, sync::Arc};

use homard_proto::{SessionKey, message::Message};

/// Maximum number of user turns, by channel.
pub type HistoryLimits = BTreeMap<String, ChannelLimits>;

/// Maximum number of user turns in chats of a channel. Zero means no limit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChannelLimits {
    /// For every direct chat.
    pub direct: Option<usize>,
    /// For the direct chat with this peer.
    pub peers: BTreeMap<String, usize>,
}

/// Returns the limit of a session, if it is a direct chat that has one.
pub fn limit(limits: &HistoryLimits, key: &SessionKey) -> Option<usize> {
    let (channel, peer) = direct_chat(key.rest())?;
    let channel = limits.get(channel)?;
    channel.peers.get(peer).copied().or(channel.direct).filter(|&max| max > 0)
}

/// Parses the channel and the peer of a direct chat.
fn direct_chat(rest: &str) -> Option<(&str, &str)> {
    let chat =
        [":thread:", ":topic:"].iter().find_map(|marker| rest.rsplit_once(marker)).map_or(rest, |(chat, _)| chat);
    let is_kind = |word: &str| matches!(word, "direct" | "dm");
    let (channel, rest) = chat.split_once(':')?;
    let (first, peer) = rest.split_once(':')?;
    if is_kind(first) {
        return Some((channel, peer));
    }
    // With an account between them.
    let (kind, peer) = peer.split_once(':')?;
    is_kind(kind).then_some((channel, peer))
}

/// Keeps the last `max` user turns with everything that follows: calls and their results stay together.
pub fn last_turns(mut messages: Vec<Arc<Message>>, max: usize) -> Vec<Arc<Message>> {
    let turns = messages.iter().enumerate().rev().filter(|(_, message)| matches!(***message, Message::User(_)));
    if let Some((first, _)) = turns.take(max).last() {
        messages.drain(..first);
    }
    messages
}

#[cfg(test)]
mod tests {
    use homard_proto::{AgentId, message::User};
    use serde_json::{from_value, json};

    use super::*;

    #[test]
    fn a_direct_chat_has_the_limit_of_its_peer_or_of_its_channel() {
        let peers = [("ann".to_owned(), 3), ("bob".to_owned(), 0)].into();
        let limits = [("telegram".to_owned(), ChannelLimits { direct: Some(9), peers })].into();
        for (key, expected) in [
            ("agent:main:telegram:direct:ann", Some(3)),
            ("agent:main:telegram:dm:ann:thread:7", Some(3)),
            ("agent:main:telegram:work:direct:carl", Some(9)),
            ("agent:main:telegram:direct:bob", None),
            ("agent:main:telegram:group:ann", None),
            ("agent:main:slack:direct:ann", None),
            ("agent:main:main", None),
        ] {
            let key = SessionKey::parse(key, &AgentId::main()).unwrap();
            assert_eq!(limit(&limits, &key), expected, "{key}");
        }
    }

    #[test]
    fn last_turns_keep_the_messages_after_them() {
        let message_of = |role: &str| -> Arc<Message> {
            let message = match role {
                "user" => Message::User(User::text("hi", 0)),
                _ => from_value(json!({"role": role, "content": []})).unwrap(),
            };
            Arc::new(message)
        };
        let roles = ["user", "assistant", "user", "assistant", "user"];
        let all: Vec<_> = roles.into_iter().map(message_of).collect();
        for (max, expected) in [(1, 1), (2, 3), (3, 5), (9, 5)] {
            assert_eq!(last_turns(all.clone(), max), all[5 - expected..], "{max}");
        }
        assert_eq!(last_turns(Vec::new(), 2), []);
    }
}
