//! Why a plugin did not do what it was asked.

use std::time::Duration;

use homard_hooks::HookError;

/// Why a plugin did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It said so.
    #[error("{0}")]
    Failed(String),
    /// It is not there: it is off, ended, or left alone for a while.
    #[error("{0}")]
    Gone(String),
    /// It took too long.
    #[error("no answer within {} ms", .0.as_millis())]
    Late(Duration),
}

impl Error {
    /// Whether the plugin is to blame, and may do it again.
    pub(crate) fn is_ailing(&self) -> bool {
        match self {
            Self::Failed(_) => false,
            Self::Gone(_) | Self::Late(_) => true,
        }
    }
}

impl From<Error> for HookError {
    fn from(error: Error) -> Self {
        match error {
            Error::Failed(why) => Self::Failed(why),
            Error::Gone(why) => Self::Gone(why),
            Error::Late(within) => Self::Late(within),
        }
    }
}
