//! Converts Telegram updates to events. Parsed from raw JSON, so that unknown fields do no harm.

use serde_json::Value;

use super::BotIdentity;
use crate::incoming::{
    Attachment, AttachmentSource, ChannelEvent, Incoming, Membership, MessageSender, Peer, PeerKind, QuotedMessage,
    Reaction,
};

/// Kinds of updates that are requested.
pub(crate) const UPDATE_KINDS: [&str; 5] =
    ["message", "edited_message", "channel_post", "message_reaction", "my_chat_member"];

/// Returns the id of an update, which is also the position in the sequence.
pub(crate) fn update_id(update: &Value) -> Option<i64> {
    update["update_id"].as_i64()
}

/// Converts an update; `None` if it is not relevant: an unknown kind, or a command for another bot.
pub(crate) fn read(update: &Value, me: &BotIdentity, account: &str) -> Option<ChannelEvent> {
    let event = update_id(update)?.to_string();
    let message = |kind: &str| {
        let message = UpdateMessage { value: update.get(kind)?, me };
        let incoming = message.read(&event, account)?;
        Some(Box::new(incoming))
    };
    if let Some(incoming) = message("message").or_else(|| message("channel_post")) {
        return Some(ChannelEvent::Message(incoming));
    }
    if let Some(incoming) = message("edited_message") {
        return Some(ChannelEvent::Edited(incoming));
    }
    if let Some(reaction) = update.get("message_reaction") {
        return reacted(reaction, event, account).map(ChannelEvent::Reacted);
    }
    membership(update.get("my_chat_member")?, event, account).map(ChannelEvent::Membership)
}

struct UpdateMessage<'a> {
    value: &'a Value,
    me: &'a BotIdentity,
}

