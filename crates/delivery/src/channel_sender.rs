//! Interface between the agent loop and the senders of chat platforms.

use std::{fmt, path::PathBuf, time::Duration};

use async_trait::async_trait;
use homard_proto::{Route, RunId};
use homard_reply::thread::ThreadMode;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::reply_settings::MergeSettings;

/// Sends messages to a chat platform.
///
/// Returns when the platform has accepted or rejected the message. An [`OutgoingAction::id`] must be sent only once: after a
/// crash the sender may be called with it again.
#[async_trait]
pub trait ChannelSender: Send + Sync {
    /// Sends a message.
    async fn deliver(&self, outgoing: OutgoingAction) -> Result<Receipt, SendError>;

    /// Returns the properties of a platform by its lower-case name; `None` if it is not configured.
    fn traits(&self, channel: &str) -> Option<ChannelTraits>;

    /// Resolves the chat of a route. An error says why nothing can be sent there.
    fn recipient(&self, route: &Route) -> Result<Recipient, SendError>;
}

/// A chat that can be written to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recipient {
    /// Platform, in lower case.
    pub channel: String,
    /// Account that sends.
    pub account: String,
    /// Canonical id of the chat on the platform, regardless of the route's spelling.
    pub id: String,
    /// True if the owner named it: the owner's own chat, one in the config, or one approved by pairing.
    pub is_known: bool,
}

/// Properties of a chat platform that matter to senders.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChannelTraits {
    /// Maximum characters per message.
    pub text_limit: Option<usize>,
    /// True if it drops a second message with the same [`OutgoingAction::id`], also after a restart.
    pub is_idempotent: bool,
    /// Whether replies are sent in blocks; `None` to use the agent's setting.
    pub takes_blocks: Option<bool>,
    /// How small blocks are merged into messages.
    pub merge: MergeSettings,
    /// Which messages are sent as replies to the message they answer.
    pub replies: ThreadMode,
    /// True if the model may name a message to reply to although replies are off.
    pub allows_tags: bool,
    /// True if a thread is identified by its first message, and posting to it means replying to that message, as on
    /// Slack.
    pub threads_by_reply: bool,
    /// Default recipient.
    pub default_recipient: Option<String>,
}

/// An action on a chat platform.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct OutgoingAction {
    /// Idempotency key; an id is never sent twice.
    pub id: String,
    /// Kind of action.
    pub action: MessageActionKind,
    /// Platform, in lower case; `None` for the only configured one.
    pub channel: Option<String>,
    /// Recipient: a person or group.
    pub to: String,
    /// Sending account; `None` for the default one.
    pub account: Option<String>,
    /// Thread.
    pub thread: Option<String>,
    /// Run whose reply this is, if any.
    pub run: Option<RunId>,
    /// Target message of a reply, reaction, edit, deletion or read.
    pub reply_to: Option<String>,
    /// Text.
    pub text: String,
    /// Attachments.
    pub media: Vec<OutgoingMedia>,
    /// Reaction.
    pub emoji: Option<String>,
    /// Poll.
    pub poll: Option<Poll>,
    /// Maximum number of messages to read.
    pub limit: Option<usize>,
    /// True to send without a notification sound.
    pub is_silent: bool,
    /// True to send audio as a voice message.
    pub is_voice: bool,
    /// True if the platform must not load links in the text for a preview.
    pub hides_previews: bool,
}

/// A poll.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Poll {
    /// Question.
    pub question: String,
    /// Options.
    pub options: Vec<String>,
    /// True if several options may be chosen.
    pub is_multiple: bool,
}

/// Kinds of actions on a chat platform.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum MessageActionKind {
    /// Sends a message.
    #[default]
    Send,
    /// Replies to a message.
    Reply,
    /// Sends a message to a thread.
    ThreadReply,
    /// Adds a reaction to a message.
    React,
    /// Removes the account's own reaction from a message.
    Unreact,
    /// Edits a sent message.
    Edit,
    /// Deletes a sent message.
    Delete,
    /// Sends a poll.
    Poll,
    /// Reads the newest messages.
    Read,
}

impl MessageActionKind {
    /// Returns the name of the action in calls of the `message` tool, their results, and errors. Removing a reaction is
    /// the action `react` with the argument `remove`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Reply => "reply",
            Self::ThreadReply => "thread-reply",
            Self::React | Self::Unreact => "react",
            Self::Edit => "edit",
            Self::Delete => "delete",
            Self::Poll => "poll",
            Self::Read => "read",
        }
    }

    /// True if the action sends a new message.
    pub fn is_message(self) -> bool {
        match self {
            Self::Send | Self::Reply | Self::ThreadReply | Self::Poll => true,
            Self::React | Self::Unreact | Self::Edit | Self::Delete | Self::Read => false,
        }
    }
}

/// An attachment.
#[derive(Clone, PartialEq, Eq)]
pub enum OutgoingMedia {
    /// A URL.
    Url(String),
    /// A file in a directory. The sender must not read outside of that directory, also not through symbolic links.
    File {
        /// The directory.
        root: PathBuf,
        /// Path below it, as the model wrote it.
        path: String,
    },
    /// Inline data.
    Bytes {
        /// File name.
        name: String,
        /// MIME type, if known, such as `image/png`.
        mime: Option<String>,
        /// Content.
        bytes: Vec<u8>,
    },
}

impl fmt::Debug for OutgoingMedia {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(url) => f.debug_tuple("Url").field(url).finish(),
            Self::File { root, path } => f.debug_struct("File").field("root", root).field("path", path).finish(),
            Self::Bytes { name, mime, bytes } => {
                f.debug_struct("Bytes").field("name", name).field("mime", mime).field("bytes", &bytes.len()).finish()
            }
        }
    }
}

/// A platform's confirmation of an action.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Receipt {
    /// Id of the message on the platform.
    pub message: Option<String>,
    /// Platform, in lower case.
    pub channel: String,
    /// Further data, such as messages that were read. `messageIds` has the ids of all messages, if there are several.
    pub details: Value,
}

impl Receipt {
    /// Returns the ids of the messages that were sent, in order.
    pub fn message_ids(&self) -> Vec<String> {
        let listed = self.details["messageIds"].as_array().into_iter().flatten();
        let mut ids: Vec<String> = listed.filter_map(|id| id.as_str().map(str::to_owned)).collect();
        // The last one is the receipt's own.
        ids.retain(|id| Some(id) != self.message.as_ref());
        ids.extend(self.message.clone());
        ids
    }
}

/// Why an action failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The channel is not configured.
    #[error("channel {0} is not configured")]
    NoChannel(String),
    /// No channel is configured and none was named.
    #[error("no channel is configured; add one with: homard channels add")]
    NoChannels,
    /// Several channels are configured and none was named.
    #[error("several channels are configured; select one with channel: {0}")]
    Ambiguous(String),
    /// The platform does not support the action.
    #[error("{channel} does not support {action}")]
    Unsupported {
        /// The platform.
        channel: String,
        /// The action.
        action: &'static str,
    },
    /// The platform rejected it; a retry does not help.
    #[error("{0}")]
    Refused(String),
    /// The platform is temporarily unavailable; nothing was sent.
    #[error("{why}; try again later")]
    Unavailable {
        /// Reason.
        why: String,
        /// Retry delay that the platform asked for, if any.
        retry_after: Option<Duration>,
    },
    /// It is unknown whether the message was sent.
    #[error("{0}; the message may have been sent: check the channel before you send it again")]
    Unknown(String),
}
