//! Sends messages on Telegram, split as necessary.

use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::time::sleep;

use super::{
    Telegram,
    api::ApiCallError,
    markup::{self, MessagePart},
    target::{TelegramTarget, params},
};
use crate::{
    ChannelAction, ChannelError, Media, Outgoing, Poll, Receipt,
    http::RepeatEffect,
    multipart::{FormFile, MultipartForm},
};

/// Maximum size of an image sent as a photo.
const MAX_PHOTO_BYTES: usize = 10 << 20;

/// Maximum delay accepted in the middle of a split message, so that it is not left incomplete.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(30);

/// Maximum number of such delays.
const MAX_RETRIES: usize = 3;

/// One of the Telegram messages that an outgoing message is split into.
#[derive(Debug)]
enum OutgoingPart {
    Text(MessagePart),
    Media(Media, Option<MessagePart>),
    Poll(Poll),
}

/// What all parts of an outgoing message have in common.
struct SendContext<'a> {
    telegram: &'a Telegram,
    target: TelegramTarget,
    is_silent: bool,
    is_voice: bool,
    hides_previews: bool,
}

impl Telegram {
    /// Parameter that disables link previews, if required.
    fn previews(&self, hides_previews: bool) -> Map<String, Value> {
        let is_disabled = hides_previews || !self.settings.has_previews;
        params([("link_preview_options", if is_disabled { json!({ "is_disabled": true }) } else { Value::Null })])
    }
}

