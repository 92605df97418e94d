//! Whose turn it is to change files: the calls of one message run together, and two of them may mean the same file.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

/// Lets one call at a time change the files of a workspace, so that none undoes what another just did.
#[derive(Debug, Clone, Default)]
pub(crate) struct Turns(Arc<Mutex<HashMap<PathBuf, Arc<Mutex<()>>>>>);

impl Turns {
    /// Waits for its turn in the workspace, then does the work. It blocks.
    pub(crate) fn take<T>(&self, workdir: &Path, work: impl FnOnce() -> T) -> T {
        // Nothing is kept under these locks, so a panic while one was held has broken nothing.
        let turn = {
            let mut workspaces = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            workspaces.entry(workdir.to_owned()).or_default().clone()
        };
        let _mine = turn.lock().unwrap_or_else(PoisonError::into_inner);
        work()
    }
}
