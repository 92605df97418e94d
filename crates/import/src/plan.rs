//! The plan of an import, made before anything is written.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use homard_proto::{AgentId, SessionKey, session::Record};
use homard_settings::paths::Paths;
use serde_json::Value;

use super::{
    Error,
    copy::{CopyContent, PlannedCopy},
    cron,
    database::ExportedState,
    defaults::DefaultDifference,
    devices, pairing, senders, settings, skills,
    source::{self, OpenclawState},
    transcripts::{self, ImportAction},
};

/// Options of the import.
#[derive(Debug, Clone, Copy)]
pub struct ImportOptions {
    /// An existing config and existing auth profiles are replaced.
    pub replace_existing: bool,
    /// OpenClaw's defaults are written into the config.
    pub write_defaults: bool,
}

/// The plan of an import.
#[derive(Debug, Default)]
pub struct ImportPlan {
    pub(crate) copies: Vec<PlannedCopy>,
    /// Content of databases, as files that are copied. Deleted with the plan.
    pub(crate) exported: Option<ExportedState>,
    /// Records to store once all files are copied.
    pub sessions: Vec<(SessionKey, Record)>,
    pub counts: ImportCounts,
    /// Unset settings whose defaults differ.
    pub defaults: Vec<DefaultDifference>,
    /// True if the written config contains them.
    pub defaults_are_written: bool,
    pub warnings: Vec<String>,
    /// What exists and is not imported, and why.
    pub not_imported: Vec<(&'static str, &'static str)>,
}

/// The fates of all items, by kind.
#[derive(Debug, Default)]
pub struct ImportCounts {
    pub config: Vec<ImportAction>,
    pub sessions: Vec<ImportAction>,
    pub transcripts: Vec<ImportAction>,
    pub auth_profiles: Vec<ImportAction>,
    pub skills: Vec<ImportAction>,
    pub cron_jobs: Vec<ImportAction>,
    /// Senders that may write to the agent on a chat channel.
    pub senders: Vec<ImportAction>,
    /// Senders that wait for the owner's approval.
    pub requests: Vec<ImportAction>,
    /// Paired devices.
    pub devices: Vec<ImportAction>,
    /// Approval rules for commands.
    pub approvals: Vec<ImportAction>,
}

impl ImportPlan {
    /// Returns a file or folder of the source, from its database if it is there.
    pub(crate) fn source_file(&self, source: &OpenclawState, name: &str) -> PathBuf {
        let exported = self.exported.as_ref().and_then(|exported| exported.file(name));
        exported.unwrap_or_else(|| source.root.join(name))
    }

    /// Adds a warning about a file or a session.
    pub fn warn(&mut self, item: &dyn std::fmt::Display, why: &str) {
        self.warnings.push(homard_stdx::text::strip_controls(&format!("{item}: {why}")));
    }

    /// Adds a file to be copied unchanged.
    pub fn copy(&mut self, from: &Path, to: &Path) {
        self.copies.push(PlannedCopy { to: to.to_owned(), what: CopyContent::Of(from.to_owned()), backup: None });
    }
}

/// Examines everything and makes the plan. `known` are the existing sessions.
pub(crate) fn make(
    source: &OpenclawState,
    paths: &Paths,
    known: &BTreeMap<SessionKey, Record>,
    options: ImportOptions,
) -> Result<ImportPlan, Error> {
    let mut plan = ImportPlan { not_imported: source.not_imported(), ..ImportPlan::default() };
    let mut agents = source.agents.clone();
    plan.exported = ExportedState::of(&source.root, &mut agents)?;
    plan.warnings.extend(plan.exported.iter().flat_map(|exported| exported.warnings.clone()));
    let config = settings::config(&mut plan, source, paths, options);
    settings::approvals(&mut plan, source, paths, options);
    senders::plan_senders(&mut plan, source, paths);
    pairing::plan_requests(&mut plan, source, paths);
    devices::plan_devices(&mut plan, source, paths);
    skills::plan_skills(&mut plan, source, &config, paths, options);
    cron::plan_jobs(&mut plan, source, &config, paths, options);
    for (agent, folder) in &agents {
        settings::auth_profiles(&mut plan, folder, &paths.state.join("agents").join(agent.as_str()), options);
        let sessions = folder.join("sessions");
        if sessions.is_dir() {
            let mut planner =
                SessionPlanner { plan: &mut plan, paths, known, agent, sessions, actions: BTreeMap::new() };
            planner.transcripts()?;
            planner.records();
        }
    }
    Ok(plan)
}

/// Plans the sessions of one agent.
struct SessionPlanner<'a> {
    plan: &'a mut ImportPlan,
    paths: &'a Paths,
    known: &'a BTreeMap<SessionKey, Record>,
    agent: &'a AgentId,
    sessions: PathBuf,
    /// The action for each transcript, by its target agent and file name.
    actions: BTreeMap<(AgentId, String), ImportAction>,
}

