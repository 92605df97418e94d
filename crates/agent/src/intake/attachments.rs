//! Attachments of a message: pictures are checked and resized before the message is processed; other files are stored
//! in the agent's workspace and named to the model.
//!
//! An attachment that can be neither shown nor stored is rejected by name, because the sender assumes that the model
//! sees it.

use base64::{Engine, engine::general_purpose::STANDARD};
use homard_media::{FitError, FittedImage, ImageLimits, InboundFile, InboundFolder, fit};
use homard_proto::{
    ErrorShape,
    message::{Block, Content, User},
    method::chat::Attachment,
};

/// Maximum number of attachments of a message.
pub const MAX_ATTACHMENTS: usize = 20;
/// Maximum size of an attachment in bytes.
pub const MAX_ATTACHMENT_BYTES: usize = 5_000_000;

/// Opened attachments of a message.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Attachments {
    /// Pictures, in order.
    pub pictures: Vec<Block>,
    /// A note for the model about each other file, with its path.
    pub notes: Vec<String>,
}

/// Opens attachments: pictures are resized, other files are stored in `folder` under names that begin with `stem`.
/// Without a folder, files are rejected.
pub async fn open_all(
    attachments: Vec<Attachment>,
    folder: Option<InboundFolder>,
    stem: &str,
) -> Result<Attachments, ErrorShape> {
    if attachments.is_empty() {
        return Ok(Attachments::default());
    }
    if attachments.len() > MAX_ATTACHMENTS {
        let message = format!(
            "{} attachments are too many: a message may have {MAX_ATTACHMENTS}; send the rest in another message",
            attachments.len()
        );
        return Err(ErrorShape::invalid(message));
    }
    let stem = stem.to_owned();
    // Decoding a picture is CPU-bound and must not block other requests.
    let open_task = tokio::task::spawn_blocking(move || {
        let mut attached = Attachments::default();
        for (number, attachment) in (1..).zip(&attachments) {
            match open(number, attachment, folder.as_ref(), &stem)? {
                OpenedAttachment::Picture(block) => attached.pictures.push(block),
                OpenedAttachment::File(note) => attached.notes.push(note),
            }
        }
        Ok(attached)
    });
    open_task
        .await
        .unwrap_or_else(|error| Err(ErrorShape::unavailable(format!("failed to decode the attachments: {error}"))))
}

impl Attachments {
    /// True if there are no attachments.
    pub fn is_empty(&self) -> bool {
        self.pictures.is_empty() && self.notes.is_empty()
    }

    /// Adds the attachments after a message's text, or in its place if it is empty.
    pub fn attach_to(self, message: &mut User) {
        if !self.notes.is_empty() {
            let body = message.content.text();
            let body = (!body.trim().is_empty()).then_some(body);
            let text: Vec<_> = body.into_iter().chain(self.notes).collect();
            message.content = Content::Text(text.join("\n\n"));
        }
        attach(message, self.pictures);
    }
}

/// Adds pictures after a message's text, or in its place if it is empty.
pub fn attach(message: &mut User, pictures: Vec<Block>) {
    if pictures.is_empty() {
        return;
    }
    let text = message.content.text();
    let text = (!text.trim().is_empty()).then(|| Block::text(text));
    message.content = Content::Blocks(text.into_iter().chain(pictures).collect());
}

enum OpenedAttachment {
    Picture(Block),
    File(String),
}

fn open(
    number: usize,
    attachment: &Attachment,
    folder: Option<&InboundFolder>,
    stem: &str,
) -> Result<OpenedAttachment, ErrorShape> {
    let name = attachment.name.as_deref().map(str::trim).filter(|name| !name.is_empty());
    let name = name.map_or_else(|| format!("attachment {number}"), |name| format!("attachment {name:?}"));
    let invalid = |reason: &str| ErrorShape::invalid(format!("{name}: {reason}"));
    let Some(content) = &attachment.content else {
        return Err(invalid("content is missing; send the file's bytes there, in base64"));
    };
    let data = decode(content).map_err(invalid)?;
    let declared = attachment.mime.as_deref().unwrap_or_default().trim().to_lowercase();
    match fit(data.clone(), &ImageLimits::default()) {
        Ok(picture) => return Ok(OpenedAttachment::Picture(FittedImage::into_block(picture))),
        Err(FitError::Unknown) if !declared.starts_with("image/") => {}
        Err(error) => return Err(invalid(&error.to_string())),
    }
    let Some(folder) = folder else {
        return Err(invalid(
            "not an image, and the agent has no workspace to store it in; send its text in the message",
        ));
    };
    let stem = format!("{stem}-{number}");
    let (file_name, mime) = (attachment.name.as_deref(), Some(declared.as_str()));
    let file = InboundFile { bytes: &data, name: file_name, mime, is_voice: false, stem: &stem };
    let (note, cleanup_error) = folder.store(file).map_err(|error| invalid(&format!("cannot be stored: {error}")))?;
    if let Some(error) = cleanup_error {
        tracing::warn!(%error, folder = folder.path(), "failed to remove old files");
    }
    Ok(OpenedAttachment::File(note))
}

