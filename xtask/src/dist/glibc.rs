//! The oldest C library that a binary works with.

use std::fmt;

/// A version of glibc.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Version(u32, u32);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

/// Returns the newest version of the symbols that a binary needs, from the names in its table of versions; `None` for a
/// static binary.
pub(super) fn required(binary: &[u8]) -> Option<Version> {
    const PREFIX: &[u8] = b"GLIBC_";
    let starts = binary.windows(PREFIX.len()).enumerate().filter(|(_, window)| *window == PREFIX);
    let versions = starts.filter_map(|(at, _)| {
        let name = &binary[at + PREFIX.len()..];
        // The names are strings that end with a zero byte.
        let name = &name[..name.iter().take(16).position(|byte| *byte == 0)?];
        let (major, minor) = std::str::from_utf8(name).ok()?.split_once('.')?;
        let minor = minor.split('.').next()?;
        Some(Version(major.parse().ok()?, minor.parse().ok()?))
    });
    versions.max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_is_required() {
        let binary = b"\0GLIBC_2.2.5\0GLIBC_2.34\0GLIBC_2.4\0GLIBC_PRIVATE\0about GLIBC_2.99 in a text";
        assert_eq!(required(binary).map(|version| version.to_string()).as_deref(), Some("2.34"));
        assert_eq!(required(b"static"), None);
    }
}
