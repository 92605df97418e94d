//! `homard sessions`: lists, shows, changes and compacts sessions.

mod change;
mod compactions;
mod export;
mod lookup;
mod read;

use std::path::PathBuf;

use anyhow::Result;
use clap::Subcommand;
use homard_agent::row::session_row;
use homard_proto::{AgentId, Generation, session::Record};
use homard_runtime::Ambient;
use homard_transcripts::{ArgumentMask, Error as TranscriptError, MessageSource};
use serde_json::{Value, json};

pub(super) use self::lookup::last_used;
use super::{flags::Limit, models, query::CommandContext};
use crate::render::{self, Table};

/// Arguments of `homard sessions`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  homard sessions                           list sessions
  homard sessions list --json               list sessions as JSON
  homard sessions show garden               show its messages
  homard sessions tail garden -n 5 -f       show the newest messages, and those that follow
  homard sessions search milk               search the messages of all sessions
  homard sessions export garden -o garden.html
  homard sessions rename garden \"The garden\"
  homard sessions reset garden --yes        start it over
  homard sessions delete garden --yes       delete it; its transcript is archived
  homard sessions compact garden            compact a session
  homard sessions compactions garden        list its compactions
  homard sessions compactions garden undo   undo the latest compaction")]
pub(super) struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// Print JSON
    #[arg(long, global = true)]
    pub(super) json: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List sessions, newest first (the default)
    List {
        #[command(flatten)]
        limit: Limit,
    },
    /// Show the messages of a session
    Show(read::Show),
    /// Show the newest messages of a session, and follow it
    Tail(read::Tail),
    /// Search the messages of all sessions
    Search(read::Search),
    /// Export a session as Markdown, JSON or HTML
    Export(export::Export),
    /// Give a session a label
    Rename(change::Rename),
    /// Start a session over with an empty transcript
    Reset(change::SessionTarget),
    /// Delete a session; its transcript is archived
    Delete(change::SessionTarget),
    /// Compact a session: replace its older messages by a summary
    Compact(compactions::Compact),
    /// List the compactions of a session, or undo one
    Compactions(compactions::Compactions),
}

pub(super) async fn run(args: &Args) -> Result<()> {
    match &args.command {
        None => list(Limit::default(), args.json).await,
        Some(Command::List { limit }) => list(*limit, args.json).await,
        Some(Command::Show(show)) => read::show(show, args.json).await,
        Some(Command::Tail(tail)) => read::tail(tail, args.json).await,
        Some(Command::Search(search)) => read::search(search, args.json).await,
        Some(Command::Export(export)) => export::run(export, args.json).await,
        Some(Command::Rename(rename)) => change::rename(rename, args.json).await,
        Some(Command::Reset(target)) => change::reset(target, args.json).await,
        Some(Command::Delete(target)) => change::delete(target, args.json).await,
        Some(Command::Compact(compact)) => compactions::compact(compact, args.json).await,
        Some(Command::Compactions(listed)) => compactions::run(listed, args.json).await,
    }
}

/// Lists the sessions, newest first: the gateway's, or those in the state directory.
async fn list(limit: Limit, is_json: bool) -> Result<()> {
    let setup = CommandContext::load()?;
    let now = Ambient::system().now_ms();
    let params = limit.get().map_or_else(|| json!({}), |limit| json!({"limit": limit}));
    let listed = match setup.query_with("sessions.list", params).await? {
        Some(listed) => listed,
        None => list_offline(&setup, limit, now).await?,
    };
    if is_json {
        return Ok(render::print_json(&listed)?);
    }
    let rows = listed.get("sessions").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    if rows.is_empty() {
        return Ok(render::print("no sessions yet; start one with: homard agent -m \"What files are here?\"")?);
    }
    Ok(render::print_table(&table(rows, now))?)
}

