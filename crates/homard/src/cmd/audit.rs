//! `homard audit`: shows and verifies the security audit log, and acknowledges its breaks.

use std::{
    collections::{BTreeSet, HashMap},
    fs,
    path::PathBuf,
    sync::Arc,
};

use anyhow::{Context, Result};
use clap::Subcommand;
use homard_app::audit;
use homard_audit::{Acknowledgement, Evidence, LogRow, VerifyReport, digest_of, rows, verify_folder};
use homard_command::OWNER;
use homard_journal::Journal;
use homard_runtime::{Ambient, ambient::iso};
use homard_settings::{audit_log, paths::Paths};
use homard_transcripts::calls_of;
use serde_json::{Value, json};

use super::{
    query::CommandContext,
    sessions::{argument_mask, messages},
};
use crate::{
    cli_error::CliError,
    render::{self, Table},
};

/// Arguments of `homard audit`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  homard audit list
  homard audit list --what auth.failed -n 100
  homard audit list --what exec --show-args
  homard audit verify
  homard audit verify --checkpoints /mnt/backup/checkpoints.jsonl
  homard audit acknowledge --reason \"restored the disk from a backup\"")]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
}

impl Args {
    /// Returns true if the output is JSON. The result of `verify` is a document even if it fails.
    pub(super) fn wants_json(&self) -> bool {
        self.json && !matches!(self.command, Command::Verify { .. })
    }
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Verify that no row was changed, removed, moved or added, and that the log was not truncated
    Verify {
        /// Also check that the log contains every checkpoint in this file, such as audit.checkpoints.file or a syslog
        #[arg(long, value_name = "FILE")]
        checkpoints: Option<PathBuf>,
    },
    /// Acknowledge the problems that verify reports; the reason is recorded in the log
    Acknowledge {
        /// Reason, at most 256 bytes
        #[arg(long, value_name = "TEXT")]
        reason: String,
    },
    /// List the newest rows, oldest first
    List {
        /// Maximum number of rows
        #[arg(short = 'n', long = "limit", value_name = "N", default_value_t = 50)]
        #[arg(value_parser = clap::value_parser!(u32).range(1..))]
        limit: u32,
        /// Only rows of this kind, such as auth.failed, or of a group of kinds, such as exec
        #[arg(long, value_name = "NAME")]
        what: Option<String>,
        /// Show the commands of exec rows, from the transcripts; secrets are masked
        #[arg(long)]
        show_args: bool,
    },
}

pub(super) async fn run(args: &Args) -> Result<()> {
    match &args.command {
        Command::Verify { checkpoints } => verify(checkpoints.as_ref(), args.json).await,
        Command::Acknowledge { reason } => acknowledge(reason, args.json).await,
        Command::List { limit, what, show_args } => {
            let paths = Paths::find()?;
            let mut shown = newest(&paths, *limit, what.as_deref())?;
            if *show_args {
                add_commands(&CommandContext::load()?, &mut shown).await?;
            }
            list(&shown, args.json)
        }
    }
}