/// Sends a message; the receipt lists the ids of its parts.
pub(super) async fn send(telegram: &Telegram, outgoing: Outgoing) -> Result<Receipt, ChannelError> {
    let Outgoing { destination, reply_to, is_silent, is_voice, hides_previews, .. } = &outgoing;
    let reply_to = reply_to.as_deref().map(message_id).transpose()?;
    let mut context = SendContext {
        telegram,
        target: TelegramTarget::parse(destination)?,
        is_silent: *is_silent,
        is_voice: *is_voice,
        hides_previews: *hides_previews,
    };
    let parts = split(outgoing, telegram.settings.text_limit);
    if parts.is_empty() {
        return Err(ChannelError::Refused("Telegram: the message is empty".to_owned()));
    }
    let total = parts.len();
    let mut messages = Vec::new();
    for part in parts {
        let reply_to_first = reply_to.filter(|_| messages.is_empty());
        match context.send_with_retries(part, reply_to_first, !messages.is_empty()).await {
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
    let details = json!({ "chatId": context.target.chat, "messageIds": messages });
    Ok(Receipt { message: messages.pop(), details })
}

/// Splits a message. The text becomes the caption of the first medium if it is short, otherwise it follows.
fn split(outgoing: Outgoing, text_limit: usize) -> Vec<OutgoingPart> {
    let Outgoing { text, media, poll, .. } = outgoing;
    let mut caption = markup::parts(&text, markup::MAX_CAPTION);
    let mut message_parts = Vec::new();
    let has_caption = !media.is_empty() && caption.len() == 1;
    let mut pending_caption = if has_caption { caption.pop() } else { None };
    message_parts.extend(media.into_iter().map(|media| OutgoingPart::Media(media, pending_caption.take())));
    if !has_caption {
        // A text that fits into one message is not split at the smaller configured limit.
        let unsplit = markup::parts(&text, markup::MAX_MESSAGE);
        let text_parts = if unsplit.len() <= 1 { unsplit } else { markup::parts(&text, text_limit) };
        message_parts.extend(text_parts.into_iter().map(OutgoingPart::Text));
    }
    message_parts.extend(poll.map(OutgoingPart::Poll));
    message_parts
}

impl SendContext<'_> {
    /// Sends one part; after the first one, waits if Telegram asks to.
    async fn send_with_retries(
        &mut self,
        part: OutgoingPart,
        reply_to: Option<i64>,
        is_continuation: bool,
    ) -> Result<String, ChannelError> {
        let mut pauses = 0;
        loop {
            match self.send_part(&part, reply_to).await {
                Err(ChannelError::RetryAfter { after, .. })
                    if is_continuation && after <= MAX_RETRY_DELAY && pauses < MAX_RETRIES =>
                {
                    pauses += 1;
                    sleep(after).await;
                }
                result => return result,
            }
        }
    }

    /// Sends one part; returns its message id.
    async fn send_part(&mut self, outgoing_part: &OutgoingPart, reply_to: Option<i64>) -> Result<String, ChannelError> {
        let (method, result) = match outgoing_part {
            OutgoingPart::Text(part) => ("sendMessage", self.text(part, reply_to).await),
            OutgoingPart::Media(media, caption) => self.media(media, caption.as_ref(), reply_to).await?,
            OutgoingPart::Poll(poll) => ("sendPoll", self.poll(poll, reply_to).await),
        };
        let message = result.map_err(|error| error.into_failure(method, RepeatEffect::Visible))?;
        let message_id = message["message_id"].as_i64();
        message_id
            .map(|id| id.to_string())
            .ok_or_else(|| ApiCallError::InvalidResponse(200).into_failure(method, RepeatEffect::Visible))
    }

    async fn text(&mut self, part: &MessagePart, reply_to: Option<i64>) -> Result<Value, ApiCallError> {
        let method_params = self.telegram.previews(self.hides_previews);
        self.styled("sendMessage", "text", Some(part), PartOptions { method_params, reply_to, file: None }).await
    }

    async fn media(
        &mut self,
        media: &Media,
        caption: Option<&MessagePart>,
        reply_to: Option<i64>,
    ) -> Result<(&'static str, Result<Value, ApiCallError>), ChannelError> {
        let (method, field) = media_method(media, self.is_voice);
        let (method_params, file) = match media {
            Media::Url(url) if url.starts_with("https://") || url.starts_with("http://") => {
                (params([(field, json!(url))]), None)
            }
            Media::Url(_) => {
                return Err(ChannelError::Refused("Telegram: media must be an http(s) URL or bytes".to_owned()));
            }
            Media::Bytes { .. } => (Map::new(), Some((field, media))),
        };
        let result = self.styled(method, "caption", caption, PartOptions { method_params, reply_to, file }).await;
        match (&result, file) {
            // An image with unsupported dimensions is sent as a file.
            (Err(error), Some((_, media))) if method == "sendPhoto" && is_unsupported_image(error) => {
                let options = PartOptions { method_params: Map::new(), reply_to, file: Some(("document", media)) };
                Ok(("sendDocument", self.styled("sendDocument", "caption", caption, options).await))
            }
            _ => Ok((method, result)),
        }
    }

    async fn poll(&mut self, poll: &Poll, reply_to: Option<i64>) -> Result<Value, ApiCallError> {
        let options: Vec<Value> = poll.options.iter().map(|option| json!({ "text": option })).collect();
        let method_params = params([
            ("question", json!(poll.question)),
            ("options", json!(options)),
            ("allows_multiple_answers", json!(poll.is_multiple)),
        ]);
        self.styled("sendPoll", "text", None, PartOptions { method_params, reply_to, file: None }).await
    }

    /// Sends with styles, and without them if Telegram rejects them; to the new id if the group was migrated. Each
    /// further attempt follows a rejection, so nothing is sent twice.
    async fn styled(
        &mut self,
        method: &str,
        field: &str,
        part: Option<&MessagePart>,
        options: PartOptions<'_>,
    ) -> Result<Value, ApiCallError> {
        let html = part.map(|part| params([(field, json!(part.html)), ("parse_mode", json!("HTML"))]));
        let result = self.send_following_migration(method, html.unwrap_or_default(), &options).await;
        match (result, part) {
            (Err(error), Some(part)) if error.is_markup() => {
                tracing::warn!(method, "Telegram rejected the formatting; sending plain text");
                self.send_following_migration(method, params([(field, json!(part.plain))]), &options).await
            }
            (result, _) => result,
        }
    }

    async fn send_following_migration(
        &mut self,
        method: &str,
        text_params: Map<String, Value>,
        options: &PartOptions<'_>,
    ) -> Result<Value, ApiCallError> {
        match self.send_once(method, text_params.clone(), options).await {
            Err(ApiCallError::Denied { moved_to: Some(chat), .. }) => {
                self.target.chat = json!(chat);
                self.send_once(method, text_params, options).await
            }
            result => result,
        }
    }

    async fn send_once(
        &self,
        method: &str,
        text_params: Map<String, Value>,
        options: &PartOptions<'_>,
    ) -> Result<Value, ApiCallError> {
        let mut request_params = self.target.params();
        // A reply to a deleted message is still sent.
        let reply = options.reply_to.map(|id| json!({ "message_id": id, "allow_sending_without_reply": true }));
        let silent = self.is_silent.then_some(true);
        request_params.extend(params([("reply_parameters", json!(reply)), ("disable_notification", json!(silent))]));
        request_params.extend(options.method_params.clone());
        request_params.extend(text_params);
        match options.file {
            Some((field, Media::Bytes { name, mime, bytes })) => {
                let mime = mime.clone().unwrap_or_else(|| "application/octet-stream".to_owned());
                let file = FormFile { field: field.to_owned(), name: name.clone(), mime, bytes: bytes.clone() };
                let form = MultipartForm { params: request_params, files: vec![file] };
                self.telegram.api.upload(method, &form).await
            }
            Some((_, Media::Url(_))) | None => self.telegram.api.call(method, &Value::Object(request_params)).await,
        }
    }
}

/// Parts of a message besides its text.
struct PartOptions<'a> {
    method_params: Map<String, Value>,
    reply_to: Option<i64>,
    file: Option<(&'static str, &'a Media)>,
}

