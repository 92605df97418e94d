//! `homard trace`: shows a run's timeline.

use std::time::Duration;

use anyhow::Result;
use homard_agent::{hub::RunTrace, wire::run_trace};
use homard_runtime::Ambient;
use homard_store::StoreReader;
use homard_transcripts::calls_of;
use serde_json::{Value, json};

use super::{
    ids::{self, Candidate},
    query::CommandContext,
    sessions::{argument_mask, messages},
};
use crate::{cli_error::CliError, render};

/// Polling interval for an active run.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Prefixes of ids are looked up among this many of the newest runs.
const MAX_SEARCHED: u16 = 1000;

/// Arguments of `homard trace`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  homard trace last                      show the latest run
  homard trace RUN_ID --json             show a run as JSON
  homard trace last --show-args          also show the commands that ran
  homard trace last --follow             update until the run has finished
  homard trace list                      list the newest runs

ID is a run id, the message id of a chat platform, or a delivery id.")]
pub(super) struct Args {
    /// Run id or a unique prefix of it, message id of a chat platform, `last`, or `list`
    #[arg(default_value = "last")]
    id: String,
    /// Update until the run has finished
    #[arg(short, long)]
    follow: bool,
    /// Maximum number of runs that `list` shows
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
    limit: u16,
    /// Show the arguments of tool calls, from the transcript; secrets are masked
    #[arg(long)]
    show_args: bool,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// Shows the timeline of a run: from the gateway, or from the state directory if none answers.
pub(super) async fn run(args: &Args) -> Result<()> {
    let setup = CommandContext::load()?;
    if args.id == "list" {
        return list(&setup, args.limit, args.json).await;
    }
    let (mut id, mut last_line) = (args.id.clone(), String::new());
    loop {
        let (mut trace, is_live) = match find(&setup, &id).await? {
            Some(found) => found,
            None => {
                id = find_by_prefix(&setup, &id).await?.ok_or_else(|| not_found(&id))?;
                find(&setup, &id).await?.ok_or_else(|| not_found(&id))?
            }
        };
        let has_ended = !matches!(trace["run"]["status"].as_str(), Some("accepted" | "running" | "absorbed" | "held"));
        if !args.follow || has_ended || !is_live {
            if args.show_args {
                add_arguments(&setup, &mut trace).await?;
            }
            return match args.json {
                true => Ok(render::print_json(&trace)?),
                false => Ok(render::print(&render::timeline::timeline(&trace, render::is_terminal()))?),
            };
        }
        let line = render::timeline::current_step(&trace);
        if line != last_line && !args.json {
            render::remark(&line);
            last_line = line;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Adds the arguments of tool calls to a timeline, with secrets masked.
async fn add_arguments(setup: &CommandContext, trace: &mut Value) -> Result<()> {
    let text = |name: &str| trace["run"][name].as_str().map(str::to_owned);
    let (key, session_id) = (text("sessionKey").unwrap_or_default(), text("sessionId"));
    let mut source = messages(setup).await?;
    let calls = calls_of(&mut source, &key, session_id.as_deref()).await;
    source.close().await?;
    let Some(calls) = calls? else {
        render::remark(&format!("(session {key} has another transcript by now, so the arguments are not shown)"));
        return Ok(());
    };
    let mask = argument_mask(setup);
    for step in trace["steps"].as_array_mut().into_iter().flatten() {
        let call = step["call"].as_str().and_then(|id| calls.get(id)).filter(|_| step["step"] == "tool");
        if let Some(call) = call {
            step["arguments"] = mask.masked(&call.arguments);
        }
    }
    Ok(())
}

/// Returns the timeline of a run, and whether it came from a gateway; `None` if the run is unknown.
async fn find(setup: &CommandContext, id: &str) -> Result<Option<(Value, bool)>> {
    match setup.query_with("runs.trace", json!({"id": id})).await {
        Ok(Some(trace)) => return Ok(Some((trace, true))),
        Ok(None) => {}
        Err(error) => match CliError::find(&error) {
            // The id is the only parameter that can be wrong.
            Some(cli_error) if cli_error.kind == "INVALID_REQUEST" || cli_error.kind == "usage" => return Ok(None),
            Some(_) | None => return Err(error),
        },
    }
    let name = id.to_owned();
    let found = setup.read_state(async move |journal| Ok(RunTrace::read(journal, &name).await?)).await?.flatten();
    let Some(found) = found else { return Ok(None) };
    let mut trace = run_trace::run_trace(&found);
    trace["run"] = run_trace::offline_run_row(&found.row);
    Ok(Some((trace, false)))
}

/// Returns the id of the run with this prefix, among the newest runs.
async fn find_by_prefix(setup: &CommandContext, input: &str) -> Result<Option<String>> {
    let listed = newest(setup, MAX_SEARCHED).await?;
    let ids = listed["runs"].as_array().into_iter().flatten().filter_map(|run| run["runId"].as_str());
    let all: Vec<_> = ids.map(|id| Candidate { id, name: None }).collect();
    Ok(ids::resolve("run", input, &all)?.map(str::to_owned))
}

fn not_found(id: &str) -> CliError {
    let message = if id == "last" { "no runs yet".to_owned() } else { format!("no run found: {id}") };
    CliError::not_found(format!("{message}\nlist runs with: homard trace list"))
}

/// Returns the newest runs, from the gateway or the state directory.
async fn newest(setup: &CommandContext, limit: u16) -> Result<Value> {
    let limit = usize::from(limit);
    if let Some(listed) = setup.query_with("runs.list", json!({"limit": limit})).await? {
        return Ok(listed);
    }
    let query = homard_store::RunQuery { limit, ..homard_store::RunQuery::default() };
    let rows = setup.read_state(async move |journal| Ok(journal.runs(&query).await?)).await?.unwrap_or_default();
    let now = Ambient::system().now_ms();
    Ok(json!({"ts": now, "runs": rows.iter().map(run_trace::offline_run_row).collect::<Vec<_>>()}))
}

/// Lists runs, newest first.
pub(super) async fn list(setup: &CommandContext, limit: u16, is_json: bool) -> Result<()> {
    let listed = newest(setup, limit).await?;
    if is_json {
        return Ok(render::print_json(&listed)?);
    }
    let runs = listed["runs"].as_array().map(Vec::as_slice).unwrap_or_default();
    if runs.is_empty() {
        return Ok(render::print("no runs yet; start one with: homard agent -m \"What files are here?\"")?);
    }
    Ok(render::print(&render::timeline::list(runs))?)
}
