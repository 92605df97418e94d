//! Imports the config, the approval rules and the auth profiles: copied unchanged, never shown.

use std::{
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
};

use homard_approvals::ApprovalPolicy;
use homard_credentials::auth_profiles;
use homard_settings::{Config, paths::Paths, unsupported_channel_keys};
use serde_json::{Map, Value};

use super::{
    copy::{self, CopyContent, PlannedCopy},
    defaults,
    plan::{ImportOptions, ImportPlan},
    source::{self, OpenclawState},
    transcripts::ImportAction,
};

/// Plans the config, and returns the one that will be in use.
pub(crate) fn config(plan: &mut ImportPlan, source: &OpenclawState, paths: &Paths, options: ImportOptions) -> Config {
    let text = chosen_config(plan, source, paths, options);
    let text = text.or_else(|| fs::read_to_string(&paths.config).ok()).unwrap_or_default();
    Config::read(&paths.config, &text).config
}

/// Plans the config. An existing one is kept unless it is to be replaced. Returns the imported text, if any.
fn chosen_config(
    plan: &mut ImportPlan,
    source: &OpenclawState,
    paths: &Paths,
    options: ImportOptions,
) -> Option<String> {
    let from = source.config.as_ref()?;
    let read = fs::read_to_string(from).map_err(|reason| reason.to_string());
    let read = read.and_then(|text| Ok((source::object(&text)?, text)));
    let (fields, text) = match read {
        Ok(read) => read,
        Err(why) => {
            plan.counts.config.push(ImportAction::Broken);
            plan.warn(&from.display(), &format!("not imported: {why}"));
            return None;
        }
    };
    let open = defaults::unset_defaults(&fields, &source.root, &paths.state);
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text).to_owned();
    let (text, is_written) = match options.write_defaults.then(|| defaults::with_defaults(&text, &open)) {
        Some(Ok(text)) => (text, true),
        Some(Err(why)) => {
            plan.warn(&from.display(), &why);
            (text, false)
        }
        None => (text, false),
    };
    let to = &paths.config;
    let action = match fs::read_to_string(to) {
        Ok(existing) if existing == text => ImportAction::Same,
        Err(reason) if reason.kind() == ErrorKind::NotFound => ImportAction::New,
        Ok(_) | Err(_) if options.replace_existing => ImportAction::Updated,
        Ok(_) | Err(_) => ImportAction::Kept,
    };
    plan.counts.config.push(action);
    match action {
        ImportAction::Kept | ImportAction::Broken => {
            plan.warn(&to.display(), "already exists and is kept; replace it with --force");
            return None;
        }
        ImportAction::New | ImportAction::Updated => {
            let backup = (action == ImportAction::Updated).then(|| backup_path(to));
            plan.copies.push(PlannedCopy { to: to.clone(), what: CopyContent::Text(text.clone()), backup });
        }
        ImportAction::Same => {}
    }
    (plan.defaults, plan.defaults_are_written) = (open, is_written);
    if is_exposed(&fields) {
        plan.warn(&to.display(), EXPOSED);
    }
    if includes(&Value::Object(fields)) {
        plan.warn(&from.display(), "includes other files with $include; they are not imported");
    }
    let read = Config::read(to, &text);
    for (path, why) in unsupported_channel_keys(&read.config) {
        plan.warn(&path, &why);
    }
    for problem in read.problems {
        plan.warn(&to.display(), &format!("not valid after the import: {problem}"));
    }
    Some(text)
}

/// Warning about a config that OpenClaw accepts and Homard does not.
const EXPOSED: &str = "gateway.bind is open to other machines without TLS, so the gateway does not start; set \
                       gateway.tls.enabled to true or gateway.bind to loopback, or see \"From other machines\" in: homard docs gateway";

/// Returns true if a config exposes the gateway to other machines without TLS.
fn is_exposed(fields: &Map<String, Value>) -> bool {
    let Some(gateway) = fields.get("gateway") else { return false };
    let is_open = matches!(gateway["bind"].as_str(), Some("lan" | "custom"));
    is_open && gateway.pointer("/tls/enabled") != Some(&Value::Bool(true)) && gateway["trustedProxies"].is_null()
}

