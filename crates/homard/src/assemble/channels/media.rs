//! What comes with a message: pictures are shown to the model, other files are put where the agent finds them.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use homard_agent::routing::folder_of;
use homard_channels::{Attachment, Channel, Incoming, PeerKind, Source};
use homard_media::{FitError, Limits, fit};
use homard_proto::{Identity, message::Block};
use homard_tools::egress::{Bounds, Egress, Request, SystemNames};
use tempfile::NamedTempFile;

/// How many attachments of a message are looked at.
const MOST: usize = 20;
/// How many files are kept in a folder; older ones make room.
const FILES: usize = 200;
/// Where files are put, in the agent's workspace.
const FOLDER: &str = "media/inbound";
/// How many characters of a text file are shown where the agent cannot open it.
const SHOWN: usize = 20_000;

/// Where the files of a conversation are put, and whether its runs can open them there.
#[derive(Debug)]
pub(super) struct Keeping {
    workspace: PathBuf,
    /// The folder of the conversation, below the workspace.
    folder: String,
    is_open: bool,
}

impl Keeping {
    /// Every peer has a folder of its own, so that nothing that opens one peer's files finds another's.
    pub(super) fn new(workspace: &Path, (peer, kind): (&Identity, PeerKind), is_open: bool) -> Self {
        let groups = match kind {
            PeerKind::Direct => "",
            PeerKind::Group | PeerKind::Channel => "groups/",
        };
        let folder = format!("{FOLDER}/{groups}{}", folder_of(peer));
        Self { workspace: workspace.to_owned(), folder, is_open }
    }
}

/// What came with a message.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Loaded {
    /// Pictures, in their order.
    pub(super) pictures: Vec<Block>,
    /// What a model is told of the rest.
    pub(super) notes: Vec<String>,
}

/// Loads what came with messages. What cannot be loaded is told, and is never in the way of the words.
pub(super) async fn load(channel: &Arc<dyn Channel>, group: &[&Incoming], most: usize, keeping: Keeping) -> Loaded {
    let keeping = Arc::new(keeping);
    let mut loaded = Loaded::default();
    let mut all = Vec::new();
    for incoming in group {
        for (at, media) in incoming.media.iter().enumerate() {
            all.push((format!("{}-{}-{at}", incoming.account, incoming.event), media));
        }
    }
    for (place, (stem, media)) in all.into_iter().enumerate() {
        let name = title(media);
        if place >= MOST {
            loaded.notes.push(format!("[media left out: {name}: a message has at most {MOST} files]"));
            continue;
        }
        let kept = match fetch(channel, media, most).await {
            Ok(bytes) => {
                let (media, keeping) = (media.clone(), keeping.clone());
                let work = tokio::task::spawn_blocking(move || keep(&bytes, &media, &stem, &keeping));
                work.await.unwrap_or_else(|error| Err(error.to_string()))
            }
            Err(why) => Err(why),
        };
        match kept {
            Ok(Kept::Picture(block)) => loaded.pictures.push(block),
            Ok(Kept::File(note)) => loaded.notes.push(note),
            Err(why) => loaded.notes.push(format!("[media could not be loaded: {name}: {}]", harmless(&why))),
        }
    }
    loaded
}

async fn fetch(channel: &Arc<dyn Channel>, media: &Attachment, most: usize) -> Result<Vec<u8>, String> {
    let too_large = || format!("it has more than {most} bytes, which is the limit");
    if media.size.is_some_and(|size| size > most as u64) {
        return Err(too_large());
    }
    let Source::Url(url) = &media.source else {
        return channel.fetch(media, most).await.map_err(|failure| failure.to_string());
    };
    let egress = Egress::new(Bounds { bytes: most, ..Bounds::default() }, Arc::new(SystemNames));
    let answer = egress.get(&Request::new(url, "*/*")).await.map_err(|error| error.to_string())?;
    if !(200..300).contains(&answer.status()) {
        return Err(format!("the server answered {}", answer.status()));
    }
    let body = answer.body().await.map_err(|error| error.to_string())?;
    if body.is_whole { Ok(body.bytes) } else { Err(too_large()) }
}

enum Kept {
    Picture(Block),
    File(String),
}

