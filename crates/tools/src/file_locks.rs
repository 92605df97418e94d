//! Locks that serialize file changes: the tool calls of one message run concurrently, and two of them may change the
//! same file.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use homard_stdx::sync::Mutex;

/// One lock per workspace, so that concurrent calls do not overwrite each other's changes.
#[derive(Debug, Clone, Default)]
pub(crate) struct FileLocks(Arc<Mutex<HashMap<PathBuf, Arc<Mutex<()>>>>>);

impl FileLocks {
    /// Acquires the lock of a workspace and runs `action`. Blocks.
    pub(crate) fn with_lock<T>(&self, workdir: &Path, action: impl FnOnce() -> T) -> T {
        // The locks guard no data, so poisoning can be ignored.
        let turn = {
            let mut workspaces = self.0.lock();
            workspaces.entry(workdir.to_owned()).or_default().clone()
        };
        let _mine = turn.lock();
        action()
    }
}
