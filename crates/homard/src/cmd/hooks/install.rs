//! `homard hooks install`: copies a directory into the state directory, or links it where it is.

use std::path::{self, Path};

use anyhow::{Context, Result};
use homard_config::{edit, path::Path as Key};
use homard_plugins::internal::{InstallError, InstalledHook, ReplacePolicy, inspect, install};
use homard_runtime::{Ambient, ambient::iso};
use homard_settings::{Config, paths::Paths};
use homard_setup::edit_config;
use serde_json::{Value, json};

use super::HookList;
use crate::{cli_error::CliError, render};

/// Copies the hook into the state directory and records its source in the config.
pub(super) fn copy(paths: &Paths, source: &Path, force: bool, wants_json: bool) -> Result<()> {
    let source = absolute(source)?;
    let replace = if force { ReplacePolicy::Allowed } else { ReplacePolicy::Never };
    let installed = install(&source, &paths.state.join("hooks"), replace).map_err(failure)?;
    let (key, record) = (installs().key(&installed.id), record(&source, &installed, Some(&installed.hash)));
    edit_config(paths, |text| edit::set(text, &key, &record)).with_context(|| {
        format!("installed {}, but cannot record its source in the config", installed.path.display())
    })?;
    report(paths, &installed, &format!("installed {} in {}", installed.id, installed.path.display()), wants_json)
}

/// Adds the directory to the config.
pub(super) fn link(paths: &Paths, source: &Path, wants_json: bool) -> Result<()> {
    let installed = inspect(&absolute(source)?).map_err(failure)?;
    let folders = Key::root().key("hooks").key("internal").key("load").key("extraDirs");
    // A linked directory is under development, so a hash of its current files would be useless.
    let (key, record) = (installs().key(&installed.id), record(&installed.path, &installed, None));
    let folder = json!(installed.path);
    edit_config(paths, |text| {
        let config = edit::value(text)?;
        let mut all = config["hooks"]["internal"]["load"]["extraDirs"].as_array().cloned().unwrap_or_default();
        if !all.contains(&folder) {
            all.push(folder.clone());
        }
        edit::set(&edit::set(text, &folders, &Value::Array(all))?, &key, &record)
    })?;
    report(paths, &installed, &format!("linked {} to {}", installed.id, installed.path.display()), wants_json)
}

fn absolute(path: &Path) -> Result<path::PathBuf> {
    path::absolute(path).with_context(|| format!("cannot resolve {}", path.display()))
}

fn failure(error: InstallError) -> anyhow::Error {
    match error {
        InstallError::Invalid { .. } => CliError::usage(render::strip_controls(&error.to_string())).into(),
        InstallError::Exists(_) => CliError::new("exists", render::strip_controls(&error.to_string())).into(),
        InstallError::Io { .. } => error.into(),
    }
}

fn installs() -> Key {
    Key::root().key("hooks").key("internal").key("installs")
}

fn record(source: &Path, installed: &InstalledHook, hash: Option<&str>) -> Value {
    let mut record = json!({
        "source": "path", "sourcePath": source, "installPath": installed.path,
        "installedAt": iso(Ambient::system().now_ms()), "hooks": installed.hooks,
    });
    for (key, value) in [("version", installed.version.as_deref()), ("hash", hash)] {
        if let Some(value) = value {
            record[key] = value.into();
        }
    }
    record
}

/// Reports what was installed, and what is needed for it to take effect.
fn report(paths: &Paths, installed: &InstalledHook, summary: &str, wants_json: bool) -> Result<()> {
    for problem in &installed.problems {
        render::remark(&render::strip_controls(&format!("warning: {problem}")));
    }
    let list = HookList::find(&Config::choose(paths)?.loaded, paths);
    let state_of = |name: &String| {
        list.hook(name).map_or_else(|_| "hidden".to_owned(), |(_, decision)| render::hooks::state(decision))
    };
    if wants_json {
        let hooks =
            installed.hooks.iter().map(|name| json!({"name": name, "state": state_of(name)})).collect::<Vec<_>>();
        let document = json!({
            "ok": true, "id": installed.id, "path": installed.path, "hooks": hooks,
            "version": installed.version, "hash": installed.hash,
        });
        return Ok(render::print_json(&document)?);
    }
    let mut lines = vec![summary.to_owned()];
    for name in &installed.hooks {
        lines.push(match state_of(name).as_str() {
            "off" => format!("{name}: disabled; enable it with: homard hooks enable {name}"),
            "hidden" => format!("{name}: hidden by another hook of the same name; see: homard hooks check"),
            "on" => format!("{name}: enabled after the next restart of the gateway; hooks.internal.enabled is true"),
            state => format!("{name}: {state}"),
        });
    }
    Ok(render::print(&render::strip_controls(&lines.join("\n")))?)
}
