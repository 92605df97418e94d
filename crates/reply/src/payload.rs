//! A message part that is sent to the user.

use serde::{Deserialize, Serialize};

/// A message to the user: text, media, or both. It is stored with a run's end if the transcript does not contain it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Payload {
    /// Kind of the payload.
    pub kind: Kind,
    /// Text; may be empty if there is media.
    pub text: String,
    /// URLs and relative paths of media, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub media: Vec<String>,
    /// Message that it answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<ReplyTo>,
    /// True if its audio is sent as a voice message.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_voice: bool,
}

/// Kind of a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Kind {
    /// The answer, or a part of it.
    #[default]
    Answer,
    /// Reasoning of the model.
    Reasoning,
    /// An error.
    Error,
    /// A summary of tool calls.
    Tool,
    /// A notice by Homard, such as that a new session began.
    Notice,
}

/// Message that a reply answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ReplyTo {
    /// The one that started the run.
    Current,
    /// The one with this id of the chat platform.
    Id(String),
}

impl Payload {
    /// Creates a plain part of the answer.
    pub fn answer(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// True if there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.text.trim().is_empty() && self.media.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_payload_round_trips() {
        let full = Payload {
            kind: Kind::Error,
            text: "no".to_owned(),
            media: vec!["a.png".to_owned()],
            reply_to: Some(ReplyTo::Id("7".to_owned())),
            is_voice: true,
        };
        let current = Payload { reply_to: Some(ReplyTo::Current), ..Payload::answer("yes") };
        for (payload, stored) in [
            (full, json!({"kind": "error", "text": "no", "media": ["a.png"], "replyTo": {"id": "7"}, "isVoice": true})),
            (current, json!({"kind": "answer", "text": "yes", "replyTo": "current"})),
            (Payload::answer("hi"), json!({"kind": "answer", "text": "hi"})),
        ] {
            assert_eq!(serde_json::to_value(&payload).unwrap(), stored);
            assert_eq!(serde_json::from_value::<Payload>(stored).unwrap(), payload);
        }
    }
}