impl SessionPlanner<'_> {
    /// Plans every transcript, also of sessions that a reset left behind.
    fn transcripts(&mut self) -> Result<(), Error> {
        for (name, path) in source::listed(&self.sessions)? {
            if name.ends_with(".jsonl") && !name.starts_with('.') && path.is_file() {
                self.transcript(self.agent.clone(), name);
            }
        }
        Ok(())
    }

    /// Plans a transcript in the directory of an agent.
    fn transcript(&mut self, agent: AgentId, name: String) -> ImportAction {
        let transcript = (agent, name);
        if let Some(&action) = self.actions.get(&transcript) {
            return action;
        }
        let (from, to) = (self.sessions.join(&transcript.1), folder(self.paths, &transcript.0).join(&transcript.1));
        let decision = transcripts::decide(&from, &to);
        if let Some(warning) = decision.remark {
            self.plan.warn(&from.display(), &warning);
        }
        match decision.fate {
            ImportAction::New | ImportAction::Updated => self.plan.copy(&from, &to),
            ImportAction::Same | ImportAction::Kept | ImportAction::Broken => {}
        }
        self.plan.counts.transcripts.push(decision.fate);
        self.actions.insert(transcript, decision.fate);
        decision.fate
    }

    /// Plans the records of `sessions.json`. An unreadable record affects only its own session.
    fn records(&mut self) {
        let path = self.sessions.join("sessions.json");
        let values = match fs::read_to_string(&path) {
            Ok(text) => source::object(&text),
            Err(reason) if reason.kind() == std::io::ErrorKind::NotFound => return,
            Err(reason) => Err(reason.to_string()),
        };
        let values = match values {
            Ok(values) => values,
            Err(why) => {
                let why = format!("cannot be read, so the transcripts of this agent are not linked to sessions: {why}");
                return self.plan.warn(&path.display(), &why);
            }
        };
        let mut records: BTreeMap<SessionKey, Record> = BTreeMap::new();
        for (name, value) in values {
            match source::record(self.agent, &name, value) {
                Ok((key, record)) => {
                    let newer = records.get(&key).is_none_or(|other| other.updated_at < record.updated_at);
                    if newer && let Some(older) = records.insert(key.clone(), record) {
                        self.plan.warn(
                            &key,
                            &format!(
                                "occurs twice in sessions.json; the older session {} is not imported",
                                older.session_id
                            ),
                        );
                    }
                }
                Err(why) => {
                    self.plan.counts.sessions.push(ImportAction::Broken);
                    self.plan.warn(&format!("session {name}"), &format!("not imported: {why}"));
                }
            }
        }
        for (key, record) in records {
            let action = self.record(key, record);
            self.plan.counts.sessions.push(action);
        }
    }

    fn record(&mut self, key: SessionKey, mut record: Record) -> ImportAction {
        let home = key.agent().cloned().unwrap_or_else(AgentId::main);
        let name = self.name(&key, &record);
        let transcript = name.clone().map(|name| self.transcript(home.clone(), name));
        match (transcript, self.known.get(&key)) {
            (Some(ImportAction::Broken), _) => {
                self.plan.warn(&format!("session {key}"), "not imported: its transcript cannot be used");
                return ImportAction::Broken;
            }
            (_, Some(existing)) if existing.updated_at > record.updated_at => return ImportAction::Kept,
            (Some(ImportAction::Kept), Some(existing)) if existing.session_id == record.session_id => {
                return ImportAction::Kept;
            }
            (_, Some(existing))
                if existing.updated_at == record.updated_at && existing.session_id == record.session_id =>
            {
                return ImportAction::Same;
            }
            (Some(ImportAction::New | ImportAction::Updated | ImportAction::Same | ImportAction::Kept) | None, _) => {}
        }
        if record.extra.shift_remove("sessionFile").is_some()
            && let Some(name) = name
        {
            let path = folder(self.paths, &home).join(name);
            record.extra.insert("sessionFile".to_owned(), Value::String(path.display().to_string()));
        }
        let action = if self.known.contains_key(&key) { ImportAction::Updated } else { ImportAction::New };
        self.plan.sessions.push((key, record));
        action
    }

    /// Returns the name of a session's transcript, if it has one. Only the name that the record gives counts, and only
    /// if it contains the session's id: after a reset the record may still name the previous transcript.
    fn name(&mut self, key: &SessionKey, record: &Record) -> Option<String> {
        let id = record.session_id.as_str();
        let named_file = record.extra.get("sessionFile").and_then(Value::as_str);
        let named_file = named_file.and_then(|path| Path::new(path).file_name()?.to_str()).map(str::to_owned);
        let named_file =
            named_file.filter(|name| name.ends_with(".jsonl") && name.contains(id) && !name.starts_with('.'));
        let found =
            named_file.into_iter().chain([format!("{id}.jsonl")]).find(|name| self.sessions.join(name).is_file());
        if found.is_none() {
            self.plan.warn(&format!("session {key}"), "has no transcript; the session starts empty");
        }
        found
    }
}

fn folder(paths: &Paths, agent: &AgentId) -> PathBuf {
    paths.state.join("agents").join(agent.as_str()).join("sessions")
}