/// Returns the method for a medium, and the name of its parameter.
fn media_method(media: &Media, is_voice: bool) -> (&'static str, &'static str) {
    let (name, mime, size) = match media {
        Media::Url(url) => (url.split(['?', '#']).next().unwrap_or_default(), None, 0),
        Media::Bytes { name, mime, bytes } => (name.as_str(), mime.as_deref(), bytes.len()),
    };
    let ending = name.rsplit(['.', '/']).next().unwrap_or_default().to_ascii_lowercase();
    match mime.unwrap_or(ending.as_str()) {
        "image/jpeg" | "image/png" | "image/webp" | "jpg" | "jpeg" | "png" | "webp" if size <= MAX_PHOTO_BYTES => {
            ("sendPhoto", "photo")
        }
        "image/gif" | "gif" => ("sendAnimation", "animation"),
        "video/mp4" | "mp4" => ("sendVideo", "video"),
        "audio/ogg" | "audio/opus" | "audio/mpeg" | "audio/mp4" | "ogg" | "opus" | "oga" | "mp3" | "m4a"
            if is_voice =>
        {
            ("sendVoice", "voice")
        }
        "audio/mpeg" | "audio/mp4" | "mp3" | "m4a" => ("sendAudio", "audio"),
        _ => ("sendDocument", "document"),
    }
}

fn is_unsupported_image(error: &ApiCallError) -> bool {
    ["photo_invalid_dimensions", "image_process_failed", "photo_save_file_invalid"]
        .iter()
        .any(|text| error.is_error(400, text))
}

/// Performs an idempotent action.
pub(super) async fn act(telegram: &Telegram, action: ChannelAction) -> Result<Receipt, ChannelError> {
    let call = async |method: &'static str, request_params: Map<String, Value>| {
        telegram.api.call(method, &Value::Object(request_params)).await.map_err(|error| (method, error))
    };
    let (result, message) = match action {
        ChannelAction::Type(destination) => {
            let mut request_params = TelegramTarget::parse(&destination)?.all_params();
            request_params.extend(params([("action", json!("typing"))]));
            (call("sendChatAction", request_params).await, None)
        }
        ChannelAction::React { destination, message, emoji } => {
            let mut request_params = params([
                ("chat_id", TelegramTarget::parse(&destination)?.chat),
                ("message_id", json!(message_id(&message)?)),
            ]);
            let reactions: Vec<Value> = emoji.iter().map(|emoji| json!({ "type": "emoji", "emoji": emoji })).collect();
            request_params.extend(params([("reaction", json!(reactions))]));
            (call("setMessageReaction", request_params).await, Some(message))
        }
        ChannelAction::Edit { destination, message, text, hides_previews } => {
            let [part] = <[MessagePart; 1]>::try_from(markup::parts(&text, markup::MAX_MESSAGE)).map_err(|parts| {
                let reason =
                    if parts.is_empty() { "the message is empty" } else { "the text does not fit into one message" };
                ChannelError::Refused(format!("Telegram, editMessageText: {reason}"))
            })?;
            let mut request_params = params([
                ("chat_id", TelegramTarget::parse(&destination)?.chat),
                ("message_id", json!(message_id(&message)?)),
            ]);
            request_params.extend(telegram.previews(hides_previews));
            let with_text =
                |text_params: Map<String, Value>| request_params.clone().into_iter().chain(text_params).collect();
            let html = params([("text", json!(part.html)), ("parse_mode", json!("HTML"))]);
            let result = match call("editMessageText", with_text(html)).await {
                Err((_, error)) if error.is_markup() => {
                    call("editMessageText", with_text(params([("text", json!(part.plain))]))).await
                }
                result => result,
            };
            (result, Some(message))
        }
        ChannelAction::Delete { destination, message } => {
            let request_params = params([
                ("chat_id", TelegramTarget::parse(&destination)?.chat),
                ("message_id", json!(message_id(&message)?)),
            ]);
            (call("deleteMessage", request_params).await, None)
        }
    };
    match result {
        Ok(_) => Ok(Receipt { message, details: Value::Null }),
        // The message has that content already or is deleted already, as requested.
        Err((_, error))
            if error.is_error(400, "message is not modified") || error.is_error(400, "message to delete not found") =>
        {
            Ok(Receipt { message, details: Value::Null })
        }
        Err((method, error)) => Err(error.into_failure(method, RepeatEffect::None)),
    }
}

