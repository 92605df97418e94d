//! Errors of the client.

use std::io;

use serde::Deserialize;

/// An error response.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct RpcError {
    /// Error code for programs.
    pub code: String,
    /// Message for users.
    pub message: String,
}

/// Why a gateway could not be asked, or did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The gateway rejected the request.
    #[error("{}", .0.message)]
    Refused(RpcError),
    /// The gateway cannot be reached, or the connection was lost. Whether the request arrived is unknown.
    #[error("{0}")]
    Connection(String),
    /// A part of the config that names the gateway is not valid.
    #[error("{0}")]
    Config(String),
    /// The gateway is not named properly: an URL or a fingerprint is missing or not valid.
    #[error("{0}")]
    Target(String),
    /// The connection could not be set up.
    #[error("cannot set up the connection: {0}")]
    Socket(io::Error),
    /// The gateway sent something else than a frame.
    #[error("the gateway sent an invalid frame: {0}")]
    Frame(serde_json::Error),
    /// The environment cannot be used.
    #[error(transparent)]
    Settings(#[from] homard_settings::Error),
    /// The secret or the certificate cannot be read.
    #[error(transparent)]
    Credentials(#[from] homard_credentials::Error),
}
