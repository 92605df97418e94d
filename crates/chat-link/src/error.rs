//! Errors of the crate.

use std::io;

/// Why a chat cannot start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The session key is not valid.
    #[error("session key: {0}")]
    SessionKey(String),
    /// There is no earlier session.
    #[error("no chat to continue yet; start one with: homard chat, or open a session with --session KEY")]
    NothingToContinue,
    /// A process for the gateway cannot be started.
    #[error("{what}: {error}")]
    Process {
        /// What failed.
        what: &'static str,
        /// Reason.
        error: io::Error,
    },
    /// The environment cannot be used.
    #[error(transparent)]
    Settings(#[from] homard_settings::Error),
}
