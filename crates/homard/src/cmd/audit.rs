//! `homard audit`: what matters to whoever guards the house, and whether somebody changed it.

use anyhow::{Context, Result};
use clap::Subcommand;
use homard_audit::{Head, Row, rows, verify_folder};
use serde_json::{Value, json};

use super::ask::Setup;
use crate::{audit, failure::Failure, paths::Paths, render};

/// What `homard audit` takes.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  homard audit list
  homard audit list --what auth.failed -n 100
  homard audit verify")]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
    /// Print one JSON document
    #[arg(long, global = true)]
    json: bool,
}

impl Args {
    /// Whether programs read the output. What a check finds is a document, also when it fails.
    pub(super) fn wants_json(&self) -> bool {
        self.json && !matches!(self.command, Command::Verify)
    }
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Check that no row was changed, taken out, moved or cut off
    Verify,
    /// Show the newest rows, oldest of them first
    List {
        /// How many
        #[arg(short = 'n', long = "limit", value_name = "N", default_value_t = 50)]
        limit: usize,
        /// Only this, such as auth.failed; or all of a kind, such as exec
        #[arg(long, value_name = "NAME")]
        what: Option<String>,
    },
}

/// Does it.
pub(super) async fn run(args: &Args) -> Result<()> {
    match &args.command {
        Command::Verify => verify(args.json).await,
        Command::List { limit, what } => list(&Paths::find()?, (*limit, what.as_deref()), args.json),
    }
}

async fn verify(wants_json: bool) -> Result<()> {
    let setup = Setup::find()?;
    let folder = audit::folder(&setup.paths);
    let kept = kept(&setup).await?;
    let report = verify_folder(&folder, kept).with_context(|| format!("{} cannot be read", folder.display()))?;
    let problems: Vec<_> = report.problems.iter().map(ToString::to_string).collect();
    let is_whole = problems.is_empty();
    let unkept = report.rows.saturating_sub(kept.map_or(0, |kept| kept.rows));
    let document = json!({
        "ok": is_whole, "rows": report.rows, "end": report.head.to_string(), "kept": kept.map(|kept| kept.to_string()),
        "unkept": unkept, "folder": folder, "problems": problems,
    });
    if wants_json {
        render::print_json(&document)?;
    } else {
        let rows = report.rows;
        let mut lines = vec![format!("{rows} row{} in {}", if rows == 1 { "" } else { "s" }, folder.display())];
        lines.extend(problems.iter().map(|problem| format!("  {problem}")));
        if is_whole {
            let all = "all are as they were written, in order, and the end is there";
            lines.push(match unkept {
                0 => all.to_owned(),
                _ => format!(
                    "{all}; the journal does not know of the last {unkept} yet, so it could not tell if more followed"
                ),
            });
        }
        render::print(&lines.join("\n"))?;
    }
    if is_whole {
        return Ok(());
    }
    let count = problems.len();
    let text = format!("the audit log was changed: {count} place{}", if count == 1 { "" } else { "s" });
    Err(Failure::new("audit", text).into())
}

/// Where the log ends by the journal: the gateway is asked, or else the journal itself.
pub(super) async fn kept(setup: &Setup) -> Result<Option<Head>> {
    let told = match setup.ask("homard.audit.end").await? {
        Some(answer) => answer["end"].as_str().map(str::to_owned),
        None if !setup.target.is_own => return Err(setup.nobody().into()),
        None => homard_journal::noted(&setup.paths.state, audit::END)?,
    };
    let read = |text: String| text.parse().ok().with_context(|| format!("the journal's note of the end is \"{text}\""));
    told.map(read).transpose()
}

fn list(paths: &Paths, (limit, what): (usize, Option<&str>), wants_json: bool) -> Result<()> {
    let folder = audit::folder(paths);
    let rows = rows(&folder).with_context(|| format!("{} cannot be read", folder.display()))?;
    let is_wanted = |row: &&Row| {
        let name = row.said["what"].as_str().unwrap_or_default();
        what.is_none_or(|what| name == what || name.strip_prefix(what).is_some_and(|rest| rest.starts_with('.')))
    };
    let wanted: Vec<_> = rows.iter().filter(is_wanted).collect();
    let shown = &wanted[wanted.len().saturating_sub(limit)..];
    if wants_json {
        let rows: Vec<_> = shown.iter().map(|row| &row.said).collect();
        return Ok(render::print_json(&json!({"count": rows.len(), "rows": rows}))?);
    }
    if shown.is_empty() {
        return Ok(render::print("nothing was noted")?);
    }
    Ok(render::print(&render::table(&shown.iter().map(|row| cells(&row.said)).collect::<Vec<_>>()))?)
}

fn cells(row: &Value) -> Vec<String> {
    let text = |name: &str| render::harmless(row[name].as_str().unwrap_or_default());
    let at = row["at"].as_u64().map(homard_agent::ambient::iso).unwrap_or_default();
    let more = row["more"].as_object().into_iter().flatten().map(|(name, value)| match value {
        Value::String(value) if value.len() == 64 => format!("{name}={}…", &value[..12]),
        Value::String(value) => format!("{name}={}", render::harmless(value)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            format!("{name}={value}")
        }
    });
    vec![at, text("what"), text("outcome"), text("who"), more.collect::<Vec<_>>().join(" ")]
}
