//! `homard config set` and `unset`: change a value in the file, and report what that means for a running gateway.

use anyhow::Result;
use homard_config::{
    edit::{self, EditError},
    path::{self, Path},
};
use serde_json::{Value, json};

use super::get::missing;
use crate::{
    config::{
        Config,
        change::{By, Change, Refusal, change, issue},
    },
    failure::Failure,
    live::effect::Effect,
    paths::Paths,
    render,
};

/// Sets a value. Text that is not JSON5 is taken as a string, unless JSON is required.
pub(super) fn set(paths: &Paths, path: &Path, value: &str, json: bool) -> Result<()> {
    let value = match edit::parse(value) {
        Some(value) => value,
        None if json => {
            let text = "VALUE is not JSON, which it must be with --json; write a text in quotes: '\"text\"'";
            return Err(Failure::usage(text).into());
        }
        None => Value::from(value),
    };
    let done = change(paths, By::Person, |text| Ok(edit::set(text, path, &value)?));
    let done = done.map_err(|refusal| failure(refusal, paths))?;
    tell(paths, &format!("set {path}"), &done, json)
}

/// Removes a value; fails if it does not exist.
pub(super) fn unset(paths: &Paths, path: &Path, json: bool) -> Result<()> {
    let done = change(paths, By::Person, |text| match edit::unset(text, path)? {
        (text, true) => Ok(text),
        (_, false) => Err(Refusal::Missing),
    });
    let done = done.map_err(|refusal| match matches!(refusal, Refusal::Missing) {
        true => absent(paths, path).into(),
        false => failure(refusal, paths),
    })?;
    tell(paths, &format!("unset {path}"), &done, json)
}

/// Returns the failure of removing a value that does not exist.
fn absent(paths: &Paths, path: &Path) -> Failure {
    let said = Config::read_file(&paths.config).source;
    match path::get(&said, path) {
        Some(_) => Failure::new("config", format!("{path} is in a file that the config includes; change it there")),
        None => missing(&said, path),
    }
}

fn failure(refusal: Refusal, paths: &Paths) -> anyhow::Error {
    match refusal {
        Refusal::Edit(EditError::Syntax { .. }) => {
            Failure::new("config", format!("config file {}, {refusal}", paths.config.display())).into()
        }
        // Keeps the system's error as the source.
        Refusal::Write(_) => refusal.into(),
        Refusal::Stale
        | Refusal::Unreadable(_)
        | Refusal::Edit(_)
        | Refusal::Missing
        | Refusal::Hidden(_)
        | Refusal::Invalid(_) => Failure::new("config", refusal.to_string()).into(),
    }
}

/// Reports the change, and which keys need a restart.
fn tell(paths: &Paths, what: &str, done: &Change, json: bool) -> Result<()> {
    let wrong = done.after.wrong();
    let left = wrong.first();
    if json {
        let effect = |path: &String| json!({"path": path, "effect": word(Effect::of(path))});
        let issues = |told: &[_]| told.iter().map(issue).collect::<Vec<_>>();
        return Ok(render::print_json(&json!({
            "ok": true, "path": paths.config, "hash": done.after.hash, "backup": done.backup,
            "changed": done.changed.iter().map(effect).collect::<Vec<_>>(),
            "warnings": issues(&done.warnings), "issues": issues(&wrong),
        }))?);
    }
    if done.changed.is_empty() {
        render::print(&format!("{what}: it is so already, nothing has changed"))?;
    } else {
        render::print(&format!("{what} in {}", paths.config.display()))?;
    }
    for (effect, words) in [
        (Effect::Live, "a gateway that runs goes by it at once"),
        (Effect::Restart, "a gateway that runs must be restarted for it"),
        (Effect::None, "a gateway that runs does not mind"),
    ] {
        let keys: Vec<_> = done.changed.iter().filter(|path| Effect::of(path) == effect).map(String::as_str).collect();
        if !keys.is_empty() {
            render::print(&format!("{}: {words}", keys.join(", ")))?;
        }
    }
    for warning in &done.warnings {
        render::remark(&render::harmless(&format!("warning: {warning}")));
    }
    if let Some(problem) = left {
        render::remark(&format!("the file is still not valid: {problem}; to see all: homard config validate"));
    }
    Ok(())
}

fn word(effect: Effect) -> &'static str {
    match effect {
        Effect::Live => "live",
        Effect::Restart => "restart",
        Effect::None => "none",
    }
}
