//! The `gateway` tool: an agent reads the config and changes the keys that it may change.
//!
//! An agent that could change its tools, its sandbox, where keys are sent or what is started could do anything, and so
//! could anyone who persuades it to. Such keys are reserved for the owner.

use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use homard_agent::tool::{Tool, ToolClass, ToolCx, ToolResult, ToolSpec};
use homard_config::{diff, edit, redact, schema};
use homard_proto::method::config::Raw;
use homard_settings::{
    Config,
    change::{ConfigChangeError, issue},
    paths::Paths,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{failure, json_result, refusal};
use crate::{
    methods::config::{apply_change, object, patched, submitted_text},
    reload::ConfigReloader,
};

const NAME: &str = "gateway";

const DESCRIPTION: &str = "\
Read and change the config. config.get shows it with its hash, secrets redacted. config.schema describes every key. \
config.patch changes some keys: raw is JSON5 that is merged into it, null removes a key. config.apply replaces the whole \
config by raw. Changes apply at once. You may change models, thinking, names, heartbeats, messages.* and whether \
skills are enabled; only the owner may change the rest, with homard config set. Change only what you were asked to.";

const ACTIONS: [&str; 6] = ["restart", "config.get", "config.schema", "config.apply", "config.patch", "update.run"];

/// The key that includes other files.
const INCLUDE: &str = "$include";

/// Keys that an agent may change in any agent's settings.
const AGENT_KEYS: &[&[&str]] = &[
    &["model"],
    &["imageModel"],
    &["name"],
    &["identity", "name"],
    &["identity", "theme"],
    &["identity", "emoji"],
    &["heartbeat"],
    &["promptStyle"],
    &["reasoningDefault"],
    &["thinkingDefault"],
    &["userTimezone"],
    &["verboseDefault"],
];

/// Paths of agents' settings; `*` stands for any name or index.
const AGENT_PATHS: &[&[&str]] = &[&["agents", "defaults"], &["agents", "list", "*"], &["agents", "entries", "*"]];

/// Other keys that it may change.
const OTHER_KEYS: &[&[&str]] = &[&["messages"], &["skills", "entries", "*", "enabled"]];

pub(crate) struct GatewayTool {
    live: Arc<OnceLock<ConfigReloader>>,
    paths: Paths,
}

/// Arguments of the tool.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Args {
    action: String,
    gateway_url: Option<String>,
    raw: Option<Raw>,
    base_hash: Option<String>,
}

impl GatewayTool {
    /// Creates the tool; it works once the gateway runs.
    pub(crate) fn new(live: Arc<OnceLock<ConfigReloader>>, paths: Paths) -> Self {
        Self { live, paths }
    }

    async fn execute(&self, cx: &ToolCx, arguments: Value) -> Result<Value, String> {
        let arguments: Args =
            serde_json::from_value(arguments).map_err(|error| format!("the arguments cannot be read: {error}"))?;
        if let Some(why) = refusal(&cx.origin, arguments.gateway_url.as_deref()) {
            return Err(why.to_owned());
        }
        let live = self.live.get().ok_or("the gateway is not ready yet; try again in a moment")?.clone();
        let paths = self.paths.clone();
        // On a blocking thread, so that it completes even if the run is aborted.
        let result = tokio::task::spawn_blocking(move || execute(&arguments, &live, &paths)).await;
        result.unwrap_or_else(|error| Err(format!("the operation failed: {error}")))
    }
}

fn execute(arguments: &Args, live: &ConfigReloader, paths: &Paths) -> Result<Value, String> {
    match arguments.action.as_str() {
        "config.get" => Ok(get(paths)),
        "config.schema" => Ok(schema::schema::<Config>()),
        "config.patch" => {
            let (raw, patch) = parse_raw(arguments)?;
            drop(raw);
            change(arguments, live, paths, &|text| patched(&patch, &[], text))
        }
        "config.apply" => {
            let (raw, value) = parse_raw(arguments)?;
            change(arguments, live, paths, &|text| submitted_text(&raw, &value, text))
        }
        "restart" | "update.run" => {
            Err("an agent cannot restart or update the gateway. Most config changes apply at once; \
                                         if a restart is needed, ask the owner"
                .to_owned())
        }
        other => Err(format!("unknown action {other}; supported: {}", ACTIONS.join(", "))),
    }
}

