//! Errors of the settings.

use std::{io, num::ParseIntError, path::PathBuf};

use thiserror::Error;

/// Why settings cannot be used.
#[derive(Debug, Error)]
pub enum Error {
    /// The config file cannot be used, and nothing was started: its user corrects it.
    #[error("{0}")]
    Unusable(String),
    /// An environment variable is missing or not valid.
    #[error("{0}")]
    Environment(String),
    /// The port in the environment is not one.
    #[error("HOMARD_GATEWAY_PORT is \"{text}\", which is not a port (0 to 65535): {error}")]
    Port { text: String, error: ParseIntError },
    /// A path cannot be made absolute.
    #[error("cannot resolve the path {}: {error}", path.display())]
    Path { path: PathBuf, error: io::Error },
    /// A model is named that does not exist or cannot be used.
    #[error("{0}")]
    Model(String),
}
