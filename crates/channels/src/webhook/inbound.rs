//! Inbound messages of a peer: signed JSON with an id.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde::Deserialize;
use serde_json::json;

use super::{
    Webhook,
    signature::{self, SignatureError},
};
use crate::{
    Attachment, AttachmentSource, Batch, ChannelEvent, Incoming, MessageSender, Peer, PeerKind, QuotedMessage,
};

/// Maximum size of a request.
pub const MAX_REQUEST_BYTES: usize = 8 << 20;

/// Maximum length of an id.
const MAX_ID_CHARS: usize = 256;

/// Why a request is rejected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InboundRejection {
    /// The signature is missing or wrong.
    WrongSignature,
    /// The signature is too old, or the clocks differ.
    Expired,
    /// It is too large.
    TooLarge,
    /// The body is invalid.
    Invalid(String),
}

impl InboundRejection {
    /// Returns the HTTP status of the response.
    pub fn status(&self) -> u16 {
        match self {
            Self::WrongSignature | Self::Expired => 401,
            Self::TooLarge => 413,
            Self::Invalid(_) => 400,
        }
    }

    /// Returns the error message for the peer.
    pub fn message(&self) -> String {
        match self {
            Self::WrongSignature => format!(
                "the signature is missing or wrong; {} is v1= and the hex HMAC-SHA256 of <timestamp>.<body>",
                signature::SIGNATURE_HEADER
            ),
            Self::Expired => format!(
                "the timestamp differs from the gateway's clock by more than {} s; sign each delivery when you send it",
                signature::CLOCK_TOLERANCE
            ),
            Self::TooLarge => format!("the body exceeds the limit of {MAX_REQUEST_BYTES} bytes"),
            Self::Invalid(reason) => format!("the body is not valid: {reason}"),
        }
    }
}

/// Headers of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Headers<'a> {
    /// Value of [`signature::TIMESTAMP_HEADER`].
    pub timestamp: Option<&'a str>,
    /// Value of [`signature::SIGNATURE_HEADER`].
    pub signature: Option<&'a str>,
}

/// The request body. Unknown fields are ignored.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct InboundBody {
    id: String,
    #[serde(default)]
    text: String,
    sender: Person,
    chat: Option<InboundChat>,
    thread: Option<String>,
    reply_to: Option<RepliedMessage>,
    #[serde(default)]
    mentioned: bool,
    #[serde(default)]
    media: Vec<File>,
    timestamp: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct Person {
    id: String,
    #[serde(default)]
    name: String,
    username: Option<String>,
    #[serde(default)]
    bot: bool,
}

#[derive(Debug, Deserialize)]
struct InboundChat {
    id: String,
    #[serde(default)]
    kind: Kind,
    title: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    #[default]
    Direct,
    Group,
    Channel,
}

#[derive(Debug, Deserialize)]
struct RepliedMessage {
    id: String,
    #[serde(default)]
    text: String,
    sender: Option<String>,
    #[serde(default)]
    ours: bool,
}

#[derive(Debug, Deserialize)]
struct File {
    url: Option<String>,
    data: Option<String>,
    name: Option<String>,
    mime: Option<String>,
    #[serde(default)]
    voice: bool,
}

impl Webhook {
    /// Parses a request.
    ///
    /// The caller must respond with 200 only after the sink has stored the batch. The event id consists of the chat and
    /// the message id, which are signed: a repetition is recognised regardless of its headers.
    pub fn parse_request(&self, headers: Headers<'_>, body: &[u8]) -> Result<Batch, InboundRejection> {
        if body.len() > MAX_REQUEST_BYTES {
            return Err(InboundRejection::TooLarge);
        }
        let now_ms = (self.clock)();
        let checked = signature::verify(&self.settings.secret, headers.timestamp, headers.signature, body, now_ms);
        checked.map_err(|signature_error| match signature_error {
            SignatureError::Invalid => InboundRejection::WrongSignature,
            SignatureError::Expired => InboundRejection::Expired,
        })?;
        // The error may be as long as the body.
        let parse_error =
            |error: serde_json::Error| InboundRejection::Invalid(error.to_string().chars().take(200).collect());
        let body: InboundBody = serde_json::from_slice(body).map_err(parse_error)?;
        let incoming = read(body, &self.settings.account, now_ms)
            .map_err(|reason| InboundRejection::Invalid(reason.to_owned()))?;
        Ok(Batch { events: vec![ChannelEvent::Message(Box::new(incoming))], cursor: None })
    }
}

