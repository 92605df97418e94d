//! Glob patterns for paths, such as `*.rs` or `src/**/*.ts`.

use std::path::Path;

use globset::{GlobBuilder, GlobMatcher};

use crate::{Error, error::ArgumentError};

/// A glob pattern. Without a slash it matches names at any depth; with one, whole paths.
#[derive(Debug)]
pub(crate) struct Glob {
    matcher: GlobMatcher,
    matches_names: bool,
}

impl Glob {
    /// Parses a pattern.
    pub(crate) fn parse(pattern: &str) -> Result<Self, Error> {
        let path = pattern.trim_start_matches("./").trim_matches('/');
        let mut builder = GlobBuilder::new(path);
        match builder.literal_separator(true).empty_alternates(true).build() {
            Ok(glob) => Ok(Self {
                matcher: glob.compile_matcher(),
                matches_names: !pattern.trim_end_matches('/').contains('/'),
            }),
            Err(error) => Err(Error::Argument(ArgumentError::BadGlob {
                pattern: pattern.to_owned(),
                why: error.kind().to_string(),
            })),
        }
    }

    /// True if a path matches.
    pub(crate) fn is_match(&self, path: &Path) -> bool {
        if self.matches_names {
            path.file_name().is_some_and(|name| self.matcher.is_match(name))
        } else {
            self.matcher.is_match(path)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_about_names_or_about_paths() {
        let paths = ["a.rs", "src/a.rs", "src/b/a.rs", "src/b", "é.rs", ".x.rs"];
        for (pattern, expected) in [
            ("*.rs", &["a.rs", "src/a.rs", "src/b/a.rs", "é.rs", ".x.rs"][..]),
            ("a.rs", &["a.rs", "src/a.rs", "src/b/a.rs"]),
            ("src/*.rs", &["src/a.rs"]),
            ("./src/*.rs", &["src/a.rs"]),
            ("/src/*.rs", &["src/a.rs"]),
            ("/a.rs", &["a.rs"]),
            ("src/**/*.rs", &["src/a.rs", "src/b/a.rs"]),
            ("**/*.rs", &["a.rs", "src/a.rs", "src/b/a.rs", "é.rs", ".x.rs"]),
            ("b/", &["src/b"]),
            ("?.rs", &["a.rs", "src/a.rs", "src/b/a.rs"]), // `?` matches one byte; é has two.
            ("{a,é}.rs", &["a.rs", "src/a.rs", "src/b/a.rs", "é.rs"]),
            ("A.rs", &[]),
        ] {
            let glob = Glob::parse(pattern).unwrap();
            let found: Vec<_> = paths.into_iter().filter(|path| glob.is_match(Path::new(path))).collect();
            assert_eq!(found, expected, "{pattern}");
        }
    }
}
