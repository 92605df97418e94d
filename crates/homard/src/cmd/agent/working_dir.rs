//! Checks whether a local turn may work in the current directory, with a confirmation on the terminal if that is risky.

use std::path::Path;

use anyhow::Result;
use homard_app::working_dir;
use homard_settings::{Config, paths::Paths};

use crate::{cli_error::CliError, cmd::prompt};

/// Checks that a turn may work in a directory: asks on a terminal if that is risky, and refuses without one.
/// `is_allowed` means that the user has already agreed, by the flag.
pub(super) fn check(directory: &Path, config: &Config, paths: &Paths, is_allowed: bool) -> Result<()> {
    let path = directory.display();
    if let Some(refusal) = working_dir::refusal(directory, config, paths) {
        let text = format!("{refusal}\nstart the command in another directory, or in an agent's workspace");
        return Err(CliError::usage(text).into());
    }
    let Some(risk) = working_dir::risk(directory, paths).filter(|_| !is_allowed) else {
        return Ok(());
    };
    let label = risk.describe();
    let question = format!(
        "{path} is {label}. The agent can read and change what is in it, except credentials, shell start files and \
         Homard's state.\nWork here?"
    );
    match prompt::confirm(&question)? {
        Some(true) => Ok(()),
        Some(false) => Err(CliError::new("usage", format!("the turn was not started in {path}")).into()),
        None => Err(CliError::usage(format!(
            "{path} is {label}, and without a terminal you cannot confirm that the agent may work in it\n\
             start the command in another directory, or allow this one with --work-here"
        ))
        .into()),
    }
}
