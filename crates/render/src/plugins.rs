//! Describes plugins: for the terminal, and as JSON.

mod document;

use homard_config::path::Path;
use homard_plugins::{DiscoveredPlugin, Manifest, PluginOrigin, PluginStatus};
use homard_settings::{Config, Text};

use self::document::declared;
use crate::{MAX_DESCRIPTION, Table, one_line, truncate};

pub use self::document::{declares, document};

/// Returns the state of a plugin for a table.
pub fn state(status: &PluginStatus) -> &'static str {
    match (status.verdict.is_enabled, &status.error) {
        (false, _) => "off",
        (true, None) => "on",
        (true, Some(_)) => "cannot start",
    }
}

/// Formats the plugins as a table.
pub fn table(plugins: &[(DiscoveredPlugin, PluginStatus)], is_verbose: bool) -> Table {
    let extra_titles = if is_verbose { vec!["VERSION", "WHY", "FOLDER"] } else { vec![] };
    let titles = ["PLUGIN", "STATE", "FROM", "FOR"].into_iter().chain(extra_titles).map(str::to_owned).collect();
    let line = |(_, status): &(DiscoveredPlugin, PluginStatus)| {
        let description = status.description.as_deref().unwrap_or(&status.title);
        let mut cells = vec![
            status.id.clone(),
            state(status).to_owned(),
            origin(status.origin).to_owned(),
            truncate(description, MAX_DESCRIPTION),
        ];
        if is_verbose {
            let version = status.version.clone().unwrap_or_else(|| "-".to_owned());
            cells.extend([version, state_reason(status), status.root.display().to_string()]);
        }
        cells.into_iter().map(|cell| one_line(&cell)).collect()
    };
    Table::list(std::iter::once(titles).chain(plugins.iter().map(line)).collect())
}

/// Returns why a plugin is enabled or disabled, or cannot start.
fn state_reason(status: &PluginStatus) -> String {
    match status.error.as_ref().filter(|_| status.verdict.is_enabled) {
        Some(error) => error.clone(),
        None => status.verdict.why.splitn(2, ": ").last().unwrap_or_default().to_owned(),
    }
}

/// Describes one plugin in full.
pub fn describe(candidate: &DiscoveredPlugin, status: &PluginStatus, config: &Config) -> Table {
    let manifest = &candidate.manifest;
    let mut rows = vec![("plugin", status.id.clone())];
    rows.extend((status.title != status.id).then(|| ("name", status.title.clone())));
    rows.extend([("state", state(status).to_owned()), ("why", state_reason(status))]);
    rows.extend(status.description.iter().map(|text| ("for", text.clone())));
    rows.extend(status.version.iter().map(|text| ("version", text.clone())));
    rows.extend(manifest.kind.iter().map(|text| ("kind", text.clone())));
    rows.extend([("from", origin(status.origin).to_owned()), ("directory", status.root.display().to_string())]);
    rows.extend(rights(candidate));
    if status.verdict.is_enabled {
        rows.push(match &status.registered {
            Some(registered) if registered.is_empty() => ("registers", "nothing".to_owned()),
            Some(registered) => ("registers", registered.join(", ")),
            None => (
                "registers",
                "unknown until the plugin has been started once; to see them: homard plugins doctor".to_owned(),
            ),
        });
        rows.extend(status.denied.iter().map(|denied| ("denied", denied.clone())));
    }
    rows.push(("in the config", entry(&status.id).to_string()));
    rows.extend(settings(manifest).map(|names| ("settings", names)));
    if let Some(install) = config.plugins.installs.get(&status.id) {
        rows.extend(install.source_path.as_ref().map(|path| ("installed from", Text::as_str(path).to_owned())));
        rows.extend(install.hash.as_ref().map(|hash| ("fingerprint", hash.clone())));
    }
    table_of(rows)
}

/// Describes how a plugin is run and what it may do, by its manifest.
pub fn rights(candidate: &DiscoveredPlugin) -> Vec<(&'static str, String)> {
    let manifest = &candidate.manifest;
    let runs = match (&manifest.run, &candidate.entry) {
        (Some(run), _) => format!("{}, as you and outside the sandbox", run.join(" ")),
        (None, Some(entry)) => format!("{} in Node, as you and outside the sandbox", entry.display()),
        (None, None) => "nothing".to_owned(),
    };
    let title = |kind: &'static str| match kind {
        "guard" => "guards",
        "env" => "may read",
        "host" => "may call",
        "events" => "listens to",
        other => other,
    };
    let mut rows = vec![("runs", runs)];
    rows.extend(declared(manifest).into_iter().map(|(kind, names)| (title(kind), names.join(", "))));
    if manifest.rights.is_none() {
        rows.push(("may do", "everything it registers: OpenClaw manifests do not declare rights".to_owned()));
    }
    rows
}

/// Lists the settings of a plugin, required ones first.
fn settings(manifest: &Manifest) -> Option<String> {
    let schema = &manifest.config_schema;
    let required: Vec<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(|name| name.as_str()).collect();
    let known = schema["properties"].as_object().into_iter().flat_map(|known| known.keys().map(String::as_str));
    let optional = known.filter(|name| !required.contains(name)).map(str::to_owned);
    let names: Vec<String> = required.iter().map(|name| format!("{name} (required)")).chain(optional).collect();
    (!names.is_empty()).then(|| names.join(", "))
}

/// Formats rows as a table, without control characters.
pub fn table_of(rows: Vec<(&'static str, String)>) -> Table {
    Table::fields(rows.into_iter().map(|(name, text)| vec![name.to_owned(), one_line(&text)]).collect())
}

/// Returns the config path of a plugin's entry.
pub fn entry(id: &str) -> Path {
    Path::root().key("plugins").key("entries").key(id)
}

fn origin(origin: PluginOrigin) -> &'static str {
    match origin {
        PluginOrigin::Config => "load.paths",
        PluginOrigin::Workspace => "workspace",
        PluginOrigin::State => "state directory",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell_quote;

    #[test]
    fn an_unusual_id_is_quoted_as_one_shell_word() {
        let set = |id: &str| shell_quote(&entry(id).key("enabled").to_string());
        assert_eq!(set("tidy"), "plugins.entries.tidy.enabled");
        assert_eq!(set("@me/tidy"), "'plugins.entries[\"@me/tidy\"].enabled'");
    }
}
