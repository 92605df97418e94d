//! Sends messages on Discord, split as necessary, and performs actions.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use tokio::time::sleep;

use super::{
    Discord,
    api::ApiCallError,
    interaction,
    split::{self, MessageLimits},
    target::DiscordTarget,
};
use crate::{
    ChannelAction, ChannelError, Media, Outgoing, Poll, Receipt,
    http::RepeatEffect,
    multipart::{FormFile, MultipartForm},
};

/// Maximum number of files in a message.
const MAX_FILES: usize = 10;

/// Maximum delay accepted in the middle of a split message, so that it is not left incomplete.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(30);

/// Maximum number of such delays.
const MAX_RETRIES: usize = 3;

/// Maximum number of answers of a poll, and the lengths of its texts.
const MAX_ANSWERS: usize = 10;
const MAX_QUESTION: usize = 300;
const MAX_ANSWER: usize = 55;

/// Duration of a poll in hours.
const POLL_HOURS: u64 = 24;

/// Flags of a message.
const SUPPRESS_PREVIEWS: u64 = 1 << 2;
const SILENT: u64 = 1 << 12;

/// One of the Discord messages that an outgoing message is split into.
#[derive(Debug, Default)]
struct OutgoingPart {
    text: String,
    files: Vec<FormFile>,
    poll: Option<Poll>,
    /// True if buttons for an approval are added.
    has_buttons: bool,
}

/// What all parts of an outgoing message have in common.
struct SendContext<'a> {
    discord: &'a Discord,
    channel: String,
    /// Key from which the nonces of the parts are derived.
    id: String,
    flags: u64,
}

impl Discord {
    fn preview_flag(&self, hides_previews: bool) -> u64 {
        if hides_previews || !self.settings.has_previews { SUPPRESS_PREVIEWS } else { 0 }
    }
}

/// Sends a message; the receipt lists the ids of its parts.
pub(super) async fn send(discord: &Discord, outgoing: Outgoing) -> Result<Receipt, ChannelError> {
    let reply_to = outgoing.reply_to.as_deref().map(message_id).transpose()?.map(str::to_owned);
    let channel = DiscordTarget::channel(discord, &outgoing.destination).await?;
    let silent = if outgoing.is_silent { SILENT } else { 0 };
    let flags = discord.preview_flag(outgoing.hides_previews) | silent;
    let context = SendContext { discord, channel, id: outgoing.id.clone(), flags };
    let limits = MessageLimits { units: discord.settings.text_limit, lines: discord.settings.max_lines };
    let parts = split(outgoing, limits);
    if parts.is_empty() {
        return Err(ChannelError::Refused("Discord: the message is empty".to_owned()));
    }
    let total = parts.len();
    let mut messages: Vec<String> = Vec::new();
    for (at, part) in parts.iter().enumerate() {
        let body = context.body(part, at, reply_to.as_deref().filter(|_| at == 0));
        match context.send_with_retries(part, &body, at > 0).await {
            Ok(message) => messages.push(message),
            Err(failure) if messages.is_empty() => return Err(failure),
            // A retry would duplicate a part, and without it the message stays incomplete.
            Err(failure) => {
                let sent_count = messages.len();
                return Err(ChannelError::Unknown(format!(
                    "sent {sent_count} of {total} messages, then failed: {failure}"
                )));
            }
        }
    }
    let details = json!({ "chatId": context.channel, "messageIds": messages });
    Ok(Receipt { message: messages.pop(), details })
}

/// Splits a message. Files are sent with the first text; media at a URL, which Discord shows itself, are added to the
/// text.
fn split(outgoing: Outgoing, limits: MessageLimits) -> Vec<OutgoingPart> {
    let Outgoing { mut text, media, poll, .. } = outgoing;
    let mut files = Vec::new();
    for media in media {
        match media {
            Media::Url(url) => {
                if !text.is_empty() {
                    text.push('\n');
                }
                text.push_str(&url);
            }
            Media::Bytes { name, mime, bytes } => {
                let mime = mime.unwrap_or_else(|| "application/octet-stream".to_owned());
                files.push(FormFile { field: format!("files[{}]", files.len() % MAX_FILES), name, mime, bytes });
            }
        }
    }
    // A text that fits into one message is not split at a smaller configured limit.
    let unsplit = split::messages(&text, MessageLimits { units: split::MAX_MESSAGE, ..limits });
    let texts = if unsplit.len() <= 1 { unsplit } else { split::messages(&text, limits) };
    let part = |text| OutgoingPart { text, ..OutgoingPart::default() };
    let mut parts: Vec<OutgoingPart> = texts.into_iter().map(part).collect();
    if let Some(last) = parts.last_mut() {
        last.has_buttons = true;
    }
    let mut files = files.into_iter().peekable();
    let mut at = 0;
    while files.peek().is_some() {
        let group: Vec<FormFile> = files.by_ref().take(MAX_FILES).collect();
        match parts.get_mut(at).filter(|_| at == 0) {
            Some(first) => first.files = group,
            None => parts.push(OutgoingPart { files: group, ..OutgoingPart::default() }),
        }
        at += 1;
    }
    parts.extend(poll.map(|poll| OutgoingPart { poll: Some(poll), ..OutgoingPart::default() }));
    parts
}

