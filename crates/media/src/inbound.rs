//! Files other than images that come with a message: stored in a folder of the agent's workspace, with a note for the
//! model that names the path.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::SystemTime,
};

/// Maximum number of files in a folder; the oldest are removed.
const MAX_FILES: usize = 200;
/// Folder of the files in the agent's workspace.
const FOLDER: &str = "media/inbound";
/// Maximum number of characters of a text file that are shown if the agent cannot open it.
const MAX_SHOWN_CHARS: usize = 20_000;

/// Folder for the files of a sender or a session.
#[derive(Debug, Clone)]
pub struct InboundFolder {
    workspace: PathBuf,
    /// Path below the workspace.
    folder: String,
    /// True if runs of the session can open files in this folder.
    is_readable: bool,
}

/// A file that came with a message.
#[derive(Debug, Clone, Copy)]
pub struct InboundFile<'a> {
    /// Content.
    pub bytes: &'a [u8],
    /// File name given by the sender.
    pub name: Option<&'a str>,
    /// MIME type given by the sender.
    pub mime: Option<&'a str>,
    /// True if it is a voice message.
    pub is_voice: bool,
    /// Id of its message and index of the file: the same file always gets the same name.
    pub stem: &'a str,
}

impl InboundFolder {
    /// Returns the folder named `owner`, which may be a path of several components, below the workspace's folder of
    /// inbound files. `is_readable` says whether runs can open files in it. Does not touch the disk.
    pub fn new(workspace: &Path, owner: &str, is_readable: bool) -> Self {
        Self { workspace: workspace.to_owned(), folder: format!("{FOLDER}/{owner}"), is_readable }
    }

    /// Returns the path below the workspace.
    pub fn path(&self) -> &str {
        &self.folder
    }

    /// Stores a file and returns the note for the model, which names its path. If runs cannot open the folder, the note
    /// shows the beginning of a text file. The oldest files are removed; the second value is the error if that failed.
    pub fn store(&self, file: InboundFile<'_>) -> io::Result<(String, Option<io::Error>)> {
        let InboundFile { bytes, mime, is_voice, .. } = file;
        let name = file_name(&file);
        let folder = self.put(bytes, &name)?;
        let removal_error = remove_oldest(&folder).err();
        let kind = sanitize(mime.filter(|mime| !mime.is_empty()).unwrap_or("file"));
        let voice = if is_voice { ", a voice message" } else { "" };
        let description = format!("{}/{name} ({kind}, {} bytes{voice})", self.folder, bytes.len());
        let note = match readable(bytes) {
            _ if self.is_readable => format!("[media attached: {description}]"),
            Some((text, true)) => format!("[media attached: {description}]\n{text}\n[/media attached]"),
            Some((text, false)) => {
                format!(
                    "[media attached: {description}; the first {MAX_SHOWN_CHARS} characters]\n{text}\n[/media attached]"
                )
            }
            None => format!("[media attached: {description}; it cannot be opened in this conversation]"),
        };
        Ok((note, removal_error))
    }

    /// Writes a file into the folder, and returns the folder. Refuses a symlink, which an agent may have created.
    fn put(&self, bytes: &[u8], name: &str) -> io::Result<PathBuf> {
        let folder = self.workspace.join(&self.folder);
        fs::create_dir_all(&folder)?;
        if folder.canonicalize()? != self.workspace.canonicalize()?.join(&self.folder) {
            return Err(io::Error::other(format!("{} is a symbolic link", self.folder)));
        }
        homard_stdx::file::replace(&folder.join(name), bytes)?;
        Ok(folder)
    }
}

/// Returns the beginning of a text file, and whether that is all of it; `None` if it is not text.
fn readable(bytes: &[u8]) -> Option<(&str, bool)> {
    let text = std::str::from_utf8(bytes).ok()?.trim();
    if text.chars().any(|c| c.is_control() && !c.is_whitespace()) {
        return None;
    }
    let shown = homard_stdx::text::beginning(text, MAX_SHOWN_CHARS);
    Some((shown, shown.len() == text.len()))
}

