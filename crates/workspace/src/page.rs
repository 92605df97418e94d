//! A workspace file as part of a prompt.

use std::{borrow::Cow, path::PathBuf};

/// A workspace file as part of a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptPage {
    /// File name, such as `AGENTS.md`.
    pub name: Cow<'static, str>,
    /// Path of the file.
    pub path: PathBuf,
    /// Content.
    pub body: PageBody,
    /// Number of characters of the file; zero if it could not be read.
    pub chars: usize,
}

/// Content of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PageBody {
    /// The complete file.
    Whole(String),
    /// Its beginning and its end, with a note between them.
    Cut(String),
    /// The file does not exist although it is expected.
    Missing,
    /// The file cannot be used: why, in plain words.
    Unusable(String),
}
