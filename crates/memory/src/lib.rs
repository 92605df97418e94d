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

use crate::index::MemoryIndex;

/// An indexed text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemorySource {
    /// Path of the text, which identifies it.
    pub path: String,
    /// Version of the text: a value that differs whenever the text does, such as its modification time and length.
    pub version: String,
}

/// A query.
#[derive(Debug, Clone, PartialEq)]
pub struct MemoryQuery {
    /// Words, in any order.
    pub text: String,
    /// Maximum number of results.
    pub max_results: usize,
    /// Minimum score, from 0 to 1.
    pub min_score: f64,
}

/// A search result.
#[derive(Debug, Clone, PartialEq)]
pub struct MemoryHit {
    /// Path of the text.
    pub path: String,
    /// First line of the passage, counted from 1.
    pub start: u64,
    /// Last line of the passage.
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
    #[error("index database error: {0}")]
    Database(#[from] rusqlite::Error),
    /// The file cannot be created.
    #[error("cannot create the index file: {0}")]
    File(#[from] io::Error),
    /// The index was created by another version of this program.
    #[error("the index has the unsupported format {0}")]
    Format(i64),
}

/// Searchable notes of an agent.
#[derive(Debug)]
pub struct Memory {
    file: Option<PathBuf>,
    index: Option<MemoryIndex>,
}

impl Memory {
    /// Creates a memory with an index on disk; the file is created when it is needed.
    pub fn on_disk(file: PathBuf) -> Self {
        Self { file: Some(file), index: None }
    }

    /// Creates a memory with an index in RAM.
    pub fn in_ram() -> Self {
        Self { file: None, index: None }
    }

    /// Answers a query. `read` is called for texts that are new or have changed; one that it cannot return is omitted
    /// until the next query.
    ///
    /// Blocks on the disk. A broken index is rebuilt; one that cannot be stored on disk is held in memory.
    pub fn search(
        &mut self,
        sources: &[MemorySource],
        mut read: impl FnMut(&str) -> Option<String>,
        query: &MemoryQuery,
    ) -> Result<Vec<MemoryHit>, Error> {
        let result = self.attempt(sources, &mut read, query);
        let Err(error) = result else { return result };
        let Some(file) = self.file.clone() else { return Err(error) };
        tracing::warn!(path = %file.display(), %error, "memory index is broken; rebuilding it");
        self.index = None;
        remove_index(&file);
        let rebuilt = self.attempt(sources, &mut read, query);
        let Err(error) = rebuilt else { return rebuilt };
        tracing::warn!(path = %file.display(), %error, "cannot store the memory index on disk; keeping it in memory");
        *self = Self::in_ram();
        self.attempt(sources, &mut read, query)
    }

    fn attempt(
        &mut self,
        sources: &[MemorySource],
        read: &mut impl FnMut(&str) -> Option<String>,
        query: &MemoryQuery,
    ) -> Result<Vec<MemoryHit>, Error> {
        if self.index.as_ref().is_some_and(MemoryIndex::is_replaced) {
            self.index = None;
        }
        let index = match self.index.take() {
            Some(index) => index,
            None => MemoryIndex::open(self.file.as_deref())?,
        };
        let index = self.index.insert(index);
        index.refresh(sources, read)?;
        index.search(query)
    }
}

/// Removes an index and SQLite's files beside it.
fn remove_index(file: &Path) {
    for ending in ["", "-wal", "-shm", "-journal"] {
        let mut name = file.as_os_str().to_owned();
        name.push(ending);
        match fs::remove_file(&name) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(path = %Path::new(&name).display(), %error, "failed to remove a broken memory index");
            }
            Ok(()) | Err(_) => {}
        }
    }
}
