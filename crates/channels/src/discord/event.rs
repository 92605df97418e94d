//! Converts events of the gateway to inbound events. Parsed from raw JSON, so that unknown fields do no harm.

use serde_json::Value;

use super::{
    directory::ChatPlace,
    interaction::{self, InteractionKind},
};
use crate::incoming::{Attachment, AttachmentSource, Incoming, MessageSender, QuotedMessage, Reaction};

/// Milliseconds from the epoch to that of Discord's ids.
const ID_EPOCH_MS: u64 = 1_420_070_400_000;

/// Types of messages that people write: new ones, and replies.
const WRITTEN_TYPES: [u64; 2] = [0, 19];

/// Flag of a voice message.
const VOICE_FLAG: u64 = 1 << 13;

/// What a conversion needs to know beside the event.
#[derive(Debug, Clone, Copy)]
pub(super) struct EventContext<'a> {
    /// The bot's own id.
    pub(super) me: &'a str,
    /// The bot's own role on the server.
    pub(super) own_role: Option<&'a str>,
    /// Name of the account.
    pub(super) account: &'a str,
    /// The chat.
    pub(super) place: &'a ChatPlace,
}

/// Returns the time at which an id was created, in milliseconds since the epoch.
pub(super) fn created_at(id: &str) -> u64 {
    id.parse::<u64>().map_or(0, |id| (id >> 22) + ID_EPOCH_MS)
}

/// Converts a message; `None` for messages of the bot itself and for notices of Discord.
pub(super) fn message(message: &Value, context: EventContext<'_>) -> Option<Incoming> {
    let id = message["id"].as_str()?;
    let kind = message["type"].as_u64().unwrap_or(0);
    let sender = sender(message)?;
    if sender.id == context.me || !WRITTEN_TYPES.contains(&kind) {
        return None;
    }
    let media = attachments(message);
    let text = text(message, context.me);
    if text.is_empty() && media.is_empty() {
        return None;
    }
    let reply_to = quoted(message, context.me);
    let (mentions_us, mentions_others) = mentions(message, context);
    let is_reply_to_us = reply_to.as_ref().is_some_and(|quoted| quoted.is_ours);
    Some(Incoming {
        event: id.to_owned(),
        message: id.to_owned(),
        account: context.account.to_owned(),
        is_command: text.starts_with('/'),
        sender_roles: texts(&message["member"]["roles"]),
        was_mentioned: mentions_us || is_reply_to_us,
        mentions_others,
        timestamp_ms: created_at(id),
        ..placed(context.place, sender, text, reply_to, media)
    })
}

/// Converts an edited message; `None` if it was not edited by a person: previews are added this way, too.
pub(super) fn edited(update: &Value, context: EventContext<'_>) -> Option<Incoming> {
    let edited_at = update["edited_timestamp"].as_str()?;
    let incoming = message(update, context)?;
    Some(Incoming { event: format!("{}:{edited_at}", incoming.event), ..incoming })
}

/// Converts a reaction that was added or removed. `sequence` is the number of the event.
pub(super) fn reaction(event: &Value, context: EventContext<'_>, is_added: bool, sequence: u64) -> Option<Reaction> {
    let user = event["user_id"].as_str().filter(|user| *user != context.me)?;
    let message = event["message_id"].as_str()?.to_owned();
    let emoji = &event["emoji"];
    let name = emoji["name"].as_str()?;
    let shown = if emoji["id"].is_string() { format!(":{name}:") } else { name.to_owned() };
    let member = &event["member"];
    let sender = match sender_of(&member["user"], member) {
        Some(sender) => sender,
        None => MessageSender { id: user.to_owned(), ..MessageSender::default() },
    };
    let (added, removed) = if is_added { (vec![shown], Vec::new()) } else { (Vec::new(), vec![shown]) };
    Some(Reaction {
        event: format!("{message}:{user}:{name}:{sequence}"),
        account: context.account.to_owned(),
        peer: context.place.peer.clone(),
        sender,
        message,
        added,
        removed,
        server: context.place.server.clone(),
        sender_roles: texts(&member["roles"]),
        // The event has no time.
        timestamp_ms: 0,
    })
}

/// Converts a slash command or a pressed button; `None` for other interactions.
pub(super) fn interaction(event: &Value, context: EventContext<'_>) -> Option<Incoming> {
    let id = event["id"].as_str()?;
    let kind = interaction::kind(event)?;
    let (member, user) = (&event["member"], &event["user"]);
    let sender = sender_of(&member["user"], member).or_else(|| sender_of(user, &Value::Null))?;
    let (text, message) = match kind {
        InteractionKind::Command(text) => (text, id),
        InteractionKind::Approval(text) => (text, event["message"]["id"].as_str().unwrap_or(id)),
    };
    Some(Incoming {
        event: id.to_owned(),
        message: message.to_owned(),
        account: context.account.to_owned(),
        is_command: true,
        sender_roles: texts(&member["roles"]),
        was_mentioned: true,
        timestamp_ms: created_at(id),
        ..placed(context.place, sender, text, None, Vec::new())
    })
}

