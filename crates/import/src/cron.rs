//! Imports scheduled jobs: they are added to the existing ones by id. A job that Homard cannot run is added disabled.

use std::{
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
};

use homard_proto::AgentId;
use homard_schedule::job::CronJob;
use homard_settings::{Config, channel_kinds::CHANNEL_KINDS, paths::Paths};
use serde_json::{Map, Value, json};

use super::{
    copy::{CopyContent, PlannedCopy},
    plan::{ImportOptions, ImportPlan},
    source::{self, OpenclawState},
    transcripts::ImportAction,
};

/// Plans the import of `cron/jobs.json` and the history of its runs.
pub(super) fn plan_jobs(
    plan: &mut ImportPlan,
    source: &OpenclawState,
    config: &Config,
    paths: &Paths,
    options: ImportOptions,
) {
    let from = plan.source_file(source, "cron/jobs.json");
    let source_jobs = match read(&from) {
        Ok(Some(file)) => file,
        Ok(None) => return,
        Err(why) => return plan.warn(&from.display(), &format!("not imported: {why}")),
    };
    if config.cron.store.is_some() {
        let why = "not imported: cron.store in the config selects another job file; if OpenClaw uses that file too, remove the key";
        return plan.warn(&from.display(), why);
    }
    let to = paths.state.join("cron/jobs.json");
    let existing = match read(&to) {
        Ok(existing) => existing,
        Err(why) => {
            let why = format!("cannot be read, so no job is imported: {why}");
            return plan.warn(&to.display(), &why);
        }
    };
    let exists = existing.is_some();
    let mut file = existing.unwrap_or_else(|| Map::from_iter([("version".to_owned(), json!(1))]));
    let mut jobs = list(&file);
    let mut is_changed = false;
    for job in list(&source_jobs) {
        let action = match imported(plan, job, config) {
            Ok((id, job)) => {
                let action = add(&mut jobs, &id, job, options);
                if matches!(action, ImportAction::New) {
                    history(plan, &id, &source.root, &paths.state);
                }
                action
            }
            Err((name, why)) => {
                plan.warn(&format!("job {name}"), &format!("not imported: {why}"));
                ImportAction::Broken
            }
        };
        is_changed |= matches!(action, ImportAction::New | ImportAction::Updated);
        plan.counts.cron_jobs.push(action);
    }
    if is_changed {
        file.insert("jobs".to_owned(), jobs.into());
        let text = format!("{:#}", Value::Object(file));
        let backup = exists.then(|| to.with_added_extension("bak"));
        plan.copies.push(PlannedCopy { to, what: CopyContent::Text(text), backup });
    }
}

/// Reads the file of jobs; `None` if there is none.
fn read(path: &Path) -> Result<Option<Map<String, Value>>, String> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(reason) if reason.kind() == ErrorKind::NotFound => return Ok(None),
        Err(reason) => return Err(reason.to_string()),
    };
    let file = source::object(&text)?;
    match file.get("jobs") {
        Some(Value::Array(_)) | None => Ok(Some(file)),
        Some(_) => Err("\"jobs\" is not a list".to_owned()),
    }
}

fn list(file: &Map<String, Value>) -> Vec<Value> {
    file.get("jobs").and_then(Value::as_array).cloned().unwrap_or_default()
}

/// Converts a job and returns it with its id. An error has its name and the reason.
fn imported(plan: &mut ImportPlan, mut value: Value, config: &Config) -> Result<(String, Value), (String, String)> {
    let text = |key: &str| value[key].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    let name = text("name").or(text("id")).unwrap_or_else(|| "without a name".to_owned());
    let job: CronJob = match serde_json::from_value(value.clone()) {
        Ok(job) => job,
        Err(error) => return Err((name, error.to_string())),
    };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if job.id.is_empty() || job.id.starts_with('.') || !job.id.chars().all(is_plain) {
        return Err((name, format!("invalid id {:?}", job.id)));
    }
    if let Some(state) = value.get_mut("state").and_then(Value::as_object_mut) {
        // It is not running here.
        state.remove("runningAtMs");
    }
    if let Some(why) = unsupported_reason(&job, config) {
        if job.enabled {
            plan.warn(&format!("job {name}"), &format!("imported as disabled: {why}"));
        }
        value["enabled"] = false.into();
    }
    Ok((job.id, value))
}

