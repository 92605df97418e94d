//! `homard runs`: list runs; release or drop those that are held after repeated crashes.

use anyhow::Result;
use clap::Subcommand;
use homard_agent::{Ambient, hub, wire::life};
use homard_journal::Journal;
use homard_proto::RunId;
use homard_store::{Rec, RunState, Store};
use serde_json::{Value, json};

use super::{ask::Setup, trace};
use crate::{failure::Failure, render};

/// The flags of `homard runs`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  homard runs
  homard runs list -n 50
  homard runs held
  homard runs release RUN_ID
  homard runs drop --all

A run that was active at three crashes within five minutes is held: it may be their cause. Everything else is served. A held
run that nobody releases ends after a day.")]
pub(super) struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// Print JSON
    #[arg(long, global = true)]
    pub(super) json: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List runs, newest first
    List {
        /// Maximum number of runs
        #[arg(short = 'n', long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
        limit: u16,
    },
    /// List held runs
    Held,
    /// Continue held runs
    Release(Which),
    /// End held runs without an answer
    Drop(Which),
}

/// Which held runs are meant.
#[derive(Debug, clap::Args)]
struct Which {
    /// Run ids
    #[arg(value_name = "RUN", required_unless_present = "all", conflicts_with = "all")]
    runs: Vec<String>,
    /// All held runs
    #[arg(long)]
    all: bool,
}

/// A decision about held runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Decision {
    Release,
    Drop,
}

/// Runs the command.
pub(super) async fn run(args: &Args) -> Result<()> {
    let setup = Setup::find()?;
    match &args.command {
        None => trace::list(&setup, 20, args.json).await,
        Some(Command::List { limit }) => trace::list(&setup, *limit, args.json).await,
        Some(Command::Held) => show(&held(&setup).await?, args.json),
        Some(Command::Release(which)) => decide(&setup, which, Decision::Release, args.json).await,
        Some(Command::Drop(which)) => decide(&setup, which, Decision::Drop, args.json).await,
    }
}

/// Returns the held runs: from the gateway, or from the state directory if none is running.
async fn held(setup: &Setup) -> Result<Value> {
    if let Some(held) = setup.ask("runs.held").await? {
        return Ok(held);
    }
    let found = setup.look(async |journal| Ok(journal.recover().await?)).await?.unwrap_or_default();
    let held = found.iter().filter_map(hub::HeldRun::of);
    Ok(json!({"runs": held.map(|held| life::held_run(&held)).collect::<Vec<_>>()}))
}

fn show(held: &Value, is_json: bool) -> Result<()> {
    if is_json {
        return Ok(render::print_json(held)?);
    }
    let runs = held["runs"].as_array().map(Vec::as_slice).unwrap_or_default();
    if runs.is_empty() {
        return Ok(render::print("no run is held")?);
    }
    let now = Ambient::system().now_ms();
    let mut rows = vec![["RUN", "HELD", "STARTS", "SESSION", "MESSAGE"].map(str::to_owned).to_vec()];
    rows.extend(runs.iter().map(|run| {
        let text = |name: &str| render::harmless(run[name].as_str().unwrap_or_default());
        let message = text("message").split_whitespace().collect::<Vec<_>>().join(" ");
        let since = render::age(now, run["heldAt"].as_u64().unwrap_or_default());
        let starts = run["attempts"].as_u64().unwrap_or_default().to_string();
        vec![text("runId"), since, starts, text("sessionKey"), message]
    }));
    render::print(&render::table(&rows))?;
    render::remark("continue one with: homard runs release RUN; end it with: homard runs drop RUN");
    Ok(())
}

/// Releases or drops runs: through the gateway, or in the state directory if none is running.
async fn decide(setup: &Setup, which: &Which, decision: Decision, is_json: bool) -> Result<()> {
    let runs: Vec<RunId> = if which.all {
        let held = held(setup).await?;
        let ids = held["runs"].as_array().into_iter().flatten().filter_map(|run| run["runId"].as_str());
        ids.filter_map(|id| RunId::parse(id).ok()).collect()
    } else {
        let parse = |id: &String| RunId::parse(id).map_err(|error| Failure::usage(format!("{id}: {error}")));
        which.runs.iter().map(parse).collect::<Result<_, _>>()?
    };
    let mut decided = Vec::new();
    for run in &runs {
        let method = match decision {
            Decision::Release => "runs.release",
            Decision::Drop => "runs.drop",
        };
        decided.push(match setup.order(method, json!({"runId": run})).await? {
            Some(answer) => answer,
            None => in_place(setup, run, decision).await?,
        });
    }
    if is_json {
        return Ok(render::print_json(&json!({"runs": decided}))?);
    }
    if decided.is_empty() {
        return Ok(render::print("no run is held")?);
    }
    for answer in &decided {
        let id = answer["runId"].as_str().unwrap_or_default();
        let text = match (decision, answer["next"].as_str()) {
            (Decision::Release, Some(next)) => format!("run {id} is released and {next}"),
            (Decision::Release, None) => {
                format!("run {id} is queued again; follow it with: homard trace {id} --follow")
            }
            (Decision::Drop, _) => format!("run {id} is dropped"),
        };
        render::print(&text)?;
    }
    Ok(())
}

/// Decides about a run in the state directory.
async fn in_place(setup: &Setup, run: &RunId, decision: Decision) -> Result<Value> {
    let (run, ambient) = (run.clone(), Ambient::system());
    let decided = setup.look(async move |journal: &Journal| {
        let found = journal.recover().await?.into_iter().find(|found| found.row.run == run);
        let held = found.filter(|found| found.row.state == RunState::Held);
        let held = held.ok_or_else(|| hub::HeldError::NotHeld(run.clone()))?;
        let (records, answer) = match decision {
            Decision::Release => {
                let next = "starts when the gateway starts";
                let record = Rec::Release { run: run.clone(), at: ambient.now_ms() };
                (vec![record], json!({"runId": run, "status": "queued", "next": next}))
            }
            Decision::Drop => (hub::dropping(&ambient, &held), json!({"runId": run, "status": "dropped"})),
        };
        journal.commit(&journal.fence(), records).await?;
        Ok(answer)
    });
    decided.await?.ok_or_else(|| Failure::new("not_found", "there is no state directory, so no run is held").into())
}
