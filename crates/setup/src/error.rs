//! Errors of a setup.

use homard_settings::change::ConfigChangeError;

/// Why something was not set up.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What the caller passed or typed cannot be used.
    #[error("{0}")]
    Usage(String),
    /// The thing to change does not exist.
    #[error("{0}")]
    NotFound(String),
    /// The config has to be corrected.
    #[error("{0}")]
    Config(String),
    /// A model, or the server of one, did not answer as needed.
    #[error("{0}")]
    Model(String),
    /// A chat channel did not answer as needed.
    #[error("{0}")]
    Channel(String),
    /// No model was found, and none may be asked for.
    #[error("{0}")]
    NoModel(String),
    /// The user left at a question. The text says what was changed by then.
    #[error("{0}")]
    Interrupted(String),
    /// An answer cannot be read.
    #[error("{0}")]
    Input(String),
    /// The config cannot be written.
    #[error(transparent)]
    Change(#[from] ConfigChangeError),
    /// The models or their keys cannot be used.
    #[error(transparent)]
    App(#[from] homard_app::Error),
    /// The settings cannot be used.
    #[error(transparent)]
    Settings(#[from] homard_settings::Error),
    /// Credentials cannot be read or stored.
    #[error(transparent)]
    Credentials(#[from] homard_credentials::Error),
}
