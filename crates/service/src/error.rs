//! Errors of services.

use std::{io, path::PathBuf};

/// Why a service cannot be installed, changed or inspected.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be written, read or removed.
    #[error("cannot {action} {}: {error}", path.display())]
    File {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Error of the operating system.
        error: io::Error,
    },
    /// A program of the service manager cannot be started.
    #[error("cannot run {program}: {error}")]
    Start {
        /// The program.
        program: String,
        /// Error of the operating system.
        error: io::Error,
    },
    /// A program of the service manager failed.
    #[error("{command} failed ({status}): {output}")]
    Failed {
        /// The command line.
        command: String,
        /// How it ended.
        status: String,
        /// What it wrote to stderr.
        output: String,
    },
    /// The service cannot be described in a file of the service manager.
    #[error("{0}")]
    Spec(String),
    /// Another supervisor serves the same state directory.
    #[error("a supervisor (process {0}) already runs for this state directory")]
    Supervised(u32),
}

impl Error {
    /// Returns a constructor for errors of a file.
    pub(crate) fn file(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |error| Self::File { action, path, error }
    }
}
