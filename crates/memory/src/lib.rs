//! Full-text index of an agent's notes.
//!
//! It matches words, not meanings: there are no embeddings. The index is a copy of what is in the files, so a broken
//! one is deleted and rebuilt. This crate does not depend on workspaces, tools or agents; the caller lists the texts
//! and reads those that have changed. Start with `Memory`; then `chunk` and `words`, which are pure.
#![warn(missing_docs)]

mod chunk;
mod excerpt;
mod index;
mod words;

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::index::Index;

/// An indexed text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// Name of the text.
    pub path: String,
    /// Version of the text: changes whenever it does, for example its time and length.
    pub mark: String,
}

/// A query.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// Words, in any order.
    pub words: String,
    /// Maximum number of results.
    pub most: usize,
    /// Minimum score, from 0 to 1.
    pub least: f64,
}

/// A search result.
#[derive(Debug, Clone, PartialEq)]
pub struct Hit {
    /// Name of the text.
    pub path: String,
    /// First line of the passage, counted from 1.
    pub start: u64,
    /// Last line.
    pub end: u64,
    /// Share of the query that matches, from 0 to 1; a rare word counts more than a common one.
    pub score: f64,
    /// Excerpt of the passage.
    pub snippet: String,
}

/// Errors of an index.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A database error.
    #[error("the database of the index: {0}")]
    Database(#[from] rusqlite::Error),
    /// The file cannot be created.
    #[error("the file of the index: {0}")]
    File(#[from] io::Error),
    /// The index was created by another version of this program.
    #[error("the index has the format {0}, which is another one than ours")]
    Format(i64),
}

/// Searchable notes of an agent.
#[derive(Debug)]
pub struct Memory {
    file: Option<PathBuf>,
    index: Option<Index>,
}

impl Memory {
    /// Creates a memory with an index on disk; the file is created when it is needed.
    pub fn on_disk(file: PathBuf) -> Self {
        Self { file: Some(file), index: None }
    }

    /// Creates a memory with an index in RAM.
    pub fn fleeting() -> Self {
        Self { file: None, index: None }
    }

    /// Answers a query. `read` is called for texts that are new or have changed; one that it cannot return is omitted
    /// until the next query.
    ///
    /// Blocks on the disk. A broken index is rebuilt; one that cannot be stored on disk is held in memory.
    pub fn ask(
        &mut self,
        sources: &[Source],
        mut read: impl FnMut(&str) -> Option<String>,
        question: &Question,
    ) -> Result<Vec<Hit>, Error> {
        let first = self.attempt(sources, &mut read, question);
        let Err(error) = first else { return first };
        let Some(file) = self.file.clone() else { return Err(error) };
        tracing::warn!(path = %file.display(), %error, "the index of a memory is made anew");
        self.index = None;
        forget(&file);
        let second = self.attempt(sources, &mut read, question);
        let Err(error) = second else { return second };
        tracing::warn!(path = %file.display(), %error, "the index of a memory cannot be kept on disk");
        *self = Self::fleeting();
        self.attempt(sources, &mut read, question)
    }

    fn attempt(
        &mut self,
        sources: &[Source],
        read: &mut impl FnMut(&str) -> Option<String>,
        question: &Question,
    ) -> Result<Vec<Hit>, Error> {
        if self.index.as_ref().is_some_and(Index::is_gone) {
            self.index = None;
        }
        let index = match self.index.take() {
            Some(index) => index,
            None => Index::open(self.file.as_deref())?,
        };
        let index = self.index.insert(index);
        index.refresh(sources, read)?;
        index.search(question)
    }
}

/// Removes an index and SQLite's files beside it.
fn forget(file: &Path) {
    for ending in ["", "-wal", "-shm", "-journal"] {
        let mut name = file.as_os_str().to_owned();
        name.push(ending);
        match fs::remove_file(&name) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(path = %Path::new(&name).display(), %error, "a broken index stays");
            }
            Ok(()) | Err(_) => {}
        }
    }
}