fn read(body: InboundBody, account: &str, now_ms: u64) -> Result<Incoming, &'static str> {
    let InboundBody { id, text, sender, chat, thread, reply_to, mentioned, media, timestamp } = body;
    let peer = match chat {
        Some(InboundChat { id, kind, title }) => Peer {
            kind: match kind {
                Kind::Direct => PeerKind::Direct,
                Kind::Group => PeerKind::Group,
                Kind::Channel => PeerKind::Channel,
            },
            id,
            title,
        },
        None => Peer { kind: PeerKind::Direct, id: sender.id.clone(), title: None },
    };
    let is_id = |id: &str| !id.trim().is_empty() && id.len() <= MAX_ID_CHARS && !id.contains(char::is_control);
    if ![&id, &sender.id, &peer.id].into_iter().chain(&thread).all(|id| is_id(id)) {
        return Err("ids must have 1 to 256 characters and no control characters");
    }
    // A direct chat belongs to its sender; otherwise one sender could write into another's session.
    if peer.kind == PeerKind::Direct && peer.id != sender.id {
        return Err("the peer id of a direct chat must be the sender id");
    }
    let media: Vec<Attachment> = media.into_iter().map(attachment).collect::<Result<_, _>>()?;
    if text.trim().is_empty() && media.is_empty() {
        return Err("the message has neither text nor media");
    }
    let quoted = |RepliedMessage { id, text, sender, ours }| QuotedMessage { message: id, sender, text, is_ours: ours };
    let reply_to = reply_to.map(quoted);
    Ok(Incoming {
        // The chat is part of the event id, so a message id may occur in several chats.
        event: format!("{id}#{}", json!([peer.kind, peer.id])),
        message: id,
        account: account.to_owned(),
        peer,
        sender: MessageSender {
            id: sender.id,
            name: sender.name,
            username: sender.username,
            is_bot: sender.bot,
            is_chat: false,
        },
        is_command: text.starts_with('/'),
        text,
        was_mentioned: mentioned || reply_to.as_ref().is_some_and(|quoted| quoted.is_ours),
        reply_to,
        thread,
        media,
        timestamp_ms: timestamp.unwrap_or(now_ms),
        ..Incoming::default()
    })
}

