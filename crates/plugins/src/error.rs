//! Errors of plugin calls.

use std::time::Duration;

use homard_hooks::HookError;

/// Why a plugin call failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The plugin reported an error.
    #[error("{0}")]
    Failed(String),
    /// The plugin is unavailable: disabled, ended, or its circuit breaker is open.
    #[error("{0}")]
    Unavailable(String),
    /// The plugin exceeded its deadline.
    #[error("no answer within {} ms", .0.as_millis())]
    Timeout(Duration),
}

impl Error {
    /// True if the failure counts towards the plugin's circuit breaker.
    pub(crate) fn trips_breaker(&self) -> bool {
        match self {
            Self::Failed(_) => false,
            Self::Unavailable(_) | Self::Timeout(_) => true,
        }
    }
}

impl From<Error> for HookError {
    fn from(error: Error) -> Self {
        match error {
            Error::Failed(reason) => Self::Failed(reason),
            Error::Unavailable(reason) => Self::Unavailable(reason),
            Error::Timeout(timeout) => Self::Timeout(timeout),
        }
    }
}