fn keep(bytes: &[u8], media: &Attachment, stem: &str, keeping: &Keeping) -> Result<Kept, String> {
    let size = bytes.len();
    match fit(bytes.to_vec(), &Limits::default()) {
        Ok(picture) => return Ok(Kept::Picture(picture.into_block())),
        Err(FitError::Unknown) => {}
        Err(error) => tracing::debug!(%error, "a picture cannot be shown and is kept as a file"),
    }
    let name = file_name(stem, media);
    let folder = put(bytes, &name, keeping).map_err(|error| format!("it cannot be kept: {error}"))?;
    if let Err(error) = make_room(&folder) {
        tracing::warn!(%error, folder = %folder.display(), "old files could not be removed");
    }
    let kind = harmless(media.mime.as_deref().unwrap_or("file"));
    let voice = if media.is_voice { ", a voice message" } else { "" };
    let about = format!("{}/{name} ({kind}, {size} bytes{voice})", keeping.folder);
    Ok(Kept::File(match readable(bytes) {
        _ if keeping.is_open => format!("[media attached: {about}]"),
        Some((text, true)) => format!("[media attached: {about}]\n{text}\n[/media attached]"),
        Some((text, false)) => {
            format!("[media attached: {about}; the first {SHOWN} characters]\n{text}\n[/media attached]")
        }
        None => format!("[media attached: {about}; it cannot be opened in this conversation]"),
    }))
}

/// The beginning of a text file, and whether that is all of it; `None` if it is no text.
fn readable(bytes: &[u8]) -> Option<(&str, bool)> {
    let text = std::str::from_utf8(bytes).ok()?.trim();
    if text.chars().any(|c| c.is_control() && !c.is_whitespace()) {
        return None;
    }
    let end = text.char_indices().nth(SHOWN).map_or(text.len(), |(at, _)| at);
    Some((&text[..end], end == text.len()))
}

/// Writes a file into the folder, and returns the folder. Not where a link leads that an agent may have made.
fn put(bytes: &[u8], name: &str, keeping: &Keeping) -> io::Result<PathBuf> {
    let folder = keeping.workspace.join(&keeping.folder);
    fs::create_dir_all(&folder)?;
    if folder.canonicalize()? != keeping.workspace.canonicalize()?.join(&keeping.folder) {
        return Err(io::Error::other(format!("{} is a link", keeping.folder)));
    }
    let mut file = NamedTempFile::new_in(&folder)?;
    file.write_all(bytes)?;
    file.persist(folder.join(name)).map_err(|error| error.error)?;
    Ok(folder)
}

/// A name that is the same for the same file, and cannot lead elsewhere.
fn file_name(stem: &str, media: &Attachment) -> String {
    let given = media.name.as_deref().unwrap_or(if media.is_voice { "voice.ogg" } else { "file" });
    let plain = |text: &str, most: usize| -> String {
        let fits = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_') { c } else { '_' };
        let text: String = text.chars().map(fits).collect();
        let start = text.len().saturating_sub(most);
        text[start..].trim_start_matches('.').to_owned()
    };
    format!("{}-{}", plain(stem, 80), plain(given, 60))
}

/// Removes the oldest files, if there are too many.
fn make_room(folder: &Path) -> io::Result<()> {
    let mut files: Vec<(SystemTime, PathBuf)> = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let about = entry.metadata()?;
        if about.is_file() {
            files.push((about.modified()?, entry.path()));
        }
    }
    files.sort();
    let many = files.len().saturating_sub(FILES);
    files.into_iter().take(many).try_for_each(|(_, path)| fs::remove_file(path))
}

fn title(media: &Attachment) -> String {
    let name = media.name.as_deref().or(media.mime.as_deref());
    harmless(name.unwrap_or(if media.is_voice { "a voice message" } else { "a file" }))
}

/// A text that a stranger chose, on one line and without brackets.
fn harmless(text: &str) -> String {
    text.chars().filter(|c| !c.is_control() && !matches!(c, '[' | ']')).take(200).collect()
}

#[cfg(test)]
mod tests {
    use homard_proto::{ChannelAccount, IdIssuer};

    use super::*;

    fn media(name: &str) -> Attachment {
        let mime = Some("text/plain".to_owned());
        Attachment { source: Source::Bytes(Vec::new()), name: Some(name.to_owned()), mime, size: None, is_voice: false }
    }

