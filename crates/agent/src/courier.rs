//! The seam between the loop and whoever carries messages to chat platforms.

use std::{fmt, path::PathBuf, time::Duration};

use async_trait::async_trait;
use homard_proto::{Route, RunId};
use homard_reply::thread::Mode;
use serde_json::Value;

use crate::delivery::Joining;

/// Carries a message to a chat platform.
///
/// It returns when the platform has it, or has refused it. The same [`Outgoing::id`] is carried once: whoever carries
/// may be asked again after a crash.
#[async_trait]
pub trait Courier: Send + Sync {
    /// Carries it.
    async fn deliver(&self, outgoing: Outgoing) -> Result<Receipt, CourierError>;

    /// What a platform is like, by its name in lower case; `None` for one that is not set up.
    fn manner(&self, channel: &str) -> Option<Manner>;

    /// The chat that a route leads to. An error says why nothing can be sent there.
    fn recipient(&self, route: &Route) -> Result<Recipient, CourierError>;
}

/// A chat that can be written to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recipient {
    /// The platform, in lower case.
    pub channel: String,
    /// The account that writes there.
    pub account: String,
    /// The chat as the platform names it, whatever spelling the route has.
    pub id: String,
    /// Whether the owner named it: the owner's own chat, one in the config, or one that was approved by pairing.
    pub is_known: bool,
}

/// What a chat platform is like, as far as those who write there need to know.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Manner {
    /// How many characters a message has at most.
    pub text_limit: Option<usize>,
    /// Whether it drops a second message with the same [`Outgoing::id`], also after a restart.
    pub is_idempotent: bool,
    /// Whether answers go out in blocks there; `None` to leave it to the agent's owner.
    pub takes_blocks: Option<bool>,
    /// How small blocks become one message there.
    pub nature: Joining,
    /// Which replies hang on the message that they answer.
    pub replies: Mode,
    /// Whether the model may name a message to answer although replies hang on none.
    pub allows_tags: bool,
    /// Whether a thread is known by its first message, and writing there is to answer it, as on Slack.
    pub threads_by_reply: bool,
    /// Who is written to when nobody is named.
    pub usual_to: Option<String>,
}

/// Something for a chat platform.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Outgoing {
    /// Names it; the same name is never carried twice.
    pub id: String,
    /// What is to be done.
    pub action: Action,
    /// The platform, in lower case; none for the only one that is set up.
    pub channel: Option<String>,
    /// The person or group there.
    pub to: String,
    /// The account that talks to them; none for the usual one.
    pub account: Option<String>,
    /// The thread.
    pub thread: Option<String>,
    /// The run that says it, if it is its answer.
    pub run: Option<RunId>,
    /// The message that is meant: which is answered, reacted to, changed, taken back, or read from.
    pub reply_to: Option<String>,
    /// What is said.
    pub text: String,
    /// What goes with it.
    pub media: Vec<Media>,
    /// The reaction.
    pub emoji: Option<String>,
    /// The question for all.
    pub poll: Option<Poll>,
    /// How many messages are to be read at most.
    pub limit: Option<usize>,
    /// Whether nobody's device makes a sound.
    pub is_silent: bool,
    /// Whether its sound is sent as a voice message.
    pub is_voice: bool,
    /// Whether the platform must not load addresses in the text to show a preview.
    pub hides_previews: bool,
}

/// A question with answers to choose from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Poll {
    /// What is asked.
    pub question: String,
    /// What may be answered.
    pub options: Vec<String>,
    /// Whether several answers may be chosen.
    pub is_multiple: bool,
}

/// What is to be done on a chat platform.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Action {
    /// Say something.
    #[default]
    Send,
    /// Answer a message.
    Reply,
    /// Say something in a thread.
    ThreadReply,
    /// Put a reaction on a message.
    React,
    /// Take one's reaction off a message.
    Unreact,
    /// Say something else in place of what was said.
    Edit,
    /// Take back what was said.
    Delete,
    /// Ask something, with answers to choose from.
    Poll,
    /// Read the newest messages.
    Read,
}

impl Action {
    /// Its word in requests.
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

    /// Whether it says something to somebody.
    pub fn speaks(self) -> bool {
        match self {
            Self::Send | Self::Reply | Self::ThreadReply | Self::Poll => true,
            Self::React | Self::Unreact | Self::Edit | Self::Delete | Self::Read => false,
        }
    }
}

/// Something that goes with a message.
#[derive(Clone, PartialEq, Eq)]
pub enum Media {
    /// At an address.
    Url(String),
    /// In a folder. Whoever carries it reads nothing outside of that folder, whatever links there say.
    File {
        /// The folder.
        root: PathBuf,
        /// The path beneath it, as the model wrote it.
        path: String,
    },
    /// Here.
    Bytes {
        /// What it is called.
        name: String,
        /// What it is, if that is known: such as `image/png`.
        mime: Option<String>,
        /// The file.
        bytes: Vec<u8>,
    },
}

impl fmt::Debug for Media {
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

/// What a platform said when it took something.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Receipt {
    /// What the platform calls the message.
    pub message: Option<String>,
    /// The platform, in lower case.
    pub channel: String,
    /// What else it said, as what was read.
    pub details: Value,
}

/// Why something was not carried.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CourierError {
    /// There is no such platform here, or none at all.
    #[error("the channel {0} is not set up")]
    NoChannel(String),
    /// Several platforms could be meant.
    #[error("several channels are set up; name one with channel: {0}")]
    Ambiguous(String),
    /// The platform cannot do this.
    #[error("{channel} cannot do {action}")]
    Unsupported {
        /// The platform.
        channel: String,
        /// What it was asked for.
        action: &'static str,
    },
    /// The platform does not want it; asking again does not help.
    #[error("{0}")]
    Refused(String),
    /// The platform is not to be had at the moment; nothing was said there.
    #[error("{why}; try again later")]
    Unavailable {
        /// What is wrong with it.
        why: String,
        /// How long it wants to be left alone, if it said so.
        retry_after: Option<Duration>,
    },
    /// Nobody knows whether it was said there.
    #[error("{0}; it may have been said all the same: look before you say it again")]
    Unknown(String),
}
