//! The seam: what every chat platform can be asked.

use std::{fmt, time::Duration};

use async_trait::async_trait;
use serde_json::Value;

use crate::incoming::{Attachment, Event};

/// One account of one chat platform.
///
/// Whatever it is asked, it asks the platform once: waiting, asking again and keeping order are the caller's.
#[async_trait]
pub trait Channel: Send + Sync + fmt::Debug {
    /// What the platform can do and how it likes its texts.
    fn manner(&self) -> Manner;

    /// Hands what comes in to the sink until it cannot go on, and says why. Dropping the future stops it, at any moment
    /// and without loss: what the sink did not confirm comes again.
    ///
    /// `cursor` is the last one that the sink stored, if any.
    async fn receive(&self, cursor: Option<String>, sink: &dyn Sink) -> Failure;

    /// Says something. Dropping the future leaves open whether it was said.
    async fn send(&self, outgoing: Outgoing) -> Result<Receipt, Failure>;

    /// Does something that may be done twice without harm, such as a reaction.
    async fn act(&self, act: Act) -> Result<Receipt, Failure>;

    /// Loads something that came with a message, if it has no more bytes than `most`.
    async fn fetch(&self, attachment: &Attachment, most: usize) -> Result<Vec<u8>, Failure>;

    /// Asks the platform who we are there.
    async fn probe(&self) -> Result<Probe, Failure>;

    /// The id of the chat that a target means: one id for all spellings of a target.
    fn recipient(&self, to: &str) -> Result<String, Failure> {
        Ok(to.to_owned())
    }
}

/// Takes what comes in.
#[async_trait]
pub trait Sink: Send + Sync {
    /// Takes a batch in its order, and returns when its events and its cursor are on disk. The same event may come again;
    /// it has the same id then.
    async fn take(&self, batch: Batch) -> Result<(), Unstored>;

    /// Hears how the connection is doing.
    fn note(&self, note: Note);
}

/// What came in at once.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Batch {
    /// The events, oldest first.
    pub events: Vec<Event>,
    /// Where to go on after a restart, if these are stored. Opaque, and worthless for another account.
    pub cursor: Option<String>,
}

/// The sink could not store a batch.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("what came in could not be stored: {0}")]
pub struct Unstored(pub String);

/// How a connection is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Note {
    /// The platform answers.
    Up,
    /// Somebody else receives for the same account: only one may. It is tried again after the wait.
    Rivalled {
        /// What the platform said.
        why: String,
        /// How long nothing is asked.
        wait: Duration,
    },
    /// It does not work at the moment. It is tried again after the wait.
    Down {
        /// What went wrong.
        why: String,
        /// How long nothing is asked.
        wait: Duration,
    },
}

/// What a platform can do and how it likes its texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manner {
    /// The platform, in lower case.
    pub channel: &'static str,
    /// How many characters a text should have at most.
    pub text_limit: usize,
    /// What it makes of Markdown.
    pub flavour: Flavour,
    /// Whether an answer may come in several messages while it is written.
    pub has_blocks: bool,
    /// Whether it has threads or topics.
    pub has_threads: bool,
    /// Whether it has reactions.
    pub has_reactions: bool,
    /// Whether it has polls.
    pub has_polls: bool,
    /// Whether what was said can be changed.
    pub has_edits: bool,
    /// Whether the same [`Outgoing::id`] is said once, however often it is sent.
    pub is_idempotent: bool,
    /// Whether it loads the first address of a text to show a preview.
    pub has_previews: bool,
}

/// What a platform makes of Markdown. The channel writes it; this tells what will be seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flavour {
    /// It is handed over as it is.
    Markdown,
    /// It is shown with styles; tables become fixed-width text.
    Styled,
}

/// A place on a platform: whom, and in which thread.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Place {
    /// The person or group.
    pub to: String,
    /// The thread.
    pub thread: Option<String>,
}

/// Something to say.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Outgoing {
    /// Names it, also for the platform if that knows such names.
    pub id: String,
    /// Where.
    pub place: Place,
    /// The message that is answered.
    pub reply_to: Option<String>,
    /// What is said, as Markdown.
    pub text: String,
    /// What goes with it.
    pub media: Vec<Media>,
    /// Whether nobody's device makes a sound.
    pub is_silent: bool,
    /// Whether sound goes as a voice message.
    pub is_voice: bool,
    /// A question for all, which comes after the rest.
    pub poll: Option<Poll>,
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

/// Something that goes with a message.
#[derive(Clone, PartialEq, Eq)]
pub enum Media {
    /// At an address.
    Url(String),
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
            Self::Bytes { name, mime, bytes } => {
                f.debug_struct("Bytes").field("name", name).field("mime", mime).field("bytes", &bytes.len()).finish()
            }
        }
    }
}

/// Something that may be done twice without harm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// Show for a few seconds that an answer is being written.
    Type(Place),
    /// Put a reaction on a message in place of our last one; none takes it off.
    React {
        /// Where the message is.
        place: Place,
        /// The message.
        message: String,
        /// The reaction.
        emoji: Option<String>,
    },
    /// Say something else instead. It must fit into one message.
    Edit {
        /// Where the message is.
        place: Place,
        /// The message.
        message: String,
        /// What it says now, as Markdown.
        text: String,
        /// Whether the platform must not load addresses in the text to show a preview.
        hides_previews: bool,
    },
    /// Take a message back.
    Delete {
        /// Where the message is.
        place: Place,
        /// The message.
        message: String,
    },
}

impl Act {
    /// Its word in errors.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Type(_) => "typing",
            Self::React { .. } => "react",
            Self::Edit { .. } => "edit",
            Self::Delete { .. } => "delete",
        }
    }
}

/// What a platform said when it took something.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Receipt {
    /// What the platform calls the message; of several, the last.
    pub message: Option<String>,
    /// What else there is to know.
    pub details: Value,
}

/// Who we are on a platform.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Probe {
    /// Our id there.
    pub id: String,
    /// The name that people mention us by, without `@`.
    pub username: Option<String>,
    /// The name that people read.
    pub name: String,
    /// What the owner should know or do, in plain words.
    pub hints: Vec<String>,
}

/// Why something was not done, by what may be done about it. No text names a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The platform cannot do this at all.
    #[error("{channel} cannot do {action}")]
    Unsupported {
        /// The platform.
        channel: &'static str,
        /// What it was asked for.
        action: &'static str,
    },
    /// The platform does not want it; asking again does not help.
    #[error("{0}")]
    Refused(String),
    /// The platform wants to be asked later; nothing was done.
    #[error("{why}; it asks to wait {}", seconds(*after))]
    RetryAfter {
        /// How long to wait.
        after: Duration,
        /// What it said.
        why: String,
    },
    /// The platform is not to be had; nothing was done.
    #[error("{0}; try again later")]
    Unavailable(String),
    /// Nobody knows whether it was done.
    #[error("{0}; it may have been done all the same")]
    Unknown(String),
}

fn seconds(duration: Duration) -> String {
    format!("{} s", duration.as_millis().div_ceil(1000))
}
