//! The position from which receiving continues after a restart: the session of the gateway, and the last message of
//! each channel, from which messages are fetched if the session is lost.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// Maximum number of channels whose last message is remembered.
const MAX_CHANNELS: usize = 2000;

/// Maximum number of direct chats that are remembered.
const MAX_DIRECT: usize = 1000;

/// Position in the events of one bot.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Cursor {
    /// The bot. The position of another bot is ignored.
    pub(super) bot: String,
    /// The session, if it can be resumed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) session: Option<GatewaySession>,
    /// The last message of each channel that was stored or that was there before.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    last_messages: BTreeMap<String, u64>,
    /// Channels of direct chats, with the user.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    direct: BTreeMap<String, String>,
    /// Channels from which missed messages have to be fetched before new ones are stored.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pending: BTreeSet<String>,
}

/// A session of the gateway.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct GatewaySession {
    /// Its id.
    pub(super) id: String,
    /// Address at which it is resumed.
    pub(super) url: String,
    /// Number of the last event that was stored.
    pub(super) sequence: u64,
}

impl Cursor {
    /// Parses a stored cursor; an empty one if it is missing, damaged, or of another bot.
    pub(super) fn parse(stored: Option<&str>, bot: &str) -> Self {
        let parsed = stored.and_then(|stored| serde_json::from_str::<Self>(stored).ok());
        parsed.filter(|cursor| cursor.bot == bot).unwrap_or_else(|| Self { bot: bot.to_owned(), ..Self::default() })
    }

    /// Serialises it.
    pub(super) fn encode(&self) -> Option<String> {
        serde_json::to_string(self).ok()
    }

    /// Records that the messages of a channel up to this one need not be fetched.
    pub(super) fn advance(&mut self, channel: &str, message: &str) {
        let Ok(message) = message.parse::<u64>() else { return };
        match self.last_messages.get_mut(channel) {
            Some(last) => *last = message.max(*last),
            None => {
                if self.last_messages.len() >= MAX_CHANNELS
                    && let Some(oldest) = oldest(&self.last_messages)
                {
                    self.last_messages.remove(&oldest);
                }
                self.last_messages.insert(channel.to_owned(), message);
            }
        }
    }

    /// Records the last message of a channel that was not known before. Its older messages are not fetched.
    pub(super) fn begin(&mut self, channel: &str, message: &str) {
        if !self.last_messages.contains_key(channel) {
            self.advance(channel, message);
        }
    }

    /// Returns the last message of a channel.
    pub(super) fn last_message(&self, channel: &str) -> Option<u64> {
        self.last_messages.get(channel).copied()
    }

    /// Records that every known channel may have messages that were missed.
    pub(super) fn set_all_pending(&mut self) {
        self.pending = self.last_messages.keys().cloned().collect();
    }

    /// Records that no message of a channel is missing.
    pub(super) fn set_done(&mut self, channel: &str) {
        self.pending.remove(channel);
    }

    /// True if messages of a channel may be missing.
    pub(super) fn is_pending(&self, channel: &str) -> bool {
        self.pending.contains(channel)
    }

    /// Returns the channels of which messages may be missing.
    pub(super) fn pending(&self) -> impl Iterator<Item = String> + use<> {
        self.pending.clone().into_iter()
    }

    /// Records the channel of a direct chat.
    pub(super) fn add_direct(&mut self, channel: &str, user: &str) {
        if self.direct.len() >= MAX_DIRECT && !self.direct.contains_key(channel) {
            let quietest = self.direct.keys().min_by_key(|channel| self.last_message(channel).unwrap_or(0)).cloned();
            if let Some(quietest) = quietest {
                self.direct.remove(&quietest);
                self.last_messages.remove(&quietest);
            }
        }
        self.direct.insert(channel.to_owned(), user.to_owned());
    }

    /// Returns the channels of direct chats, each with its user.
    pub(super) fn direct(&self) -> impl Iterator<Item = (&String, &String)> {
        self.direct.iter()
    }
}

/// Returns the channel with the oldest last message. Ids of messages grow with time.
fn oldest(last_messages: &BTreeMap<String, u64>) -> Option<String> {
    last_messages.iter().min_by_key(|(_, message)| **message).map(|(channel, _)| channel.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_survives_a_restart_of_the_same_bot_only() {
        let mut cursor = Cursor::parse(None, "1");
        let session = GatewaySession { id: "s".to_owned(), url: "wss://x".to_owned(), sequence: 7 };
        cursor.session = Some(session);
        cursor.advance("c", "20");
        cursor.advance("c", "19");
        cursor.begin("c", "50");
        cursor.add_direct("d", "9");
        cursor.set_all_pending();
        let stored = cursor.encode();
        assert_eq!(Cursor::parse(stored.as_deref(), "1"), cursor);
        assert_eq!((cursor.last_message("c"), cursor.is_pending("c")), (Some(20), true));
        cursor.set_done("c");
        assert_eq!(cursor.pending().count(), 0);
        for (stored, bot) in [(stored.as_deref(), "2"), (Some("{"), "1"), (Some("5"), "1")] {
            assert_eq!(Cursor::parse(stored, bot), Cursor { bot: bot.to_owned(), ..Cursor::default() });
        }
    }

    #[test]
    fn the_channels_without_messages_for_the_longest_time_are_forgotten() {
        let mut cursor = Cursor::default();
        for n in 0..=MAX_CHANNELS {
            cursor.advance(&format!("c{n}"), &(n + 1).to_string());
        }
        assert_eq!((cursor.last_messages.len(), cursor.last_message("c0")), (MAX_CHANNELS, None));
        for n in 0..=MAX_DIRECT {
            cursor.add_direct(&format!("c{}", n + 1), "u");
        }
        assert_eq!(cursor.direct().count(), MAX_DIRECT);
    }
}
