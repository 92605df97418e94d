//! Changes of the config file by commands other than `homard config`. Comments are kept.

use anyhow::Result;
use homard_config::edit::EditError;
use homard_settings::{
    change::{ChangeAuthor, ConfigChange, ConfigChangeError, change},
    paths::Paths,
};

use crate::cli_error::CliError;

/// Changes the config file.
pub(super) fn edit_config(paths: &Paths, edit: impl Fn(&str) -> Result<String, EditError>) -> Result<ConfigChange> {
    change(paths, ChangeAuthor::User, |text| Ok(edit(text)?)).map_err(|error| {
        match matches!(error, ConfigChangeError::Write(_)) {
            // Keeps the system's error as the source.
            true => error.into(),
            false => CliError::new("config", format!("config file {}: {error}", paths.config.display())).into(),
        }
    })
}