async fn verify(checkpoints: Option<&PathBuf>, wants_json: bool) -> Result<()> {
    let setup = CommandContext::load()?;
    let mut evidence = evidence(&setup).await?;
    if let Some(file) = checkpoints {
        let bytes = fs::read(file).with_context(|| format!("{} cannot be read", file.display()))?;
        evidence.checkpoints = audit::read_checkpoints(&String::from_utf8_lossy(&bytes));
        if evidence.checkpoints.is_empty() {
            return Err(CliError::usage(format!("{} contains no checkpoint of an audit log", file.display())).into());
        }
    }
    let report = check(&setup.paths, &evidence)?;
    let folder = audit_log::location(&setup.paths).folder;
    let anchor = evidence.stored_head;
    let problems: Vec<_> = report.problems.iter().map(ToString::to_string).collect();
    let is_whole = problems.is_empty();
    let unanchored = report.head.rows.saturating_sub(anchor.map_or(0, |anchor| anchor.rows));
    let document = json!({
        "ok": is_whole, "rows": report.rows, "end": report.head.to_string(),
        "kept": anchor.map(|anchor| anchor.to_string()),
        "unkept": unanchored, "folder": folder, "problems": problems,
        "acknowledged": report.acknowledged.iter().map(acknowledgement).collect::<Vec<_>>(),
    });
    if wants_json {
        render::print_json(&document)?;
    } else {
        let mut lines = vec![format!("{} in {}", row_count(report.rows), folder.display())];
        lines.extend(report.acknowledged.iter().flat_map(acknowledged_lines));
        lines.extend(problems.iter().map(|problem| format!("  {problem}")));
        if is_whole {
            let all = match report.acknowledged.is_empty() {
                true => "all rows are unmodified, in order and complete",
                false => "all other rows are unmodified, in order and complete",
            };
            lines.push(match unanchored {
                0 => all.to_owned(),
                _ => format!(
                    "{all}; the journal has not recorded the last {} yet, so the removal of later rows would not be detected",
                    row_count(unanchored)
                ),
            });
        }
        render::print(&lines.join("\n"))?;
    }
    if is_whole {
        return Ok(());
    }
    let text = format!(
        "the audit log was modified: {}\nfind out who modified the log and keep a copy, then acknowledge the problems with: homard audit acknowledge --reason TEXT",
        render::count(problems.len(), "problem")
    );
    Err(CliError::new("audit", text).into())
}

/// Formats a number of rows.
fn row_count(rows: u64) -> String {
    render::count(usize::try_from(rows).unwrap_or(usize::MAX), "row")
}

fn acknowledgement(acknowledged: &Acknowledgement) -> Value {
    let problems: Vec<_> = acknowledged.problems.iter().map(ToString::to_string).collect();
    json!({"row": acknowledged.seq, "at": iso(acknowledged.at_ms), "reason": acknowledged.reason, "problems": problems})
}

fn acknowledged_lines(acknowledged: &Acknowledgement) -> Vec<String> {
    let problems = acknowledged.problems.iter().map(|problem| format!("  {problem}"));
    let reason = render::strip_controls(&acknowledged.reason);
    problems
        .chain([format!("  acknowledged at {} with row {}: {reason}", iso(acknowledged.at_ms), acknowledged.seq)])
        .collect()
}

/// Returns what the log is verified against, from the gateway or else from the journal itself.
pub(super) async fn evidence(setup: &CommandContext) -> Result<Evidence> {
    let described = match setup.query("homard.audit.end").await? {
        Some(answer) => answer,
        None if !setup.target.is_own => return Err(setup.not_running().into()),
        None => audit::stored_anchor_notes(&setup.paths)?,
    };
    Ok(audit::evidence(&setup.paths, &described)?)
}

fn check(paths: &Paths, evidence: &Evidence) -> Result<VerifyReport> {
    let folder = audit_log::location(paths).folder;
    verify_folder(&folder, evidence).with_context(|| format!("{} cannot be read", folder.display()))
}

/// Acknowledges the state of the log through the owner of the state directory: the gateway, or else this process.
async fn acknowledge(reason: &str, wants_json: bool) -> Result<()> {
    let reason = audit::reason(reason).map_err(CliError::usage)?;
    let setup = CommandContext::load()?;
    let open_problems = check(&setup.paths, &evidence(&setup).await?)?.problems;
    let summary = if open_problems.is_empty() {
        "the audit log is unmodified; nothing to acknowledge".to_owned()
    } else {
        if setup.administer("homard.audit.acknowledge", json!({"reason": reason})).await?.is_none() {
            acknowledge_here(&setup, reason).await?;
        }
        format!("acknowledged {} of the audit log", render::count(open_problems.len(), "problem"))
    };
    let problems: Vec<_> = open_problems.iter().map(ToString::to_string).collect();
    if wants_json {
        return Ok(render::print_json(&json!({"ok": true, "acknowledged": problems}))?);
    }
    let lines = problems.iter().map(|problem| format!("  {problem}"));
    Ok(render::print(&lines.chain([summary]).collect::<Vec<_>>().join("\n"))?)
}