/// Returns the current file without its secrets and without its comments, which may contain unrecognized secrets.
fn get(paths: &Paths) -> Value {
    let file = Config::read_file(&paths.config);
    let source = file.text.as_deref().and_then(|text| edit::value(text).ok()).unwrap_or_else(|| json!({}));
    json!({
        "path": paths.config, "exists": file.text.is_some(), "config": redact::redact(&source), "hash": file.hash,
        "valid": file.is_valid(), "issues": file.problems.iter().map(issue).collect::<Vec<_>>(),
    })
}

fn parse_raw(arguments: &Args) -> Result<(Raw, Value), String> {
    let raw = arguments.raw.clone();
    let raw =
        raw.ok_or_else(|| format!("{} needs raw: the text of the config, or of a change to it", arguments.action))?;
    let value = object(&arguments.action, &raw).map_err(|error| error.message)?;
    Ok((raw, value))
}

/// Changes the current file, if an agent may make this change.
fn change(
    arguments: &Args,
    live: &ConfigReloader,
    paths: &Paths,
    edit: &dyn Fn(&str) -> Result<String, ConfigChangeError>,
) -> Result<Value, String> {
    let previous = Config::read_file(&paths.config);
    let is_outdated = |hash: &String| !hash.trim().is_empty() && !hash.trim().eq_ignore_ascii_case(&previous.hash);
    if arguments.base_hash.as_ref().is_some_and(is_outdated) {
        return Err("the config has changed since you read it; look at it with config.get and try again".to_owned());
    }
    let text = previous.text.as_deref().unwrap_or_default();
    let plain = |error: ConfigChangeError| error.to_string();
    let value = |text: &str| edit::value(text).map_err(|error| plain(error.into()));
    let new = edit(text).map_err(plain)?;
    let mut owner_keys = changed_owner_keys(&value(text)?, &value(&new)?);
    if owner_keys.is_empty() {
        // Compared as loaded, too: with included files.
        owner_keys = changed_owner_keys(&previous.source, &Config::read(&paths.config, &new).source);
    }
    if !owner_keys.is_empty() {
        return Err(format!(
            "nothing was changed, because an agent may not change {}; the owner can, with homard config set or in {}",
            owner_keys.join(", "),
            paths.config.display()
        ));
    }
    // Checked by hash, so that it is the file that was inspected.
    apply_change(live, paths, Some(&previous.hash), edit).map_err(|error| error.message)
}

/// Returns the owner's keys that differ.
fn changed_owner_keys(before: &Value, after: &Value) -> Vec<String> {
    let owner_part_of = |value| owner_part(value, &mut Vec::new()).unwrap_or_default();
    diff::changed(&owner_part_of(before), &owner_part_of(after)).iter().map(ToString::to_string).collect()
}

/// Returns the part of a value that is reserved for the owner. A reference to a variable or another file always is: the
/// variable may be a secret, and the file may contain references of its own.
fn owner_part<'a>(value: &'a Value, path: &mut Vec<&'a str>) -> Option<Value> {
    match value {
        Value::Object(members) => {
            let mut owned = Map::new();
            for (name, member) in members {
                path.push(name);
                owned.extend(owner_part(member, path).map(|member| (name.clone(), member)));
                path.pop();
            }
            (!owned.is_empty()).then_some(Value::Object(owned))
        }
        Value::Array(items) => {
            path.push("*");
            let owned: Vec<_> = items.iter().map(|item| owner_part(item, path)).collect();
            path.pop();
            let is_open = is_agent_key(path) && owned.iter().all(Option::is_none);
            (!is_open).then(|| owned.into_iter().map(Option::unwrap_or_default).collect())
        }
        Value::String(text) if text.contains("${") => Some(value.clone()),
        Value::String(_) | Value::Number(_) | Value::Bool(_) | Value::Null => {
            (!is_agent_key(path)).then(|| value.clone())
        }
    }
}

/// Returns true if an agent may change this path.
fn is_agent_key(path: &[&str]) -> bool {
    if path.contains(&INCLUDE) {
        return false;
    }
    let is_prefix = |start: &[&str]| {
        start.len() <= path.len() && start.iter().zip(path).all(|(pattern, name)| *pattern == "*" || pattern == name)
    };
    let is_agent_setting = AGENT_PATHS.iter().filter(|prefix| is_prefix(prefix)).any(|prefix| {
        let key_path = &path[prefix.len()..];
        AGENT_KEYS.iter().any(|key| key_path.starts_with(key))
    });
    is_agent_setting || OTHER_KEYS.iter().any(|key| is_prefix(key))
}

