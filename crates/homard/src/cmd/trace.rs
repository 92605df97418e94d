//! `homard trace`: shows a run's timeline.

mod told;

pub(super) use told::money;

use std::time::Duration;

use anyhow::Result;
use homard_agent::{hub::Life, wire::life};
use serde_json::{Value, json};

use homard_store::Store;

use super::ask::Setup;
use crate::{failure::Failure, render};

/// Polling interval for an active run.
const LOOK: Duration = Duration::from_millis(500);

/// What `homard trace` takes.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  homard trace last                      the latest message
  homard trace RUN_ID --json             a run, as JSON
  homard trace last --follow             update until the run has finished
  homard trace list                      the newest runs

ID is a run id, the id that a chat platform gave a message, or that of something that was sent there.")]
pub(super) struct Args {
    /// Run id, message id of a chat platform, `last`, or `list`
    #[arg(default_value = "last")]
    id: String,
    /// Update until the run has finished
    #[arg(long)]
    follow: bool,
    /// Maximum number of runs that `list` shows
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
    limit: u16,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// Shows the timeline of a run: from the gateway, or from the state directory if none answers.
pub(super) async fn run(args: &Args) -> Result<()> {
    let setup = Setup::find()?;
    if args.id == "list" {
        return list(&setup, args.limit, args.json).await;
    }
    let mut shown = String::new();
    loop {
        let (life, is_live) = find(&setup, &args.id).await?;
        let is_over = !matches!(life["run"]["status"].as_str(), Some("accepted" | "running" | "absorbed" | "held"));
        if !args.follow || is_over || !is_live {
            return match args.json {
                true => Ok(render::print_json(&life)?),
                false => Ok(render::print(&told::whole(&life, render::is_terminal()))?),
            };
        }
        let line = told::now(&life);
        if line != shown && !args.json {
            render::remark(&line);
            shown = line;
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Returns the timeline of a run, and whether it came from a gateway.
async fn find(setup: &Setup, id: &str) -> Result<(Value, bool)> {
    if let Some(life) = setup.ask_with("runs.trace", json!({"id": id})).await? {
        return Ok((life, true));
    }
    let name = id.to_owned();
    let found = setup.look(async move |journal| Ok(Life::read(journal, &name).await?)).await?.flatten();
    let nobody = || {
        let what = if id == "last" {
            "no run is remembered yet".to_owned()
        } else {
            format!("no run of this name is remembered: {id}")
        };
        Failure::new("not_found", format!("{what}\nhomard trace list tells those that are"))
    };
    let found = found.ok_or_else(nobody)?;
    let mut told = life::life(&found);
    told["run"] = life::run_row_at_rest(&found.row);
    Ok((told, false))
}

/// Lists runs, newest first.
pub(super) async fn list(setup: &Setup, limit: u16, is_json: bool) -> Result<()> {
    let limit = usize::from(limit);
    let listed = match setup.ask_with("runs.list", json!({"limit": limit})).await? {
        Some(listed) => listed,
        None => {
            let look = homard_store::Look { limit, ..homard_store::Look::default() };
            let rows = setup.look(async move |journal| Ok(journal.runs(&look).await?)).await?.unwrap_or_default();
            json!({"runs": rows.iter().map(life::run_row_at_rest).collect::<Vec<_>>()})
        }
    };
    if is_json {
        return Ok(render::print_json(&listed)?);
    }
    let runs = listed["runs"].as_array().map(Vec::as_slice).unwrap_or_default();
    if runs.is_empty() {
        return Ok(render::print(
            "no run is remembered yet; begin one with: homard agent -m \"What files are here?\"",
        )?);
    }
    Ok(render::print(&told::list(runs))?)
}
