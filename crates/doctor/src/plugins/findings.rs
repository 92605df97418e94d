//! Findings about plugins that need no start, with remedies.

use std::collections::{BTreeMap, BTreeSet};

use homard_app::plugins::PluginList;
use homard_plugins::{DiscoveredPlugin, FILE_NAMES, config_problems, fingerprint};
use homard_render::{plugins::entry, shell_quote};
use homard_settings::Text;

use super::{PluginCheck, PluginFinding};

/// Returns findings about an enabled plugin: its config, files and variables.
pub(super) fn findings(list: &PluginList, candidate: &DiscoveredPlugin) -> Vec<PluginFinding> {
    let mut found = Vec::new();
    found.extend(config(list, candidate));
    found.extend(changed(list, candidate));
    found.extend(variables(list, candidate));
    found
}

fn config(list: &PluginList, candidate: &DiscoveredPlugin) -> Vec<PluginFinding> {
    let id = &candidate.manifest.id;
    let config =
        list.setup.settings.entries.get(id).map(|plugin_entry| plugin_entry.config.clone()).unwrap_or_default();
    let path = entry(id).key("config");
    let remedy = format!(
        "set it with: homard config set {} VALUE; the allowed values are in configSchema of: homard plugins info {} --json",
        shell_quote(&path.key("NAME").to_string()),
        shell_quote(id)
    );
    let problems = config_problems(&candidate.manifest, &config).into_iter();
    problems.map(|problem| PluginFinding::severe(format!("{path} is invalid: {problem}"), remedy.clone())).collect()
}

/// Returns a finding if the files differ from the installed ones.
fn changed(list: &PluginList, candidate: &DiscoveredPlugin) -> Option<PluginFinding> {
    let (id, root) = (&candidate.manifest.id, candidate.root.display());
    let install = list.loaded.config.plugins.installs.get(id)?;
    let hash = install.hash.as_ref()?;
    let message = match fingerprint(&candidate.root) {
        Ok(now) if now == *hash => return None,
        Ok(_) => "the files were modified after the installation, so the plugin is not started".to_owned(),
        Err(error) => format!("the files cannot be read: {error}"),
    };
    let source = install.source_path.as_ref().map_or("PATH", Text::as_str);
    let remedy =
        format!("inspect {root}; if the change is intended: homard plugins install {} --force", shell_quote(source));
    Some(PluginFinding::severe(message, remedy))
}

/// Returns declared variables that are not set, and variables that are set but not declared.
fn variables(list: &PluginList, candidate: &DiscoveredPlugin) -> Vec<PluginFinding> {
    let manifest = &candidate.manifest;
    let Some(rights) = &manifest.rights else { return Vec::new() };
    let configured =
        list.setup.settings.entries.get(&manifest.id).map(|plugin_entry| plugin_entry.env.clone()).unwrap_or_default();
    let env = entry(&manifest.id).key("env");
    let is_missing = |name: &&String| !configured.contains_key(*name) && !list.setup.env.contains_key(*name);
    let missing = rights.env.iter().filter(is_missing).map(|name| {
        let key = shell_quote(&env.key(name).to_string());
        let remedy = format!("if the plugin needs the variable, set it, or: homard config set {key} VALUE");
        PluginFinding::note(format!("the plugin reads the environment variable {name}, which is not set"), remedy)
    });
    let undeclared = configured.keys().filter(|name| !rights.env.contains(name)).map(|name| {
        let file = candidate.root.join(FILE_NAMES[0]);
        let message = format!("{} is not passed to the plugin: its manifest does not declare it", env.key(name));
        PluginFinding::note(message, format!("declare it in {} under rights.env, or unset it", file.display()))
    });
    missing.chain(undeclared).collect()
}

/// Returns one finding per reason for registrations that were denied.
pub(super) fn denied(candidate: &DiscoveredPlugin, denied: &[String]) -> Vec<PluginFinding> {
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for (capability, why) in denied.iter().map(|denied| denied.split_once(": ").unwrap_or((denied, "not permitted"))) {
        match reasons.iter_mut().find(|(known, _)| *known == why) {
            Some((_, all)) => all.push(capability),
            None => reasons.push((why, vec![capability])),
        }
    }
    let finding = |(why, all): (&str, Vec<&str>)| {
        PluginFinding::note(format!("denied: {}: {why}", all.join(", ")), remedy(candidate, why))
    };
    reasons.into_iter().map(finding).collect()
}

