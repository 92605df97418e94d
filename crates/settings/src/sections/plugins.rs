//! `plugins`: extensions that take part in the agent loop.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use homard_plugins::{GuardPolicy, HookSettings, Settings};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::{
    Text,
    paths::{self, Paths},
};

/// Plugins and their settings.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Plugins {
    /// Enable plugins. Default: true.
    pub enabled: Option<bool>,
    /// Ids of the only plugins that may be enabled; those that are listed are enabled. Default: all may be.
    pub allow: Vec<String>,
    /// Ids of plugins that stay disabled, whatever other keys say.
    pub deny: Vec<String>,
    /// Directories that plugins are loaded from.
    #[serde(deserialize_with = "super::object")]
    pub load: Load,
    /// Exclusive roles, each held by at most one plugin.
    #[serde(deserialize_with = "super::object")]
    pub slots: Slots,
    /// Settings per plugin, by its id.
    #[serde(deserialize_with = "super::named_objects")]
    pub entries: BTreeMap<String, Entry>,
    /// Plugins that `homard plugins install` has installed.
    #[serde(deserialize_with = "super::named_objects")]
    pub installs: BTreeMap<String, Install>,
    /// Node that runs OpenClaw's plugins, 22 or newer. Default: `node` on the PATH.
    pub node: Option<Text>,
}

/// Directories that plugins are loaded from.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Load {
    /// Plugins, or directories of plugins, in addition to the default locations. They take precedence over others of the same id.
    pub paths: Vec<Text>,
    /// Allow plugins of a workspace, where the agent itself can write.
    pub workspace: bool,
}

/// Exclusive roles, each held by at most one plugin.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Slots {
    /// Id of the plugin that provides the memory; `none` for no plugin. Default: any that is enabled.
    pub memory: Option<String>,
}

/// Settings of a plugin.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Entry {
    /// Enable the plugin. Default: false.
    pub enabled: Option<bool>,
    /// Settings that the plugin itself defines, as its manifest describes them.
    #[serde(deserialize_with = "super::maybe_object")]
    pub config: Option<BTreeMap<String, Value>>,
    /// Environment variables of its process. A plugin with a homard.plugin.json receives those that it lists under `rights.env`.
    pub env: BTreeMap<String, Text>,
    /// Deadlines and rights of its hooks.
    #[serde(deserialize_with = "super::object")]
    pub hooks: EntryHooks,
    /// Run a plugin of OpenClaw in a Node process of its own.
    pub isolated: bool,
    /// Which of its hooks are guards, whose operation is blocked if they do not answer: true for all, or a list of hooks such
    /// as before_tool_call, tool_result_persist, message_sending, or agent:bootstrap. Default: those that it declares itself.
    pub guard: GuardSetting,
    /// Error that makes the plugin unusable, if it references an environment variable which is not set.
    #[serde(skip)]
    pub fault: Option<String>,
}

/// Which hooks of a plugin are guards. If a guard fails, the operation is blocked.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum GuardSetting {
    All(bool),
    At(Vec<String>),
}

impl Default for GuardSetting {
    fn default() -> Self {
        Self::All(false)
    }
}

impl GuardSetting {
    pub fn settings(&self) -> GuardPolicy {
        match self {
            Self::All(is_allowed) => GuardPolicy::All(*is_allowed),
            Self::At(names) => GuardPolicy::At(names.clone()),
        }
    }
}

/// Deadlines and rights of a plugin's hooks.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct EntryHooks {
    /// Timeout of each of its hooks in milliseconds, at most 600000. Default: what the plugin declares, or 5000.
    pub timeout_ms: Option<u64>,
    /// Timeouts of single hooks in milliseconds, by name.
    pub timeouts: BTreeMap<String, u64>,
    /// Allow the plugin to modify prompts. Default: true.
    pub allow_prompt_injection: Option<bool>,
}

/// An installed plugin.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Install {
    /// Kind of source: path, archive or npm.
    #[allow(dead_code, reason = "read by people and by OpenClaw")]
    source: Option<String>,
    /// Package that it was installed from.
    #[allow(dead_code, reason = "read by people and by OpenClaw")]
    spec: Option<String>,
    /// Path that it was installed from.
    pub source_path: Option<Text>,
    /// Directory that it is installed in.
    #[allow(dead_code, reason = "read by people and by OpenClaw")]
    install_path: Option<Text>,
    /// Installed version.
    #[allow(dead_code, reason = "read by people and by OpenClaw")]
    version: Option<String>,
    /// Time of the installation.
    #[allow(dead_code, reason = "read by people and by OpenClaw")]
    installed_at: Option<String>,
    /// Digest of its files. If the files do not match it, the plugin is not started.
    pub hash: Option<String>,
    /// Hooks that the plugin guarded when it was installed. While the plugin is enabled but does not guard them, the
    /// guarded operations are blocked.
    pub guard: Vec<String>,
}