#[async_trait]
impl Tool for GatewayTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: NAME.to_owned(),
            description: DESCRIPTION.to_owned(),
            parameters: json!({
                "type": "object",
                "required": ["action"],
                "properties": {
                    "action": {"type": "string", "enum": ACTIONS},
                    "delayMs": {"type": "number"},
                    "reason": {"type": "string"},
                    "gatewayUrl": {"type": "string"},
                    "gatewayToken": {"type": "string"},
                    "timeoutMs": {"type": "number"},
                    "raw": {"type": "string"},
                    "baseHash": {"type": "string"},
                    "sessionKey": {"type": "string"},
                    "note": {"type": "string"},
                    "restartDelayMs": {"type": "number"},
                },
            }),
        }
    }

    fn class(&self) -> ToolClass {
        ToolClass::Effect
    }

    async fn call(&self, cx: ToolCx, arguments: Value) -> ToolResult {
        match self.execute(&cx, arguments).await {
            Ok(result) => json_result(json!({"ok": true, "result": result})),
            Err(why) => failure(NAME, &why),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_may_change_its_own_keys_but_not_the_owners() {
        let before = json!({
            "agents": {"defaults": {"model": "a/b", "workspace": "/w"}, "list": [{"id": "x", "tools": {"deny": ["exec"]}}]},
            "tools": {"deny": ["write"]}, "messages": {"queue": {"mode": "steer"}}, "env": {"vars": {"A": "1"}},
            "skills": {"entries": {"s": {"enabled": false, "apiKey": "k"}}},
        });
        let changes_of = |path: &str, value: Value| {
            let mut after = before.clone();
            match after.pointer_mut(path) {
                Some(old) => *old = value,
                None => {
                    let (parent, name) = path.rsplit_once('/').unwrap();
                    after.pointer_mut(parent).unwrap()[name] = value;
                }
            }
            changed_owner_keys(&before, &after)
        };
        for (path, value) in [
            ("/agents/defaults/model", json!({"primary": "c/d", "fallbacks": ["e/f"]})),
            ("/agents/defaults/heartbeat", json!({"every": "1h"})),
            ("/agents/list/0/identity", json!({"name": "Claude", "emoji": "🦞"})),
            ("/messages/queue/mode", json!("collect")),
            ("/skills/entries/s/enabled", json!(true)),
        ] {
            assert_eq!(changes_of(path, value), Vec::<String>::new(), "{path}");
        }
        for (path, value, key) in [
            ("/tools/deny", json!([]), "tools.deny"),
            ("/tools/exec", json!({"sandbox": {"mode": "full"}}), "tools.exec"),
            ("/agents/list/0/tools", json!({}), "agents.list"),
            ("/agents/defaults/workspace", json!("/"), "agents.defaults.workspace"),
            ("/agents/list/0/identity", json!({"avatar": "/etc/shadow"}), "agents.list"),
            ("/agents/defaults/heartbeat", json!({"prompt": "${KEY}"}), "agents.defaults.heartbeat"),
            ("/skills/entries/s/apiKey", json!("other"), "skills.entries.s.apiKey"),
            ("/env/vars/A", json!("2"), "env.vars.A"),
            ("/mcp", json!({"servers": {"x": {"command": "sh"}}}), "mcp"),
            ("/$include", json!("/tmp/x.json"), "$include"),
            // Below every key that an agent may change.
            ("/messages", json!({"$include": "./workspace/x.json"}), "messages"),
            ("/messages/queue", json!({"mode": "steer", "$include": ["a.json"]}), "messages.queue.$include"),
            ("/agents/defaults/heartbeat", json!({"$include": "./workspace/x.json"}), "agents.defaults.heartbeat"),
            ("/agents/list/0/identity", json!({"name": {"$include": "./workspace/x.json"}}), "agents.list"),
            ("/agents/list/0/identity", json!({"name": "a ${KEY}"}), "agents.list"),
        ] {
            let found = changes_of(path, value);
            assert!(found.len() == 1 && found[0].starts_with(key), "{path}: {found:?}");
        }
    }
}