fn attachment(file: File) -> Result<Attachment, &'static str> {
    let File { url, data, name, mime, voice } = file;
    let (source, size) = match (url, data) {
        (None, Some(data)) => {
            let bytes = STANDARD.decode(data.trim()).map_err(|_wrong| "the media data is not valid base64")?;
            let size = bytes.len() as u64;
            (AttachmentSource::Bytes(bytes), Some(size))
        }
        (Some(url), None) if url.starts_with("https://") || url.starts_with("http://") => {
            (AttachmentSource::Url(url), None)
        }
        (Some(_), None) => return Err("a media url must begin with https:// or http://"),
        (None, None) | (Some(_), Some(_)) => return Err("a media item must have either a url or data"),
    };
    Ok(Attachment { source, name, mime, size, is_voice: voice })
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::{HttpClients, Secret, webhook::Settings};

    const NOW: u64 = 1_700_000_000_000;

    fn secret() -> Secret {
        Secret::from("a secret of the tests")
    }

    fn hook() -> Webhook {
        Webhook::new(HttpClients::default(), Settings::new("door", secret(), None), Box::new(|| NOW)).unwrap()
    }

    fn deliver(body: &Value) -> Result<Incoming, InboundRejection> {
        let body = body.to_string();
        let signature = signature::sign(&secret(), NOW / 1000, body.as_bytes());
        let headers = Headers { timestamp: Some("1700000000"), signature: Some(&signature) };
        let batch = hook().parse_request(headers, body.as_bytes())?;
        match <[ChannelEvent; 1]>::try_from(batch.events) {
            Ok([ChannelEvent::Message(incoming)]) => Ok(*incoming),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_smallest_delivery_is_a_direct_message() {
        let incoming = deliver(&json!({"id": "m1", "sender": {"id": "ann"}, "text": "/hi"})).unwrap();
        let expected = Incoming {
            event: r#"m1#["Direct","ann"]"#.to_owned(),
            message: "m1".to_owned(),
            account: "door".to_owned(),
            peer: Peer { kind: PeerKind::Direct, id: "ann".to_owned(), title: None },
            sender: MessageSender { id: "ann".to_owned(), ..MessageSender::default() },
            text: "/hi".to_owned(),
            timestamp_ms: NOW,
            is_command: true,
            ..Incoming::default()
        };
        assert_eq!(incoming, expected);
    }

    #[test]
    fn all_fields_of_a_delivery_are_read() {
        let body = json!({
            "id": "m2", "text": "hi", "sender": {"id": "ann", "name": "Ann", "username": "a", "bot": true},
            "chat": {"id": "room", "kind": "group", "title": "Room"}, "thread": "t",
            "replyTo": {"id": "m0", "text": "before", "sender": "us", "ours": true}, "timestamp": 5, "unknown": [],
            "media": [{"data": "aGk=", "name": "a.txt", "mime": "text/plain"}, {"url": "https://x.y/z.ogg", "voice": true}],
        });
        let incoming = deliver(&body).unwrap();
        let file = |source, size, is_voice| Attachment { source, name: None, mime: None, size, is_voice };
        let text = Attachment {
            name: Some("a.txt".to_owned()),
            mime: Some("text/plain".to_owned()),
            ..file(AttachmentSource::Bytes(b"hi".to_vec()), Some(2), false)
        };
        let expected = Incoming {
            event: r#"m2#["Group","room"]"#.to_owned(),
            message: "m2".to_owned(),
            account: "door".to_owned(),
            peer: Peer { kind: PeerKind::Group, id: "room".to_owned(), title: Some("Room".to_owned()) },
            sender: MessageSender {
                id: "ann".to_owned(),
                name: "Ann".to_owned(),
                username: Some("a".to_owned()),
                is_bot: true,
                is_chat: false,
            },
            text: "hi".to_owned(),
            reply_to: Some(QuotedMessage {
                message: "m0".to_owned(),
                sender: Some("us".to_owned()),
                text: "before".to_owned(),
                is_ours: true,
            }),
            thread: Some("t".to_owned()),
            was_mentioned: true,
            media: vec![text, file(AttachmentSource::Url("https://x.y/z.ogg".to_owned()), None, true)],
            timestamp_ms: 5,
            ..Incoming::default()
        };
        assert_eq!(incoming, expected);
    }

    #[test]
    fn the_event_id_depends_on_signed_fields_only() {
        let event = |sender: &str, chat: Value, id: &str| {
            let body = json!({"id": id, "sender": {"id": sender}, "text": "hi", "chat": chat});
            deliver(&body).unwrap().event
        };
        let group = || json!({"id": "room", "kind": "group"});
        assert_eq!(event("ann", group(), "1"), event("bob", group(), "1"), "an id is unique in its chat");
        let events = [event("ann", Value::Null, "1"), event("bob", Value::Null, "1"), event("ann", group(), "1")];
        assert!(events[0] != events[1] && events[0] != events[2], "{events:?}");
        assert_ne!(event("ann", Value::Null, "1"), event("ann", Value::Null, "2"));
    }

    #[test]
    fn an_invalid_body_is_rejected_with_a_reason() {
        let ann = json!({"id": "ann"});
        for (body, expected) in [
            (json!({"id": "", "sender": ann, "text": "x"}), "ids must have"),
            (json!({"id": "a\nb", "sender": ann, "text": "x"}), "ids must have"),
            (json!({"id": "1", "sender": {"id": "x".repeat(257)}, "text": "x"}), "ids must have"),
            (json!({"id": "1", "sender": ann, "text": "x", "chat": {"id": "bob"}}), "a direct chat"),
            (json!({"id": "1", "sender": ann, "text": " "}), "neither text"),
            (json!({"id": "1", "sender": ann, "media": [{}]}), "either a url or data"),
            (json!({"id": "1", "sender": ann, "media": [{"url": "file:///etc/passwd"}]}), "a media url"),
            (json!({"id": "1", "sender": ann, "media": [{"data": "?"}]}), "base64"),
            (json!({"id": "1", "sender": ann, "text": "x", "chat": {"id": "c", "kind": "moon"}}), "unknown variant"),
            (json!({"id": "1", "text": "x"}), "missing field `sender`"),
            (json!([]), "invalid"),
        ] {
            let result = deliver(&body).map_err(|rejected| (rejected.status(), rejected.message()));
            assert!(matches!(&result, Err((400, message)) if message.contains(expected)), "{result:?}");
        }
    }

    #[test]
    fn unsigned_and_replayed_deliveries_are_rejected() {
        let body = json!({"id": "1", "sender": {"id": "ann"}, "text": "x"}).to_string();
        let at = |seconds: u64, body: &str| {
            let signature = signature::sign(&secret(), seconds, body.as_bytes());
            let seconds = seconds.to_string();
            let headers = Headers { timestamp: Some(&seconds), signature: Some(&signature) };
            hook().parse_request(headers, body.as_bytes()).map(|batch| batch.events.len())
        };
        assert_eq!(at(NOW / 1000, &body), Ok(1));
        assert_eq!(at(NOW / 1000 - 301, &body), Err(InboundRejection::Expired));
        assert_eq!(at(NOW / 1000, &" ".repeat(MAX_REQUEST_BYTES + 1)), Err(InboundRejection::TooLarge));
        assert_eq!(hook().parse_request(Headers::default(), body.as_bytes()), Err(InboundRejection::WrongSignature));
    }
}