impl Plugins {
    /// Returns the settings for the plugin host, with all paths expanded.
    pub fn settings(&self, paths: &Paths) -> Settings {
        let home = paths::home();
        // Relative paths are resolved against the state directory.
        let expand = |text: &Text| paths.state.join(paths::expand(Path::new(text.as_str()), home.as_deref()));
        let load = homard_plugins::LoadSettings {
            paths: self.load.paths.iter().map(expand).collect(),
            workspace: self.load.workspace,
        };
        let install =
            |record: &Install| homard_plugins::InstallRecord { hash: record.hash.clone(), guard: record.guard.clone() };
        Settings {
            enabled: self.enabled,
            allow: self.allow.clone(),
            deny: self.deny.clone(),
            load,
            slots: homard_plugins::SlotSettings { memory: self.slots.memory.clone() },
            entries: self.entries.iter().map(|(id, entry)| (id.clone(), entry.settings())).collect(),
            installs: self.installs.iter().map(|(id, record)| (id.clone(), install(record))).collect(),
            node: self.node.as_ref().map(|node| node_path(node, expand)),
        }
    }
}

/// Returns the path of Node. A bare name stays as it is and is searched on the PATH when it is started.
fn node_path(node: &Text, expand: impl Fn(&Text) -> PathBuf) -> PathBuf {
    if node.as_str().contains('/') { expand(node) } else { PathBuf::from(node.as_str()) }
}

impl Entry {
    fn settings(&self) -> homard_plugins::PluginEntry {
        let EntryHooks { timeout_ms, timeouts, allow_prompt_injection } = self.hooks.clone();
        homard_plugins::PluginEntry {
            enabled: self.enabled,
            config: self.config.clone().map_or(Value::Null, |config| Value::Object(config.into_iter().collect())),
            env: self.env.iter().map(|(name, value)| (name.clone(), value.as_str().to_owned())).collect(),
            hooks: HookSettings { timeout_ms, timeouts, allow_prompt_injection },
            isolated: self.isolated,
            guard: self.guard.settings(),
            fault: self.fault.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::Config;

    fn problems(text: &str) -> Vec<String> {
        let loaded = Config::read(Path::new("homard.json"), text);
        loaded.problems.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn plugin_settings_are_passed_with_expanded_paths() {
        let text = "{plugins: {enabled: true, allow: ['a'], deny: ['b'], load: {paths: ['/x', 'y'], workspace: true},
            slots: {memory: 'none'}, node: 'opt/node',
            entries: {a: {enabled: true, config: {key: 1}, env: {TOKEN: 't'}, isolated: true, guard: ['message_sending'],
                          hooks: {timeoutMs: 7, timeouts: {agent_end: 8}, allowPromptInjection: false}}},
            installs: {a: {source: 'path', sourcePath: '/from', hash: 'abc', guard: ['agent_end']}}}}";
        assert_eq!(problems(text), Vec::<String>::new());
        let paths = Paths { state: "/state".into(), config: "/state/homard.json".into() };
        let expected: Settings = serde_json::from_value(json!({
            "enabled": true, "allow": ["a"], "deny": ["b"], "load": {"paths": ["/x", "/state/y"], "workspace": true},
            "slots": {"memory": "none"}, "node": "/state/opt/node",
            "entries": {"a": {"enabled": true, "config": {"key": 1}, "env": {"TOKEN": "t"}, "isolated": true, "guard": ["message_sending"],
                "hooks": {"timeoutMs": 7, "timeouts": {"agent_end": 8}, "allowPromptInjection": false}}},
            "installs": {"a": {"hash": "abc", "guard": ["agent_end"]}},
        }))
        .unwrap();
        assert_eq!(Config::parse(text).unwrap().plugins.settings(&paths), expected);
        let minimal = Config::parse("{plugins: {node: 'node22'}}").unwrap().plugins.settings(&paths);
        assert_eq!(minimal, Settings { node: Some("node22".into()), ..Settings::default() });
    }

    #[test]
    fn invalid_values_are_reported_with_their_path() {
        for (text, expected) in [
            ("{plugins: {enabled: 'yes'}}", "plugins.enabled"),
            ("{plugins: {allow: 'a'}}", "plugins.allow"),
            ("{plugins: {load: {paths: [1]}}}", "plugins.load.paths[0]"),
            ("{plugins: {entries: {a: []}}}", "plugins.entries.a"),
            ("{plugins: {entries: {a: {config: []}}}}", "plugins.entries.a"),
            ("{plugins: {entries: {a: {hooks: {timeoutMs: -1}}}}}", "plugins.entries.a"),
            ("{plugins: {installs: {a: {guard: 'agent_end'}}}}", "plugins.installs.a"),
            ("{plugins: {entries: {a: {guard: 'message_sending'}}}}", "plugins.entries.a"),
            ("{plugins: {entires: {}}}", "plugins.entires is not a known key; did you mean \"entries\"?"),
        ] {
            let errors = problems(text);
            assert!(errors.len() == 1 && errors[0].contains(expected), "{text}: {errors:?}");
        }
    }

    #[test]
    fn no_secret_is_shown() {
        let config = Config::parse("{plugins: {entries: {a: {env: {TOKEN: 'hush'}}}}}").unwrap();
        assert!(!format!("{:?}", config.plugins).contains("hush"));
    }
}
