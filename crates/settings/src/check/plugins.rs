//! Checks of unknown plugins, and of plugin configs that do not match their schema. These are warnings only: such a
//! plugin is not started, and the rest of the config applies.

use std::collections::BTreeMap;

use homard_config::{nearest, path::Path};
use homard_hooks::HookPoint;
use homard_plugins::{DiscoveredPlugin, Manifest, decide, discover};
use homard_proto::schema::Schema;
use serde_json::Value;

use super::{FoundProblems, key};
use crate::{Config, agent_directories::plugin_roots, paths::Paths, sections::plugins::Plugins};

/// Values of the memory slot that are not plugins: none, and OpenClaw's bundled one.
const NO_PLUGIN: [&str; 2] = ["none", "memory-core"];

/// Returns warnings about plugins.
pub(super) fn plugin_warnings(config: &Config) -> FoundProblems {
    let section = &config.plugins;
    let is_silent = section.entries.is_empty() && section.allow.is_empty() && section.deny.is_empty();
    if is_silent && section.slots.memory.is_none() {
        // The section is empty, so there is nothing to compare with the disk.
        return FoundProblems::new();
    }
    let mut found = hook_warnings(section);
    if let Ok(paths) = Paths::find() {
        let candidates = discover(&plugin_roots(config, &paths)).candidates;
        found.extend(unknown_plugins(section, &candidates));
        found.extend(schema_warnings(section, &candidates, &paths));
    }
    found
}

/// Returns unknown hooks, and plugins that are both allowed and denied.
fn hook_warnings(section: &Plugins) -> FoundProblems {
    let plugins = key("plugins");
    let mut found = FoundProblems::new();
    for (at, id) in section.allow.iter().enumerate().filter(|(_, id)| section.deny.contains(id)) {
        let message = format!("is {id:?}, which plugins.deny lists, too; the plugin stays disabled");
        found.push((plugins.key("allow").index(at), message));
    }
    for (id, entry) in &section.entries {
        let timeouts = plugins.key("entries").key(id).key("hooks").key("timeouts");
        for name in entry.hooks.timeouts.keys().filter(|name| HookPoint::named(name).is_none()) {
            let similar = nearest(name, HookPoint::ALL.into_iter().map(HookPoint::name));
            found.push((timeouts.key(name), format!("is not a known hook{}", suggestion(similar))));
        }
    }
    found
}

/// Returns ids of unknown plugins. An id that is only denied or disabled is reported only if it is similar to a known
/// one.
fn unknown_plugins(section: &Plugins, candidates: &[DiscoveredPlugin]) -> FoundProblems {
    let plugins = key("plugins");
    let ids: Vec<&str> = candidates.iter().map(|candidate| candidate.manifest.id.as_str()).collect();
    let listed = |name: &str, list: &[String], is_wanted: bool| -> Vec<(Path, String, bool)> {
        let path = plugins.key(name);
        list.iter().enumerate().map(|(at, id)| (path.index(at), id.clone(), is_wanted)).collect()
    };
    let entries = section.entries.iter();
    let entries = entries.map(|(id, entry)| (plugins.key("entries").key(id), id.clone(), entry.enabled == Some(true)));
    let memory = section.slots.memory.iter().filter(|id| !NO_PLUGIN.contains(&id.as_str()));
    let memory = memory.map(|id| (plugins.key("slots").key("memory"), id.clone(), true));
    let all = listed("allow", &section.allow, true).into_iter().chain(listed("deny", &section.deny, false));
    let unknown = all.chain(entries).chain(memory).filter(|(_, id, _)| !ids.contains(&id.as_str()));
    unknown
        .filter_map(|(path, id, is_wanted)| {
            let similar = nearest(&id, ids.iter().copied());
            let is_reported = similar.is_some() || (is_wanted && section.enabled != Some(false));
            is_reported.then(|| (path, format!("names an unknown plugin: {id:?}{}", suggestion(similar))))
        })
        .collect()
}

fn suggestion(similar: Option<&str>) -> String {
    similar.map(|similar| format!("; did you mean {similar:?}?")).unwrap_or_default()
}

/// Returns schema errors in the configs of enabled plugins, and in configs given for disabled ones.
fn schema_warnings(section: &Plugins, candidates: &[DiscoveredPlugin], paths: &Paths) -> FoundProblems {
    let settings = section.settings(paths);
    let mut found = FoundProblems::new();
    for DiscoveredPlugin { manifest, origin, .. } in candidates {
        let config = section.entries.get(&manifest.id).and_then(|entry| entry.config.as_ref());
        let is_enabled = decide(manifest, *origin, &settings).is_enabled;
        if !is_enabled && config.is_none() {
            continue;
        }
        let consequence = if is_enabled { "the plugin is not started" } else { "the plugin could not be started" };
        let errors = config_errors(manifest, config).into_iter();
        found.extend(errors.map(|(path, message)| (path, format!("{message}; {consequence}"))));
    }
    found
}

