//! `homard import openclaw`: imports the state of OpenClaw 2026.2.
//!
//! The source is only read. First everything is examined and a [`ImportPlan`] is made; `--dry-run` ends there. Then files are
//! copied, each atomically, and last the sessions are stored in one go: an interrupted import can be repeated.

mod copy;
mod cron;
mod defaults;
mod plan;
mod report;
mod settings;
mod skills;
mod source;
mod transcripts;

use std::{collections::BTreeMap, fs, path::PathBuf, sync::Arc};

use anyhow::{Context, Result, bail};
use clap::Subcommand;
use homard_journal::Journal;
use homard_proto::{AgentId, SessionKey, session::Record};
use homard_runtime::Ambient;
use homard_settings::paths::Paths;
use homard_store::{Rec, StoreReader, StoreWriter, Verdict};
use serde_json::Value;

use self::{
    copy::CopyProgress,
    plan::{ImportOptions, ImportPlan},
    source::OpenclawState,
};
use crate::{cli_error::CliError, render};

/// Number of sessions per commit.
const BATCH: usize = 256;

/// What to import.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    from: From,
}

#[derive(Debug, Subcommand)]
enum From {
    /// Import config, sessions, transcripts, auth profiles, skills and cron jobs of OpenClaw 2026.2; does not change
    /// its files
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
    if is_same(&source, &paths) {
        let text = format!("{} is Homard's own state directory; nothing to import", source.root.display());
        return Err(CliError::usage(text).into());
    }
    let options = ImportOptions { replace_existing: flags.force, write_defaults: flags.write_defaults };
    let plan = if flags.dry_run {
        plan::make(&source, &paths, &exported(&paths), options)?
    } else {
        let journal = Journal::open(&paths.state, || Ambient::system().now_ms())?;
        let imported = import_state(&journal, &source, &paths, options).await;
        // Also after a failure, so that this does not count as a crash.
        let closed = journal.flush().await;
        let plan = imported?;
        closed.context("cannot write the session list")?;
        plan
    };
    let report = report::ImportReport { plan: &plan, source: &source.root, state: &paths.state, is_dry: flags.dry_run };
    if flags.json {
        return Ok(render::print_json(&report.document())?);
    }
    Ok(render::print(&report.text())?)
}

fn is_same(source: &OpenclawState, paths: &Paths) -> bool {
    match (fs::canonicalize(&source.root), fs::canonicalize(&paths.state)) {
        (Ok(source), Ok(state)) => source == state,
        _ => false,
    }
}

/// Copies the files, then stores the sessions.
async fn import_state(
    journal: &Journal,
    source: &OpenclawState,
    paths: &Paths,
    options: ImportOptions,
) -> Result<ImportPlan> {
    let known = journal.list().await?.into_iter().map(|(key, record)| (key, Arc::unwrap_or_clone(record))).collect();
    let plan = plan::make(source, paths, &known, options)?;
    let mut progress = CopyProgress::new(plan.copies.len());
    for copy in &plan.copies {
        copy.write().with_context(|| format!("cannot write {}", copy.to.display()))?;
        progress.step();
    }
    progress.end();
    for batch in plan.sessions.chunks(BATCH) {
        let patch = |(key, record): &(SessionKey, Record)| Rec::Patch {
            run: None,
            key: key.clone(),
            expect: known.get(key).map(|known| known.session_id.clone()),
            record: Box::new(record.clone()),
        };
        let verdicts = journal.commit(&journal.fence(), batch.iter().map(patch).collect()).await?;
        if verdicts.iter().any(|verdict| *verdict != Verdict::Stored) {
            bail!("a session changed while it was imported; import again");
        }
    }
    Ok(plan)
}

/// Reads the existing sessions from their last export: good enough for a dry run, and the journal is not opened.
fn exported(paths: &Paths) -> BTreeMap<SessionKey, Record> {
    let agents = fs::read_dir(paths.state.join("agents")).into_iter().flatten().flatten();
    let files = agents.map(|agent| (agent.file_name(), agent.path().join("sessions/sessions.json")));
    let records = files.filter_map(|(agent, path)| {
        let records: BTreeMap<String, Value> = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
        Some((AgentId::normalize(&agent.to_string_lossy()), records))
    });
    let keyed = records.flat_map(|(agent, records)| {
        records.into_iter().filter_map(move |(key, record)| {
            Some((SessionKey::parse(&key, &agent).ok()?, serde_json::from_value(record).ok()?))
        })
    });
    keyed.collect()
}
