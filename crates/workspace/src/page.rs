//! A file of the workspace as a prompt has it.

use std::{borrow::Cow, path::PathBuf};

/// A file of the workspace as a prompt has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Its name, such as `AGENTS.md`.
    pub name: Cow<'static, str>,
    /// Where it is.
    pub path: PathBuf,
    /// What is said of it.
    pub body: Body,
    /// How many characters the file has; zero if it could not be read.
    pub chars: usize,
}

/// What a prompt says of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// All of it.
    Whole(String),
    /// Its beginning and its end, with a mark between them that says so.
    Cut(String),
    /// It is not there, and a reader would expect it.
    Missing,
    /// It is there and cannot be used: why, in plain words.
    Unusable(String),
}
