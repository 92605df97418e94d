//! `homard sessions`: lists and compacts sessions.

mod compactions;

use anyhow::Result;
use clap::Subcommand;
use homard_agent::{Ambient, row::session_row};
use homard_proto::Generation;
use serde_json::{Value, json};

use super::ask::Setup;
use crate::render;

/// What `homard sessions` takes.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  homard sessions                           list sessions
  homard sessions list --json               the same, for programs
  homard sessions compact garden            make that conversation short
  homard sessions compactions garden        see how often that happened
  homard sessions compactions garden undo   let everything count again")]
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
    List,
    /// Compact a session: replace its older messages by a summary
    Compact(compactions::Compact),
    /// List the compactions of a session, or undo one
    Compactions(compactions::Compactions),
}

pub(super) async fn run(args: &Args) -> Result<()> {
    match &args.command {
        None | Some(Command::List) => list(args.json).await,
        Some(Command::Compact(compact)) => compactions::compact(compact, args.json).await,
        Some(Command::Compactions(listed)) => compactions::run(listed, args.json).await,
    }
}

/// Lists the sessions, newest first: the gateway's, or those in the state directory.
async fn list(is_json: bool) -> Result<()> {
    let setup = Setup::find()?;
    let now = Ambient::system().now_ms();
    let listed = match setup.ask("sessions.list").await? {
        Some(listed) => listed,
        None => {
            let sessions = setup.sessions().await?;
            let rows: Vec<_> =
                sessions.iter().map(|(key, record)| session_row(key, record, Generation::Four)).collect();
            json!({"ts": now, "path": setup.paths.state, "count": rows.len(), "sessions": rows})
        }
    };
    if is_json {
        return Ok(render::print_json(&listed)?);
    }
    let rows = listed.get("sessions").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    if rows.is_empty() {
        return Ok(render::print("no sessions yet; begin one with: homard agent -m \"What files are here?\"")?);
    }
    Ok(render::print(&table(rows, now))?)
}

/// Formats sessions as a table.
pub(super) fn table(rows: &[Value], now: u64) -> String {
    let titles = ["SESSION", "UPDATED", "MODEL", "TOKENS"].map(str::to_owned).to_vec();
    let line = |row: &Value| {
        let word = |name: &str| row.get(name).and_then(Value::as_str).unwrap_or("-");
        let number = |name: &str| row.get(name).and_then(Value::as_u64);
        let model = match word("modelProvider") {
            "-" => word("model").to_owned(),
            provider => format!("{provider}/{}", word("model")),
        };
        let tokens = match (number("totalTokens"), number("contextTokens")) {
            (Some(total), Some(window)) => format!("{total} of {window}"),
            (Some(total), None) => total.to_string(),
            (None, _) => "-".to_owned(),
        };
        let updated = number("updatedAt").map_or_else(|| "-".to_owned(), |then| render::age(now, then));
        [word("key").to_owned(), updated, model, tokens].map(|cell| render::harmless(&cell)).to_vec()
    };
    let lines: Vec<_> = std::iter::once(titles).chain(rows.iter().map(line)).collect();
    render::table(&lines)
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
            table(&rows, 61_000),
            "SESSION          UPDATED  MODEL        TOKENS\n\
             agent:main:main  1m ago   homard/demo  12 of 32000\n\
             agent:main:x[2J  -        -            -"
        );
    }
}
