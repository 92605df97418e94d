//! `homard plugins install`: copies a directory into the state directory, or links it where it is.

use std::{
    collections::BTreeSet,
    path::{self, Path, PathBuf},
};

use anyhow::{Context, Result};
use homard_app::plugins::PluginList;
use homard_config::{edit, path::Path as Key};
use homard_plugins::{PluginCopyError, inspect, install};
use homard_runtime::{Ambient, ambient::iso};
use homard_settings::{Config, paths::Paths};
use homard_setup::edit_config;
use serde_json::{Value, json};

use super::find_plugin;
use crate::{
    cli_error::CliError,
    render::{
        self,
        plugins::{declares, rights},
        shell_quote,
    },
};

/// An installed plugin.
struct PluginInstall {
    id: String,
    version: Option<String>,
    /// Its directory.
    path: PathBuf,
    /// Fingerprint of its files; `None` for a linked one.
    hash: Option<String>,
    /// The hooks that it guards: recorded, so that they stay guarded even if its manifest is gone.
    guard: BTreeSet<String>,
}

/// Copies the plugin into the state directory and records its source in the config.
pub(super) fn copy(paths: &Paths, source: &Path, force: bool, wants_json: bool) -> Result<()> {
    let source = absolute(source)?;
    let guard = inspect(&source).map_err(failure)?.manifest.guard;
    let copied = install(&source, &paths.state.join("extensions"), force).map_err(failure)?;
    let installed =
        PluginInstall { id: copied.id, version: copied.version, path: copied.path, hash: Some(copied.hash), guard };
    let (key, record) = (installs().key(&installed.id), record(&source, &installed));
    edit_config(paths, |text| edit::set(text, &key, &record)).with_context(|| {
        let path = installed.path.display();
        format!(
            "installed {path}, but cannot record it in the config; fix the config, then install it again with --force"
        )
    })?;
    report(paths, &installed, &format!("installed {} in {}", installed.id, installed.path.display()), wants_json)
}

/// Adds the directory to the config.
pub(super) fn link(paths: &Paths, source: &Path, wants_json: bool) -> Result<()> {
    let found = inspect(&absolute(source)?).map_err(failure)?;
    // A linked directory is under development, so a hash of its current files would be useless.
    let (manifest, path) = (found.manifest, found.root);
    let installed =
        PluginInstall { id: manifest.id, version: manifest.version, path, hash: None, guard: manifest.guard };
    let load_paths = Key::root().key("plugins").key("load").key("paths");
    let (key, record, folder) =
        (installs().key(&installed.id), record(&installed.path, &installed), json!(installed.path));
    edit_config(paths, |text| {
        let config = edit::value(text)?;
        let mut all = config["plugins"]["load"]["paths"].as_array().cloned().unwrap_or_default();
        if !all.contains(&folder) {
            all.push(folder.clone());
        }
        edit::set(&edit::set(text, &load_paths, &Value::Array(all))?, &key, &record)
    })?;
    report(paths, &installed, &format!("linked {} to {}", installed.id, installed.path.display()), wants_json)
}

fn absolute(path: &Path) -> Result<PathBuf> {
    path::absolute(path).with_context(|| format!("cannot resolve {}", path.display()))
}

fn failure(error: PluginCopyError) -> anyhow::Error {
    match error {
        PluginCopyError::Invalid { .. } => CliError::usage(render::strip_controls(&error.to_string())).into(),
        PluginCopyError::Exists(_) => CliError::new("exists", render::strip_controls(&error.to_string())).into(),
        PluginCopyError::Disk { .. } => error.into(),
    }
}

fn installs() -> Key {
    Key::root().key("plugins").key("installs")
}

fn record(source: &Path, installed: &PluginInstall) -> Value {
    let mut record = json!({
        "source": "path", "sourcePath": source, "installPath": installed.path,
        "installedAt": iso(Ambient::system().now_ms()),
    });
    for (key, value) in [("version", &installed.version), ("hash", &installed.hash)] {
        if let Some(value) = value {
            record[key] = value.as_str().into();
        }
    }
    if !installed.guard.is_empty() {
        record["guard"] = json!(installed.guard);
    }
    record
}

/// Reports what was installed, what it may do, and what is needed for it to take effect.
fn report(paths: &Paths, installed: &PluginInstall, summary: &str, wants_json: bool) -> Result<()> {
    // Reads the installed copy, not the source.
    let list = PluginList::find(&Config::choose(paths)?.loaded, paths);
    let selected = find_plugin(&list, &installed.id).ok().filter(|(candidate, _)| candidate.root == installed.path);
    let state = selected.map_or("hidden", |(_, status)| render::plugins::state(status));
    if wants_json {
        let manifest = selected.map(|(candidate, _)| &candidate.manifest);
        return Ok(render::print_json(&json!({
            "ok": true, "id": installed.id, "path": installed.path, "version": installed.version,
            "hash": installed.hash, "state": state,
            "declares": manifest.map(declares),
        }))?);
    }
    render::print(&render::one_line(summary))?;
    let Some((candidate, status)) = selected else {
        let other = find_plugin(&list, &installed.id).map(|(other, _)| other.root.display().to_string());
        let why = other.map_or_else(
            |_| "see why with: homard plugins doctor".to_owned(),
            |other| format!("{other} has the same plugin id, {}, and comes first", installed.id),
        );
        render::remark(&render::one_line(&format!("the plugin is not used: {why}")));
        return Ok(());
    };
    render::print_table(&render::plugins::table_of(rights(candidate)))?;
    let id = shell_quote(&installed.id);
    Ok(render::print(&render::one_line(&match (status.verdict.is_enabled, &status.error) {
        (true, Some(error)) => format!("the plugin is enabled, but cannot start: {error}"),
        (true, None) => format!(
            "it {}, after the next restart of the gateway; to disable it: homard plugins disable {id}",
            status.verdict.why
        ),
        (false, _) => format!("it {}", status.verdict.why),
    }))?)
}
