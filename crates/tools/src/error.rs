//! Why a tool did not do what it was asked. The model reads these: each names the thing and, where there is one, the way out.

use std::{io, path::PathBuf};

/// Why a tool did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("the arguments do not fit: {0}")]
    Arguments(#[source] serde_json::Error),
    #[error("path is missing: name the file")]
    NoPath,
    #[error("{path} leads outside the workspace: only what is inside {} can be used", root.display())]
    Outside { path: String, root: PathBuf },
    #[error("{path} does not exist: use ls to see what does")]
    Missing { path: String },
    #[error("{path} is a directory: use ls to see what is in it")]
    Directory { path: String },
    #[error("{path} is not a directory, or leads through a file")]
    NotDirectory { path: String },
    #[error("{path} is a device, a pipe or a socket: only regular files can be used")]
    Special { path: String },
    #[error("{path} is a symbolic link, which is not replaced: write to the file that it points to")]
    Link { path: String },
    #[error("{path} is read-only: change its mode first")]
    ReadOnly { path: String },
    #[error("{path} is a binary file: only text can be read")]
    Binary { path: String },
    #[error("offset {offset} is past the end of {path}, which has {lines} lines")]
    PastEnd { path: String, offset: u64, lines: u64 },
    #[error("paths cannot be confined here: openat2 is missing, which Linux has since 5.6")]
    NoOpenat2,
    #[error("{path}: {source}")]
    Io { path: String, source: io::Error },
    #[error("the variable {0} is not passed on, because it changes what programs load or run")]
    ForbiddenVariable(String),
    #[error("the variable {0:?} is not passed on: a name has letters, digits and _, and its value is a text")]
    BadVariable(String),
    #[error("timeout must be a number of seconds above 0, not {0}")]
    BadTimeout(f64),
    #[error("commands run on this machine only: leave out host and node")]
    Elsewhere,
    #[error("the run was stopped before the command was started")]
    Stopped,
    #[error("the shell {shell} could not be started: {source}")]
    Start { shell: &'static str, source: io::Error },
    #[error("the work broke off: {0}")]
    Thread(#[source] tokio::task::JoinError),
}
