//! `homard chaos`: kills a temporary gateway repeatedly while clients use it, and then checks that nothing was lost.
//!
//! The test itself is in `homard-chaos`.

mod progress;
mod report;

use anyhow::{Context, Result};
use homard_chaos::{Progress, Scenario};
use tempfile::TempDir;

use self::{progress::KillProgress, report::ChaosReport};
use crate::{cli_error::CliError, render, signal::Signals};

/// Arguments of `homard chaos`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  homard chaos --kills 100
  homard chaos --kills 1000 --seed 7 --json

The gateway, its state and its model are created for the test and removed afterwards; your own state is not changed.
Exit code 1 means that something was lost or duplicated; the files are then kept, and the last line says where.")]
pub(super) struct Args {
    /// Number of kills
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    kills: u32,
    /// Seed of the random kills and pauses; their exact timing depends on the machine
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Number of concurrent sessions
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=256))]
    sessions: u16,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Keep the state directory and the log
    #[arg(long)]
    keep: bool,
}

/// Kills, checks and reports.
pub(super) async fn run(args: Args) -> Result<()> {
    let folder =
        tempfile::Builder::new().prefix("homard-chaos-").tempdir().context("cannot create a temporary directory")?;
    let mut signals = Signals::listen()?;
    let scenario = Scenario { kills: args.kills as usize, seed: args.seed, sessions: usize::from(args.sessions) };
    let progress = KillProgress::start();
    let mut show = |now: &Progress| progress.show(now);
    let outcome = tokio::select! {
        biased;
        signal = signals.next() => {
            let failure = CliError::new("interrupted", format!("stopped by {signal}; nothing was checked"));
            return Err(CliError { exit: signal.exit_code(), ..failure }.into());
        }
        outcome = homard_chaos::run(scenario, folder.path(), &mut show) => outcome,
    };
    let outcome = match outcome {
        Ok(outcome) => outcome,
        Err(error) => return Err(CliError::new("failed", format!("{error:#}\n{}", keep(folder))).into()),
    };
    let is_good = outcome.is_good();
    let report = ChaosReport { outcome: &outcome, kept: Some(folder.path()).filter(|_| args.keep || !is_good) };
    if args.json {
        render::print_json(&report.to_json())?;
    } else {
        render::print_table(&report.to_table())?;
        outcome.problems.iter().for_each(|problem| render::remark(&render::strip_controls(problem)));
    }
    if !is_good {
        return Err(
            CliError::new("failed", format!("something was lost, duplicated or wrong\n{}", keep(folder))).into()
        );
    }
    if args.keep {
        render::remark(&keep(folder));
    }
    Ok(())
}

/// Keeps all files and says where they are.
fn keep(folder: TempDir) -> String {
    format!("the state and the log are kept in {}", folder.keep().display())
}
