//! A text file that is about to be changed, loaded completely, with its original line breaks.

use std::{io::Read, os::unix::fs::MetadataExt};

use tokio_util::sync::CancellationToken;

use crate::{
    Error,
    cancel_reader::CancelReader,
    error::{MachineError, PathError},
    path_guard::PathGuard,
};

/// Maximum size of a file in MiB.
const MAX_MIB: u64 = 16;

/// A text file.
#[derive(Debug)]
pub(crate) struct TextFile {
    /// The whole content.
    pub(crate) content: String,
    /// Device and inode, which identify the file whatever its path is.
    pub(crate) identity: (u64, u64),
}

impl TextFile {
    /// Reads a file. It must be UTF-8, because anything else could not be written back unchanged.
    pub(crate) fn load(guard: &PathGuard, path: &str, cancel: &CancellationToken) -> Result<Self, Error> {
        let file = guard.file(path)?;
        let failed = |source| Error::Machine(MachineError::Io { path: path.to_owned(), source });
        let metadata = file.metadata().map_err(failed)?;
        let max = MAX_MIB * 1024 * 1024;
        let mut bytes = Vec::new();
        // One byte more than the limit, because the file may grow while it is read.
        CancelReader::new(file, cancel).take(max + 1).read_to_end(&mut bytes).map_err(failed)?;
        if bytes.len() as u64 > max {
            return Err(Error::Path(PathError::TooLarge { path: path.to_owned(), most: MAX_MIB }));
        }
        match String::from_utf8(bytes) {
            Ok(content) if !content.contains('\0') => Ok(Self { content, identity: (metadata.dev(), metadata.ino()) }),
            Ok(_) | Err(_) => Err(Error::Path(PathError::NotText { path: path.to_owned() })),
        }
    }
}

/// Returns the line break of a text: that of its first line.
pub(crate) fn line_break(text: &str) -> &'static str {
    match text.split_once('\n') {
        Some((first, _)) if first.ends_with('\r') => "\r\n",
        Some(_) | None => "\n",
    }
}

/// Converts line breaks to LF.
pub(crate) fn to_lf(text: &str) -> String {
    text.replace("\r\n", "\n")
}

/// Maps typographic characters to the ASCII ones that models write instead.
pub(crate) fn to_ascii_punctuation(character: char) -> char {
    match character {
        '\u{2018}'..='\u{201b}' => '\'',
        '\u{201c}'..='\u{201f}' => '"',
        '\u{2010}'..='\u{2015}' | '\u{2212}' => '-',
        '\u{a0}' | '\u{2002}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}' => ' ',
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_determines_the_line_break() {
        for (text, expected) in
            [("", "\n"), ("a", "\n"), ("a\nb\r\n", "\n"), ("a\r\nb\n", "\r\n"), ("\r\n", "\r\n"), ("a\rb", "\n")]
        {
            assert_eq!(line_break(text), expected, "{text:?}");
        }
    }

    #[test]
    fn typographic_characters_become_ascii() {
        let ascii: String = "‘a’ “b” – c\u{a0}d − é ,".chars().map(to_ascii_punctuation).collect();
        assert_eq!(ascii, "'a' \"b\" - c d - é ,");
    }
}
