//! Settings whose defaults differ between OpenClaw and Homard, and how to write OpenClaw's explicitly.

use std::path::Path;

use jsonc_parser::{CollectOptions, ParseOptions, ast, parse_to_ast};
use serde_json::{Map, Value, json};

/// A setting that the config leaves unset and whose default differs.
#[derive(Debug, Clone, PartialEq)]
pub struct DefaultDifference {
    pub key: &'static str,
    /// OpenClaw's default.
    pub theirs: Value,
    /// Homard's default.
    pub ours: String,
}

/// Returns the unset settings with different defaults. The paths are OpenClaw's state directory and ours.
pub(super) fn unset_defaults(
    config: &Map<String, Value>,
    source_state: &Path,
    target_state: &Path,
) -> Vec<DefaultDifference> {
    let difference = |key, theirs, ours: &str| DefaultDifference { key, theirs, ours: ours.to_owned() };
    let all = [
        (difference("messages.queue.mode", json!("collect"), "steer"), "messages.queue.mode"),
        (difference("messages.queue.debounceMs", json!(1000), "500"), "messages.queue.debounceMs"),
        (
            difference("session.reset", json!({"mode": "daily", "atHour": 4}), "no automatic reset"),
            "session.idleMinutes",
        ),
        (
            difference("session.dmScope", json!("main"), "main for the owner, per-channel-peer for other senders"),
            "session.dmScope",
        ),
        (
            difference(
                "agents.defaults.workspace",
                json!(source_state.join("workspace")),
                &target_state.join("workspace").display().to_string(),
            ),
            "agents.defaults.workspace",
        ),
    ];
    let is_open = |path: &str| lookup(config, path).is_none();
    all.into_iter()
        .filter(|(difference, also)| is_open(difference.key) && is_open(also))
        .map(|(difference, _)| difference)
        .collect()
}

fn lookup<'a>(config: &'a Map<String, Value>, path: &str) -> Option<&'a Value> {
    let (name, rest) = path.split_once('.').unwrap_or((path, ""));
    let value = config.get(name)?;
    if rest.is_empty() { Some(value) } else { lookup(value.as_object()?, rest) }
}

/// Returns the config's text with these settings added. Comments, order and spelling of everything else stay.
pub(super) fn with_defaults(text: &str, settings: &[DefaultDifference]) -> Result<String, String> {
    // Each is inserted at the beginning of its object, so in reverse order.
    settings.iter().rev().try_fold(text.to_owned(), |text, default| insert(&text, default.key, &default.theirs))
}

/// Inserts a key that is not set yet into the text of a config, as the first member of the deepest existing object on
/// its path.
fn insert(text: &str, key: &str, value: &Value) -> Result<String, String> {
    let failure = |why: &str| format!("{key} cannot be written: {why}");
    let parsed = parse_to_ast(text, &CollectOptions::default(), &ParseOptions::default());
    let root = parsed.map_err(|error| failure(&error.to_string()))?.value;
    let Some(ast::Value::Object(root)) = root else { return Err(failure("the config is not an object")) };
    let mut object = &root;
    let mut names: Vec<_> = key.split('.').collect();
    let mut depth = 1;
    while let Some(property) = object.get(names[0]) {
        let ast::Value::Object(inner) = &property.value else {
            return Err(failure(&format!("{} is not an object", names[0])));
        };
        object = inner;
        names.remove(0);
        depth += 1;
        if names.is_empty() {
            return Err(failure("the key already exists"));
        }
    }
    let value = names[1..].iter().rev().fold(value.clone(), |value, name| json!({*name: value}));
    let (at, indent) = (object.range.start + 1, "  ".repeat(depth));
    let comma = if object.properties.is_empty() { "" } else { "," };
    let (before, after) = text.split_at(at);
    Ok(format!("{before}\n{indent}\"{}\": {value}{comma}{after}", names[0]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::object;

    fn open(config: &Value) -> Vec<&'static str> {
        let config = config.as_object().cloned().unwrap();
        let found = unset_defaults(&config, Path::new("/o"), Path::new("/h"));
        found.into_iter().map(|default| default.key).collect()
    }

    #[test]
    fn only_unset_defaults_are_reported() {
        let all = [
            "messages.queue.mode",
            "messages.queue.debounceMs",
            "session.reset",
            "session.dmScope",
            "agents.defaults.workspace",
        ];
        assert_eq!(open(&json!({})), all);
        assert_eq!(
            open(&json!({"messages": {"queue": {"mode": "steer"}}, "session": {"reset": {"mode": "idle"}}})),
            [all[1], all[3], all[4]]
        );
        assert_eq!(
            open(
                &json!({"session": {"idleMinutes": 60, "dmScope": "main"}, "agents": {"defaults": {"workspace": "/w"}}})
            ),
            all[..2]
        );
    }

    #[test]
    fn defaults_are_added_and_everything_else_is_unchanged() {
        let text = "// mine\n{\n  agents: {defaults: {workspace: '/w'}}, // where\n  messages: {},\n}\n";
        let config = object(text).unwrap();
        let settings = unset_defaults(&config, Path::new("/o"), Path::new("/h"));
        assert_eq!(
            with_defaults(text, &settings).unwrap(),
            "// mine\n{\n  \"session\": {\n    \"reset\": {\"mode\":\"daily\",\"atHour\":4},\"dmScope\":\"main\"},\
             \n  agents: {defaults: {workspace: '/w'}}, // where\
             \n  messages: {\n    \"queue\": {\n      \"mode\": \"collect\",\"debounceMs\":1000}},\n}\n"
        );
    }

    #[test]
    fn every_default_can_be_added_to_every_config() {
        for text in ["{}", "{messages: {queue: {}}}", "{\"session\": {}, \"agents\": {\"list\": []}}"] {
            let settings = unset_defaults(&object(text).unwrap(), Path::new("/o"), Path::new("/h"));
            let text = with_defaults(text, &settings).unwrap();
            let config = object(&text).unwrap();
            for default in settings {
                assert_eq!(lookup(&config, default.key), Some(&default.theirs), "{text}");
            }
        }
    }

    #[test]
    fn a_config_of_another_shape_is_left_alone() {
        let settings = [DefaultDifference { key: "session.reset", theirs: json!({}), ours: String::new() }];
        let result = with_defaults("{session: 7}", &settings);
        assert_eq!(result, Err("session.reset cannot be written: session is not an object".to_owned()));
    }
}
