//! What the host reports about an inbound message, checked and converted to Homard's form.

use homard_channels::{Attachment, AttachmentSource, Incoming, MessageSender, Peer, PeerKind, QuotedMessage};
use serde::Deserialize;

/// Maximum length of an id in bytes.
const MAX_ID: usize = 1024;
/// Maximum length of a text in characters.
const MAX_TEXT: usize = 100_000;
/// Maximum number of attachments.
const MAX_MEDIA: usize = 20;

/// An inbound message as the host reports it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MessageFacts {
    pub(crate) account: String,
    event: String,
    message: String,
    kind: Kind,
    peer: PeerFacts,
    sender: SenderFacts,
    text: String,
    reply_to: Option<QuoteFacts>,
    thread: Option<String>,
    was_mentioned: bool,
    media: Vec<MediaFacts>,
    timestamp: Option<f64>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Direct,
    Group,
    Channel,
}

#[derive(Debug, Deserialize)]
struct PeerFacts {
    id: String,
    title: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SenderFacts {
    id: String,
    name: String,
    username: Option<String>,
    is_bot: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct QuoteFacts {
    message: String,
    sender: Option<String>,
    text: String,
    is_ours: bool,
}

#[derive(Debug, Deserialize)]
struct MediaFacts {
    path: Option<String>,
    url: Option<String>,
    mime: Option<String>,
    name: Option<String>,
}

impl MessageFacts {
    /// Converts the facts; an error says what is invalid. `now_ms` is the time of a message without one.
    pub(crate) fn into_incoming(self, now_ms: u64) -> Result<Incoming, String> {
        for (name, id) in [("event", &self.event), ("peer", &self.peer.id), ("sender", &self.sender.id)] {
            if id.trim().is_empty() || id.len() > MAX_ID {
                return Err(format!("the {name} of the message has no valid id"));
            }
        }
        if self.text.chars().count() > MAX_TEXT {
            return Err(format!("the text of the message has more than {MAX_TEXT} characters"));
        }
        let kind = match self.kind {
            Kind::Direct => PeerKind::Direct,
            Kind::Group => PeerKind::Group,
            Kind::Channel => PeerKind::Channel,
        };
        let is_reply_to_us = self.reply_to.as_ref().is_some_and(|quote| quote.is_ours);
        let timestamp_ms = self.timestamp.filter(|ms| ms.is_finite() && *ms > 0.0).map_or(now_ms, |ms| ms as u64);
        Ok(Incoming {
            event: self.event,
            message: self.message,
            account: self.account,
            peer: Peer { kind, id: self.peer.id, title: self.peer.title },
            is_command: self.text.trim_start().starts_with('/'),
            sender: MessageSender {
                id: self.sender.id,
                name: self.sender.name,
                username: self.sender.username,
                is_bot: self.sender.is_bot,
                is_chat: false,
            },
            text: self.text,
            reply_to: self.reply_to.map(|quote| QuotedMessage {
                message: quote.message,
                sender: quote.sender,
                text: quote.text,
                is_ours: quote.is_ours,
            }),
            thread: self.thread.filter(|thread| !thread.is_empty()),
            was_mentioned: self.was_mentioned || is_reply_to_us,
            media: self.media.into_iter().filter_map(MediaFacts::into_attachment).take(MAX_MEDIA).collect(),
            timestamp_ms,
            ..Incoming::default()
        })
    }
}

impl MediaFacts {
    fn into_attachment(self) -> Option<Attachment> {
        let source = match (self.path, self.url) {
            (Some(path), _) => AttachmentSource::Platform(path),
            (None, Some(url)) => AttachmentSource::Url(url),
            (None, None) => return None,
        };
        let is_voice = self.mime.as_deref().is_some_and(|mime| mime.starts_with("audio/ogg"));
        Some(Attachment { source, name: self.name, mime: self.mime, size: None, is_voice })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn facts() -> Value {
        json!({
            "account": "default", "event": "[\"alice\",\"1\"]", "message": "1", "kind": "direct",
            "peer": {"id": "alice", "title": null},
            "sender": {"id": "alice!a@h", "name": "alice", "username": null, "isBot": false},
            "text": "/status", "replyTo": null, "thread": null, "wasMentioned": false,
            "media": [{"path": "/media/a.png", "mime": "image/png", "name": null}, {"mime": null, "name": null}],
            "timestamp": 12.0,
        })
    }

    fn read(facts: Value) -> Result<Incoming, String> {
        serde_json::from_value::<MessageFacts>(facts).map_err(|error| error.to_string())?.into_incoming(99)
    }

    #[test]
    fn facts_become_a_message() {
        let incoming = read(facts()).unwrap();
        assert_eq!((incoming.peer.kind, incoming.timestamp_ms, incoming.is_command), (PeerKind::Direct, 12, true));
        assert_eq!(incoming.media.len(), 1);
        assert_eq!(incoming.media[0].source, AttachmentSource::Platform("/media/a.png".to_owned()));
        let mut group = facts();
        (group["kind"], group["timestamp"]) = (json!("group"), Value::Null);
        let incoming = read(group).unwrap();
        assert_eq!((incoming.peer.kind, incoming.timestamp_ms), (PeerKind::Group, 99));
    }

    #[test]
    fn invalid_facts_are_refused() {
        for (pointer, value) in [
            ("/sender/id", json!("")),
            ("/sender/id", json!("x".repeat(2000))),
            ("/peer/id", json!(" ")),
            ("/event", json!("")),
            ("/kind", json!("secret")),
            ("/text", json!("x".repeat(MAX_TEXT + 1))),
            ("/sender", json!("alice")),
        ] {
            let mut invalid = facts();
            *invalid.pointer_mut(pointer).unwrap() = value;
            assert!(read(invalid).is_err(), "{pointer}");
        }
    }
}
