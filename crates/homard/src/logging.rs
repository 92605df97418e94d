//! Log lines, to stderr.

use std::io::{self, IsTerminal};

use anyhow::{Context, Result};
use tracing_subscriber::EnvFilter;

use crate::{paths, render};

/// Starts logging at the level that `HOMARD_LOG` names, or else at this one.
pub(crate) fn start(default: &str) -> Result<()> {
    let asked = paths::text("LOG")?;
    let filter = EnvFilter::try_new(asked.as_deref().unwrap_or(default))
        .context("HOMARD_LOG is not a level (error, warn, info, debug, trace) or a list such as homard=debug,warn")?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal() && render::colours_wanted())
        .init();
    Ok(())
}
