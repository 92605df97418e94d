//! `homard runs`: list runs; release or drop those that are held after repeated crashes.

use anyhow::Result;
use clap::Subcommand;
use homard_agent::{hub, wire::run_trace};
use homard_journal::Journal;
use homard_proto::RunId;
use homard_runtime::Ambient;
use homard_store::{Rec, RunState, StoreReader, StoreWriter};
use serde_json::{Value, json};

use super::{
    ids::{self, Candidate},
    query::CommandContext,
    trace,
};
use crate::{
    cli_error::CliError,
    render::{self, Table},
};

/// Arguments of `homard runs`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  homard runs
  homard runs list -n 50
  homard runs held
  homard runs release RUN_ID
  homard runs drop --all

A run that was active at three crashes within five minutes is held, because it may have caused them. All other runs are
processed. A held run that is not released ends after one day.")]
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
        #[arg(short = 'n', long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
        limit: u16,
    },
    /// List held runs
    Held,
    /// Resume held runs
    Release(Which),
    /// End held runs without a reply
    Drop(Which),
}

/// Which held runs are meant.
#[derive(Debug, clap::Args)]
struct Which {
    /// Run ids or unique prefixes of them
    #[arg(value_name = "RUN", required_unless_present = "all", conflicts_with = "all")]
    runs: Vec<String>,
    /// Select all held runs
    #[arg(long)]
    all: bool,
}

/// The owner's decision about held runs: runs that were active at several crashes in a row and are not resumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Decision {
    /// Queue them again.
    Release,
    /// End them as failed, without resuming them.
    Drop,
}

/// Runs the command.
pub(super) async fn run(args: &Args) -> Result<()> {
    let setup = CommandContext::load()?;
    match &args.command {
        None => trace::list(&setup, 20, args.json).await,
        Some(Command::List { limit }) => trace::list(&setup, *limit, args.json).await,
        Some(Command::Held) => show(&held_runs(&setup).await?, args.json),
        Some(Command::Release(selection)) => decide(&setup, selection, Decision::Release, args.json).await,
        Some(Command::Drop(selection)) => decide(&setup, selection, Decision::Drop, args.json).await,
    }
}

/// Returns the held runs: from the gateway, or from the state directory if none is running.
async fn held_runs(setup: &CommandContext) -> Result<Value> {
    if let Some(document) = setup.query("runs.held").await? {
        return Ok(document);
    }
    let found = setup.read_state(async |journal| Ok(journal.recover().await?)).await?.unwrap_or_default();
    let runs = found.iter().filter_map(hub::HeldRun::of);
    Ok(json!({"runs": runs.map(|run| run_trace::held_run(&run)).collect::<Vec<_>>()}))
}

fn show(document: &Value, is_json: bool) -> Result<()> {
    if is_json {
        return Ok(render::print_json(document)?);
    }
    let runs = document["runs"].as_array().map(Vec::as_slice).unwrap_or_default();
    if runs.is_empty() {
        return Ok(render::print("no run is held")?);
    }
    let now = Ambient::system().now_ms();
    let mut rows = vec![["RUN", "HELD", "STARTS", "SESSION", "MESSAGE"].map(str::to_owned).to_vec()];
    rows.extend(runs.iter().map(|run| {
        let text = |name: &str| render::strip_controls(run[name].as_str().unwrap_or_default());
        let message = text("message").split_whitespace().collect::<Vec<_>>().join(" ");
        let age = render::age(now, run["heldAt"].as_u64().unwrap_or_default());
        let starts = run["attempts"].as_u64().unwrap_or_default().to_string();
        vec![text("runId"), age, starts, text("sessionKey"), message]
    }));
    render::print_table(&Table::list(rows))?;
    render::remark("continue one with: homard runs release RUN; end it with: homard runs drop RUN");
    Ok(())
}

/// Releases or drops runs: through the gateway, or in the state directory if none is running.
async fn decide(setup: &CommandContext, selection: &Which, decision: Decision, is_json: bool) -> Result<()> {
    let document = held_runs(setup).await?;
    let ids: Vec<_> =
        document["runs"].as_array().into_iter().flatten().filter_map(|run| run["runId"].as_str()).collect();
    let runs: Vec<RunId> = if selection.all {
        ids.into_iter().filter_map(|id| RunId::parse(id).ok()).collect()
    } else {
        let all: Vec<_> = ids.into_iter().map(|id| Candidate { id, name: None }).collect();
        let parse = |input: &String| {
            let id = ids::resolve("run", input, &all)?.unwrap_or(input);
            RunId::parse(id).map_err(|error| CliError::usage(format!("{id}: {error}")))
        };
        selection.runs.iter().map(parse).collect::<Result<_, CliError>>()?
    };
    let mut decided = Vec::new();
    for run in &runs {
        let method = match decision {
            Decision::Release => "runs.release",
            Decision::Drop => "runs.drop",
        };
        decided.push(match setup.mutate(method, json!({"runId": run})).await? {
            Some(answer) => (answer, true),
            None => (decide_offline(setup, run, decision).await?, false),
        });
    }
    if is_json {
        let answers: Vec<_> = decided.into_iter().map(|(answer, _)| answer).collect();
        return Ok(render::print_json(&json!({"runs": answers}))?);
    }
    if decided.is_empty() {
        return Ok(render::print("no run is held")?);
    }
    for (answer, is_live) in &decided {
        let id = answer["runId"].as_str().unwrap_or_default();
        let text = match (decision, is_live) {
            (Decision::Release, false) => format!("run {id} is released and starts when the gateway starts"),
            (Decision::Release, true) => {
                format!("run {id} is queued again; follow it with: homard trace {id} --follow")
            }
            (Decision::Drop, _) => format!("run {id} is dropped"),
        };
        render::print(&text)?;
    }
    Ok(())
}

/// Releases or drops a held run in the journal, while no gateway is running.
async fn decide_offline(setup: &CommandContext, run: &RunId, decision: Decision) -> Result<Value> {
    let (run, ambient) = (run.clone(), Ambient::system());
    let decided = setup.read_state(async move |journal: &Journal| {
        let found = journal.recover().await?.into_iter().find(|found| found.row.run == run);
        let held_run = found.filter(|found| found.row.state == RunState::Held);
        let held_run = held_run.ok_or_else(|| hub::HeldError::NotHeld(run.clone()))?;
        let (records, answer) = match decision {
            Decision::Release => {
                let record = Rec::Release { run: run.clone(), at: ambient.now_ms() };
                (vec![record], json!({"runId": run, "status": "queued"}))
            }
            Decision::Drop => (hub::drop_records(&ambient, &held_run), json!({"runId": run, "status": "dropped"})),
        };
        journal.commit(&journal.fence(), records).await?;
        Ok(answer)
    });
    decided.await?.ok_or_else(|| CliError::not_found("the state directory does not exist, so no run is held").into())
}
