//! Inbound events, in a form common to all platforms.

use std::fmt;

use homard_proto::Route;
use serde::{Deserialize, Serialize};

/// An inbound event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChannelEvent {
    /// A message was sent.
    Message(Box<Incoming>),
    /// A message was edited; the message id is that of the original.
    Edited(Box<Incoming>),
    /// A reaction was added or removed.
    Reacted(Reaction),
    /// The account was added to a group or removed from it.
    Membership(Membership),
}

impl ChannelEvent {
    /// Returns the platform's id of the event, which is the same for every delivery of it.
    pub fn id(&self) -> &str {
        match self {
            Self::Message(incoming) | Self::Edited(incoming) => &incoming.event,
            Self::Reacted(reaction) => &reaction.event,
            Self::Membership(membership) => &membership.event,
        }
    }
}

/// A message.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Incoming {
    /// Event id; unique per account.
    pub event: String,
    /// Message id on the platform; unique per chat.
    pub message: String,
    /// Account that received it.
    pub account: String,
    /// The chat.
    pub peer: Peer,
    /// The sender.
    pub sender: MessageSender,
    /// Its text; with media, the caption.
    pub text: String,
    /// The message that it replies to.
    pub reply_to: Option<QuotedMessage>,
    /// Thread or topic within the chat.
    pub thread: Option<String>,
    /// True if it mentions the agent by means of the platform, including a reply to it.
    pub was_mentioned: bool,
    /// True if it mentions someone else by means of the platform.
    pub mentions_others: bool,
    /// Attachments.
    pub media: Vec<Attachment>,
    /// Messages with the same album id were sent as one.
    pub album: Option<String>,
    /// Time of sending in milliseconds since the epoch.
    pub timestamp_ms: u64,
    /// True if it looks like a command.
    pub is_command: bool,
    /// Server that the chat belongs to, on platforms that group chats into servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// Ids of the sender's roles on that server.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sender_roles: Vec<String>,
}

impl Incoming {
    /// Returns its origin, which is also the destination of the reply.
    pub fn route(&self, channel: &str) -> Route {
        Route::new(Some(channel), Some(&self.peer.id), Some(&self.account), self.thread.as_deref())
    }
}

/// Kind of chat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum PeerKind {
    /// With one person.
    #[default]
    Direct,
    /// With several people.
    Group,
    /// Broadcast: one sender, many readers.
    Channel,
}

/// A chat.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Peer {
    /// Its kind.
    pub kind: PeerKind,
    /// Its id on the platform.
    pub id: String,
    /// Its title.
    pub title: Option<String>,
}

/// Sender of a message.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct MessageSender {
    /// Id on the platform, which the sender cannot choose.
    pub id: String,
    /// Display name, which the sender can choose freely.
    pub name: String,
    /// User name, without `@`.
    pub username: Option<String>,
    /// True for a bot.
    pub is_bot: bool,
    /// True for a group or channel that posts as itself. It is not a person, whatever its id: it is never the owner and
    /// never a direct chat.
    #[serde(default)]
    pub is_chat: bool,
}

/// A message that another one replies to.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct QuotedMessage {
    /// Its id on the platform.
    pub message: String,
    /// Its sender.
    pub sender: Option<String>,
    /// Its text, or the quoted part.
    pub text: String,
    /// True if the agent sent it.
    pub is_ours: bool,
}

/// An attachment of a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    /// Where its content is.
    pub source: AttachmentSource,
    /// File name.
    pub name: Option<String>,
    /// MIME type as stated by the sender, such as `image/jpeg`.
    pub mime: Option<String>,
    /// Size in bytes as stated by the platform.
    pub size: Option<u64>,
    /// True for a voice message.
    pub is_voice: bool,
}

/// Where the content of an attachment is.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum AttachmentSource {
    /// On the platform, under this id.
    Platform(String),
    /// At an untrusted URL, which must be loaded through the egress guard only.
    Url(String),
    /// Included.
    Bytes(#[serde(with = "packed")] Vec<u8>),
}

/// Serialises bytes as base64, which takes a third of the space of a JSON array.
mod packed {
    use base64::{Engine, engine::general_purpose::STANDARD};
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&STANDARD.encode(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        STANDARD.decode(String::deserialize(from)?).map_err(D::Error::custom)
    }
}

impl fmt::Debug for AttachmentSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Platform(id) => f.debug_tuple("Platform").field(id).finish(),
            Self::Url(url) => f.debug_tuple("Url").field(url).finish(),
            Self::Bytes(bytes) => f.debug_tuple("Bytes").field(&bytes.len()).finish(),
        }
    }
}

/// A reaction that was added or removed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reaction {
    /// Event id; unique per account.
    pub event: String,
    /// Account that received it.
    pub account: String,
    /// The chat.
    pub peer: Peer,
    /// Who reacted.
    pub sender: MessageSender,
    /// Message id.
    pub message: String,
    /// Added reactions.
    pub added: Vec<String>,
    /// Removed reactions.
    pub removed: Vec<String>,
    /// Server that the chat belongs to, on platforms that have them.
    pub server: Option<String>,
    /// Ids of the sender's roles on that server.
    pub sender_roles: Vec<String>,
    /// Time in milliseconds since the epoch.
    pub timestamp_ms: u64,
}

/// A change of the account's own membership in a chat.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Membership {
    /// Event id; unique per account.
    pub event: String,
    /// The account.
    pub account: String,
    /// The chat.
    pub peer: Peer,
    /// Who made the change.
    pub sender: MessageSender,
    /// True if the account is a member now.
    pub is_member: bool,
    /// Time in milliseconds since the epoch.
    pub timestamp_ms: u64,
}
