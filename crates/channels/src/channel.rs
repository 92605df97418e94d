//! The `Channel` trait: the interface of all chat platforms.

use std::{fmt, time::Duration};

use async_trait::async_trait;
use serde_json::Value;

use crate::incoming::{Attachment, ChannelEvent};

/// One account of one chat platform.
///
/// Each call makes one attempt: delays, retries and ordering are up to the caller.
#[async_trait]
pub trait Channel: Send + Sync + fmt::Debug {
    /// Returns the capabilities and text format of the platform.
    fn capabilities(&self) -> ChannelCapabilities;

    /// Passes inbound events to the sink until it fails, and returns the reason. The future may be dropped at any time
    /// without loss: events that the sink did not confirm are received again.
    ///
    /// `cursor` is the last one that the sink stored, if any.
    async fn receive(&self, cursor: Option<String>, sink: &dyn Sink) -> ChannelError;

    /// Sends a message. If the future is dropped, it is unknown whether the message was sent.
    async fn send(&self, outgoing: Outgoing) -> Result<Receipt, ChannelError>;

    /// Performs an idempotent action, such as a reaction.
    async fn perform(&self, action: ChannelAction) -> Result<Receipt, ChannelError>;

    /// Downloads an attachment of at most `max_bytes` bytes.
    async fn fetch(&self, attachment: &Attachment, max_bytes: usize) -> Result<Vec<u8>, ChannelError>;

    /// Asks the platform for the account's own identity.
    async fn identity(&self) -> Result<AccountIdentity, ChannelError>;

    /// Returns the id of the chat that a target denotes; all spellings of a target yield the same id.
    fn recipient(&self, to: &str) -> Result<String, ChannelError> {
        Ok(to.to_owned())
    }
}

/// Receiver of inbound events.
#[async_trait]
pub trait Sink: Send + Sync {
    /// Stores a batch in order, and returns when its events and its cursor are on disk. An event may be delivered
    /// again, then with the same id.
    async fn store(&self, batch: Batch) -> Result<(), SinkError>;

    /// Reports the state of the connection.
    fn report_state(&self, note: ConnectionState);
}

/// Events that were received together.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Batch {
    /// The events, oldest first.
    pub events: Vec<ChannelEvent>,
    /// Position to continue from after a restart, once the events are stored. Opaque, and valid for this account only.
    pub cursor: Option<String>,
}

/// The sink could not store a batch.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("failed to store the received events: {0}")]
pub struct SinkError(pub String);

/// State of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConnectionState {
    /// The platform responds.
    Up,
    /// Another process receives for the same account, which only one may do. Retried after the wait.
    Conflict {
        /// Message of the platform.
        why: String,
        /// Delay before the next attempt.
        wait: Duration,
    },
    /// The connection fails at present. Retried after the wait.
    Down {
        /// The error.
        why: String,
        /// Delay before the next attempt.
        wait: Duration,
    },
}

/// Capabilities and text format of a platform.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChannelCapabilities {
    /// Name of the platform in lower case.
    pub channel: &'static str,
    /// Recommended maximum length of a text in characters.
    pub text_limit: usize,
    /// How Markdown is rendered.
    pub markdown: MarkdownRendering,
    /// True if a reply may be sent in several messages while it is written.
    pub has_blocks: bool,
    /// True if it supports threads or topics.
    pub has_threads: bool,
    /// True if it supports reactions.
    pub has_reactions: bool,
    /// True if it supports polls.
    pub has_polls: bool,
    /// True if it supports editing messages.
    pub has_edits: bool,
    /// True if messages with the same [`Outgoing::id`] are delivered once.
    pub is_idempotent: bool,
    /// True if it loads the first URL of a text to show a preview.
    pub has_previews: bool,
}

/// How a platform renders Markdown. The channel does the conversion; this describes the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MarkdownRendering {
    /// It receives Markdown unchanged.
    Markdown,
    /// It shows styles; tables become fixed-width text.
    Styled,
}

