//! `homard plugins enable` and `disable`: edit the config.

use anyhow::Result;
use homard_app::plugins::PluginList;
use homard_config::{edit, path::Path};
use homard_plugins::{DiscoveredPlugin, Settings, config_problems, decide};
use homard_settings::{change::ConfigChange, paths::Paths};
use homard_setup::edit_config;
use serde_json::{Value, json};

use super::find_plugin;
use crate::{
    cli_error::CliError,
    render::{self, plugins::entry, shell_quote},
};

/// Enables a plugin. If it would stay disabled for another reason, nothing is changed and the reason is reported.
pub(super) fn enable(list: &PluginList, paths: &Paths, id: &str, wants_json: bool) -> Result<()> {
    let plugin = find_plugin(list, id)?;
    let (DiscoveredPlugin { manifest, origin, .. }, status) = plugin;
    let id = status.id.as_str();
    let mut settings = list.setup.settings.clone();
    settings.entries.entry(id.to_owned()).or_default().enabled = Some(true);
    if !settings.allow.is_empty() && !settings.allow.iter().any(|allowed| allowed == id) {
        settings.allow.push(id.to_owned());
    }
    let decision = decide(manifest, *origin, &settings);
    if !decision.is_enabled {
        let why = decision.why.replacen("is off", "would stay off", 1);
        let help = remedy(&plugin.1.id, &settings).map(|help| format!("; {help}")).unwrap_or_default();
        return Err(CliError::new("off", render::strip_controls(&format!("{id} {why}{help}"))).into());
    }
    let allow = Path::root().key("plugins").key("allow");
    let change = edit_config(paths, |text| {
        let config = edit::value(text)?;
        let text = edit::set(text, &entry(id).key("enabled"), &json!(true))?;
        let listed = config["plugins"]["allow"].as_array().cloned().unwrap_or_default();
        if listed.is_empty() || listed.contains(&json!(id)) {
            return Ok(text);
        }
        edit::set(&text, &allow, &Value::Array(listed.into_iter().chain([json!(id)]).collect()))
    })?;
    let problems = config_problems(
        manifest,
        &settings.entries.get(id).map(|plugin_entry| plugin_entry.config.clone()).unwrap_or_default(),
    );
    let config_problem =
        (!problems.is_empty()).then(|| format!("{}.config is invalid: {}", entry(id), problems.join("; ")));
    report(&change, paths, PluginState { id, enabled: true, missing: config_problem.as_deref() }, wants_json)?;
    if let Some(config_problem) = config_problem.filter(|_| !wants_json) {
        let help = format!("homard config set {} VALUE", shell_quote(&format!("{}.NAME", entry(id).key("config"))));
        render::remark(&render::strip_controls(&format!(
            "{id} cannot start yet: {config_problem}; set the missing values with: {help}"
        )));
    }
    Ok(())
}

/// Disables a plugin, also one that is missing and still has an entry in the config.
pub(super) fn disable(list: &PluginList, paths: &Paths, id: &str, wants_json: bool) -> Result<()> {
    let id = match list.loaded.config.plugins.entries.contains_key(id) {
        true => id,
        false => &find_plugin(list, id)?.1.id,
    };
    let change = edit_config(paths, |text| edit::set(text, &entry(id).key("enabled"), &json!(false)))?;
    report(&change, paths, PluginState { id, enabled: false, missing: None }, wants_json)
}

/// Returns the command that removes the obstacle to enabling a plugin: plugins are disabled, it is on the deny list, or
/// another plugin has the memory slot. `None` for other obstacles, whose error message contains the remedy.
fn remedy(id: &str, settings: &Settings) -> Option<String> {
    if settings.enabled == Some(false) {
        return Some("to enable plugins: homard config set plugins.enabled true".to_owned());
    }
    if let Some(at) = settings.deny.iter().position(|denied| denied == id) {
        let path = Path::root().key("plugins").key("deny").index(at).to_string();
        return Some(format!("to remove it from that list: homard config unset {}", shell_quote(&path)));
    }
    let has_other_memory = settings.slots.memory.as_ref().is_some_and(|memory| memory != id);
    has_other_memory
        .then(|| format!("to select this plugin: homard config set plugins.slots.memory {}", shell_quote(id)))
}

/// What a change of the config made of a plugin.
#[derive(Clone, Copy)]
struct PluginState<'a> {
    id: &'a str,
    enabled: bool,
    /// What is missing in its config.
    missing: Option<&'a str>,
}

fn report(change: &ConfigChange, paths: &Paths, state: PluginState<'_>, wants_json: bool) -> Result<()> {
    let PluginState { id, enabled, missing } = state;
    if wants_json {
        return Ok(render::print_json(&json!({
            "ok": true, "id": id, "enabled": enabled, "changed": change.changed,
            "path": paths.config, "missing": missing,
        }))?);
    }
    let state = if enabled { "enabled" } else { "disabled" };
    if change.changed.is_empty() {
        return Ok(render::print(&render::one_line(&format!("{id} is already {state}; nothing changed")))?);
    }
    render::print(&render::one_line(&format!("{id} is now {state} in {}", paths.config.display())))?;
    Ok(render::print("restart the gateway to apply the change")?)
}