impl SendContext<'_> {
    /// Returns the parameters of a part.
    fn body(&self, part: &OutgoingPart, at: usize, reply_to: Option<&str>) -> Map<String, Value> {
        let mut body = Map::new();
        let mut set = |name: &str, value: Value| drop(body.insert(name.to_owned(), value));
        // Discord returns the first message if the same nonce arrives again within a few minutes.
        set("nonce", json!(nonce(&self.id, at)));
        set("enforce_nonce", json!(true));
        // The model must not notify everyone, nor everyone with a role.
        set("allowed_mentions", json!({"parse": ["users"], "replied_user": true}));
        if self.flags != 0 {
            set("flags", json!(self.flags));
        }
        if !part.text.is_empty() {
            set("content", json!(part.text));
        }
        if let Some(message) = reply_to {
            // A reply to a deleted message is still sent.
            set("message_reference", json!({"message_id": message, "fail_if_not_exists": false}));
        }
        if let Some(buttons) = interaction::buttons(&part.text).filter(|_| part.has_buttons) {
            set("components", buttons);
        }
        if let Some(poll) = &part.poll {
            set("poll", poll_params(poll));
        }
        body
    }

    /// Sends one part; after the first one, waits if Discord asks to.
    async fn send_with_retries(
        &self,
        part: &OutgoingPart,
        body: &Map<String, Value>,
        is_continuation: bool,
    ) -> Result<String, ChannelError> {
        let mut pauses = 0;
        loop {
            match self.send_part(part, body).await {
                Err(ApiCallError::RateLimited(wait))
                    if is_continuation && wait <= MAX_RETRY_DELAY && pauses < MAX_RETRIES =>
                {
                    pauses += 1;
                    sleep(wait).await;
                }
                Ok(message) => {
                    let id = message["id"].as_str().map(str::to_owned);
                    let unknown = || ApiCallError::InvalidResponse(200);
                    return id.ok_or_else(|| unknown().into_failure("send a message", RepeatEffect::Visible));
                }
                Err(error) => return Err(error.into_failure("send a message", RepeatEffect::Visible)),
            }
        }
    }

    async fn send_part(&self, part: &OutgoingPart, body: &Map<String, Value>) -> Result<Value, ApiCallError> {
        let path = ["channels", self.channel.as_str(), "messages"];
        if part.files.is_empty() {
            return self.discord.api.send(Method::POST, &path, &Value::Object(body.clone())).await;
        }
        let attachments: Vec<Value> =
            part.files.iter().enumerate().map(|(at, file)| json!({"id": at, "filename": file.name})).collect();
        let mut body = body.clone();
        body.insert("attachments".to_owned(), json!(attachments));
        let mut params = Map::new();
        params.insert("payload_json".to_owned(), json!(Value::Object(body).to_string()));
        let files = part.files.iter().map(|file| FormFile {
            field: file.field.clone(),
            name: file.name.clone(),
            mime: file.mime.clone(),
            bytes: file.bytes.clone(),
        });
        let form = MultipartForm { params, files: files.collect() };
        self.discord.api.upload(&path, &form).await
    }
}

/// Returns the nonce of a part: at most 25 characters, the same for every attempt.
fn nonce(id: &str, part: usize) -> String {
    let hash = Sha256::digest(format!("{id}\n{part}").as_bytes());
    hex::encode(&hash[..12])
}

fn poll_params(poll: &Poll) -> Value {
    let cut = |text: &str, max: usize| text.chars().take(max).collect::<String>();
    let answers = poll.options.iter().take(MAX_ANSWERS);
    let answers: Vec<Value> = answers.map(|option| json!({"poll_media": {"text": cut(option, MAX_ANSWER)}})).collect();
    json!({
        "question": {"text": cut(&poll.question, MAX_QUESTION)},
        "answers": answers,
        "duration": POLL_HOURS,
        "allow_multiselect": poll.is_multiple,
    })
}