    /// Where the files of a person are put who is not the owner, or of the owner.
    fn keeping(workspace: &Path, is_open: bool) -> Keeping {
        let peer = ChannelAccount::new("telegram", "default", IdIssuer::Platform, true).sender("7");
        Keeping::new(workspace, (&peer, PeerKind::Direct), is_open)
    }

    #[test]
    fn h2_a_conversation_without_file_tools_is_shown_texts() {
        let home = tempfile::tempdir().unwrap();
        let note = |bytes: &[u8], is_open: bool| match keep(bytes, &media("a.txt"), "s", &keeping(home.path(), is_open))
        {
            Ok(Kept::File(note)) => note,
            Ok(Kept::Picture(_)) | Err(_) => panic!(),
        };
        let about = |size: usize| format!("media/inbound/telegram-7/s-a.txt (text/plain, {size} bytes)");
        assert_eq!(note(b"hello\n", true), format!("[media attached: {}]", about(6)));
        assert_eq!(note(b"hello\n", false), format!("[media attached: {}]\nhello\n[/media attached]", about(6)));
        let long = "ä".repeat(SHOWN + 1);
        let cut = note(long.as_bytes(), false);
        assert!(cut.contains("; the first 20000 characters]\nä") && cut.matches('ä').count() == SHOWN);
        for bytes in [&b"PK\x03\x04"[..], b"\xff\xfe"] {
            assert!(note(bytes, false).ends_with("; it cannot be opened in this conversation]"));
        }
    }

    #[test]
    fn h2_a_group_has_a_folder_beside_those_of_people() {
        let peer = ChannelAccount::new("webhook", "default", IdIssuer::Peer, true).sender("ann");
        let folder = |kind| Keeping::new(Path::new("."), (&peer, kind), true).folder;
        assert_eq!(folder(PeerKind::Direct), "media/inbound/webhook-ann");
        assert_eq!(folder(PeerKind::Group), "media/inbound/groups/webhook-ann");
    }

    #[test]
    fn a_file_is_kept_under_a_name_that_leads_nowhere_else() {
        for (name, expected) in [
            ("notes.txt", "a-1-0-notes.txt"),
            ("../../etc/passwd", "a-1-0-_.._etc_passwd"),
            (".bashrc", "a-1-0-bashrc"),
            ("ü/\0x", "a-1-0-___x"),
        ] {
            assert_eq!(file_name("a-1-0", &media(name)), expected);
        }
        assert_eq!(file_name("a-1-0", &media(&"x".repeat(300))).len(), 66);
    }

    #[test]
    fn pictures_are_shown_and_other_files_are_kept() {
        let home = tempfile::tempdir().unwrap();
        let dot = b"GIF87a\x01\x00\x01\x00\x80\x00\x00\xff\xff\xff\xff\xff\xff,\x00\x00\x00\x00\x01\x00\x01\x00\x00\x02\x02D\x01\x00;";
        assert!(matches!(keep(dot, &media("a.gif"), "a-1-0", &keeping(home.path(), true)), Ok(Kept::Picture(_))));
        let Ok(Kept::File(note)) = keep(b"hello", &media("a].txt"), "a-1-0", &keeping(home.path(), true)) else {
            panic!()
        };
        assert_eq!(note, "[media attached: media/inbound/telegram-7/a-1-0-a_.txt (text/plain, 5 bytes)]");
        assert_eq!(fs::read(home.path().join("media/inbound/telegram-7/a-1-0-a_.txt")).unwrap(), b"hello");
    }

    #[test]
    fn a_link_is_not_followed() {
        let (home, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::os::unix::fs::symlink(elsewhere.path(), home.path().join("media")).unwrap();
        assert!(keep(b"x", &media("a"), "s", &keeping(home.path(), true)).is_err());
        assert_eq!(fs::read_dir(elsewhere.path().join("inbound/telegram-7")).unwrap().count(), 0);
    }

    #[test]
    fn old_files_make_room() {
        let home = tempfile::tempdir().unwrap();
        for n in 0..FILES + 3 {
            fs::write(home.path().join(n.to_string()), "x").unwrap();
        }
        make_room(home.path()).unwrap();
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), FILES);
    }
}
