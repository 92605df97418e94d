//! `homard config set` and `unset`: change a value in the file, and report what that means for a running gateway.

use anyhow::Result;
use homard_config::{
    edit::{self, EditError},
    path::{self, Path},
};
use homard_settings::{
    Config,
    change::{ChangeAuthor, ConfigChange, ConfigChangeError, change, issue},
    effect::Effect,
    paths::Paths,
};
use serde_json::{Value, json};

use super::get::missing;
use crate::{cli_error::CliError, render};

/// Sets a value. Text that is not JSON5 is taken as a string, unless JSON is required.
pub(super) fn set(paths: &Paths, path: &Path, value: &str, json: bool) -> Result<()> {
    let value = match edit::parse(value) {
        Some(value) => value,
        None if json => {
            let text = "VALUE must be JSON with --json; write a string in quotes: '\"text\"'";
            return Err(CliError::usage(text).into());
        }
        None => Value::from(value),
    };
    let outcome = change(paths, ChangeAuthor::User, |text| Ok(edit::set(text, path, &value)?));
    let outcome = outcome.map_err(|error| failure(error, paths))?;
    report(paths, &format!("set {path}"), &outcome, json)
}

/// Removes a value; fails if it does not exist.
pub(super) fn unset(paths: &Paths, path: &Path, json: bool) -> Result<()> {
    let outcome = change(paths, ChangeAuthor::User, |text| match edit::unset(text, path)? {
        (text, true) => Ok(text),
        (_, false) => Err(ConfigChangeError::Missing),
    });
    let outcome = outcome.map_err(|error| match matches!(error, ConfigChangeError::Missing) {
        true => missing_value(paths, path).into(),
        false => failure(error, paths),
    })?;
    report(paths, &format!("unset {path}"), &outcome, json)
}

/// Returns the failure of removing a value that does not exist.
fn missing_value(paths: &Paths, path: &Path) -> CliError {
    let source = Config::read_file(&paths.config).source;
    match path::get(&source, path) {
        Some(_) => CliError::new("config", format!("{path} is set in an included file; change it there")),
        None => missing(&source, path),
    }
}

fn failure(error: ConfigChangeError, paths: &Paths) -> anyhow::Error {
    match error {
        ConfigChangeError::Edit(EditError::Syntax { .. }) => {
            CliError::new("config", format!("config file {}, {error}", paths.config.display())).into()
        }
        // Keeps the system's error as the source.
        ConfigChangeError::Write(_) => error.into(),
        ConfigChangeError::Stale
        | ConfigChangeError::Unreadable(_)
        | ConfigChangeError::Edit(_)
        | ConfigChangeError::Missing
        | ConfigChangeError::Hidden(_)
        | ConfigChangeError::Invalid(_) => CliError::new("config", error.to_string()).into(),
    }
}

/// Reports the change, and which keys need a restart.
fn report(paths: &Paths, action: &str, outcome: &ConfigChange, json: bool) -> Result<()> {
    let problems = outcome.after.all_problems();
    let first_problem = problems.first();
    if json {
        let effect = |path: &String| json!({"path": path, "effect": effect_name(Effect::of(path))});
        let issues = |list: &[_]| list.iter().map(issue).collect::<Vec<_>>();
        return Ok(render::print_json(&json!({
            "ok": true, "path": paths.config, "hash": outcome.after.hash, "backup": outcome.backup,
            "changed": outcome.changed.iter().map(effect).collect::<Vec<_>>(),
            "warnings": issues(&outcome.warnings), "issues": issues(&problems),
        }))?);
    }
    if outcome.changed.is_empty() {
        render::print(&format!("{action}: already set, nothing changed"))?;
    } else {
        render::print(&format!("{action} in {}", paths.config.display()))?;
    }
    for (effect, label) in [
        (Effect::Live, "applied by a running gateway immediately"),
        (Effect::Restart, "restart the gateway to apply the change"),
        (Effect::None, "no effect on a running gateway"),
    ] {
        let keys: Vec<_> =
            outcome.changed.iter().filter(|path| Effect::of(path) == effect).map(String::as_str).collect();
        if !keys.is_empty() {
            render::print(&format!("{}: {label}", keys.join(", ")))?;
        }
    }
    for warning in &outcome.warnings {
        render::remark(&render::strip_controls(&format!("warning: {warning}")));
    }
    if let Some(problem) = first_problem {
        render::remark(&format!(
            "the config file is still not valid: {problem}; list all problems with: homard config validate"
        ));
    }
    Ok(())
}

fn effect_name(effect: Effect) -> &'static str {
    match effect {
        Effect::Live => "live",
        Effect::Restart => "restart",
        Effect::None => "none",
    }
}