/// Returns the schema errors of a plugin's config: path and reason.
fn config_errors(manifest: &Manifest, config: Option<&BTreeMap<String, Value>>) -> FoundProblems {
    let top = key("plugins").key("entries").key(&manifest.id).key("config");
    let config = Value::Object(config.cloned().unwrap_or_default().into_iter().collect());
    let problems = Schema::compile(&manifest.config_schema).check(&config).into_iter();
    problems.map(|problem| (config_path(&top, &config, &problem.path), problem.message)).collect()
}

/// Converts a JSON pointer within a plugin's config to a path in the file.
fn config_path(top: &Path, config: &Value, pointer: &str) -> Path {
    let (mut path, mut value) = (top.clone(), config);
    for name in pointer.split('/').skip(1) {
        let at = if value.is_array() { name.parse().ok() } else { None };
        (path, value) = match at {
            Some(at) => (path.index(at), value.get(at).unwrap_or(&Value::Null)),
            None => (path.key(name), value.get(name).unwrap_or(&Value::Null)),
        };
    }
    path
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path as File};

    use serde_json::json;

    use super::*;

    /// Returns the warnings for a file in which `$` stands for a directory with the plugin `tidy`.
    fn messages(text: &str) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let schema = json!({"type": "object", "additionalProperties": false, "required": ["tide"], "properties": {
            "tide": {"type": "string"},
            "list": {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer"}}}},
        }});
        let manifest = json!({"id": "tidy", "configSchema": schema, "run": ["x"]}).to_string();
        fs::write(folder.path().join("homard.plugin.json"), manifest).unwrap();
        let text = text.replace('$', &folder.path().display().to_string());
        let loaded = Config::read(File::new("homard.json"), &text);
        assert!(loaded.is_valid(), "{:?}", loaded.problems);
        loaded.warnings.iter().map(|problem| problem.to_string().split_once(": ").unwrap().1.to_owned()).collect()
    }

    #[test]
    fn a_plugin_config_that_violates_its_schema_is_reported_with_its_path() {
        let warnings_for =
            |entry: &str| messages(&format!("{{plugins: {{load: {{paths: ['$']}}, entries: {{tidy: {entry}}}}}}}"));
        assert_eq!(warnings_for("{enabled: true, config: {tide: 'high', list: [{n: 1}]}}"), [""; 0]);
        let consequence = "the plugin is not started";
        assert_eq!(
            warnings_for("{enabled: true}"),
            [format!("plugins.entries.tidy.config must have required property 'tide'; {consequence}")]
        );
        assert_eq!(
            warnings_for("{enabled: true, config: {tide: 's3cret', list: [{n: 1}, {n: 's3cret'}], other: 's3cret'}}"),
            [
                format!("plugins.entries.tidy.config unexpected property 'other'; {consequence}"),
                format!("plugins.entries.tidy.config.list[1].n must be integer; {consequence}"),
            ]
        );
        assert_eq!(warnings_for("{}"), [""; 0]);
        assert_eq!(
            warnings_for("{config: {tide: 1}}"),
            ["plugins.entries.tidy.config.tide must be string; the plugin could not be started"]
        );
    }

    #[test]
    fn misspelt_ids_and_hooks_are_reported() {
        let text = "{plugins: {load: {paths: ['$']}, allow: ['tidy', 'tidi'], deny: ['tidyx', 'whatever'],
            slots: {memory: 'none'},
            entries: {tidyy: {enabled: false}, ghost: {enabled: true}, other: {enabled: false},
                      tidy: {config: {tide: 'x'}, hooks: {timeouts: {agent_ends: 5, agent_end: 5}}}}}}";
        let unknown = |path: &str, id: &str| format!("plugins.{path} names an unknown plugin: {id:?}");
        let suggestion = "; did you mean \"tidy\"?";
        let mut warnings = messages(text);
        warnings.sort();
        let mut expected = [
            unknown("allow[1]", "tidi") + suggestion,
            unknown("deny[0]", "tidyx") + suggestion,
            unknown("entries.tidyy", "tidyy") + suggestion,
            unknown("entries.ghost", "ghost"),
            "plugins.entries.tidy.hooks.timeouts.agent_ends is not a known hook; did you mean \"agent_end\"?"
                .to_owned(),
        ];
        expected.sort();
        assert_eq!(warnings, expected);
    }

    #[test]
    fn a_plugin_that_is_allowed_and_denied_is_reported() {
        assert_eq!(
            messages("{plugins: {load: {paths: ['$']}, allow: ['tidy'], deny: ['tidy']}}"),
            ["plugins.allow[0] is \"tidy\", which plugins.deny lists, too; the plugin stays disabled"]
        );
    }
}
