//! What comes with a message: pictures, checked and made to fit before anything else is done with the message.
//!
//! What is no picture is left out with a word in the log, and never in the way of the words. A picture that cannot be
//! shown is refused, and so is an attachment with nothing in it, because whoever sent it believes that the model sees it.

use base64::{Engine, engine::general_purpose::STANDARD};
use homard_media::{FitError, Limits, Picture, fit};
use homard_proto::{
    ErrorShape,
    message::{Block, Content, User},
    method::chat::Attachment,
};

/// How many attachments a message may have.
pub const MOST: usize = 20;
/// How many bytes one may have.
pub const MOST_BYTES: usize = 5_000_000;

/// The pictures among what comes with a message, in its order.
pub async fn pictures(attachments: Vec<Attachment>) -> Result<Vec<Block>, ErrorShape> {
    if attachments.is_empty() {
        return Ok(Vec::new());
    }
    if attachments.len() > MOST {
        let why = format!(
            "{} attachments are too many: a message may have {MOST}; send the rest in another",
            attachments.len()
        );
        return Err(ErrorShape::invalid(why));
    }
    // Opening a picture computes for a while, and nobody shall wait for another's.
    let opened = tokio::task::spawn_blocking(move || {
        let opened = attachments.iter().enumerate().map(|(place, attachment)| open(place + 1, attachment));
        opened.filter_map(Result::transpose).collect()
    });
    opened
        .await
        .unwrap_or_else(|error| Err(ErrorShape::unavailable(format!("attachments could not be opened: {error}"))))
}

/// Puts pictures behind a message's words, or in their place if there are none.
pub fn attach(message: &mut User, pictures: Vec<Block>) {
    if pictures.is_empty() {
        return;
    }
    let words = message.content.text();
    let words = (!words.trim().is_empty()).then(|| Block::text(words));
    message.content = Content::Blocks(words.into_iter().chain(pictures).collect());
}

/// A picture, or nothing if it is none.
fn open(place: usize, attachment: &Attachment) -> Result<Option<Block>, ErrorShape> {
    let name = attachment.name.as_deref().map(str::trim).filter(|name| !name.is_empty());
    let name = name.map_or_else(|| format!("attachment {place}"), |name| format!("attachment {name:?}"));
    let wrong = |why: &str| ErrorShape::invalid(format!("{name}: {why}"));
    let Some(content) = &attachment.content else {
        return Err(wrong("content is missing; send the file's bytes there, in base64"));
    };
    let data = decode(content).map_err(wrong)?;
    let declared = attachment.mime.as_deref().unwrap_or_default().trim().to_lowercase();
    match fit(data, &Limits::default()) {
        Ok(picture) => Ok(Some(Picture::into_block(picture))),
        Err(FitError::Unknown) if !declared.starts_with("image/") => {
            tracing::warn!(name, mime = declared, "an attachment that is no picture was left out");
            Ok(None)
        }
        Err(error) => Err(wrong(&error.to_string())),
    }
}

/// The bytes of an attachment.
fn decode(content: &str) -> Result<Vec<u8>, &'static str> {
    let content = content.trim();
    let data =
        content.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,")).map_or(content, |(_, data)| data);
    if data.len() / 4 * 3 > MOST_BYTES + 3 {
        return Err("exceeds size limit: it may have 5000000 bytes; scale it down");
    }
    let Ok(bytes) = STANDARD.decode(data) else { return Err("invalid base64; send the file's bytes in base64") };
    match bytes.len() {
        0 => Err("it is empty"),
        length if length > MOST_BYTES => Err("exceeds size limit: it may have 5000000 bytes; scale it down"),
        _ => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A picture of one pixel.
    const DOT: &str = "R0lGODdhAQABAIAAAP///////ywAAAAAAQABAAACAkQBADs=";

    async fn shown(attachments: Value) -> Result<Vec<Block>, String> {
        pictures(serde_json::from_value(attachments).unwrap()).await.map_err(|error| error.message)
    }

    fn dot() -> Block {
        serde_json::from_value(json!({"type": "image", "mimeType": "image/gif", "data": DOT})).unwrap()
    }

    #[tokio::test]
    async fn pictures_are_known_by_their_bytes_and_keep_their_order() {
        let sent = json!([
            {"type": "image", "mimeType": "image/png", "fileName": "a.png", "content": DOT},
            {"mimeType": "text/plain", "content": STANDARD.encode("hello")},
            {"content": format!("data:image/png;base64,{DOT}")},
        ]);
        assert_eq!(shown(sent).await, Ok(vec![dot(), dot()]));
        assert_eq!(shown(json!([])).await, Ok(Vec::new()));
    }

    #[tokio::test]
    async fn what_cannot_be_shown_is_refused_by_its_name() {
        let large = STANDARD.encode(vec![0; MOST_BYTES + 1]);
        for (attachment, why) in [
            (
                json!({"fileName": "a.png", "content": "%%%%"}),
                "attachment \"a.png\": invalid base64; send the file's bytes in base64",
            ),
            (json!({"content": "AAA"}), "attachment 1: invalid base64; send the file's bytes in base64"),
            (json!({"content": ""}), "attachment 1: it is empty"),
            (json!(null), "attachment 1: content is missing; send the file's bytes there, in base64"),
            (json!("nonsense"), "attachment 1: content is missing; send the file's bytes there, in base64"),
            (
                json!({"fileName": "a", "content": 7}),
                "attachment \"a\": content is missing; send the file's bytes there, in base64",
            ),
            (json!({"content": large}), "attachment 1: exceeds size limit: it may have 5000000 bytes; scale it down"),
            (
                json!({"mimeType": "image/png", "content": STANDARD.encode("hello")}),
                "attachment 1: it is not a PNG, JPEG, GIF or WebP picture",
            ),
            (json!({"content": &DOT[..16]}), "attachment 1: it is damaged; save it again"),
            (
                json!({"content": STANDARD.encode(b"\0\0\0\x18ftypheic\0\0\0\0")}),
                "attachment 1: HEIC pictures cannot be shown to a model; convert it to PNG or JPEG",
            ),
        ] {
            assert_eq!(shown(json!([attachment])).await, Err(why.to_owned()));
        }
        let many = shown(vec![json!({"content": DOT}); MOST + 1].into()).await;
        assert_eq!(
            many,
            Err("21 attachments are too many: a message may have 20; send the rest in another".to_owned())
        );
    }

    #[test]
    fn a_picture_may_come_without_words() {
        let mut message = User::text("look", 1);
        attach(&mut message, vec![dot()]);
        assert_eq!(message.content, Content::Blocks(vec![Block::text("look"), dot()]));
        let mut silent = User::text("", 1);
        attach(&mut silent, vec![dot()]);
        assert_eq!(silent.content, Content::Blocks(vec![dot()]));
    }
}