/// Performs an idempotent action.
pub(super) async fn act(discord: &Discord, action: ChannelAction) -> Result<Receipt, ChannelError> {
    let api = &discord.api;
    let (operation, result, message) = match action {
        ChannelAction::Type(destination) => {
            let channel = DiscordTarget::channel(discord, &destination).await?;
            let result = api.send(Method::POST, &["channels", &channel, "typing"], &Value::Null).await;
            ("show typing", result.map(drop), None)
        }
        ChannelAction::React { destination, message, emoji } => {
            let channel = DiscordTarget::channel(discord, &destination).await?;
            let place = [channel.as_str(), message_id(&message)?];
            ("react", set_reaction(discord, place, emoji.as_deref()).await, Some(message))
        }
        ChannelAction::Edit { destination, message, text, hides_previews } => {
            let channel = DiscordTarget::channel(discord, &destination).await?;
            let limits = MessageLimits { units: split::MAX_MESSAGE, lines: usize::MAX };
            let [content] = <[String; 1]>::try_from(split::messages(&text, limits)).map_err(|parts| {
                let reason =
                    if parts.is_empty() { "the message is empty" } else { "the text does not fit into one message" };
                ChannelError::Refused(format!("Discord, edit a message: {reason}"))
            })?;
            let mut body = json!({
                "content": content,
                "allowed_mentions": {"parse": ["users"]},
                "components": interaction::buttons(&content).unwrap_or_else(|| json!([])),
            });
            let flags = discord.preview_flag(hides_previews);
            if flags != 0 {
                body["flags"] = json!(flags);
            }
            let path = ["channels", channel.as_str(), "messages", message_id(&message)?];
            ("edit a message", api.send(Method::PATCH, &path, &body).await.map(drop), Some(message))
        }
        ChannelAction::Delete { destination, message } => {
            let channel = DiscordTarget::channel(discord, &destination).await?;
            let path = ["channels", channel.as_str(), "messages", message_id(&message)?];
            let result = match api.send(Method::DELETE, &path, &Value::Null).await {
                // It is deleted already, as requested.
                Err(error) if error.is_not_found() => Ok(()),
                result => result.map(drop),
            };
            ("delete a message", result, None)
        }
    };
    match result {
        Ok(()) => Ok(Receipt { message, details: Value::Null }),
        Err(error) => Err(error.into_failure(operation, RepeatEffect::None)),
    }
}

/// Sets our reaction on a message, and removes our others.
async fn set_reaction(discord: &Discord, place: [&str; 2], emoji: Option<&str>) -> Result<(), ApiCallError> {
    let [channel, message] = place;
    let api = &discord.api;
    if let Some(emoji) = emoji {
        api.send(Method::PUT, &reaction_path(place, emoji), &Value::Null).await?;
    }
    let found = api.get(&["channels", channel, "messages", message], &[]).await?;
    for reaction in found["reactions"].as_array().into_iter().flatten().filter(|reaction| reaction["me"] == true) {
        let name = reaction["emoji"]["name"].as_str().unwrap_or_default();
        let own = match reaction["emoji"]["id"].as_str() {
            Some(id) => format!("{name}:{id}"),
            None => name.to_owned(),
        };
        let is_same = |emoji: &str| plain(emoji) == plain(&own);
        if !own.is_empty() && !emoji.is_some_and(is_same) {
            api.send(Method::DELETE, &reaction_path(place, &own), &Value::Null).await?;
        }
    }
    Ok(())
}

fn reaction_path<'a>([channel, message]: [&'a str; 2], emoji: &'a str) -> [&'a str; 7] {
    ["channels", channel, "messages", message, "reactions", emoji, "@me"]
}

/// Returns an emoji without the selector of its coloured form, which Discord may add or omit.
fn plain(emoji: &str) -> String {
    emoji.chars().filter(|c| *c != '\u{fe0f}').collect()
}

fn message_id(message: &str) -> Result<&str, ChannelError> {
    let id = message.trim();
    if !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok(id);
    }
    let excerpt: String = message.chars().filter(|c| !c.is_control()).take(40).collect();
    Err(ChannelError::Refused(format!("Discord: {excerpt} is not a message id")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(text: &str, media: Vec<Media>, limit: usize) -> Vec<(String, usize)> {
        let outgoing = Outgoing { text: text.to_owned(), media, ..Outgoing::default() };
        let limits = MessageLimits { units: limit, lines: 17 };
        split(outgoing, limits).into_iter().map(|part| (part.text, part.files.len())).collect()
    }

    #[test]
    fn files_go_with_the_first_text_and_urls_into_it() {
        let file = || Media::Bytes { name: "a.png".to_owned(), mime: None, bytes: vec![1] };
        let one = |text: &str, files| (text.to_owned(), files);
        assert_eq!(shape("hi", vec![], 2000), [one("hi", 0)]);
        assert_eq!(shape("hi", vec![file(), Media::Url("https://x.y".to_owned())], 2000), [one("hi\nhttps://x.y", 1)]);
        assert_eq!(shape("", vec![file()], 2000), [one("", 1)]);
        assert_eq!(shape("hi", (0..11).map(|_| file()).collect(), 2000), [one("hi", 10), one("", 1)]);
        assert_eq!(shape(" ", vec![], 2000), []);
        let lengths =
            |text: String, limit| shape(&text, vec![], limit).iter().map(|(text, _)| text.len()).collect::<Vec<_>>();
        assert_eq!(lengths("x".repeat(2000), 100), [2000]);
        assert_eq!(lengths("x".repeat(2001), 1500), [1500, 501]);
    }

    #[test]
    fn a_nonce_is_short_and_the_same_for_every_attempt() {
        let long = "x".repeat(100);
        assert!(nonce(&long, 0).len() <= 25);
        assert_eq!(nonce("a", 0), nonce("a", 0));
        assert!(nonce("a", 0) != nonce("a", 1) && nonce("a", 0) != nonce("b", 0));
    }
}
