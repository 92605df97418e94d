//! Errors of building and running an agent.

use std::{io, path::PathBuf};

use homard_store::Error as StoreError;
use tokio::task::JoinError;

/// Why an agent or a gateway cannot be started, changed or stopped.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The config, or a credential, has to be corrected by the user.
    #[error("{0}")]
    Config(String),
    /// Other users have access to the state directory, and that cannot be corrected.
    #[error("{0}")]
    Permissions(String),
    /// The state directory is in use, or the disk fails.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A part of the state cannot be read or written.
    #[error("{what}: {error}")]
    State { what: &'static str, error: StoreError },
    /// A task of this process failed.
    #[error("{what}: {error}")]
    Task { what: &'static str, error: JoinError },
    /// Unfinished runs cannot be recovered.
    #[error("cannot recover unfinished runs: {0}")]
    Recovery(String),
    /// A file cannot be written.
    #[error("cannot write {}: {error}", path.display())]
    Write { path: PathBuf, error: io::Error },
    /// The gateway cannot listen.
    #[error(transparent)]
    Listen(#[from] homard_gateway::Error),
    /// The audit log cannot be verified.
    #[error("{0}")]
    Audit(String),
    /// The settings cannot be used.
    #[error(transparent)]
    Settings(#[from] homard_settings::Error),
    /// Credentials cannot be used or stored.
    #[error(transparent)]
    Credentials(#[from] homard_credentials::Error),
}
