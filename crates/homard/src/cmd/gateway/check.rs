//! `homard gateway check`: checks whether a gateway could start. A running gateway asks the program that is to replace it.

use anyhow::Result;
use homard_journal::checkup::{self, DatabaseStatus};
use homard_settings::{Config, paths::Paths};

use serde_json::json;

use crate::{cli_error::CliError, render};

/// Arguments of `homard gateway check`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Format of the state directory, if a running gateway uses it
    #[arg(long, value_name = "N")]
    state_format: Option<usize>,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// Reads the config and the format of the state directory, and changes nothing.
pub(super) fn run(args: &Args) -> Result<()> {
    let paths = Paths::find()?;
    Config::choose(&paths)?;
    if let Some(newer) = args.state_format.filter(|format| *format > homard_journal::state_format()) {
        return Err(CliError::new("format", homard_journal::newer_format(&paths.state, newer, None)).into());
    }
    // The running gateway, which names the format, has it locked.
    if let DatabaseStatus::Unusable(why) = checkup::database_status(&paths.state) {
        return Err(CliError::new("format", why).into());
    }
    match args.json {
        true => Ok(render::print_json(&json!({"ok": true}))?),
        false => Ok(render::print("a gateway can start with this config and state directory")?),
    }
}
