//! A piece of what the user gets.

use serde::{Deserialize, Serialize};

/// Something that goes to the user: words, media, or both. It is stored with a run's end where the transcript does not
/// hold it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Payload {
    /// What it is.
    pub kind: Kind,
    /// The words; may be empty if there is media.
    pub text: String,
    /// Addresses and relative paths of media, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub media: Vec<String>,
    /// Which message it answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<ReplyTo>,
    /// Whether its sound is sent as a voice message.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_voice: bool,
}

/// What a payload is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_payload_is_stored_as_it_is() {
        let whole = Payload {
            kind: Kind::Error,
            text: "no".to_owned(),
            media: vec!["a.png".to_owned()],
            reply_to: Some(ReplyTo::Id("7".to_owned())),
            is_voice: true,
        };
        let current = Payload { reply_to: Some(ReplyTo::Current), ..Payload::answer("yes") };
        for (payload, stored) in [
            (
                whole,
                json!({"kind": "error", "text": "no", "media": ["a.png"], "replyTo": {"id": "7"}, "isVoice": true}),
            ),
            (current, json!({"kind": "answer", "text": "yes", "replyTo": "current"})),
            (Payload::answer("hi"), json!({"kind": "answer", "text": "hi"})),
        ] {
            assert_eq!(serde_json::to_value(&payload).unwrap(), stored);
            assert_eq!(serde_json::from_value::<Payload>(stored).unwrap(), payload);
        }
    }
}
