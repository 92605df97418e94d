//! A full-text index of what an agent has written down.
//!
//! It knows words, not meanings: there are no embeddings. What is in it can be found again in the files, so it is only
//! a copy: one that is broken is thrown away and made anew. This crate refuses to know workspaces, tools and agents;
//! whoever asks says which texts there are and reads those that have changed.
//! Start with `Memory`; then `chunk` and `words`, which are pure.
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

/// A text that can be found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// Its name.
    pub path: String,
    /// What differs whenever the text does: its time and length, say.
    pub mark: String,
}

/// What is asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// Words, in any order.
    pub words: String,
    /// How many answers are wanted at most.
    pub most: usize,
    /// How good they must be, from 0 to 1.
    pub least: f64,
}

/// A place where words were found.
#[derive(Debug, Clone, PartialEq)]
pub struct Hit {
    /// The text.
    pub path: String,
    /// The first line of the passage, counted from 1.
    pub start: u64,
    /// Its last line.
    pub end: u64,
    /// How much of what was asked for is there, from 0 to 1; a rare word counts more than a common one.
    pub score: f64,
    /// The part of the passage that says most about it.
    pub snippet: String,
}

/// Why an index cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database does not work.
    #[error("the database of the index: {0}")]
    Database(#[from] rusqlite::Error),
    /// Its file cannot be made.
    #[error("the file of the index: {0}")]
    File(#[from] io::Error),
    /// It was made by another version of this program.
    #[error("the index has the format {0}, which is another one than ours")]
    Format(i64),
}

/// What an agent remembers.
#[derive(Debug)]
pub struct Memory {
    file: Option<PathBuf>,
    index: Option<Index>,
}

impl Memory {
    /// A memory whose index is kept in a file, which is made when it is needed.
    pub fn on_disk(file: PathBuf) -> Self {
        Self { file: Some(file), index: None }
    }

    /// A memory whose index goes with it.
    pub fn fleeting() -> Self {
        Self { file: None, index: None }
    }

    /// Answers a question from the texts that there are. `read` is asked for those that are new or have changed;
    /// one that it cannot give is left out until the next time.
    ///
    /// Waits for a disk. An index that does not work is made anew; one that cannot be kept on disk is held in memory.
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

/// Removes an index and what SQLite left beside it.
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
