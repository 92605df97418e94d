//! Errors of credentials.

use std::{error, io, path::PathBuf};

/// Why a credential cannot be used or stored.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or a setting has to be corrected by its user.
    #[error("{0}")]
    Unusable(String),
    /// A file cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    Read { path: PathBuf, error: io::Error },
    /// A file cannot be changed.
    #[error("cannot write {}: {error}", path.display())]
    Write { path: PathBuf, error: io::Error },
    /// A secret or a certificate cannot be created.
    #[error("cannot create {}: {error}", path.display())]
    Create { path: PathBuf, error: Box<dyn error::Error + Send + Sync> },
    /// A value cannot be stored as JSON.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// The environment cannot be used.
    #[error(transparent)]
    Settings(#[from] homard_settings::Error),
}