/// Returns why a job cannot run here as it is.
fn unsupported_reason(job: &CronJob, config: &Config) -> Option<String> {
    if let Some(why) = job.unsupported() {
        return Some(why);
    }
    let members = config.agents.members();
    let agent = job.agent_id.as_deref().map(AgentId::normalize);
    if let Some(agent) = agent.filter(|agent| !members.iter().any(|member| member.id == *agent)) {
        return Some(format!("unknown agent {agent}"));
    }
    let channel = job.delivery.as_ref().and_then(|delivery| delivery["channel"].as_str());
    let is_known = |channel: &str| channel == "last" || CHANNEL_KINDS.iter().any(|(kind, _)| *kind == channel);
    let channel = channel.filter(|channel| !is_known(channel))?;
    Some(format!("its replies go to the channel {channel}, which is not supported"))
}

/// Adds a job to the existing ones.
fn add(jobs: &mut Vec<Value>, id: &str, job: Value, options: ImportOptions) -> ImportAction {
    let without_state = |job: &Value| {
        let mut job = job.clone();
        if let Some(fields) = job.as_object_mut() {
            fields.remove("state");
        }
        job
    };
    let Some(existing) = jobs.iter_mut().find(|existing| existing["id"] == id) else {
        jobs.push(job);
        return ImportAction::New;
    };
    if without_state(existing) == without_state(&job) {
        return ImportAction::Same;
    }
    if !options.replace_existing {
        return ImportAction::Kept;
    }
    let state = existing.get_mut("state").map(Value::take);
    *existing = job;
    if let Some(state) = state {
        existing["state"] = state;
    }
    ImportAction::Updated
}

/// Copies the history of a job's runs, if there is none here.
fn history(plan: &mut ImportPlan, id: &str, source_dir: &Path, target_dir: &Path) {
    let name = PathBuf::from("cron/runs").join(format!("{id}.jsonl"));
    let (from, to) = (source_dir.join(&name), target_dir.join(&name));
    let is_file = from.symlink_metadata().is_ok_and(|found| found.is_file());
    if is_file && to.symlink_metadata().is_err() {
        plan.copy(&from, &to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(extra: &Value) -> Value {
        let mut job = json!({
            "id": "j1", "name": "Daily", "enabled": true, "schedule": {"kind": "cron", "expr": "0 7 * * *"},
            "sessionTarget": "isolated", "payload": {"kind": "agentTurn", "message": "look"},
            "state": {"runningAtMs": 5, "lastRunAtMs": 4},
        });
        job.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        job
    }

    #[test]
    fn an_unsupported_job_is_imported_as_disabled_with_a_warning() {
        let config = Config::parse("{agents: {list: [{id: 'main'}]}}").unwrap();
        let import_job = |extra: Value| {
            let mut plan = ImportPlan::default();
            let (_, job) = imported(&mut plan, job(&extra), &config).unwrap();
            (job["enabled"].as_bool().unwrap(), plan.warnings)
        };
        assert_eq!(import_job(json!({"delivery": {"mode": "announce", "channel": "telegram"}})), (true, Vec::new()));
        for (extra, expected) in [
            (json!({"schedule": {"kind": "on-exit"}}), "schedule.kind"),
            (json!({"agentId": "ops"}), "unknown agent ops"),
            (json!({"delivery": {"mode": "announce", "channel": "imessage"}}), "the channel imessage"),
        ] {
            let (is_enabled, warnings) = import_job(extra);
            assert!(!is_enabled && warnings.len() == 1 && warnings[0].starts_with("job Daily: imported as disabled: "));
            assert!(warnings[0].contains(expected), "{warnings:?}");
        }
        let mut plan = ImportPlan::default();
        for broken in [json!({"id": "../x"}), json!({"id": ""}), json!({"schedule": 5})] {
            assert_eq!(imported(&mut plan, job(&broken), &config).unwrap_err().0, "Daily");
        }
    }

    #[test]
    fn an_existing_job_keeps_its_state() {
        let options = |replaces| ImportOptions { replace_existing: replaces, write_defaults: false };
        let mut jobs = vec![job(&json!({"state": {"lastRunAtMs": 9}}))];
        assert_eq!(add(&mut jobs, "j1", job(&json!({})), options(false)), ImportAction::Same);
        assert_eq!(add(&mut jobs, "j1", job(&json!({"name": "Other"})), options(false)), ImportAction::Kept);
        assert_eq!(jobs[0]["name"], "Daily");
        assert_eq!(add(&mut jobs, "j1", job(&json!({"name": "Other"})), options(true)), ImportAction::Updated);
        assert_eq!((&jobs[0]["name"], &jobs[0]["state"]), (&json!("Other"), &json!({"lastRunAtMs": 9})));
        assert_eq!(add(&mut jobs, "j2", job(&json!({"id": "j2"})), options(false)), ImportAction::New);
    }
}
