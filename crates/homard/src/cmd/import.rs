//! `homard import openclaw`: imports the state of OpenClaw 2026.2 and 2026.9. The import itself is in `homard-import`.

pub(super) mod report;

use std::{
    io::{self, IsTerminal, Write},
    path::PathBuf,
};

use anyhow::Result;
use clap::Subcommand;
use homard_import::{ImportOptions, OpenclawState};
use homard_settings::paths::Paths;

use crate::{cli_error::CliError, render};

/// What to import.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    from: From,
}

#[derive(Debug, Subcommand)]
enum From {
    /// Import config, sessions, transcripts, auth profiles, approvals, approved senders, paired devices, skills and
    /// cron jobs of OpenClaw 2026.2 or 2026.9; does not change its files
    #[command(after_help = "Examples:
  homard import openclaw --dry-run      show what would be imported
  homard import openclaw                import from ~/.openclaw
  homard import openclaw ~/old --json   import from another directory")]
    Openclaw(Flags),
}

#[derive(Debug, clap::Args)]
struct Flags {
    /// OpenClaw's state directory [default: ~/.openclaw]
    dir: Option<PathBuf>,
    /// Show what would be imported, without changing anything
    #[arg(long)]
    dry_run: bool,
    /// Replace an existing config, auth profiles, skills and cron jobs; keeps the old config as homard.json.bak
    #[arg(long)]
    force: bool,
    /// Write OpenClaw's defaults into the config where Homard's differ
    #[arg(long)]
    write_defaults: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    /// Returns true if the output is JSON.
    pub(super) fn wants_json(&self) -> bool {
        let From::Openclaw(flags) = &self.from;
        flags.json
    }
}

pub(super) async fn run(args: &Args) -> Result<()> {
    let From::Openclaw(flags) = &args.from;
    let paths = Paths::find()?;
    let source = OpenclawState::find(flags.dir.as_deref())?;
    if homard_import::is_same(&source, &paths) {
        let text = format!("{} is Homard's own state directory; nothing to import", source.root.display());
        return Err(CliError::usage(text).into());
    }
    let options = ImportOptions { replace_existing: flags.force, write_defaults: flags.write_defaults };
    let plan = if flags.dry_run {
        homard_import::preview(&source, &paths, options)?
    } else {
        homard_import::import(&source, &paths, options, &mut show_progress).await?
    };
    let report = report::ImportReport { plan: &plan, source: &source.root, state: &paths.state, is_dry: flags.dry_run };
    if flags.json {
        return Ok(render::print_json(&report.document())?);
    }
    Ok(render::print(&report.text())?)
}

/// Shows how many files were copied, on a terminal; after the last one the line is cleared.
fn show_progress(done: usize, all: usize) {
    let mut stderr = io::stderr().lock();
    if stderr.is_terminal() {
        let text = if done < all { format!("copied {done} of {}", render::count(all, "file")) } else { String::new() };
        // A failure cannot be reported and is ignored.
        write!(stderr, "\r{text}\x1b[K").ok();
    }
}