impl UpdateMessage<'_> {
    fn read(&self, event: &str, account: &str) -> Option<Incoming> {
        let message = self.value;
        let peer = peer(&message["chat"])?;
        let text = self.text();
        let media = attachments(message);
        if text.is_empty() && media.is_empty() {
            return None;
        }
        let entities = self.entities();
        let (text, is_command) = self.command(text, &entities)?;
        let reply_to = self.quoted();
        let answers_us = reply_to.as_ref().is_some_and(|quoted| quoted.is_ours);
        let (us, others) = self.mentions(&entities);
        Some(Incoming {
            event: event.to_owned(),
            message: message["message_id"].as_i64()?.to_string(),
            account: account.to_owned(),
            sender: sender(message)?,
            text,
            reply_to,
            thread: thread(message),
            was_mentioned: us || answers_us,
            mentions_others: others,
            media,
            album: message["media_group_id"].as_str().map(str::to_owned),
            timestamp_ms: millis(&message["date"]),
            is_command,
            peer,
            ..Incoming::default()
        })
    }

    /// Returns the text, or a description of a location or contact.
    fn text(&self) -> String {
        let written = [&self.value["text"], &self.value["caption"]].into_iter().find_map(Value::as_str);
        let (location, contact) = (&self.value["location"], &self.value["contact"]);
        match (written, location["latitude"].as_f64(), contact["phone_number"].as_str()) {
            (Some(text), ..) => text.to_owned(),
            (None, Some(latitude), _) => {
                let longitude = location["longitude"].as_f64().unwrap_or_default();
                let venue = self.value["venue"]["title"].as_str().map(|title| format!(" ({title})"));
                format!("Location: {latitude}, {longitude}{}", venue.unwrap_or_default())
            }
            (None, None, Some(phone)) => format!("Contact: {} {phone}", name(contact)),
            (None, None, None) => String::new(),
        }
    }

    /// Returns the entities of the text: kind, text, and mentioned user.
    fn entities(&self) -> Vec<TextEntity> {
        let (text, entities) = match self.value["text"].as_str() {
            Some(text) => (text, &self.value["entities"]),
            None => (self.value["caption"].as_str().unwrap_or_default(), &self.value["caption_entities"]),
        };
        let units: Vec<u16> = text.encode_utf16().collect();
        let read = |entity: &Value| {
            let start = usize::try_from(entity["offset"].as_u64()?).ok()?;
            let length = usize::try_from(entity["length"].as_u64()?).ok()?;
            let slice = units.get(start..start.checked_add(length)?)?;
            Some(TextEntity {
                kind: entity["type"].as_str()?.to_owned(),
                is_first: start == 0,
                text: String::from_utf16_lossy(slice),
                user: entity["user"]["id"].as_i64(),
            })
        };
        entities.as_array().into_iter().flatten().filter_map(read).collect()
    }

    /// Returns the text with `/word@us` replaced by `/word`, and whether it is a command; `None` if another bot is
    /// addressed.
    fn command(&self, text: String, entities: &[TextEntity]) -> Option<(String, bool)> {
        let Some(command) = entities.iter().find(|entity| entity.is_first && entity.kind == "bot_command") else {
            let is_command = text.starts_with('/');
            return Some((text, is_command));
        };
        match command.text.split_once('@') {
            Some((name, bot)) if self.is_me(bot) => {
                let rest = text.get(command.text.len()..).unwrap_or_default();
                Some((format!("{name}{rest}"), true))
            }
            Some(_) => None,
            None => Some((text, true)),
        }
    }

    /// Returns whether the bot is mentioned, and whether someone else is.
    fn mentions(&self, entities: &[TextEntity]) -> (bool, bool) {
        let (mut mentions_us, mut mentions_others) = (false, false);
        for entity in entities {
            let is_us = match (entity.kind.as_str(), entity.text.split_once('@')) {
                ("mention", Some((_, name))) => self.is_me(name),
                ("text_mention", _) => entity.user == Some(self.me.id),
                ("bot_command", Some((_, name))) => self.is_me(name),
                _ => continue,
            };
            mentions_us |= is_us;
            mentions_others |= !is_us;
        }
        (mentions_us, mentions_others)
    }

    fn is_me(&self, name: &str) -> bool {
        self.me.username.as_deref().is_some_and(|username| username.eq_ignore_ascii_case(name))
    }

    /// Returns the message that this one replies to. In topics Telegram reports every message as a reply to the first
    /// one; that is ignored.
    fn quoted(&self) -> Option<QuotedMessage> {
        let answered =
            self.value.get("reply_to_message").filter(|answered| answered.get("forum_topic_created").is_none())?;
        let part = self.value["quote"]["text"].as_str();
        let text = part.or_else(|| answered["text"].as_str()).or_else(|| answered["caption"].as_str());
        Some(QuotedMessage {
            message: answered["message_id"].as_i64()?.to_string(),
            sender: sender(answered).map(|sender| sender.name),
            text: text.unwrap_or_default().to_owned(),
            is_ours: answered["from"]["id"].as_i64() == Some(self.me.id),
        })
    }
}

struct TextEntity {
    kind: String,
    is_first: bool,
    text: String,
    user: Option<i64>,
}

/// Returns the topic. In groups without topics Telegram assigns invisible thread ids to replies; those are ignored.
fn thread(message: &Value) -> Option<String> {
    let is_topic = message["is_topic_message"] == true;
    let id = message["message_thread_id"].as_i64().filter(|_| is_topic);
    // The general topic has no id in messages, and id 1 everywhere else.
    let general = (id.is_none() && message["chat"]["is_forum"] == true).then_some(super::GENERAL_TOPIC);
    id.or(general).map(|id| id.to_string())
}

fn peer(chat: &Value) -> Option<Peer> {
    let kind = match chat["type"].as_str()? {
        "private" => PeerKind::Direct,
        "group" | "supergroup" => PeerKind::Group,
        "channel" => PeerKind::Channel,
        _ => return None,
    };
    Some(Peer { kind, id: chat["id"].as_i64()?.to_string(), title: chat["title"].as_str().map(str::to_owned) })
}