/// Decodes the content of an attachment.
fn decode(content: &str) -> Result<Vec<u8>, &'static str> {
    let content = content.trim();
    let data =
        content.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,")).map_or(content, |(_, data)| data);
    if data.len() / 4 * 3 > MAX_ATTACHMENT_BYTES + 3 {
        return Err("exceeds size limit: at most 5000000 bytes are allowed; scale it down");
    }
    let Ok(bytes) = STANDARD.decode(data) else { return Err("invalid base64; send the file's bytes in base64") };
    match bytes.len() {
        0 => Err("content is empty"),
        length if length > MAX_ATTACHMENT_BYTES => {
            Err("exceeds size limit: at most 5000000 bytes are allowed; scale it down")
        }
        _ => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A picture of one pixel.
    const DOT: &str = "R0lGODdhAQABAIAAAP///////ywAAAAAAQABAAACAkQBADs=";

    async fn opened(attachments: Value, folder: Option<InboundFolder>) -> Result<Attachments, String> {
        open_all(serde_json::from_value(attachments).unwrap(), folder, "r1").await.map_err(|error| error.message)
    }

    async fn opened_pictures(attachments: Value) -> Result<Vec<Block>, String> {
        opened(attachments, None).await.map(|attached| attached.pictures)
    }

    fn dot() -> Block {
        serde_json::from_value(json!({"type": "image", "mimeType": "image/gif", "data": DOT})).unwrap()
    }

    #[tokio::test]
    async fn pictures_are_detected_by_content_and_keep_their_order() {
        let sent = json!([
            {"type": "image", "mimeType": "image/png", "fileName": "a.png", "content": DOT},
            {"content": format!("data:image/png;base64,{DOT}")},
        ]);
        assert_eq!(opened_pictures(sent).await, Ok(vec![dot(), dot()]));
        assert_eq!(opened_pictures(json!([])).await, Ok(Vec::new()));
    }

    /// Acceptance D18: such attachments were dropped with a log message.
    #[tokio::test]
    async fn other_files_are_stored_and_named_to_the_model() {
        let home = tempfile::tempdir().unwrap();
        let folder = || Some(InboundFolder::new(home.path(), "owner", true));
        let sent = json!([
            {"mimeType": "application/pdf", "fileName": "plan.pdf", "content": STANDARD.encode("%PDF-1.4")},
            {"content": DOT},
            {"content": STANDARD.encode("hello")},
        ]);
        let attached = opened(sent.clone(), folder()).await.unwrap();
        let notes = [
            "[media attached: media/inbound/owner/r1-1-plan.pdf (application/pdf, 8 bytes)]",
            "[media attached: media/inbound/owner/r1-3-file (file, 5 bytes)]",
        ];
        assert_eq!(attached, Attachments { pictures: vec![dot()], notes: notes.map(str::to_owned).to_vec() });
        assert_eq!(std::fs::read(home.path().join("media/inbound/owner/r1-1-plan.pdf")).unwrap(), b"%PDF-1.4");
        let mut message = User::text("read it", 1);
        attached.attach_to(&mut message);
        let text = ["read it", notes[0], notes[1]].join("\n\n");
        assert_eq!(message.content, Content::Blocks(vec![Block::text(text), dot()]));
        let error = "attachment \"plan.pdf\": not an image, and the agent has no workspace to store it in; send its text in the message";
        assert_eq!(opened(sent, None).await, Err(error.to_owned()));
    }

    #[tokio::test]
    async fn invalid_attachments_are_rejected_by_name() {
        let large = STANDARD.encode(vec![0; MAX_ATTACHMENT_BYTES + 1]);
        for (attachment, error) in [
            (
                json!({"fileName": "a.png", "content": "%%%%"}),
                "attachment \"a.png\": invalid base64; send the file's bytes in base64",
            ),
            (json!({"content": "AAA"}), "attachment 1: invalid base64; send the file's bytes in base64"),
            (json!({"content": ""}), "attachment 1: content is empty"),
            (json!(null), "attachment 1: content is missing; send the file's bytes there, in base64"),
            (json!("nonsense"), "attachment 1: content is missing; send the file's bytes there, in base64"),
            (
                json!({"fileName": "a", "content": 7}),
                "attachment \"a\": content is missing; send the file's bytes there, in base64",
            ),
            (
                json!({"content": large}),
                "attachment 1: exceeds size limit: at most 5000000 bytes are allowed; scale it down",
            ),
            (
                json!({"mimeType": "image/png", "content": STANDARD.encode("hello")}),
                "attachment 1: not a PNG, JPEG, GIF or WebP image",
            ),
            (json!({"content": &DOT[..16]}), "attachment 1: the image is damaged; save it again"),
            (
                json!({"content": STANDARD.encode(b"\0\0\0\x18ftypheic\0\0\0\0")}),
                "attachment 1: HEIC images cannot be sent to a model; convert the file to PNG or JPEG",
            ),
        ] {
            assert_eq!(opened_pictures(json!([attachment])).await, Err(error.to_owned()));
        }
        let many = opened_pictures(vec![json!({"content": DOT}); MAX_ATTACHMENTS + 1].into()).await;
        assert_eq!(
            many,
            Err("21 attachments are too many: a message may have 20; send the rest in another message".to_owned())
        );
    }

    #[test]
    fn a_picture_may_have_no_text() {
        let mut message = User::text("look", 1);
        attach(&mut message, vec![dot()]);
        assert_eq!(message.content, Content::Blocks(vec![Block::text("look"), dot()]));
        let mut silent = User::text("", 1);
        attach(&mut silent, vec![dot()]);
        assert_eq!(silent.content, Content::Blocks(vec![dot()]));
    }
}
