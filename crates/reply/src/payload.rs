//! A piece of what the user gets.

/// Something that goes to the user: words, media, or both.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Payload {
    /// What it is.
    pub kind: Kind,
    /// The words; may be empty if there is media.
    pub text: String,
    /// Addresses and relative paths of media, in order.
    pub media: Vec<String>,
    /// Which message it answers.
    pub reply_to: Option<ReplyTo>,
    /// Whether its sound is sent as a voice message.
    pub is_voice: bool,
}

/// What a payload is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Kind {
    /// The answer, or a part of it.
    #[default]
    Answer,
    /// How the model came to it.
    Reasoning,
    /// What went wrong.
    Error,
    /// What a tool did.
    Tool,
    /// A word of the house, such as that a new session began.
    Notice,
}

/// Which message a reply answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplyTo {
    /// The one that started the run.
    Current,
    /// This one, by the id that the chat platform gave it.
    Id(String),
}

impl Payload {
    /// A plain piece of the answer.
    pub fn answer(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.text.trim().is_empty() && self.media.is_empty()
    }
}
