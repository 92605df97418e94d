//! `hooks.internal`: hooks that run on gateway events.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::plugins::GuardSetting;
use crate::Text;

/// Internal hooks: scripts that run on events of the gateway.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Internal {
    /// Enable hooks: false for none, true for all but those of a workspace. Default: only hooks whose own entries
    /// enable them.
    pub enabled: Option<bool>,
    /// Settings per hook, by its key.
    #[serde(deserialize_with = "super::named_objects")]
    pub entries: BTreeMap<String, Entry>,
    /// Directories that hooks are loaded from.
    #[serde(deserialize_with = "super::object")]
    pub load: Load,
    /// Packages that `homard hooks install` has installed.
    #[serde(deserialize_with = "super::named_objects")]
    pub installs: BTreeMap<String, Install>,
    /// OpenClaw's older list of handlers. It has no effect: make a directory with a HOOK.md for each.
    pub handlers: Vec<Value>,
}

/// Settings of a hook.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Entry {
    /// Enable the hook. A hook of a workspace needs true here.
    pub enabled: Option<bool>,
    /// Environment variables of its process.
    pub env: BTreeMap<String, Text>,
    /// Make the hook a guard: no model request is sent if it fails to answer. True, or the list ["agent:bootstrap"],
    /// because that is the only event that a guard can refuse. Default: false.
    pub guard: GuardSetting,
    /// Settings that the hook itself defines.
    #[serde(flatten)]
    pub more: BTreeMap<String, Value>,
    /// Error that makes the hook unusable, if it references an environment variable which is not set.
    #[serde(skip)]
    pub fault: Option<String>,
}

/// Directories that hooks are loaded from.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Load {
    /// Additional directories. A hook of the same name in the state directory takes precedence.
    pub extra_dirs: Vec<Text>,
}

/// An installed package of hooks.
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
    #[allow(dead_code, reason = "read by people and by OpenClaw")]
    source_path: Option<Text>,
    /// Directory that it is installed in.
    pub install_path: Option<Text>,
    /// Installed version.
    #[allow(dead_code, reason = "read by people and by OpenClaw")]
    version: Option<String>,
    /// Time of the installation.
    #[allow(dead_code, reason = "read by people and by OpenClaw")]
    installed_at: Option<String>,
    /// Hooks that the package contains.
    pub hooks: Vec<String>,
    /// Digest of its files.
    pub hash: Option<String>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::Config;

    fn problems(text: &str) -> Vec<String> {
        let loaded = Config::read(std::path::Path::new("homard.json"), text);
        loaded.problems.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn an_entry_may_have_its_own_settings() {
        let text = "{hooks: {internal: {enabled: true, entries: {'session-memory': {enabled: true, messages: 25}}}}}";
        assert_eq!(problems(text), Vec::<String>::new());
        let config = Config::parse(text).unwrap().hooks.internal;
        let entry = &config.entries["session-memory"];
        assert_eq!((config.enabled, entry.enabled, &entry.more["messages"]), (Some(true), Some(true), &json!(25)));
    }

    #[test]
    fn invalid_values_are_reported_with_their_path() {
        for (text, expected) in [
            ("{hooks: {internal: {enabled: 'yes'}}}", "hooks.internal.enabled"),
            ("{hooks: {internal: {entries: {a: {enabled: 1}}}}}", "hooks.internal.entries.a"),
            ("{hooks: {internal: {entries: {a: []}}}}", "hooks.internal.entries.a"),
            ("{hooks: {internal: {load: {extraDirs: 'x'}}}}", "hooks.internal.load.extraDirs"),
            (
                "{hooks: {internal: {entires: {}}}}",
                "hooks.internal.entires is not a known key; did you mean \"entries\"?",
            ),
        ] {
            let errors = problems(text);
            assert!(errors.len() == 1 && errors[0].contains(expected), "{text}: {errors:?}");
        }
    }
}