/// Returns what is needed to allow a registration.
fn remedy(candidate: &DiscoveredPlugin, why: &str) -> String {
    let file = candidate.root.join(FILE_NAMES[0]);
    if why.contains("does not declare") {
        format!("to allow it, declare it in {} under \"rights\"; otherwise ignore this", file.display())
    } else if why.contains("allowPromptInjection") {
        let key = entry(&candidate.manifest.id).key("hooks").key("allowPromptInjection").to_string();
        format!("to let the plugin change prompts: homard config set {} true", shell_quote(&key))
    } else {
        "report it to the author of the plugin; everything else works".to_owned()
    }
}

/// Returns the finding for a plugin that does not start.
pub(super) fn start_failure(candidate: &DiscoveredPlugin, why: &str) -> PluginFinding {
    let run = match (&candidate.manifest.run, &candidate.entry) {
        (Some(run), _) => run.iter().map(|part| shell_quote(part)).collect::<Vec<_>>().join(" "),
        (None, Some(entry)) => format!("node {}", shell_quote(&entry.display().to_string())),
        (None, None) => String::new(),
    };
    let id = shell_quote(&candidate.manifest.id);
    let root = shell_quote(&candidate.root.display().to_string());
    let remedy = format!(
        "show its output with: HOMARD_LOG=info homard plugins doctor; the plugin is started in {root} as: {run}; \
         to disable it: homard plugins disable {id}"
    );
    let why = why.strip_prefix("the plugin did not start: ").unwrap_or(why);
    PluginFinding::severe(format!("the plugin does not start: {why}"), remedy)
}

/// Returns findings for plugins that the config enables and that do not exist.
pub(super) fn missing(list: &PluginList) -> Vec<PluginFinding> {
    let settings = &list.setup.settings;
    if settings.enabled == Some(false) {
        return Vec::new();
    }
    let exists = |id: &str| list.plugins.iter().any(|(_, status)| status.id == id);
    let is_disabled = |id: &str| settings.entries.get(id).is_some_and(|entry| entry.enabled == Some(false));
    let enabled = settings.entries.iter().filter(|(_, entry)| entry.enabled == Some(true)).map(|(id, _)| id);
    let missing: BTreeSet<&String> =
        enabled.chain(&settings.allow).filter(|id| !exists(id) && !is_disabled(id)).collect();
    let finding = |id: &String| {
        let remedy = format!("install it: homard plugins install PATH; or disable it: {}", disable_command(list, id));
        PluginFinding::severe(format!("{id} is enabled in the config, but the plugin was not found"), remedy)
    };
    missing.into_iter().map(finding).collect()
}

fn disable_command(list: &PluginList, id: &str) -> String {
    match list.setup.settings.entries.contains_key(id) {
        true => format!("homard plugins disable {}", shell_quote(id)),
        false => "remove it from plugins.allow".to_owned(),
    }
}

/// Returns findings for files and directories that are not valid plugins.
pub(super) fn invalid_files(list: &PluginList) -> Vec<PluginFinding> {
    let remedy = "fix or remove it; for the manifest format, see: homard docs plugins";
    list.problems.iter().map(|problem| PluginFinding::note(problem.clone(), remedy)).collect()
}

/// Adds findings for duplicate names, of which only the first is used.
pub(super) fn duplicates(checks: &mut [PluginCheck]) {
    let mut owners = BTreeMap::<String, String>::new();
    for check in checks {
        let registered = check.trial.iter().flat_map(|trial| &trial.registered);
        let is_single =
            |capability: &&String| ["tool ", "command ", "method "].iter().any(|kind| capability.starts_with(kind));
        let mut found = Vec::new();
        for capability in registered.filter(is_single) {
            match owners.get(capability) {
                Some(owner) if *owner != check.id => {
                    let remedy = format!("disable one of them: homard plugins disable {}", shell_quote(&check.id));
                    found.push(PluginFinding::note(
                        format!("{capability} is not used: {owner} registers it too and comes first"),
                        remedy,
                    ));
                }
                Some(_) => {}
                None => drop(owners.insert(capability.clone(), check.id.clone())),
            }
        }
        check.findings.extend(found);
    }
}
