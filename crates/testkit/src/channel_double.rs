//! The interface of a test double of a chat platform: what its users do there, what they see, and how it fails.
//!
//! The suite in `channel-runtime/tests/suite` runs the same cases against every double; its `main.rs` describes how a
//! channel joins. A double shares no code with the channel, so that the two cannot have the same bug.

use std::{fmt, net::SocketAddr};

use serde_json::Value;
use tokio::sync::watch;

/// A user of the platform.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum User {
    /// The owner of the agent.
    Owner,
    /// Permitted to write, but not the owner.
    Friend,
    /// Not permitted to write.
    Stranger,
}

/// Where a user writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Place {
    /// In a direct chat with the account.
    Direct,
    /// In the group.
    Group,
    /// In a thread of the group, by number from 1.
    Thread(u8),
}

/// A message of a user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserMessage {
    /// The sender.
    pub user: User,
    /// Where it is sent.
    pub place: Place,
    /// Its text.
    pub text: String,
    /// True if it mentions the account by means of the platform.
    pub is_mention: bool,
    /// Id of the message that it replies to. The platform says whose it is.
    pub reply_to: Option<String>,
    /// An attached GIF image.
    pub picture: Option<Vec<u8>>,
}

impl UserMessage {
    /// Creates a direct message of a user.
    pub fn direct(user: User, text: impl Into<String>) -> Self {
        Self { user, place: Place::Direct, text: text.into(), is_mention: false, reply_to: None, picture: None }
    }

    /// Creates a message of the owner in a group or thread.
    pub fn group(place: Place, text: impl Into<String>) -> Self {
        Self { place, ..Self::direct(User::Owner, text) }
    }

    /// Adds a mention of the account.
    #[must_use]
    pub fn mentioning(self) -> Self {
        Self { is_mention: true, ..self }
    }
}

/// A message of the account, as users see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenMessage {
    /// Id on the platform.
    pub id: String,
    /// Id of the chat.
    pub chat: String,
    /// Id of the thread.
    pub thread: Option<String>,
    /// Its text, without markup.
    pub text: String,
    /// Id of the message that it replies to.
    pub reply_to: Option<String>,
    /// Content of the attached file.
    pub file: Option<Vec<u8>>,
}

/// A request of the account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Sends a message.
    Send,
    /// Edits a message.
    Edit,
    /// Deletes a message.
    Delete,
}

/// How a request fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestFault {
    /// 429 with the number of seconds to wait, or what the platform has instead. The request has no effect.
    RateLimited(u64),
    /// 503, or what the platform has instead: the request has no effect and may be repeated.
    Unavailable,
    /// 500: whether the request had an effect is not said. It has none.
    ServerError,
    /// The platform refuses it for good: the account is blocked in the chat.
    Refused,
    /// The chat does not exist.
    UnknownChat,
    /// The connection is reset before the request takes effect.
    Reset,
    /// The request takes effect, and the connection is reset before the response.
    LostResponse,
    /// The request takes effect, and there is no response.
    NoResponse,
}

/// What a platform or its double may lack. Cases that need it are left out for that platform.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Feature {
    /// Groups.
    Groups,
    /// Threads in groups.
    Threads,
    /// Messages that reply to another one.
    Replies,
    /// Users edit their messages.
    UserEdits,
    /// The account edits its messages, so that replies can be streamed into a draft.
    Edits,
    /// Typing indicators.
    Typing,
    /// Attachments of users.
    MediaIn,
    /// Attachments of the account.
    MediaOut,
    /// The channel keeps a connection or polls, so that messages wait on the platform while it is down.
    Connection,
    /// A position in the platform's events, which the platform may forget.
    Cursor,
    /// Requests whose outcome is unknown are not repeated. A platform lacks this if it drops repeated messages.
    UnknownOutcomes,
    /// A response that says that the chat does not exist.
    UnknownChats,
}

/// A feature that a platform or its double lacks, and why.
pub type MissingFeature = (Feature, &'static str);

/// A running test double of a platform.
pub trait ChannelDouble: Send + Sync + fmt::Debug {
    /// Returns the channel's name in the config.
    fn channel(&self) -> &'static str;

    /// Returns the channel's section of the config, without access rules: address and credentials of the double.
    fn account(&self) -> Value;

    /// Returns the member of the section that permits the group, with all senders.
    fn group_config(&self, requires_mention: bool) -> Value;

    /// Returns what the platform or this double lacks.
    fn missing(&self) -> &'static [MissingFeature];

    /// Returns the maximum length of a text in characters.
    fn max_text(&self) -> usize;

    /// Returns the id of a user as in `allowFrom`.
    fn user_id(&self, user: User) -> String;

    /// Returns the id of a chat, as in [`SeenMessage::chat`] and as a destination.
    fn chat_id(&self, place: Place, user: User) -> String;

    /// Returns the id of a thread, as in [`SeenMessage::thread`].
    fn thread_id(&self, place: Place) -> Option<String>;

    /// A gateway with this channel listens at this address, for platforms that call it.
    fn gateway_started(&self, address: SocketAddr);

    /// A user sends a message. Returns its id on the platform.
    fn post(&self, message: &UserMessage) -> String;

    /// The owner changes the text of an own direct message.
    fn edit(&self, message: &str, text: &str);

    /// Returns the messages of the account that users see now, oldest first.
    fn seen(&self) -> Vec<SeenMessage>;

    /// Returns how many requests of this kind the account has made, including failed ones.
    fn requests(&self, operation: Operation) -> usize;

    /// Returns how often a typing indicator was shown in a chat.
    fn typing(&self, chat: &str) -> usize;

    /// Lets the next request of this kind fail. Several faults are used in order.
    fn fail_next(&self, operation: Operation, fault: RequestFault);

    /// Delivers all events so far once more, with the next ones.
    fn repeat_events(&self);

    /// Breaks the channel's connection, or its running poll.
    fn disconnect(&self);

    /// Forgets the position of the channel in the events: the session is invalid, or numbers start anew.
    fn reset_cursor(&self);

    /// True if all events were delivered and acknowledged.
    fn is_drained(&self) -> bool;

    /// Returns what in the channel's requests violates the platform's documentation.
    fn violations(&self) -> Vec<String>;

    /// Returns a counter of changes: conditions are checked again when it changes.
    fn changes(&self) -> watch::Receiver<u64>;
}
