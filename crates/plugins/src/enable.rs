//! Decides whether a plugin is enabled, and why. Pure.

use crate::{discover::PluginOrigin, manifest::Manifest, settings::Settings};

/// Whether a plugin is enabled, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnableDecision {
    /// True if it is enabled.
    pub is_enabled: bool,
    /// The reason, as the rest of a sentence that begins with the plugin's name.
    pub why: String,
}

/// Decides whether a plugin is enabled; the first applicable reason counts. Unlike in OpenClaw, a plugin that the
/// config does not mention is disabled, wherever it is located.
pub fn decide(manifest: &Manifest, origin: PluginOrigin, settings: &Settings) -> EnableDecision {
    let id = manifest.id.as_str();
    let enabled = |why: &str| EnableDecision { is_enabled: true, why: format!("is on: {why}") };
    let disabled = |why: String| EnableDecision { is_enabled: false, why: format!("is off: {why}") };
    let is_in = |list: &[String]| list.iter().any(|listed| listed == id);
    let entry = settings.entries.get(id).and_then(|entry| entry.enabled);
    let memory = settings.slots.memory.as_deref();
    if settings.enabled == Some(false) {
        return disabled("plugins.enabled is false".to_owned());
    }
    if is_in(&settings.deny) {
        return disabled("plugins.deny lists it".to_owned());
    }
    if !settings.allow.is_empty() && !is_in(&settings.allow) {
        return disabled("plugins.allow does not list it".to_owned());
    }
    if entry == Some(false) {
        return disabled(format!("plugins.entries.{id}.enabled is false"));
    }
    if let Some(fault) = settings.entries.get(id).and_then(|entry| entry.fault.as_ref()) {
        return disabled(fault.clone());
    }
    if origin == PluginOrigin::Workspace && !settings.load.workspace {
        return disabled(
            "it is in the workspace, where the agent can write; to trust workspace plugins, set \
             plugins.load.workspace to true"
                .to_owned(),
        );
    }
    if manifest.kind.as_deref() == Some("memory") && memory.is_some_and(|memory| memory != id) {
        let memory = memory.unwrap_or_default();
        return disabled(format!("plugins.slots.memory is {memory:?}, and only one memory plugin can be active"));
    }
    if memory == Some(id) {
        return enabled("plugins.slots.memory names it");
    }
    if entry == Some(true) {
        return enabled(&format!("plugins.entries.{id}.enabled is true"));
    }
    if is_in(&settings.allow) {
        return enabled("plugins.allow lists it");
    }
    disabled(format!("it is not enabled in the config; enable it with: homard plugins enable {id}"))
}

/// True if the owner has enabled a plugin in the config, whether or not it was found.
pub(crate) fn is_wanted(id: &str, settings: &Settings) -> bool {
    let is_in = |list: &[String]| list.iter().any(|listed| listed == id);
    let entry = settings.entries.get(id).and_then(|entry| entry.enabled);
    let is_off = settings.enabled == Some(false) || is_in(&settings.deny) || entry == Some(false);
    let is_left_out = !settings.allow.is_empty() && !is_in(&settings.allow);
    let is_named = entry == Some(true) || is_in(&settings.allow) || settings.slots.memory.as_deref() == Some(id);
    is_named && !is_off && !is_left_out
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn decided(origin: PluginOrigin, kind: &Value, settings: &Value) -> String {
        let file = json!({"id": "mine", "configSchema": {}, "kind": kind}).to_string();
        let manifest = crate::manifest::read("openclaw.plugin.json", &file).unwrap();
        let verdict = decide(&manifest, origin, &serde_json::from_value(settings.clone()).unwrap());
        assert!(verdict.why.starts_with(if verdict.is_enabled { "is on: " } else { "is off: " }));
        verdict.why
    }

    #[test]
    fn the_first_applicable_rule_decides() {
        let entry = |enabled: bool| json!({"mine": {"enabled": enabled}});
        let state = |settings: &Value| decided(PluginOrigin::State, &Value::Null, settings);
        for (settings, reason) in [
            (json!({}), "is off: it is not enabled in the config; enable it with: homard plugins enable mine"),
            (json!({"enabled": false, "entries": entry(true)}), "is off: plugins.enabled is false"),
            (json!({"deny": ["mine"], "allow": ["mine"]}), "is off: plugins.deny lists it"),
            (json!({"allow": ["other"], "entries": entry(true)}), "is off: plugins.allow does not list it"),
            (json!({"allow": ["mine"], "entries": entry(false)}), "is off: plugins.entries.mine.enabled is false"),
            (json!({"allow": ["mine"]}), "is on: plugins.allow lists it"),
            (json!({"entries": entry(true)}), "is on: plugins.entries.mine.enabled is true"),
            (json!({"slots": {"memory": "mine"}}), "is on: plugins.slots.memory names it"),
        ] {
            assert_eq!(state(&settings), reason, "{settings}");
        }
    }

    #[test]
    fn a_plugin_with_an_unset_variable_is_disabled_but_still_wanted() {
        let mut settings: Settings = serde_json::from_value(json!({"entries": {"mine": {"enabled": true}}})).unwrap();
        let fault = "plugins.entries.mine.config.key needs the environment variable KEY, which is not set";
        settings.entries.get_mut("mine").unwrap().fault = Some(fault.to_owned());
        let manifest =
            crate::manifest::read("openclaw.plugin.json", &json!({"id": "mine", "configSchema": {}}).to_string())
                .unwrap();
        let verdict = decide(&manifest, PluginOrigin::State, &settings);
        assert_eq!((verdict.is_enabled, verdict.why), (false, format!("is off: {fault}")));
        assert!(is_wanted("mine", &settings));
    }

    #[test]
    fn only_one_memory_plugin_is_active() {
        let settings = json!({"entries": {"mine": {"enabled": true}}, "slots": {"memory": "other"}});
        let expected = "is off: plugins.slots.memory is \"other\", and only one memory plugin can be active";
        assert_eq!(decided(PluginOrigin::State, &json!("memory"), &settings), expected);
        assert_eq!(
            decided(PluginOrigin::State, &Value::Null, &settings),
            "is on: plugins.entries.mine.enabled is true"
        );
    }

    #[test]
    fn a_workspace_plugin_must_be_trusted_explicitly() {
        let settings = |workspace: bool| json!({"allow": ["mine"], "load": {"workspace": workspace}});
        let decision = decided(PluginOrigin::Workspace, &Value::Null, &settings(false));
        assert!(decision.starts_with("is off: it is in the workspace"), "{decision}");
        assert_eq!(decided(PluginOrigin::Workspace, &Value::Null, &settings(true)), "is on: plugins.allow lists it");
    }
}