/// Returns a deterministic file name without path separators.
fn file_name(file: &InboundFile<'_>) -> String {
    let original = file.name.unwrap_or(if file.is_voice { "voice.ogg" } else { "file" });
    let sanitized = |text: &str, max_chars: usize| -> String {
        let replacement = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_') { c } else { '_' };
        let text: String = text.chars().map(replacement).collect();
        let start = text.len().saturating_sub(max_chars);
        text[start..].trim_start_matches('.').to_owned()
    };
    format!("{}-{}", sanitized(file.stem, 80), sanitized(original, 60))
}

/// Removes the oldest files, if there are too many.
fn remove_oldest(folder: &Path) -> io::Result<()> {
    let mut files: Vec<(SystemTime, PathBuf)> = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        if metadata.is_file() {
            files.push((metadata.modified()?, entry.path()));
        }
    }
    files.sort();
    let excess = files.len().saturating_sub(MAX_FILES);
    files.into_iter().take(excess).try_for_each(|(_, path)| fs::remove_file(path))
}

/// Sanitizes a text chosen by the sender: one line, without brackets, at most 200 characters.
pub fn sanitize(text: &str) -> String {
    text.chars().filter(|c| !c.is_control() && !matches!(c, '[' | ']')).take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file<'a>(bytes: &'a [u8], name: &'a str, stem: &'a str) -> InboundFile<'a> {
        InboundFile { bytes, name: Some(name), mime: Some("text/plain"), is_voice: false, stem }
    }

    #[test]
    fn a_session_without_file_tools_is_shown_text_files() {
        let home = tempfile::tempdir().unwrap();
        let note = |bytes: &[u8], is_readable: bool| {
            InboundFolder::new(home.path(), "telegram-7", is_readable).store(file(bytes, "a.txt", "s")).unwrap().0
        };
        let description = |size: usize| format!("media/inbound/telegram-7/s-a.txt (text/plain, {size} bytes)");
        assert_eq!(note(b"hello\n", true), format!("[media attached: {}]", description(6)));
        assert_eq!(note(b"hello\n", false), format!("[media attached: {}]\nhello\n[/media attached]", description(6)));
        let long = "ä".repeat(MAX_SHOWN_CHARS + 1);
        let cut = note(long.as_bytes(), false);
        assert!(cut.contains("; the first 20000 characters]\nä") && cut.matches('ä').count() == MAX_SHOWN_CHARS);
        for bytes in [&b"PK\x03\x04"[..], b"\xff\xfe"] {
            assert!(note(bytes, false).ends_with("; it cannot be opened in this conversation]"));
        }
    }

    #[test]
    fn a_file_name_has_no_path_components() {
        for (name, expected) in [
            ("notes.txt", "a-1-0-notes.txt"),
            ("../../etc/passwd", "a-1-0-_.._etc_passwd"),
            (".bashrc", "a-1-0-bashrc"),
            ("ü/\0x", "a-1-0-___x"),
        ] {
            assert_eq!(file_name(&file(b"", name, "a-1-0")), expected);
        }
        // The stem, a dash, and the last 60 characters of the name.
        assert_eq!(file_name(&file(b"", &"x".repeat(300), "a-1-0")).len(), 66);
    }

    #[test]
    fn a_file_is_stored_at_the_path_in_its_note() {
        let home = tempfile::tempdir().unwrap();
        let folder = InboundFolder::new(home.path(), "telegram-7", true);
        let (note, removal_error) = folder.store(file(b"hello", "a].txt", "a-1-0")).unwrap();
        assert_eq!(note, "[media attached: media/inbound/telegram-7/a-1-0-a_.txt (text/plain, 5 bytes)]");
        assert!(removal_error.is_none());
        assert_eq!(fs::read(home.path().join("media/inbound/telegram-7/a-1-0-a_.txt")).unwrap(), b"hello");
    }

    #[test]
    fn a_link_is_not_followed() {
        let (home, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::os::unix::fs::symlink(elsewhere.path(), home.path().join("media")).unwrap();
        assert!(InboundFolder::new(home.path(), "telegram-7", true).store(file(b"x", "a", "s")).is_err());
        assert_eq!(fs::read_dir(elsewhere.path().join("inbound/telegram-7")).unwrap().count(), 0);
    }

    #[test]
    fn the_oldest_files_are_removed() {
        let home = tempfile::tempdir().unwrap();
        for n in 0..MAX_FILES + 3 {
            fs::write(home.path().join(n.to_string()), "x").unwrap();
        }
        remove_oldest(home.path()).unwrap();
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), MAX_FILES);
    }
}