/// A destination on a platform.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Destination {
    /// The person or group.
    pub to: String,
    /// The thread.
    pub thread: Option<String>,
}

/// A message to send.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Outgoing {
    /// Idempotency key, also for the platform if it supports one.
    pub id: String,
    /// Destination.
    pub destination: Destination,
    /// Id of the message that it replies to.
    pub reply_to: Option<String>,
    /// Text as Markdown.
    pub text: String,
    /// Attached media.
    pub media: Vec<Media>,
    /// Send without notification sound.
    pub is_silent: bool,
    /// Send audio as a voice message.
    pub is_voice: bool,
    /// A poll, sent after the rest.
    pub poll: Option<Poll>,
    /// Suppress link previews.
    pub hides_previews: bool,
}

/// A poll.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Poll {
    /// The question.
    pub question: String,
    /// The options.
    pub options: Vec<String>,
    /// Allow several answers.
    pub is_multiple: bool,
}

/// Media attached to a message.
#[derive(Clone, PartialEq, Eq)]
pub enum Media {
    /// By URL.
    Url(String),
    /// By content.
    Bytes {
        /// File name.
        name: String,
        /// MIME type, if known, such as `image/png`.
        mime: Option<String>,
        /// The content.
        bytes: Vec<u8>,
    },
}

impl fmt::Debug for Media {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(url) => f.debug_tuple("Url").field(url).finish(),
            Self::Bytes { name, mime, bytes } => {
                f.debug_struct("Bytes").field("name", name).field("mime", mime).field("bytes", &bytes.len()).finish()
            }
        }
    }
}

/// An idempotent action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChannelAction {
    /// Shows a typing indicator for a few seconds.
    Type(Destination),
    /// Sets a reaction on a message, replacing our last one; `None` removes it.
    React {
        /// Where the message is.
        destination: Destination,
        /// Message id.
        message: String,
        /// The reaction; `None` removes it.
        emoji: Option<String>,
    },
    /// Replaces the text of a message. It must fit into one message.
    Edit {
        /// Where the message is.
        destination: Destination,
        /// Message id.
        message: String,
        /// New text as Markdown.
        text: String,
        /// Suppress link previews.
        hides_previews: bool,
    },
    /// Deletes a message.
    Delete {
        /// Where the message is.
        destination: Destination,
        /// Message id.
        message: String,
    },
}

impl ChannelAction {
    /// Returns its name for error messages.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Type(_) => "typing",
            Self::React { .. } => "react",
            Self::Edit { .. } => "edit",
            Self::Delete { .. } => "delete",
        }
    }
}

/// The platform's confirmation.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Receipt {
    /// Id of the message on the platform; of several, the last.
    pub message: Option<String>,
    /// Further details.
    pub details: Value,
}

/// The account's own identity on a platform.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AccountIdentity {
    /// Its id.
    pub id: String,
    /// Its user name, by which it is mentioned, without `@`.
    pub username: Option<String>,
    /// Its display name.
    pub name: String,
    /// Hints for the owner.
    pub hints: Vec<String>,
}

/// Why an operation failed, classified by what can be done about it. The texts contain no secrets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChannelError {
    /// The platform does not support this.
    #[error("{channel} does not support {action}")]
    Unsupported {
        /// The platform.
        channel: &'static str,
        /// The requested action.
        action: &'static str,
    },
    /// The platform rejects it; a retry does not help.
    #[error("{0}")]
    Refused(String),
    /// The platform asks to retry later; nothing was done.
    #[error("{why}; retry after {}", seconds(*after))]
    RetryAfter {
        /// Delay before the retry.
        after: Duration,
        /// Message of the platform.
        why: String,
    },
    /// The platform is unreachable; nothing was done.
    #[error("{0}; try again later")]
    Unavailable(String),
    /// It is unknown whether it was done.
    #[error("{0}; the operation may have succeeded")]
    Unknown(String),
}

fn seconds(duration: Duration) -> String {
    format!("{} s", duration.as_millis().div_ceil(1000))
}
