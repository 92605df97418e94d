//! What comes with a message: pictures are shown to the model, other files are put where the agent finds them.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use homard_channels::{Attachment, Channel, Incoming, Source};
use homard_media::{FitError, Limits, fit};
use homard_proto::message::Block;
use homard_tools::egress::{Bounds, Egress, Request, SystemNames};
use tempfile::NamedTempFile;

/// How many attachments of a message are looked at.
const MOST: usize = 20;
/// How many files are kept in the folder; older ones make room.
const FILES: usize = 200;
/// Where files are put, in the agent's workspace.
const FOLDER: &str = "media/inbound";

/// What came with a message.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Loaded {
    /// Pictures, in their order.
    pub(super) pictures: Vec<Block>,
    /// What a model is told of the rest.
    pub(super) notes: Vec<String>,
}

/// Loads what came with messages. What cannot be loaded is told, and is never in the way of the words.
pub(super) async fn load(channel: &Arc<dyn Channel>, group: &[&Incoming], most: usize, workspace: &Path) -> Loaded {
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
        let workspace = workspace.to_owned();
        let kept = match fetch(channel, media, most).await {
            Ok(bytes) => {
                let media = media.clone();
                let keeping = tokio::task::spawn_blocking(move || keep(&bytes, &media, &stem, &workspace));
                keeping.await.unwrap_or_else(|error| Err(error.to_string()))
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

fn keep(bytes: &[u8], media: &Attachment, stem: &str, workspace: &Path) -> Result<Kept, String> {
    let size = bytes.len();
    match fit(bytes.to_vec(), &Limits::default()) {
        Ok(picture) => return Ok(Kept::Picture(picture.into_block())),
        Err(FitError::Unknown) => {}
        Err(error) => tracing::debug!(%error, "a picture cannot be shown and is kept as a file"),
    }
    let name = file_name(stem, media);
    let folder = put(bytes, &name, workspace).map_err(|error| format!("it cannot be kept: {error}"))?;
    if let Err(error) = make_room(&folder) {
        tracing::warn!(%error, folder = %folder.display(), "old files could not be removed");
    }
    let kind = harmless(media.mime.as_deref().unwrap_or("file"));
    let voice = if media.is_voice { ", a voice message" } else { "" };
    Ok(Kept::File(format!("[media attached: {FOLDER}/{name} ({kind}, {size} bytes{voice})]")))
}

/// Writes a file into the folder, and returns the folder. Not where a link leads that an agent may have made.
fn put(bytes: &[u8], name: &str, workspace: &Path) -> io::Result<PathBuf> {
    let folder = workspace.join(FOLDER);
    fs::create_dir_all(&folder)?;
    if folder.canonicalize()? != workspace.canonicalize()?.join(FOLDER) {
        return Err(io::Error::other(format!("{FOLDER} is a link")));
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
    use super::*;

    fn media(name: &str) -> Attachment {
        let mime = Some("text/plain".to_owned());
        Attachment { source: Source::Bytes(Vec::new()), name: Some(name.to_owned()), mime, size: None, is_voice: false }
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
        assert!(matches!(keep(dot, &media("a.gif"), "a-1-0", home.path()), Ok(Kept::Picture(_))));
        let Ok(Kept::File(note)) = keep(b"hello", &media("a].txt"), "a-1-0", home.path()) else { panic!() };
        assert_eq!(note, "[media attached: media/inbound/a-1-0-a_.txt (text/plain, 5 bytes)]");
        assert_eq!(fs::read(home.path().join(FOLDER).join("a-1-0-a_.txt")).unwrap(), b"hello");
    }

    #[test]
    fn a_link_is_not_followed() {
        let (home, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::os::unix::fs::symlink(elsewhere.path(), home.path().join("media")).unwrap();
        assert!(keep(b"x", &media("a"), "s", home.path()).is_err());
        assert_eq!(fs::read_dir(elsewhere.path().join("inbound")).unwrap().count(), 0);
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
