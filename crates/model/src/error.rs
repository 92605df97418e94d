//! Why a model did not answer.

use std::time::Duration;

/// A failure, with the facts that a retry or a failover decides on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// What the caller can do about it.
    pub kind: ErrorKind,
    /// The provider's HTTP status, if it got that far.
    pub status: Option<u16>,
    /// How long the provider asks to wait.
    pub retry_after: Option<Duration>,
    /// For people: names the provider and what it said.
    pub message: String,
}

/// What the caller can do about a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The provider was not reached.
    Connect,
    /// Too many requests.
    RateLimit,
    /// The provider is overloaded or broken.
    Server,
    /// The key is wrong or may not do this.
    Auth,
    /// The request is wrong; the same one will fail again.
    Rejected,
    /// The answer was not what the wire promises: not a stream, not JSON.
    Malformed,
    /// The answer stopped in the middle.
    Truncated,
    /// Nothing came for too long.
    Idle,
}

impl Error {
    /// A failure without an HTTP status.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, status: None, retry_after: None, message: message.into() }
    }
}
