//! Checks of unknown plugins, and of plugin configs that do not match their schema. These are warnings only: such a
//! plugin is not started, and the rest of the config applies.

use std::collections::BTreeMap;

use homard_config::{nearest, path::Path};
use homard_hooks::HookPoint;
use homard_plugins::{DiscoveredPlugin, Manifest, PluginRoots, decide, discover};
use homard_proto::schema::Schema;
use serde_json::Value;

use super::{FoundProblems, key};
use crate::{
    assemble::factory::workspace,
    config::{Config, sections::plugins::Plugins},
    paths::Paths,
};

/// Values of the memory slot that are not plugins: none, and OpenClaw's bundled one.
const NO_PLUGIN: [&str; 2] = ["none", "memory-core"];

impl Config {
    /// Returns the directories that are searched for plugins.
    pub(crate) fn plugin_roots(&self, paths: &Paths) -> PluginRoots {
        PluginRoots {
            paths: self.plugins.settings(paths).load.paths,
            workspaces: self.agents.members().iter().map(|agent| workspace(self, paths, agent)).collect(),
            state: paths.state.clone(),
            trusts_workspaces: self.plugins.load.workspace,
        }
    }

    /// Returns warnings about plugins.
    pub(super) fn plugin_warnings(&self) -> FoundProblems {
        let said = &self.plugins;
        let is_silent = said.entries.is_empty() && said.allow.is_empty() && said.deny.is_empty();
        if is_silent && said.slots.memory.is_none() {
            // The section is empty, so there is nothing to compare with the disk.
            return FoundProblems::new();
        }
        let mut found = hook_warnings(said);
        if let Ok(paths) = Paths::find() {
            let candidates = discover(&self.plugin_roots(&paths)).candidates;
            found.extend(unknown_plugins(said, &candidates));
            found.extend(schema_warnings(said, &candidates, &paths));
        }
        found
    }
}

/// Returns unknown hooks, and plugins that are both allowed and denied.
fn hook_warnings(said: &Plugins) -> FoundProblems {
    let plugins = key("plugins");
    let mut found = FoundProblems::new();
    for (at, id) in said.allow.iter().enumerate().filter(|(_, id)| said.deny.contains(id)) {
        let what = format!("is {id:?}, which plugins.deny lists, too; the plugin stays disabled");
        found.push((plugins.key("allow").index(at), what));
    }
    for (id, entry) in &said.entries {
        let timeouts = plugins.key("entries").key(id).key("hooks").key("timeouts");
        for name in entry.hooks.timeouts.keys().filter(|name| HookPoint::named(name).is_none()) {
            let near = nearest(name, HookPoint::ALL.into_iter().map(HookPoint::name));
            found.push((timeouts.key(name), format!("is not a known hook{}", suggestion(near))));
        }
    }
    found
}

/// Returns ids of unknown plugins. An id that is only denied or disabled is reported only if it is similar to a known
/// one.
fn unknown_plugins(said: &Plugins, candidates: &[DiscoveredPlugin]) -> FoundProblems {
    let plugins = key("plugins");
    let ids: Vec<&str> = candidates.iter().map(|one| one.manifest.id.as_str()).collect();
    let listed = |name: &str, list: &[String], is_wanted: bool| -> Vec<(Path, String, bool)> {
        let path = plugins.key(name);
        list.iter().enumerate().map(|(at, id)| (path.index(at), id.clone(), is_wanted)).collect()
    };
    let entries = said.entries.iter();
    let entries = entries.map(|(id, entry)| (plugins.key("entries").key(id), id.clone(), entry.enabled == Some(true)));
    let memory = said.slots.memory.iter().filter(|id| !NO_PLUGIN.contains(&id.as_str()));
    let memory = memory.map(|id| (plugins.key("slots").key("memory"), id.clone(), true));
    let all = listed("allow", &said.allow, true).into_iter().chain(listed("deny", &said.deny, false));
    let unknown = all.chain(entries).chain(memory).filter(|(_, id, _)| !ids.contains(&id.as_str()));
    unknown
        .filter_map(|(path, id, is_wanted)| {
            let near = nearest(&id, ids.iter().copied());
            let is_told = near.is_some() || (is_wanted && said.enabled != Some(false));
            is_told.then(|| (path, format!("names an unknown plugin: {id:?}{}", suggestion(near))))
        })
        .collect()
}