fn message_id(message: &str) -> Result<i64, ChannelError> {
    message.trim().parse().map_err(|_nan| {
        let excerpt: String = message.chars().filter(|c| !c.is_control()).take(40).collect();
        ChannelError::Refused(format!("Telegram: {excerpt} is not a message id"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(name: &str, mime: Option<&str>, size: usize) -> Media {
        Media::Bytes { name: name.to_owned(), mime: mime.map(str::to_owned), bytes: vec![0; size] }
    }

    #[test]
    fn the_method_depends_on_the_kind_of_file() {
        let methods = |is_voice| {
            [
                media_method(&bytes("a.png", None, 1), is_voice).0,
                media_method(&bytes("a", Some("image/jpeg"), MAX_PHOTO_BYTES + 1), is_voice).0,
                media_method(&bytes("a.gif", None, 1), is_voice).0,
                media_method(&bytes("a.ogg", Some("audio/ogg"), 1), is_voice).0,
                media_method(&bytes("a.mp3", None, 1), is_voice).0,
                media_method(&bytes("a.pdf", None, 1), is_voice).0,
                media_method(&Media::Url("https://x.y/a.PNG?b.pdf".to_owned()), is_voice).0,
                media_method(&Media::Url("https://x.y/".to_owned()), is_voice).0,
            ]
        };
        let [photo, animation, document] = ["sendPhoto", "sendAnimation", "sendDocument"];
        assert_eq!(methods(false), [photo, document, animation, document, "sendAudio", document, photo, document]);
        assert_eq!(methods(true)[3..5], ["sendVoice", "sendVoice"]);
    }

    fn shape(text: &str, media: usize) -> Vec<String> {
        let media = (0..media).map(|_| bytes("a.png", None, 1)).collect();
        let outgoing = Outgoing { text: text.to_owned(), media, ..Outgoing::default() };
        let describe = |outgoing_part: OutgoingPart| match outgoing_part {
            OutgoingPart::Text(part) => format!("text {}", part.plain.len()),
            OutgoingPart::Media(_, caption) => format!("media {}", caption.map_or(0, |part| part.plain.len())),
            OutgoingPart::Poll(_) => "poll".to_owned(),
        };
        split(outgoing, 4000).into_iter().map(describe).collect()
    }

    #[test]
    fn a_short_text_becomes_a_caption() {
        assert_eq!(shape("hi", 0), ["text 2"]);
        assert_eq!(shape("hi", 2), ["media 2", "media 0"]);
        assert_eq!(shape("", 1), ["media 0"]);
        assert_eq!(shape(&"x".repeat(1025), 1), ["media 0", "text 1025"]);
        assert_eq!(shape(&"x".repeat(4096), 0), ["text 4096"]);
        assert_eq!(shape(&"x".repeat(4097), 0), ["text 4000", "text 97"]);
        assert_eq!(shape(" ", 0), Vec::<String>::new());
    }
}
