//! Attachments of inbound messages: pictures are passed to the model, other files are stored in the workspace.

use std::{path::Path, sync::Arc};

use homard_channels::{Attachment, AttachmentSource, Channel, Incoming, PeerKind};
use homard_egress::{Egress, EgressLimits, Request, SystemResolver};
use homard_media::{FitError, ImageLimits, InboundFile, InboundFolder, fit, sanitize};
use homard_policy::routing::folder_of;
use homard_proto::{Identity, message::Block};

/// Maximum attachments of a message that are processed.
const MAX_ATTACHMENTS: usize = 20;

/// Returns the directory for the files of a chat. Every peer has its own, so that access to one peer's files does not
/// give access to another's. `is_readable` says whether the chat's runs can open them there.
pub(crate) fn folder(workspace: &Path, peer: &Identity, kind: PeerKind, is_readable: bool) -> InboundFolder {
    let groups = match kind {
        PeerKind::Direct => "",
        PeerKind::Group | PeerKind::Channel => "groups/",
    };
    InboundFolder::new(workspace, &format!("{groups}{}", folder_of(peer)), is_readable)
}

/// Loaded attachments.
#[derive(Debug, Default, PartialEq)]
pub(super) struct LoadedMedia {
    /// Pictures, in order.
    pub pictures: Vec<Block>,
    /// Descriptions of the other files for the model.
    pub notes: Vec<String>,
}

/// Loads the attachments of messages. Failures become notes and never block the message text.
pub(crate) async fn load(
    channel: &Arc<dyn Channel>,
    group: &[&Incoming],
    max_bytes: usize,
    folder: InboundFolder,
) -> LoadedMedia {
    let folder = Arc::new(folder);
    let mut loaded = LoadedMedia::default();
    let mut all = Vec::new();
    for incoming in group {
        for (at, media) in incoming.media.iter().enumerate() {
            all.push((format!("{}-{}-{at}", incoming.account, incoming.event), media));
        }
    }
    for (index, (stem, media)) in all.into_iter().enumerate() {
        let name = title(media);
        if index >= MAX_ATTACHMENTS {
            loaded
                .notes
                .push(format!("[media omitted: {name}: at most {MAX_ATTACHMENTS} files per message are loaded]"));
            continue;
        }
        let stored = match fetch(channel, media, max_bytes).await {
            Ok(bytes) => {
                let (media, folder) = (media.clone(), folder.clone());
                let task = tokio::task::spawn_blocking(move || store(&bytes, &media, &stem, &folder));
                task.await.unwrap_or_else(|error| Err(error.to_string()))
            }
            Err(why) => Err(why),
        };
        match stored {
            Ok(StoredMedia::Picture(block)) => loaded.pictures.push(block),
            Ok(StoredMedia::File(note)) => loaded.notes.push(note),
            Err(why) => loaded.notes.push(format!("[media could not be loaded: {name}: {}]", sanitize(&why))),
        }
    }
    loaded
}

async fn fetch(channel: &Arc<dyn Channel>, media: &Attachment, max_bytes: usize) -> Result<Vec<u8>, String> {
    let too_large = || format!("larger than the limit of {max_bytes} bytes");
    if media.size.is_some_and(|size| size > max_bytes as u64) {
        return Err(too_large());
    }
    let AttachmentSource::Url(url) = &media.source else {
        return channel.fetch(media, max_bytes).await.map_err(|failure| failure.to_string());
    };
    let egress = Egress::new(EgressLimits { bytes: max_bytes, ..EgressLimits::default() }, Arc::new(SystemResolver));
    let answer = egress.get(&Request::new(url, "*/*")).await.map_err(|error| error.to_string())?;
    if !(200..300).contains(&answer.status()) {
        return Err(format!("the server answered {}", answer.status()));
    }
    let body = answer.body().await.map_err(|error| error.to_string())?;
    if body.is_complete { Ok(body.bytes) } else { Err(too_large()) }
}

enum StoredMedia {
    Picture(Block),
    File(String),
}

fn store(bytes: &[u8], media: &Attachment, stem: &str, folder: &InboundFolder) -> Result<StoredMedia, String> {
    match fit(bytes.to_vec(), &ImageLimits::default()) {
        Ok(picture) => return Ok(StoredMedia::Picture(picture.into_block())),
        Err(FitError::Unknown) => {}
        Err(error) => tracing::debug!(%error, "cannot process an image; storing it as a file"),
    }
    let (name, mime) = (media.name.as_deref(), media.mime.as_deref());
    let file = InboundFile { bytes, name, mime, is_voice: media.is_voice, stem };
    let (note, cleanup_error) = folder.store(file).map_err(|error| format!("cannot store the file: {error}"))?;
    if let Some(error) = cleanup_error {
        tracing::warn!(%error, folder = folder.path(), "old files could not be removed");
    }
    Ok(StoredMedia::File(note))
}

fn title(media: &Attachment) -> String {
    let name = media.name.as_deref().or(media.mime.as_deref());
    sanitize(name.unwrap_or(if media.is_voice { "a voice message" } else { "a file" }))
}

#[cfg(test)]
mod tests {
    use homard_proto::{ChannelAccount, IdIssuer};

    use super::*;

    #[test]
    fn a_group_has_its_own_media_folder() {
        let peer = ChannelAccount::new("webhook", "default", IdIssuer::Peer, true).sender("ann");
        let folder = |kind| folder(Path::new("."), &peer, kind, true).path().to_owned();
        assert_eq!(folder(PeerKind::Direct), "media/inbound/webhook-ann");
        assert_eq!(folder(PeerKind::Group), "media/inbound/groups/webhook-ann");
    }

    #[test]
    fn pictures_are_attached_and_other_files_are_stored() {
        let home = tempfile::tempdir().unwrap();
        let peer = ChannelAccount::new("telegram", "default", IdIssuer::Platform, true).sender("7");
        let folder = folder(home.path(), &peer, PeerKind::Direct, true);
        let media = Attachment {
            source: AttachmentSource::Bytes(Vec::new()),
            name: Some("a.txt".to_owned()),
            mime: Some("text/plain".to_owned()),
            size: None,
            is_voice: false,
        };
        let dot = b"GIF87a\x01\x00\x01\x00\x80\x00\x00\xff\xff\xff\xff\xff\xff,\x00\x00\x00\x00\x01\x00\x01\x00\x00\x02\x02D\x01\x00;";
        assert!(matches!(store(dot, &media, "a-1-0", &folder), Ok(StoredMedia::Picture(_))));
        let Ok(StoredMedia::File(note)) = store(b"hello", &media, "a-1-0", &folder) else { panic!() };
        assert_eq!(note, "[media attached: media/inbound/telegram-7/a-1-0-a.txt (text/plain, 5 bytes)]");
    }
}
