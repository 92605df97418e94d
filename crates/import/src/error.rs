//! Errors of an import.

use std::{io, path::PathBuf};

use homard_store::Error as StoreError;

/// Why nothing, or not everything, was imported.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no state of OpenClaw's where it was looked for.
    #[error("{0}")]
    Source(String),
    /// A path cannot be made absolute.
    #[error("cannot resolve {}: {error}", path.display())]
    Path { path: PathBuf, error: io::Error },
    /// A file or directory cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    Read { path: PathBuf, error: io::Error },
    /// A directory cannot be listed.
    #[error("cannot list {}: {error}", path.display())]
    List { path: PathBuf, error: io::Error },
    /// A file cannot be written.
    #[error("cannot write {}: {error}", path.display())]
    Write { path: PathBuf, error: io::Error },
    /// Something else changed the state at the same time.
    #[error("a session changed while it was imported; import again")]
    Changed,
    /// The state directory is in use, or the disk fails.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The list of the sessions could not be written.
    #[error("cannot write the session list: {0}")]
    SessionList(StoreError),
}
