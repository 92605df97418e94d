//! Files of a config, and locations in them.

use std::{
    fs::File,
    io::{self, ErrorKind, Read},
    path::{Path, PathBuf},
};

use crate::{problem::SourceLocation, tree::SourceOffset};

/// Maximum size of a file.
const MAX_FILE_BYTES: u64 = 8 << 20;

/// Reads a file: `None` if it does not exist. The error says why it cannot be read and continues its path, such as
/// `is a directory`.
pub(crate) fn read(path: &Path) -> Result<Option<Vec<u8>>, String> {
    let read = || -> io::Result<Result<Vec<u8>, &'static str>> {
        let kind = path.metadata()?.file_type();
        if kind.is_dir() {
            return Ok(Err("is a directory"));
        }
        if may_block(kind) {
            return Ok(Err("is not a regular file"));
        }
        let mut bytes = Vec::new();
        File::open(path)?.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
        Ok(if bytes.len() as u64 > MAX_FILE_BYTES { Err("is bigger than 8 MiB") } else { Ok(bytes) })
    };
    match read() {
        Ok(Ok(bytes)) => Ok(Some(bytes)),
        Ok(Err(why)) => Err(why.to_owned()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("cannot be read: {}", error.kind())),
    }
}

/// True if opening it could block until there is a writer.
#[cfg(unix)]
fn may_block(kind: std::fs::FileType) -> bool {
    use std::os::unix::fs::FileTypeExt;
    kind.is_fifo() || kind.is_socket()
}

#[cfg(not(unix))]
fn may_block(_: std::fs::FileType) -> bool {
    false
}

/// Decodes a file's bytes, without the byte order mark that some editors write.
pub(crate) fn text(bytes: Vec<u8>) -> Result<String, String> {
    let text = String::from_utf8(bytes)
        .map_err(|error| format!("is not valid UTF-8: byte {} is invalid", error.utf8_error().valid_up_to() + 1))?;
    Ok(match text.strip_prefix('\u{feff}') {
        Some(text) => text.to_owned(),
        None => text,
    })
}

/// Files that were read, the config itself first.
pub(crate) struct Files {
    main: PathBuf,
    texts: Vec<(PathBuf, String)>,
}

impl Files {
    /// Creates an empty set for the config at `main`.
    pub(crate) fn new(main: &Path) -> Self {
        Self { main: main.to_owned(), texts: Vec::new() }
    }

    /// Returns the folder of the config.
    pub(crate) fn folder(&self) -> &Path {
        self.main.parent().unwrap_or(Path::new(""))
    }

    /// Adds a file, and returns its number.
    pub(crate) fn add(&mut self, path: &Path, text: String) -> usize {
        self.texts.push((path.to_owned(), text));
        self.texts.len() - 1
    }

    /// Returns the text of an added file.
    pub(crate) fn text(&self, file: usize) -> &str {
        self.texts.get(file).map_or("", |(_, text)| text)
    }

    /// Returns the number of bytes read.
    pub(crate) fn size(&self) -> usize {
        self.texts.iter().map(|(_, text)| text.len()).sum()
    }

    /// Returns the name of a file for messages.
    pub(crate) fn name(&self, path: &Path) -> PathBuf {
        path.strip_prefix(self.folder()).unwrap_or(path).to_owned()
    }

    /// Returns the location of an offset for messages.
    pub(crate) fn location(&self, at: SourceOffset) -> SourceLocation {
        let before = self.text(at.file).get(..at.offset).unwrap_or_default();
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let path = self.texts.get(at.file).map(|(path, _)| path);
        SourceLocation {
            file: path.filter(|_| at.file > 0).map(|path| self.name(path)),
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn read_errors_give_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(read(folder.path()), Err("is a directory".to_owned()));
        assert_eq!(read(&folder.path().join("none")), Ok(None));
        let large = folder.path().join("large");
        File::create(&large).unwrap().set_len(MAX_FILE_BYTES + 1).unwrap();
        assert_eq!(read(&large), Err("is bigger than 8 MiB".to_owned()));
        let small = folder.path().join("small");
        fs::write(&small, "{}").unwrap();
        assert_eq!(read(&small.join("below")), Err("cannot be read: not a directory".to_owned()));
        assert_eq!(read(&small), Ok(Some(b"{}".to_vec())));
        let socket = folder.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        assert_eq!(read(&socket), Err("is not a regular file".to_owned()));
    }

    #[test]
    fn a_text_is_utf8_with_or_without_a_bom() {
        assert_eq!(text(b"\xef\xbb\xbf{}".to_vec()), Ok("{}".to_owned()));
        assert_eq!(text(b"{}\xff".to_vec()), Err("is not valid UTF-8: byte 3 is invalid".to_owned()));
    }

    #[test]
    fn locations_are_counted_in_lines_and_characters() {
        let mut files = Files::new(Path::new("/a/main.json"));
        assert_eq!(files.add(Path::new("/a/main.json"), "{\n  é: 1}".to_owned()), 0);
        assert_eq!(files.add(Path::new("/a/b/more.json"), "{}".to_owned()), 1);
        assert_eq!(files.add(Path::new("/c/far.json"), "{}".to_owned()), 2);
        assert_eq!(
            files.location(SourceOffset { file: 0, offset: 8 }),
            SourceLocation { file: None, line: 2, column: 6 }
        );
        let location = |file: &str| SourceLocation { file: Some(file.into()), line: 1, column: 2 };
        assert_eq!(files.location(SourceOffset { file: 1, offset: 1 }), location("b/more.json"));
        assert_eq!(files.location(SourceOffset { file: 2, offset: 1 }), location("/c/far.json"));
    }
}
