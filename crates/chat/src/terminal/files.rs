//! Files that the chat reads: names for completion, pictures, and the text of the editor.

use std::{
    fs,
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use base64::{Engine, prelude::BASE64_STANDARD};

use crate::composer::Image;

/// Maximum number of files that are listed.
const MAX_FILES: usize = 5_000;
/// Maximum number of directories that are read.
const MAX_DIRECTORIES: usize = 2_000;
/// Directories that are not listed: their files are not written by hand.
const SKIPPED: [&str; 8] = [".git", "target", "node_modules", ".venv", "__pycache__", "dist", ".cache", ".idea"];
/// Maximum size of a picture, as in the gateway.
const MAX_IMAGE: u64 = 5_000_000;

/// Lists the files and directories below a directory, nearest first.
pub(super) fn list(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut directories = std::collections::VecDeque::from([PathBuf::new()]);
    let mut read = 0;
    while let Some(directory) = directories.pop_front() {
        read += 1;
        if read > MAX_DIRECTORIES {
            break;
        }
        let Ok(entries) = fs::read_dir(root.join(&directory)) else { continue };
        let mut entries: Vec<_> = entries.filter_map(Result::ok).collect();
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let Some(name) = entry.file_name().to_str().map(str::to_owned) else { continue };
            let path = directory.join(&name);
            let Some(text) = path.to_str().map(crate::sanitize::one_line) else { continue };
            // Links are not followed.
            let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if is_directory && SKIPPED.contains(&name.as_str()) {
                continue;
            }
            found.push(if is_directory { format!("{text}/") } else { text });
            if found.len() >= MAX_FILES {
                return found;
            }
            if is_directory {
                directories.push_back(path);
            }
        }
    }
    found
}

/// Reads the picture that a pasted text names; `None` if it names none.
pub(super) fn read_image(pasted: &str, directory: &Path, home: Option<&Path>) -> Result<Option<Image>, String> {
    let path = image_path(pasted, directory, home);
    let Ok(metadata) = fs::metadata(&path) else { return Ok(None) };
    if !metadata.is_file() {
        return Ok(None);
    }
    if metadata.len() > MAX_IMAGE {
        return Err(format!("{} is larger than {} MB", path.display(), MAX_IMAGE / 1_000_000));
    }
    let mut content = Vec::new();
    let read = fs::File::open(&path).and_then(|file| file.take(MAX_IMAGE).read_to_end(&mut content));
    read.map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
    let Some(mime) = mime(&content) else { return Ok(None) };
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    Ok(Some(Image { name, mime: mime.to_owned(), content: BASE64_STANDARD.encode(&content) }))
}

/// Returns the path that a pasted text means: terminals quote or escape the paths of dropped files.
fn image_path(pasted: &str, directory: &Path, home: Option<&Path>) -> PathBuf {
    let text = pasted.trim();
    let quoted = ['\'', '"'].iter().find_map(|quote| text.strip_prefix(*quote)?.strip_suffix(*quote));
    let text = quoted.map_or_else(|| text.replace("\\ ", " "), str::to_owned);
    let text = text.strip_prefix("file://").map_or_else(|| text.clone(), |path| path.replace("%20", " "));
    match (text.strip_prefix("~/"), home) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => directory.join(text),
    }
}

/// Recognises the type of a picture by its first bytes.
fn mime(content: &[u8]) -> Option<&'static str> {
    match content {
        [0x89, b'P', b'N', b'G', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        _ => None,
    }
}

/// A text in a temporary file that only the user can read. It is deleted when this is dropped.
pub(super) struct TextFile(tempfile::NamedTempFile);

impl TextFile {
    pub(super) fn create(text: &str) -> io::Result<Self> {
        let mut file = tempfile::Builder::new().prefix("message-").suffix(".md").tempfile()?;
        file.write_all(text.as_bytes())?;
        file.flush()?;
        Ok(Self(file))
    }

    pub(super) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(super) fn read(&self) -> io::Result<String> {
        // The editor may have replaced the file.
        fs::read_to_string(self.0.path())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_listed_nearest_first() {
        let root = tempfile::tempdir().unwrap();
        for path in ["src/deep/a.rs", "src/b.rs", "c.md", "target/x", ".git/config"] {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        assert_eq!(list(root.path()), ["c.md", "src/", "src/b.rs", "src/deep/", "src/deep/a.rs"]);
    }

    #[test]
    fn pasted_paths_of_pictures_are_read() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("a b.png"), b"\x89PNG\r\n").unwrap();
        fs::write(root.path().join("no.png"), b"text").unwrap();
        for pasted in ["a b.png", "'a b.png' ", "a\\ b.png", "~/a b.png"] {
            let image = read_image(pasted, root.path(), Some(root.path())).unwrap().unwrap();
            assert_eq!((image.name.as_str(), image.mime.as_str()), ("a b.png", "image/png"), "{pasted}");
        }
        let url = format!("file://{}/a%20b.png", root.path().display());
        assert!(read_image(&url, Path::new("/"), None).unwrap().is_some());
        assert_eq!(read_image("no.png", root.path(), None), Ok(None));
        assert_eq!(read_image("none.png", root.path(), None), Ok(None));
    }
}
