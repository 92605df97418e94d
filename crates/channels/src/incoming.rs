//! What comes in from a chat platform, the same for all of them.

use std::fmt;

use homard_proto::Route;
use serde::{Deserialize, Serialize};

/// Something that happened on a platform.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Somebody said something.
    Message(Box<Incoming>),
    /// Somebody changed what they had said; its message id is that of the old one.
    Edited(Box<Incoming>),
    /// Somebody put a reaction on a message, or took one off.
    Reacted(Reaction),
    /// We were let into a group, or sent out.
    Membership(Membership),
}

impl Event {
    /// What the platform calls this event: the same for the same event, however often it comes.
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
    /// Names the event; unique in its account.
    pub event: String,
    /// What the platform calls the message; unique in its conversation.
    pub message: String,
    /// The account of ours that got it.
    pub account: String,
    /// The conversation.
    pub peer: Peer,
    /// Who said it.
    pub sender: Sender,
    /// What was said; with media, what was written below it.
    pub text: String,
    /// What it answers.
    pub reply_to: Option<Quoted>,
    /// The thread or topic of the conversation.
    pub thread: Option<String>,
    /// Whether it speaks to us by the platform's own means, an answer to us included.
    pub was_mentioned: bool,
    /// Whether it speaks to somebody else by the platform's own means.
    pub mentions_others: bool,
    /// What came with it.
    pub media: Vec<Attachment>,
    /// Messages with the same album were sent as one.
    pub album: Option<String>,
    /// When it was said, in milliseconds since the epoch.
    pub timestamp_ms: u64,
    /// Whether it starts as commands do.
    pub is_command: bool,
}

impl Incoming {
    /// Where it came from and its answer goes.
    pub fn route(&self, channel: &str) -> Route {
        Route::new(Some(channel), Some(&self.peer.id), Some(&self.account), self.thread.as_deref())
    }
}

/// What kind of conversation it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum PeerKind {
    /// With one person.
    #[default]
    Direct,
    /// With several.
    Group,
    /// One speaks, many read.
    Channel,
}

/// A conversation.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Peer {
    /// With one or several.
    pub kind: PeerKind,
    /// What the platform calls it.
    pub id: String,
    /// What people call it.
    pub title: Option<String>,
}

/// Who said something.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Sender {
    /// What the platform calls them; cannot be chosen.
    pub id: String,
    /// What people read; anybody may call themselves anything.
    pub name: String,
    /// Their handle, without `@`.
    pub username: Option<String>,
    /// Whether it is a program.
    pub is_bot: bool,
    /// Whether it is a group or a channel that speaks for itself. It is no person, whatever its id: it is never the owner,
    /// and never alone with us.
    #[serde(default)]
    pub is_chat: bool,
}

/// A message that another one answers.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Quoted {
    /// What the platform calls it.
    pub message: String,
    /// Who said it.
    pub sender: Option<String>,
    /// What it says, or the part that is meant.
    pub text: String,
    /// Whether we said it.
    pub is_ours: bool,
}

/// Something that came with a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    /// Where it is.
    pub source: Source,
    /// What it is called.
    pub name: Option<String>,
    /// What it is, as the sender says: such as `image/jpeg`.
    pub mime: Option<String>,
    /// How many bytes it has, as the platform says.
    pub size: Option<u64>,
    /// Whether it was spoken for this message.
    pub is_voice: bool,
}

/// Where an attachment is.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Source {
    /// The platform has it, under this name.
    Platform(String),
    /// At an address that a stranger chose: to be loaded only through the house's guard.
    Url(String),
    /// Here.
    Bytes(#[serde(with = "packed")] Vec<u8>),
}

/// Bytes as base64, which JSON keeps in a third of the space.
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

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Platform(id) => f.debug_tuple("Platform").field(id).finish(),
            Self::Url(url) => f.debug_tuple("Url").field(url).finish(),
            Self::Bytes(bytes) => f.debug_tuple("Bytes").field(&bytes.len()).finish(),
        }
    }
}

/// A reaction that was put on a message or taken off.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reaction {
    /// Names the event; unique in its account.
    pub event: String,
    /// The account of ours that got it.
    pub account: String,
    /// The conversation.
    pub peer: Peer,
    /// Who reacted.
    pub sender: Sender,
    /// The message.
    pub message: String,
    /// What is there now and was not before.
    pub added: Vec<String>,
    /// What was there before and is not now.
    pub removed: Vec<String>,
    /// When, in milliseconds since the epoch.
    pub timestamp_ms: u64,
}

/// A change of our own place in a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Membership {
    /// Names the event; unique in its account.
    pub event: String,
    /// The account of ours that is meant.
    pub account: String,
    /// The conversation.
    pub peer: Peer,
    /// Who did it.
    pub sender: Sender,
    /// Whether we are in it now.
    pub is_member: bool,
    /// When, in milliseconds since the epoch.
    pub timestamp_ms: u64,
}
