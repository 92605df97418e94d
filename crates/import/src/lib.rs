//! The import of OpenClaw's state: config, sessions, transcripts, auth profiles, approvals, approved senders,
//! pairing requests, paired devices, skills and cron jobs.
//!
//! The source is only read. First everything is examined and an [`ImportPlan`] is made: [`preview`] ends there. Then
//! files are copied, each atomically, and last the sessions are stored in one go: an interrupted import can be repeated.
//! Start with [`import`], then `plan`; `database` turns the databases of OpenClaw 2026.9 into the files that the rest reads.

mod copy;
mod cron;
mod database;
mod defaults;
mod devices;
mod error;
mod pairing;
mod plan;
mod senders;
mod settings;
mod skills;
mod source;
mod transcripts;

use std::{collections::BTreeMap, fs, sync::Arc};

use homard_journal::Journal;
use homard_proto::{AgentId, SessionKey, session::Record};
use homard_runtime::Ambient;
use homard_settings::paths::Paths;
use homard_store::{Rec, StoreReader, StoreWriter, Verdict};
use serde_json::Value;

pub use self::{
    defaults::DefaultDifference,
    error::Error,
    plan::{ImportCounts, ImportOptions, ImportPlan},
    source::OpenclawState,
    transcripts::ImportAction,
};

/// Number of sessions per commit.
const BATCH: usize = 256;

/// Returns what an import would do, and changes nothing.
pub fn preview(source: &OpenclawState, paths: &Paths, options: ImportOptions) -> Result<ImportPlan, Error> {
    plan::make(source, paths, &exported(paths), options)
}

/// Imports the state. `show` is called after each file that was copied, with how many were copied and how many there are.
pub async fn import(
    source: &OpenclawState,
    paths: &Paths,
    options: ImportOptions,
    show: &mut dyn FnMut(usize, usize),
) -> Result<ImportPlan, Error> {
    let journal = Journal::open(&paths.state, || Ambient::system().now_ms())?;
    let imported = import_state(&journal, source, paths, options, show).await;
    // Also after a failure, so that this does not count as a crash.
    let closed = journal.flush().await;
    let plan = imported?;
    closed.map_err(Error::SessionList)?;
    Ok(plan)
}

/// Returns true if the source is Homard's own state directory.
pub fn is_same(source: &OpenclawState, paths: &Paths) -> bool {
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
    show: &mut dyn FnMut(usize, usize),
) -> Result<ImportPlan, Error> {
    let known = journal.list().await?.into_iter().map(|(key, record)| (key, Arc::unwrap_or_clone(record))).collect();
    let plan = plan::make(source, paths, &known, options)?;
    for (done, copy) in plan.copies.iter().enumerate() {
        copy.write().map_err(|error| Error::Write { path: copy.to.clone(), error })?;
        show(done + 1, plan.copies.len());
    }
    for batch in plan.sessions.chunks(BATCH) {
        let patch = |(key, record): &(SessionKey, Record)| Rec::Patch {
            run: None,
            key: key.clone(),
            expect: known.get(key).map(|known| known.session_id.clone()),
            record: Box::new(record.clone()),
        };
        let verdicts = journal.commit(&journal.fence(), batch.iter().map(patch).collect()).await?;
        if verdicts.iter().any(|verdict| *verdict != Verdict::Stored) {
            return Err(Error::Changed);
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