async fn acknowledge_here(setup: &CommandContext, reason: &str) -> Result<()> {
    if !setup.target.is_own {
        return Err(setup.not_running().into());
    }
    let journal = Arc::new(Journal::open(&setup.paths.state, || Ambient::system().now_ms())?);
    let (log, _) = audit::open(&setup.paths, &journal);
    let reason = reason.to_owned();
    let result = tokio::task::spawn_blocking(move || log.acknowledge(&reason, OWNER)).await?;
    // Without a flush, this would count as a crash.
    journal.flush().await?;
    result.context("the audit log cannot be written")
}

/// Returns the newest matching rows, oldest first.
fn newest(paths: &Paths, limit: u32, kind: Option<&str>) -> Result<Vec<Value>> {
    let folder = audit_log::location(paths).folder;
    let rows = rows(&folder).with_context(|| format!("{} cannot be read", folder.display()))?;
    let is_wanted = |row: &LogRow| {
        let name = row.content["what"].as_str().unwrap_or_default();
        kind.is_none_or(|kind| name == kind || name.strip_prefix(kind).is_some_and(|rest| rest.starts_with('.')))
    };
    let mut matching: Vec<_> = rows.into_iter().filter(is_wanted).map(|row| row.content).collect();
    matching.drain(..matching.len().saturating_sub(usize::try_from(limit).unwrap_or(usize::MAX)));
    Ok(matching)
}

/// Adds the command to each row that has the digest of one, if the transcript of its session contains it.
async fn add_commands(setup: &CommandContext, rows: &mut [Value]) -> Result<()> {
    let sessions: BTreeSet<String> = rows
        .iter()
        .filter(|row| row["more"]["command"].is_string())
        .filter_map(|row| row["who"].as_str().map(str::to_owned))
        .collect();
    let mask = argument_mask(setup);
    let mut commands: HashMap<String, Value> = HashMap::new();
    let mut source = messages(setup).await?;
    for session in sessions {
        let calls = calls_of(&mut source, &session, None).await;
        for call in calls.into_iter().flatten().flatten().map(|(_, call)| call).filter(|call| call.name == "exec") {
            if let Some(command) = call.arguments["command"].as_str() {
                commands.insert(digest_of(command), mask.masked(&call.arguments)["command"].clone());
            }
        }
    }
    source.close().await?;
    for row in rows {
        let found = row["more"]["command"].as_str().and_then(|digest| commands.get(digest)).cloned();
        if let Some(command) = found {
            row["command"] = command;
        }
    }
    Ok(())
}

fn list(shown: &[Value], wants_json: bool) -> Result<()> {
    if wants_json {
        return Ok(render::print_json(&json!({"count": shown.len(), "rows": shown}))?);
    }
    if shown.is_empty() {
        return Ok(render::print("no rows")?);
    }
    Ok(render::print_table(&Table::list(shown.iter().map(cells).collect()))?)
}

fn cells(row: &Value) -> Vec<String> {
    let text = |name: &str| render::strip_controls(row[name].as_str().unwrap_or_default());
    let at = row["at"].as_u64().map(iso).unwrap_or_default();
    let details = row["more"].as_object().into_iter().flatten().map(|(name, value)| match value {
        Value::String(value) if value.len() == 64 => format!("{name}={}…", &value[..12]),
        Value::String(value) => format!("{name}={}", render::strip_controls(value)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            format!("{name}={value}")
        }
    });
    let command = row["command"]
        .as_str()
        .map(|_| format!("$ {}", text("command").replace(['\n', '\t'], " ")).trim_end().to_owned());
    let details = command.into_iter().chain(details).collect::<Vec<_>>().join(" ");
    vec![at, text("what"), text("outcome"), text("who"), details]
}
