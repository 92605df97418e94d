//! What is known of channels: their kind, their server, and their parent. Events name only a channel's id.

use std::collections::HashMap;

use serde_json::Value;

use crate::incoming::{Peer, PeerKind};

/// Types of channels that are threads.
const THREAD_TYPES: [u64; 3] = [10, 11, 12];

/// Type of a direct chat, and of one with several users.
const DIRECT_TYPE: u64 = 1;
const GROUP_DIRECT_TYPE: u64 = 3;

/// Maximum number of channels that are remembered; beyond that they are asked for again.
const MAX_CHANNELS: usize = 20_000;

/// The channels that the bot can see, as far as known.
#[derive(Debug, Default)]
pub(super) struct Directory {
    channels: HashMap<String, KnownChannel>,
    /// Channels of direct chats by user.
    direct: HashMap<String, String>,
    /// The role that Discord made for the bot on each server; a mention of it is a mention of the bot.
    own_roles: HashMap<String, String>,
}

/// A channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KnownChannel {
    /// Its id.
    pub(super) id: String,
    /// What it is.
    pub(super) kind: ChannelKind,
    /// Its name.
    name: Option<String>,
}

/// What a channel is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ChannelKind {
    /// With this user.
    Direct(String),
    /// A channel of a server.
    Server(String),
    /// A thread of a channel of a server.
    Thread {
        /// The server.
        server: String,
        /// The channel.
        parent: String,
    },
    /// A chat with several users, of which bots are no members.
    GroupDirect,
}

/// A chat in Homard's terms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ChatPlace {
    pub(super) peer: Peer,
    pub(super) thread: Option<String>,
    pub(super) server: Option<String>,
}

impl KnownChannel {
    /// Parses a channel. `server` is its server if the channel itself does not name it.
    pub(super) fn parse(channel: &Value, server: Option<&str>) -> Option<Self> {
        let text = |name: &str| channel[name].as_str().map(str::to_owned);
        let id = text("id")?;
        let kind = match channel["type"].as_u64()? {
            DIRECT_TYPE => ChannelKind::Direct(channel["recipients"][0]["id"].as_str()?.to_owned()),
            GROUP_DIRECT_TYPE => ChannelKind::GroupDirect,
            number => {
                let server = text("guild_id").or_else(|| server.map(str::to_owned))?;
                match text("parent_id").filter(|_| THREAD_TYPES.contains(&number)) {
                    Some(parent) => ChannelKind::Thread { server, parent },
                    None => ChannelKind::Server(server),
                }
            }
        };
        Some(Self { id, kind, name: text("name") })
    }
}

impl Directory {
    /// Adds a channel or replaces it.
    pub(super) fn add(&mut self, channel: KnownChannel) {
        if self.channels.len() >= MAX_CHANNELS && !self.channels.contains_key(&channel.id) {
            self.channels.clear();
        }
        if let ChannelKind::Direct(user) = &channel.kind {
            self.direct.insert(user.clone(), channel.id.clone());
        }
        self.channels.insert(channel.id.clone(), channel);
    }

    /// Adds the channel of a direct chat.
    pub(super) fn add_direct(&mut self, channel: &str, user: &str) {
        let kind = ChannelKind::Direct(user.to_owned());
        self.add(KnownChannel { id: channel.to_owned(), kind, name: None });
    }

    /// Removes a deleted channel.
    pub(super) fn remove(&mut self, channel: &str) {
        self.channels.remove(channel);
        self.direct.retain(|_, known| known != channel);
    }

    /// Records the bot's own role on a server.
    pub(super) fn set_own_role(&mut self, server: &str, role: &str) {
        self.own_roles.insert(server.to_owned(), role.to_owned());
    }

    /// Returns the bot's own role on a server.
    pub(super) fn own_role(&self, server: &str) -> Option<&str> {
        self.own_roles.get(server).map(String::as_str)
    }

    /// Returns a channel.
    pub(super) fn get(&self, channel: &str) -> Option<&KnownChannel> {
        self.channels.get(channel)
    }

    /// Returns the channel of the direct chat with a user.
    pub(super) fn direct_channel(&self, user: &str) -> Option<String> {
        self.direct.get(user).cloned()
    }

    /// Returns the chat that a channel is: the user of a direct chat, and the parent of a thread.
    pub(super) fn place(&self, channel: &str) -> Option<ChatPlace> {
        let known = self.channels.get(channel)?;
        let titled = |known: &KnownChannel| known.name.as_ref().map(|name| format!("#{name}"));
        match &known.kind {
            ChannelKind::Direct(user) => {
                let peer = Peer { kind: PeerKind::Direct, id: user.clone(), title: None };
                Some(ChatPlace { peer, thread: None, server: None })
            }
            ChannelKind::Server(server) => {
                let peer = Peer { kind: PeerKind::Group, id: known.id.clone(), title: titled(known) };
                Some(ChatPlace { peer, thread: None, server: Some(server.clone()) })
            }
            ChannelKind::Thread { server, parent } => {
                let title = self.channels.get(parent).and_then(titled);
                let peer = Peer { kind: PeerKind::Group, id: parent.clone(), title };
                Some(ChatPlace { peer, thread: Some(known.id.clone()), server: Some(server.clone()) })
            }
            ChannelKind::GroupDirect => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_channel_is_a_chat_with_a_thread_and_a_server() {
        let mut directory = Directory::default();
        let channels = [
            json!({"id": "1", "type": 1, "recipients": [{"id": "9"}]}),
            json!({"id": "2", "type": 0, "name": "general"}),
            json!({"id": "3", "type": 11, "parent_id": "2", "guild_id": "8", "name": "a thread"}),
            json!({"id": "4", "type": 3, "recipients": []}),
        ];
        for channel in &channels {
            directory.add(KnownChannel::parse(channel, Some("8")).unwrap());
        }
        let place = |id: &str| {
            let ChatPlace { peer, thread, server } = directory.place(id)?;
            Some((peer.kind, peer.id, peer.title, thread, server))
        };
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(place("1"), Some((PeerKind::Direct, "9".to_owned(), None, None, None)));
        assert_eq!(place("2"), Some((PeerKind::Group, "2".to_owned(), text("#general"), None, text("8"))));
        assert_eq!(place("3"), Some((PeerKind::Group, "2".to_owned(), text("#general"), text("3"), text("8"))));
        assert_eq!([place("4"), place("5")], [None, None]);
        assert_eq!(directory.direct_channel("9"), text("1"));
        directory.remove("1");
        assert_eq!((directory.direct_channel("9"), directory.get("1")), (None, None));
    }
}