fn suggestion(near: Option<&str>) -> String {
    near.map(|near| format!("; did you mean {near:?}?")).unwrap_or_default()
}

/// Returns schema errors in the configs of enabled plugins, and in configs given for disabled ones.
fn schema_warnings(said: &Plugins, candidates: &[DiscoveredPlugin], paths: &Paths) -> FoundProblems {
    let settings = said.settings(paths);
    let mut found = FoundProblems::new();
    for DiscoveredPlugin { manifest, origin, .. } in candidates {
        let config = said.entries.get(&manifest.id).and_then(|entry| entry.config.as_ref());
        let is_on = decide(manifest, *origin, &settings).is_enabled;
        if !is_on && config.is_none() {
            continue;
        }
        let so = if is_on { "the plugin is not started" } else { "the plugin could not be started" };
        let wrong = config_errors(manifest, config).into_iter();
        found.extend(wrong.map(|(path, what)| (path, format!("{what}; {so}"))));
    }
    found
}

/// Returns the schema errors of a plugin's config: path and reason.
fn config_errors(manifest: &Manifest, config: Option<&BTreeMap<String, Value>>) -> FoundProblems {
    let top = key("plugins").key("entries").key(&manifest.id).key("config");
    let config = Value::Object(config.cloned().unwrap_or_default().into_iter().collect());
    let wrong = Schema::compile(&manifest.config_schema).check(&config).into_iter();
    wrong.map(|problem| (config_path(&top, &config, &problem.path), problem.message)).collect()
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
    fn told(text: &str) -> Vec<String> {
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
        loaded.warnings.iter().map(|told| told.to_string().split_once(": ").unwrap().1.to_owned()).collect()
    }

    #[test]
    fn a_config_that_does_not_fit_is_told_with_its_place() {
        let with = |entry: &str| told(&format!("{{plugins: {{load: {{paths: ['$']}}, entries: {{tidy: {entry}}}}}}}"));
        assert_eq!(with("{enabled: true, config: {tide: 'high', list: [{n: 1}]}}"), [""; 0]);
        let not = "the plugin is not started";
        assert_eq!(
            with("{enabled: true}"),
            [format!("plugins.entries.tidy.config must have required property 'tide'; {not}")]
        );
        assert_eq!(
            with("{enabled: true, config: {tide: 's3cret', list: [{n: 1}, {n: 's3cret'}], other: 's3cret'}}"),
            [
                format!("plugins.entries.tidy.config unexpected property 'other'; {not}"),
                format!("plugins.entries.tidy.config.list[1].n must be integer; {not}"),
            ]
        );
        assert_eq!(with("{}"), [""; 0]);
        assert_eq!(
            with("{config: {tide: 1}}"),
            ["plugins.entries.tidy.config.tide must be string; the plugin could not be started"]
        );
    }

    #[test]
    fn misspelt_ids_and_hooks_are_told() {
        let text = "{plugins: {load: {paths: ['$']}, allow: ['tidy', 'tidi'], deny: ['tidyx', 'whatever'],
            slots: {memory: 'none'},
            entries: {tidyy: {enabled: false}, ghost: {enabled: true}, other: {enabled: false},
                      tidy: {config: {tide: 'x'}, hooks: {timeouts: {agent_ends: 5, agent_end: 5}}}}}}";
        let stranger = |path: &str, id: &str| format!("plugins.{path} names an unknown plugin: {id:?}");
        let meant = "; did you mean \"tidy\"?";
        let mut told = told(text);
        told.sort();
        let mut expected = [
            stranger("allow[1]", "tidi") + meant,
            stranger("deny[0]", "tidyx") + meant,
            stranger("entries.tidyy", "tidyy") + meant,
            stranger("entries.ghost", "ghost"),
            "plugins.entries.tidy.hooks.timeouts.agent_ends is not a known hook; did you mean \"agent_end\"?"
                .to_owned(),
        ];
        expected.sort();
        assert_eq!(told, expected);
    }

    #[test]
    fn what_is_allowed_and_denied_is_told() {
        assert_eq!(
            told("{plugins: {load: {paths: ['$']}, allow: ['tidy'], deny: ['tidy']}}"),
            ["plugins.allow[0] is \"tidy\", which plugins.deny lists, too; the plugin stays disabled"]
        );
    }
}