fn backup_path(path: &Path) -> PathBuf {
    path.with_added_extension("bak")
}

/// Returns true if a config includes other files.
fn includes(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields.contains_key("$include") || fields.values().any(includes),
        Value::Array(values) => values.iter().any(includes),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Plans the approval rules for commands, with a warning: the file has the same format here.
pub(crate) fn approvals(plan: &mut ImportPlan, source: &OpenclawState, paths: &Paths, options: ImportOptions) {
    let name = "exec-approvals.json";
    let (from, to) = (plan.source_file(source, name), paths.state.join(name));
    let text = match fs::read_to_string(&from) {
        Ok(text) => text,
        Err(reason) if reason.kind() == ErrorKind::NotFound => return,
        Err(reason) => {
            plan.counts.approvals.push(ImportAction::Broken);
            return plan.warn(&from.display(), &format!("not imported: {reason}"));
        }
    };
    if let Err(why) = ApprovalPolicy::parse(&text) {
        plan.counts.approvals.push(ImportAction::Broken);
        return plan.warn(&from.display(), &format!("not imported: {why}"));
    }
    let exists = to.exists();
    if exists && copy::is_same(&from, &to).unwrap_or(false) {
        return plan.counts.approvals.push(ImportAction::Same);
    }
    if exists && !options.replace_existing {
        plan.counts.approvals.push(ImportAction::Kept);
        return plan.warn(&to.display(), "already exists and is kept; replace it with --force");
    }
    plan.counts.approvals.push(if exists { ImportAction::Updated } else { ImportAction::New });
    plan.copies.push(PlannedCopy { backup: exists.then(|| backup_path(&to)), to, what: CopyContent::Text(text) });
    plan.warn(&name, "copied; the stricter of this file and tools.exec in the config applies");
}

/// Plans the auth profiles of one agent, given its directories there and here.
pub(crate) fn auth_profiles(plan: &mut ImportPlan, source_dir: &Path, target_dir: &Path, options: ImportOptions) {
    let name = "agent/auth-profiles.json";
    let (from, to) = (source_dir.join(name), target_dir.join(name));
    let bytes = match fs::read(&from) {
        Ok(bytes) => bytes,
        Err(reason) if reason.kind() == ErrorKind::NotFound => return,
        Err(reason) => {
            plan.counts.auth_profiles.push(ImportAction::Broken);
            return plan.warn(&from.display(), &format!("not imported: {reason}"));
        }
    };
    let action = match serde_json::from_slice::<Map<String, Value>>(&bytes) {
        Err(_) => ImportAction::Broken,
        // A file that only has the health of environment keys may be overwritten.
        Ok(_) if !auth_profiles::file::has_profiles(&to) => ImportAction::New,
        Ok(_) if copy::is_same(&from, &to).unwrap_or(false) => ImportAction::Same,
        Ok(_) if options.replace_existing => ImportAction::Updated,
        Ok(_) => ImportAction::Kept,
    };
    plan.counts.auth_profiles.push(action);
    match action {
        ImportAction::New | ImportAction::Updated => plan.copy(&from, &to),
        ImportAction::Same => {}
        ImportAction::Kept => plan.warn(&to.display(), "already exists and is kept; replace it with --force"),
        // The parser's message could quote the content.
        ImportAction::Broken => plan.warn(&from.display(), "not imported: not a JSON object"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exposed_gateway_config_is_reported() {
        let warning = |text: &str| is_exposed(&source::object(text).unwrap());
        assert!(warning("{gateway: {bind: 'lan'}}") && warning("{gateway: {bind: 'custom', tls: {enabled: false}}}"));
        assert!(
            !warning("{}") && !warning("{gateway: {bind: 'loopback'}}") && !warning("{gateway: {bind: 'tailnet'}}")
        );
        assert!(!warning("{gateway: {bind: 'lan', tls: {enabled: true}}}"));
        assert!(!warning("{gateway: {bind: 'lan', trustedProxies: ['192.0.2.9']}}"));
    }
}
