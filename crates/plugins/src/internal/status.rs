//! Status of hooks in the format of `hooks list --json` and `hooks info --json`.

use homard_workspace::skills::{MissingRequirements, SkillRequirements};
use serde_json::{Map, Value, json};

use super::{
    decide::{DisabledReason, HookDecisionState},
    hook_md::{HookHandler, HookSource, InternalHook},
};

/// Builds the report of a hook, with both OpenClaw's older and newer field names.
///
/// Config values are not included, only whether they are set.
pub fn report(hook: &InternalHook, decision: &HookDecisionState) -> Value {
    let HookDecisionState { disabled, missing: MissingRequirements { os, requires, fault } } = decision;
    let reason = disabled
        .map(DisabledReason::message)
        .or_else(|| (!decision.has_requirements()).then_some("missing requirements"));
    let is_satisfied = |path: &String| json!({"path": path, "satisfied": !requires.config.contains(path)});
    let kind = match &hook.handler {
        HookHandler::Script { .. } => "script",
        HookHandler::Program(_) => "program",
        HookHandler::Bundled(_) => "bundled",
    };
    let mut state = Map::new();
    let mut put = |key: &str, value: Value| drop(state.insert(key.to_owned(), value));
    put("name", json!(hook.name));
    put("description", json!(hook.description));
    put("source", json!(hook.source.name()));
    put("filePath", json!(hook.file));
    put("baseDir", json!(hook.dir));
    put("handlerPath", json!(hook.handler.path()));
    put("handlerKind", json!(kind));
    put("hookKey", json!(hook.key));
    for (key, value) in [("emoji", &hook.emoji), ("homepage", &hook.homepage)] {
        if let Some(value) = value {
            put(key, json!(value));
        }
    }
    put("events", json!(hook.events));
    put("always", json!(hook.always));
    put("bundled", json!(hook.source == HookSource::Bundled));
    put("disabled", json!(*disabled == Some(DisabledReason::Entry)));
    put("eligible", json!(*disabled != Some(DisabledReason::Entry) && decision.has_requirements()));
    put("enabledByConfig", json!(disabled.is_none()));
    put("requirementsSatisfied", json!(decision.has_requirements()));
    put("loadable", json!(decision.is_active()));
    if let Some(reason) = reason {
        put("blockedReason", json!(reason));
    }
    if let Some(fault) = fault {
        put("fault", json!(fault));
    }
    put("managedByPlugin", json!(false));
    put("requirements", needs(&hook.requires, &hook.os));
    put("missing", needs(requires, os));
    put("configChecks", hook.requires.config.iter().map(is_satisfied).collect());
    put(
        "install",
        hook.install.iter().enumerate().filter_map(|(index, option)| install_option(index, option)).collect(),
    );
    Value::Object(state)
}

fn needs(requires: &SkillRequirements, os: &[String]) -> Value {
    let SkillRequirements { bins, any_bins, env, config } = requires;
    json!({"bins": bins, "anyBins": any_bins, "env": env, "config": config, "os": os})
}

/// Formats an installation instruction.
fn install_option(index: usize, option: &Value) -> Option<Value> {
    let kind = option["kind"].as_str().filter(|kind| matches!(*kind, "bundled" | "npm" | "git"))?;
    let source = ["package", "repository"].iter().find_map(|key| option[*key].as_str());
    let label = option["label"].as_str().map_or_else(
        || source.map_or_else(|| "Bundled with Homard".to_owned(), |source| format!("Install {source} ({kind})")),
        ToOwned::to_owned,
    );
    let id = option["id"].as_str().map_or_else(|| format!("{kind}-{index}"), ToOwned::to_owned);
    Some(json!({"id": id, "kind": kind, "label": label, "bins": homard_workspace::skills::as_list(&option["bins"])}))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::internal::bundled::BundledHook;

    #[test]
    fn the_status_report_uses_openclaws_field_names() {
        let hook = InternalHook {
            install: vec![json!({"kind": "npm", "package": "tide"}), json!({"kind": "magic"})],
            ..BundledHook::SessionMemory.hook()
        };
        let verdict =
            HookDecisionState { disabled: Some(DisabledReason::NotEnabled), missing: MissingRequirements::default() };
        let nothing = json!({"bins": [], "anyBins": [], "env": [], "config": [], "os": []});
        let requirements = json!({"bins": [], "anyBins": [], "env": [], "config": ["workspace.dir"], "os": []});
        let expected = json!({
            "name": "session-memory",
            "description": "Saves the end of a conversation to memory/ when a new one begins",
            "source": "openclaw-bundled", "filePath": "bundled/session-memory/HOOK.md",
            "baseDir": "bundled/session-memory", "handlerPath": null, "handlerKind": "bundled",
            "hookKey": "session-memory", "emoji": "💾",
            "events": ["command:new", "command:reset", "session:auto-reset"], "always": false, "bundled": true,
            "disabled": false, "eligible": true, "enabledByConfig": false, "requirementsSatisfied": true,
            "loadable": false, "blockedReason": "not enabled in config", "managedByPlugin": false,
            "requirements": requirements, "missing": nothing,
            "configChecks": [{"path": "workspace.dir", "satisfied": true}],
            "install": [{"id": "npm-0", "kind": "npm", "label": "Install tide (npm)", "bins": []}],
        });
        assert_eq!(report(&hook, &verdict), expected);
    }
}
