//! Payload of an outbox message: text, media, reply target and block position.

use std::path::PathBuf;

use homard_reply::chunk::{ChunkBounds, Chunker, CutPreference};
use homard_store::Delivery;
use serde::{Deserialize, Serialize};

use crate::channel_sender::{MessageActionKind, OutgoingAction, OutgoingMedia, Poll};

/// Payload of an outbox message.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OutboxPayload {
    /// Text.
    pub text: String,
    /// URLs, and paths below `root`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub media: Vec<String>,
    /// Directory of media that are not URLs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub root: Option<PathBuf>,
    /// Message that it replies to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<String>,
    /// Thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread: Option<String>,
    /// True to send audio as a voice message.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_voice: bool,
    /// True to suppress link previews.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub hides_previews: bool,
    /// True to send without a notification sound.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_silent: bool,
    /// Poll.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub poll: Option<Poll>,
    /// True if a failed delivery does not matter.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_best_effort: bool,
    /// Index of the block in its run, from 0; `None` for a final reply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block: Option<u32>,
    /// Text of the block before prefix and splitting; only the first part of a block has it.
    #[serde(rename = "said", skip_serializing_if = "Option::is_none")]
    pub original_text: Option<String>,
    /// True if the block announces a tool call or is a notice, so that it is not text of the answer.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_of_tool: bool,
    /// Delay after the previous message, in milliseconds.
    #[serde(skip_serializing_if = "is_zero")]
    pub delay_ms: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
fn is_zero(ms: &u64) -> bool {
    *ms == 0
}

impl OutboxPayload {
    /// Reads the payload of a delivery. Unknown fields of other writers are ignored.
    pub fn of(delivery: &Delivery) -> Self {
        serde_json::from_value(delivery.payload.clone()).unwrap_or_default()
    }

    /// Builds the action for the channel sender.
    pub fn outgoing(self, delivery: &Delivery) -> OutgoingAction {
        let root = self.root.unwrap_or_default();
        let media = self.media.into_iter().map(|media| match is_url(&media) {
            true => OutgoingMedia::Url(media),
            false => OutgoingMedia::File { root: root.clone(), path: media },
        });
        OutgoingAction {
            id: delivery.key.clone(),
            action: MessageActionKind::Send,
            channel: Some(delivery.target.channel.clone()),
            to: delivery.target.to.clone(),
            account: Some(delivery.target.account.clone()).filter(|account| !account.is_empty()),
            thread: self.thread,
            run: delivery.run.clone(),
            reply_to: self.reply_to,
            text: self.text,
            media: media.collect(),
            poll: self.poll,
            is_silent: self.is_silent,
            is_voice: self.is_voice,
            hides_previews: self.hides_previews,
            ..OutgoingAction::default()
        }
    }
}

/// True if a medium is a URL.
pub fn is_url(media: &str) -> bool {
    media.starts_with("https://") || media.starts_with("http://")
}

/// Splits a text into as few parts as the channel's limit allows, preferably between paragraphs.
pub fn split_text(text: String, limit: Option<usize>) -> Vec<String> {
    let Some(max) = limit.filter(|limit| text.chars().count() > *limit) else { return vec![text] };
    let mut chunker = Chunker::new(ChunkBounds { min: max / 3 * 2, max, prefer: CutPreference::Paragraph });
    let mut parts = chunker.push(&text);
    parts.extend(chunker.finish());
    parts
}

#[cfg(test)]
mod tests {
    use homard_store::DeliveryTarget;
    use serde_json::{Value, json};

    use super::*;

    fn delivery(payload: Value) -> Delivery {
        let target = DeliveryTarget { channel: "telegram".to_owned(), account: String::new(), to: "42".to_owned() };
        let (id, key) = ("k1/0.0".to_owned(), "k1/0.0".to_owned());
        Delivery { id, run: None, target, part: 0, key, is_idempotent: false, payload, at: 0, is_immediate: false }
    }

    #[test]
    fn a_stored_payload_becomes_the_same_outgoing_action() {
        let payload = OutboxPayload {
            text: "Look.".to_owned(),
            media: vec!["https://a.example/b.png".to_owned(), "./c.png".to_owned()],
            root: Some(PathBuf::from("/home/main")),
            reply_to: Some("m1".to_owned()),
            is_voice: true,
            hides_previews: true,
            ..OutboxPayload::default()
        };
        let stored = delivery(serde_json::to_value(&payload).unwrap());
        let expected = OutgoingAction {
            id: "k1/0.0".to_owned(),
            channel: Some("telegram".to_owned()),
            to: "42".to_owned(),
            reply_to: Some("m1".to_owned()),
            text: "Look.".to_owned(),
            media: vec![
                OutgoingMedia::Url("https://a.example/b.png".to_owned()),
                OutgoingMedia::File { root: PathBuf::from("/home/main"), path: "./c.png".to_owned() },
            ],
            is_voice: true,
            hides_previews: true,
            ..OutgoingAction::default()
        };
        assert_eq!(OutboxPayload::of(&stored).outgoing(&stored), expected);
    }

    #[test]
    fn a_plain_payload_is_stored_as_its_text() {
        let plain = OutboxPayload { text: "Hi.".to_owned(), ..OutboxPayload::default() };
        assert_eq!(serde_json::to_value(&plain).unwrap(), json!({"text": "Hi."}));
        assert_eq!(OutboxPayload::of(&delivery(Value::Null)), OutboxPayload::default());
        let block = OutboxPayload { original_text: Some("Hi.".to_owned()), ..plain };
        assert_eq!(serde_json::to_value(&block).unwrap(), json!({"text": "Hi.", "said": "Hi."}));
    }

    #[test]
    fn a_text_is_split_only_above_the_limit_of_the_channel() {
        let text = "One two three.\n\nFour five six.\n\nSeven.".to_owned();
        for limit in [None, Some(100)] {
            assert_eq!(split_text(text.clone(), limit).concat(), text);
        }
        assert_eq!(split_text(text, Some(20)), ["One two three.", "Four five six.", "Seven."]);
        assert_eq!(split_text(String::new(), Some(20)), [""]);
        assert_eq!(
            split_text("abc".to_owned(), Some(0)),
            ["a", "b", "c"],
            "a limit that makes no sense is one that does"
        );
    }
}