fn placed(
    place: &ChatPlace,
    sender: MessageSender,
    text: String,
    reply_to: Option<QuotedMessage>,
    media: Vec<Attachment>,
) -> Incoming {
    let ChatPlace { peer, thread, server } = place.clone();
    Incoming { peer, thread, server, sender, text, reply_to, media, ..Incoming::default() }
}

/// Returns the author. A webhook can take any name, and is not a person.
fn sender(message: &Value) -> Option<MessageSender> {
    let sender = sender_of(&message["author"], &message["member"])?;
    Some(MessageSender { is_bot: sender.is_bot || message["webhook_id"].is_string(), ..sender })
}

fn sender_of(user: &Value, member: &Value) -> Option<MessageSender> {
    let names = [&member["nick"], &user["global_name"], &user["username"]];
    Some(MessageSender {
        id: user["id"].as_str()?.to_owned(),
        name: names.into_iter().find_map(Value::as_str).unwrap_or_default().to_owned(),
        username: user["username"].as_str().map(str::to_owned),
        is_bot: user["bot"] == true,
        is_chat: false,
    })
}

/// Returns the text: without our own mention at its beginning, and with the names of other users.
fn text(message: &Value, me: &str) -> String {
    let mut text = message["content"].as_str().unwrap_or_default().to_owned();
    let own = [format!("<@{me}>"), format!("<@!{me}>")];
    let trimmed = text.trim_start();
    if let Some(rest) = own.iter().find_map(|mention| trimmed.strip_prefix(mention.as_str())) {
        text = rest.trim_start_matches([' ', ',', ':']).to_owned();
    }
    for user in message["mentions"].as_array().into_iter().flatten() {
        let (Some(id), Some(name)) = (user["id"].as_str(), user["username"].as_str()) else { continue };
        let name = format!("@{}", if id == me { user["global_name"].as_str().unwrap_or(name) } else { name });
        text = text.replace(&format!("<@{id}>"), &name).replace(&format!("<@!{id}>"), &name);
    }
    let stickers = message["sticker_items"].as_array().into_iter().flatten();
    let stickers: Vec<_> = stickers.filter_map(|sticker| sticker["name"].as_str()).collect();
    if text.trim().is_empty() && !stickers.is_empty() {
        text = format!("Sticker: {}", stickers.join(", "));
    }
    text.trim().to_owned()
}

/// Returns whether the bot is mentioned, and whether someone else is.
fn mentions(message: &Value, context: EventContext<'_>) -> (bool, bool) {
    let users = message["mentions"].as_array().into_iter().flatten();
    let users: Vec<&str> = users.filter_map(|user| user["id"].as_str()).collect();
    let roles = texts(&message["mention_roles"]);
    let is_own_role = |role: &String| Some(role.as_str()) == context.own_role;
    let us = users.contains(&context.me) || roles.iter().any(is_own_role);
    let replied = message["referenced_message"]["author"]["id"].as_str();
    // A reply mentions the author whom it answers, without any mention in the text.
    let others = users.iter().any(|user| *user != context.me && Some(*user) != replied);
    (us, others || roles.iter().any(|role| !is_own_role(role)))
}

/// Returns the message that this one replies to.
fn quoted(message: &Value, me: &str) -> Option<QuotedMessage> {
    let answered = message.get("referenced_message").filter(|answered| answered.is_object())?;
    Some(QuotedMessage {
        message: answered["id"].as_str()?.to_owned(),
        sender: sender(answered).map(|sender| sender.name),
        text: text(answered, me),
        is_ours: answered["author"]["id"] == me,
    })
}

/// Returns the attachments. Their URLs expire, so the id names the message, too, from which a new URL can be read.
fn attachments(message: &Value) -> Vec<Attachment> {
    let is_voice = message["flags"].as_u64().unwrap_or(0) & VOICE_FLAG != 0;
    let read = |attachment: &Value| {
        let place = [&message["channel_id"], &message["id"], &attachment["id"]].map(Value::as_str);
        let [Some(channel), Some(message), Some(id)] = place else { return None };
        Some(Attachment {
            source: AttachmentSource::Platform(format!("{channel}/{message}/{id}")),
            name: attachment["filename"].as_str().map(str::to_owned),
            mime: attachment["content_type"].as_str().and_then(|mime| mime.split(';').next()).map(str::to_owned),
            size: attachment["size"].as_u64(),
            is_voice,
        })
    };
    message["attachments"].as_array().into_iter().flatten().filter_map(read).collect()
}

fn texts(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests;
