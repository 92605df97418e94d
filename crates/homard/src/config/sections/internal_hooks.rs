//! `hooks.internal`: hooks that run on gateway events.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::plugins::GuardSetting;
use crate::config::Text;

/// What runs beside the agents when something happens.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Internal {
    /// Whether hooks run: false for none, true for all but those of a workspace. Default: those whose entries say so.
    pub(crate) enabled: Option<bool>,
    /// What each hook needs, by its key.
    #[serde(deserialize_with = "super::named_objects")]
    pub(crate) entries: BTreeMap<String, Entry>,
    /// Where hooks are found.
    #[serde(deserialize_with = "super::object")]
    pub(crate) load: Load,
    /// What `homard hooks install` has put where.
    #[serde(deserialize_with = "super::named_objects")]
    pub(crate) installs: BTreeMap<String, Install>,
    /// OpenClaw's older way to name handlers. It has no effect: make a folder with a HOOK.md of each.
    pub(crate) handlers: Vec<Value>,
}

/// What a hook needs.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Entry {
    /// Whether it runs. A hook of a workspace needs true here.
    pub(crate) enabled: Option<bool>,
    /// Variables that its program finds in its environment.
    pub(crate) env: BTreeMap<String, Text>,
    /// Whether it is a guard: no model is asked if it cannot answer. True, or the list ["agent:bootstrap"], the only event
    /// that can be refused. Default: false.
    pub(crate) guard: GuardSetting,
    /// Settings of its own.
    #[serde(flatten)]
    pub(crate) more: BTreeMap<String, Value>,
    /// Why it must not be used, if a variable that it needs is not set.
    #[serde(skip)]
    pub(crate) fault: Option<String>,
}

/// Where hooks are found.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Load {
    /// More folders to look in. A hook of the same name in the state directory comes before theirs.
    pub(crate) extra_dirs: Vec<Text>,
}

/// What was installed.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Install {
    /// How it came: path, archive or npm.
    #[allow(dead_code, reason = "read by people and by OpenClaw")]
    source: Option<String>,
    /// The package that it was.
    #[allow(dead_code, reason = "read by people and by OpenClaw")]
    spec: Option<String>,
    /// The folder that it was.
    #[allow(dead_code, reason = "read by people and by OpenClaw")]
    source_path: Option<Text>,
    /// Where it is now.
    pub(crate) install_path: Option<Text>,
    /// Its version.
    #[allow(dead_code, reason = "read by people and by OpenClaw")]
    version: Option<String>,
    /// When.
    #[allow(dead_code, reason = "read by people and by OpenClaw")]
    installed_at: Option<String>,
    /// The hooks that it brought.
    pub(crate) hooks: Vec<String>,
    /// What tells its content from any other.
    pub(crate) hash: Option<String>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::config::Config;

    fn problems(text: &str) -> Vec<String> {
        let loaded = Config::read(std::path::Path::new("homard.json"), text);
        loaded.problems.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn an_entry_may_have_settings_of_its_own() {
        let text = "{hooks: {internal: {enabled: true, entries: {'session-memory': {enabled: true, messages: 25}}}}}";
        assert_eq!(problems(text), Vec::<String>::new());
        let config = Config::parse(text).unwrap().hooks.internal;
        let entry = &config.entries["session-memory"];
        assert_eq!((config.enabled, entry.enabled, &entry.more["messages"]), (Some(true), Some(true), &json!(25)));
    }

    #[test]
    fn what_does_not_fit_is_told_with_its_place() {
        for (text, what) in [
            ("{hooks: {internal: {enabled: 'yes'}}}", "hooks.internal.enabled"),
            ("{hooks: {internal: {entries: {a: {enabled: 1}}}}}", "hooks.internal.entries.a"),
            ("{hooks: {internal: {entries: {a: []}}}}", "hooks.internal.entries.a"),
            ("{hooks: {internal: {load: {extraDirs: 'x'}}}}", "hooks.internal.load.extraDirs"),
            (
                "{hooks: {internal: {entires: {}}}}",
                "hooks.internal.entires is not a known key; did you mean \"entries\"?",
            ),
        ] {
            let told = problems(text);
            assert!(told.len() == 1 && told[0].contains(what), "{text}: {told:?}");
        }
    }
}