/// Returns the sender; `None` if it is missing or inconsistent. A sender that posts as a group or channel is that group
/// or channel, not the bot that Telegram substitutes. Ids of people are positive, those of groups and channels
/// negative; others are rejected, so that no chat can have the id of a person.
fn sender(message: &Value) -> Option<MessageSender> {
    let as_chat = message.get("sender_chat").or_else(|| message.get("actor_chat"));
    let person = message.get("from").or_else(|| message.get("user"));
    let channel = message.get("chat").filter(|chat| chat["type"] == "channel");
    let (from, is_chat) = match (as_chat, person) {
        (Some(chat), _) => (chat, true),
        (None, Some(person)) => (person, false),
        (None, None) => (channel?, true),
    };
    let id = from["id"].as_i64().filter(|id| if is_chat { *id < 0 } else { *id > 0 })?;
    Some(MessageSender {
        id: id.to_string(),
        name: name(from),
        username: from["username"].as_str().map(str::to_owned),
        is_bot: from["is_bot"] == true,
        is_chat,
    })
}

fn name(from: &Value) -> String {
    let parts = [&from["first_name"], &from["last_name"], &from["title"]];
    let parts: Vec<&str> = parts.into_iter().filter_map(Value::as_str).filter(|part| !part.is_empty()).collect();
    parts.join(" ")
}

fn millis(date: &Value) -> u64 {
    date.as_u64().unwrap_or_default().saturating_mul(1000)
}

/// Returns the attachments of a message. Of a photo, the largest size.
fn attachments(message: &Value) -> Vec<Attachment> {
    let sizes = message["photo"].as_array().map(Vec::as_slice).unwrap_or_default();
    let area = |size: &&Value| size["width"].as_u64().unwrap_or(0).saturating_mul(size["height"].as_u64().unwrap_or(0));
    if let Some(photo) = sizes.iter().max_by_key(area) {
        return attachment(photo, Some("image/jpeg")).into_iter().collect();
    }
    // An animation is also included as a document, for clients without support for animations.
    let kinds = [
        ("animation", Some("video/mp4")),
        ("document", None),
        ("voice", Some("audio/ogg")),
        ("audio", Some("audio/mpeg")),
        ("video", Some("video/mp4")),
        ("video_note", Some("video/mp4")),
    ];
    let found = kinds.into_iter().find_map(|(kind, mime)| {
        let attachment = attachment(message.get(kind)?, mime)?;
        Some(Attachment { is_voice: kind == "voice", ..attachment })
    });
    let sticker =
        message.get("sticker").filter(|sticker| sticker["is_animated"] != true && sticker["is_video"] != true);
    found.or_else(|| attachment(sticker?, Some("image/webp"))).into_iter().collect()
}

fn attachment(file: &Value, mime: Option<&str>) -> Option<Attachment> {
    Some(Attachment {
        source: AttachmentSource::Platform(file["file_id"].as_str()?.to_owned()),
        name: file["file_name"].as_str().map(str::to_owned),
        mime: file["mime_type"].as_str().or(mime).map(str::to_owned),
        size: file["file_size"].as_u64(),
        is_voice: false,
    })
}

fn reacted(reaction: &Value, event: String, account: &str) -> Option<Reaction> {
    let emojis = |list: &Value| -> Vec<String> {
        let list = list.as_array().map(Vec::as_slice).unwrap_or_default();
        list.iter().filter_map(|reaction| reaction["emoji"].as_str()).map(str::to_owned).collect()
    };
    let (before, now) = (emojis(&reaction["old_reaction"]), emojis(&reaction["new_reaction"]));
    let without = |list: &[String], other: &[String]| -> Vec<String> {
        list.iter().filter(|emoji| !other.contains(emoji)).cloned().collect()
    };
    Some(Reaction {
        event,
        account: account.to_owned(),
        peer: peer(&reaction["chat"])?,
        sender: sender(reaction)?,
        message: reaction["message_id"].as_i64()?.to_string(),
        added: without(&now, &before),
        removed: without(&before, &now),
        server: None,
        sender_roles: Vec::new(),
        timestamp_ms: millis(&reaction["date"]),
    })
}

fn membership(change: &Value, event: String, account: &str) -> Option<Membership> {
    let now = &change["new_chat_member"];
    let is_member = match now["status"].as_str()? {
        "creator" | "administrator" | "member" => true,
        "restricted" => now["is_member"] == true,
        _ => false,
    };
    Some(Membership {
        event,
        account: account.to_owned(),
        peer: peer(&change["chat"])?,
        sender: sender(change)?,
        is_member,
        timestamp_ms: millis(&change["date"]),
    })
}

#[cfg(test)]
mod tests;