/// Lists the sessions in the state directory, in the gateway's format.
async fn list_offline(setup: &CommandContext, limit: Limit, now: u64) -> Result<Value> {
    let mut sessions = setup.sessions().await?;
    let is_archived = |record: &Record| record.extra.get("archived") == Some(&Value::Bool(true));
    sessions.retain(|(key, record)| !["global", "unknown"].contains(&key.kind()) && !is_archived(record));
    let shown_count = limit.get().map_or(sessions.len(), |limit| sessions.len().min(limit.into()));
    let rows: Vec<_> = sessions[..shown_count]
        .iter()
        .map(|(key, record)| {
            let mut row = session_row(key, record, Generation::Four);
            row["hasActiveRun"] = false.into();
            row["activeRunIds"] = json!([]);
            row["snapshotAt"] = now.into();
            row
        })
        .collect();
    let has_more = shown_count < sessions.len();
    Ok(json!({
        "ts": now, "path": sessions_path(setup, &default_agent(setup)),
        "count": shown_count, "defaults": defaults(setup),
        "totalCount": sessions.len(), "limitApplied": limit.get(), "hasMore": has_more,
        "nextOffset": has_more.then_some(shown_count), "sessions": rows,
    }))
}

/// Opens the source of messages: the gateway or, if none runs, the state directory.
pub(super) async fn messages(setup: &CommandContext) -> Result<MessageSource> {
    match MessageSource::open(&setup.target, &setup.paths.state, default_agent(setup)).await {
        Err(TranscriptError::NotRunning(_)) => Err(setup.not_running().into()),
        opened => Ok(opened?),
    }
}

/// Returns a mask of the secrets of the config, the environment and the gateway.
pub(super) fn argument_mask(setup: &CommandContext) -> ArgumentMask {
    ArgumentMask::new(homard_app::secrets::of_config(&setup.loaded, &setup.paths))
}

/// Returns the default agent of the config.
pub(super) fn default_agent(setup: &CommandContext) -> AgentId {
    setup.loaded.config.agents.member(None).map_or_else(AgentId::main, |agent| agent.id)
}

/// Path where OpenClaw keeps an agent's sessions.
pub(super) fn sessions_path(setup: &CommandContext, agent: &AgentId) -> PathBuf {
    setup.paths.state.join("agents").join(agent.as_str()).join("sessions/sessions.json")
}

/// Returns the model of a session that has no override. Its context window is known to a gateway only.
pub(super) fn defaults(setup: &CommandContext) -> Value {
    let status = models::model_status(&setup.loaded, &setup.paths, None).ok();
    let model = status.as_ref().and_then(|status| status.primary.split_once('/'));
    json!({
        "modelProvider": model.map(|(provider, _)| provider), "model": model.map(|(_, model)| model),
        "contextTokens": null,
    })
}

/// Formats sessions as a table.
pub(super) fn table(rows: &[Value], now: u64) -> Table {
    let titles = ["SESSION", "UPDATED", "MODEL", "TOKENS"].map(str::to_owned).to_vec();
    let line = |row: &Value| {
        let text = |name: &str| row.get(name).and_then(Value::as_str).unwrap_or("-");
        let number = |name: &str| row.get(name).and_then(Value::as_u64);
        let model = match text("modelProvider") {
            "-" => text("model").to_owned(),
            provider => format!("{provider}/{}", text("model")),
        };
        let tokens = match (number("totalTokens"), number("contextTokens")) {
            (Some(total), Some(window)) => format!("{total} of {window}"),
            (Some(total), None) => total.to_string(),
            (None, _) => "-".to_owned(),
        };
        let updated = number("updatedAt").map_or_else(|| "-".to_owned(), |at_ms| render::age(now, at_ms));
        [text("key").to_owned(), updated, model, tokens].map(|cell| render::strip_controls(&cell)).to_vec()
    };
    Table::list(std::iter::once(titles).chain(rows.iter().map(line)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_shows_what_is_known() {
        let rows = [
            json!({"key": "agent:main:main", "updatedAt": 1_000, "modelProvider": "homard", "model": "demo",
                   "totalTokens": 12, "contextTokens": 32_000}),
            json!({"key": "agent:main:x\u{1b}[2J"}),
        ];
        assert_eq!(
            table(&rows, 61_000).to_string(),
            "SESSION          UPDATED  MODEL        TOKENS\n\
             agent:main:main  1m ago   homard/demo  12 of 32000\n\
             agent:main:x[2J  -        -            -"
        );
    }
}
