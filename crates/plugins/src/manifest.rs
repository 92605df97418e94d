//! Plugin manifests, read before any plugin code runs: `homard.plugin.json`, or OpenClaw's file.

use std::collections::BTreeSet;

use homard_hooks::Point;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::offer::{CommandOffer, HookOffer, MethodOffer, Offers, RouteOffer, ServiceOffer, ToolOffer};

/// Homard's own file name.
pub(crate) const OURS: &str = "homard.plugin.json";

/// Manifest file names in order of precedence. The last two are OpenClaw's former ones.
pub const NAMES: [&str; 4] = [OURS, "openclaw.plugin.json", "moltbot.plugin.json", "clawdbot.plugin.json"];

/// Maximum size of a manifest in bytes.
pub(crate) const LARGEST: u64 = 256 * 1024;

/// Default memory limit of a process in MiB.
const MEMORY_MB: u64 = 1024;

/// Maximum memory limit in MiB.
const MOST_MEMORY_MB: u64 = 16 * 1024;

/// A parsed manifest.
#[derive(Debug, Clone, PartialEq)]
pub struct Manifest {
    /// Plugin id, as used in the config.
    pub id: String,
    /// Display name.
    pub name: Option<String>,
    /// Description.
    pub description: Option<String>,
    /// Version.
    pub version: Option<String>,
    /// Exclusive role of the plugin, such as `memory`.
    pub kind: Option<String>,
    /// JSON Schema of its config.
    pub config_schema: Value,
    /// Command to run; `None` for a plugin that runs in Node.
    pub run: Option<Vec<String>>,
    /// Points where it is a guard.
    pub guard: BTreeSet<String>,
    /// Declared rights. `None` if the format has none: then everything it registers is allowed.
    pub rights: Option<Rights>,
    /// Memory limit of its process in MiB.
    pub memory_mb: u64,
    /// Directories of its skills.
    pub skills: Vec<String>,
    /// The raw JSON, which Node plugins may read.
    pub raw: Value,
}

/// Rights that a plugin declares. Everything else is denied.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Rights {
    /// Hooks.
    pub hooks: Vec<Declared<HookOffer>>,
    /// Tools.
    pub tools: Vec<Declared<ToolOffer>>,
    /// Chat commands.
    pub commands: Vec<Declared<CommandOffer>>,
    /// Gateway methods.
    pub methods: Vec<Declared<MethodOffer>>,
    /// HTTP routes.
    pub routes: Vec<Declared<RouteOffer>>,
    /// Background services.
    pub services: Vec<Declared<ServiceOffer>>,
    /// Events it subscribes to, such as `command:new`.
    pub events: Vec<String>,
    /// Environment variables it may read.
    pub env: Vec<String>,
    /// Host requests it may make, such as `memory.search`.
    pub host: Vec<String>,
}

/// A declaration: by name only, or complete, so that it is known before the process runs.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum Declared<T> {
    /// By name.
    Named(String),
    /// Complete.
    Full(T),
}

/// The manifest as written, before validation.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Read {
    id: Option<String>,
    name: Option<String>,
    description: Option<String>,
    version: Option<String>,
    #[serde(default)]
    kind: Value,
    config_schema: Option<Value>,
    run: Option<Vec<String>>,
    #[serde(default)]
    guard: Vec<String>,
    rights: Option<Rights>,
    memory_mb: Option<u64>,
    #[serde(default)]
    skills: Vec<String>,
}

/// What is wrong with a manifest, as the rest of a sentence that begins with its path.
pub(crate) type Wrong = String;

/// Parses a manifest. `file` is its name, which determines the required fields.
pub(crate) fn read(file: &str, text: &str) -> Result<Manifest, Wrong> {
    let raw: Value = serde_json::from_str(text).map_err(|error| format!("is not JSON: {error}"))?;
    let read: Read = Read::deserialize(&raw).map_err(|error| format!("is no manifest of a plugin: {error}"))?;
    let id = read.id.map(|id| id.trim().to_owned()).filter(|id| !id.is_empty()).ok_or("has no \"id\"")?;
    if !is_id(&id) {
        return Err(format!("has the id {id:?}; letters, digits, and -_.@/ between them, at most 100, are allowed"));
    }
    let config_schema = match read.config_schema {
        Some(schema @ Value::Object(_)) => schema,
        Some(_) => return Err("has a \"configSchema\" that is not an object".to_owned()),
        None => return Err("has no \"configSchema\"; write {} if the plugin needs no config".to_owned()),
    };
    let is_ours = file == OURS;
    let run = read.run.filter(|_| is_ours);
    if is_ours && run.as_ref().is_none_or(|run| run.first().is_none_or(|program| program.trim().is_empty())) {
        return Err("has no \"run\": the command that is the plugin, such as [\"python3\", \"plugin.py\"]".to_owned());
    }
    let rights = if is_ours { Some(read.rights.unwrap_or_default()) } else { read.rights };
    if let Some(name) =
        read.guard.iter().chain(rights.iter().flat_map(hook_names)).find(|name| Point::named(name).is_none())
    {
        return Err(format!("names the hook {name:?}, which there is not"));
    }
    let memory_mb = read.memory_mb.unwrap_or(MEMORY_MB);
    if !(16..=MOST_MEMORY_MB).contains(&memory_mb) {
        return Err(format!("has a \"memoryMb\" of {memory_mb}; 16 to {MOST_MEMORY_MB} is allowed"));
    }
    Ok(Manifest {
        id,
        name: read.name,
        description: read.description,
        version: read.version,
        kind: kind(&read.kind),
        config_schema,
        run,
        guard: read.guard.into_iter().collect(),
        rights,
        memory_mb,
        skills: read.skills,
        raw,
    })
}

fn hook_names(rights: &Rights) -> impl Iterator<Item = &String> {
    rights.hooks.iter().map(|hook| match hook {
        Declared::Named(name) => name,
        Declared::Full(offer) => &offer.name,
    })
}

/// Returns a string, or the first of a list of strings.
fn kind(value: &Value) -> Option<String> {
    let first = value.as_array().and_then(|all| all.first()).unwrap_or(value);
    first.as_str().map(str::to_owned)
}

/// Ids are used as directory names and config keys, and may be scoped package names.
fn is_id(id: &str) -> bool {
    let is_inner = |c: char| c.is_ascii_alphanumeric() || "-_.@/".contains(c);
    id.len() <= 100 && id.chars().all(is_inner) && id.chars().any(|c| c.is_ascii_alphanumeric()) && !id.contains("..")
}

impl Manifest {
    /// Returns all registrations, if the manifest declares them completely: then the process is started only when
    /// needed.
    pub(crate) fn declared(&self) -> Option<Offers> {
        let rights = self.rights.as_ref()?;
        let mut offers = Offers {
            tools: rights.tools.iter().map(full_tool).collect::<Option<_>>()?,
            hooks: rights.hooks.iter().map(full).collect(),
            commands: rights.commands.iter().map(full).collect(),
            services: rights.services.iter().map(full).collect(),
            gateway_methods: rights.methods.iter().map(full).collect(),
            http_routes: rights.routes.iter().map(full).collect(),
            ..Offers::default()
        };
        if !rights.events.is_empty() {
            offers.internal_hooks =
                vec![crate::offer::ListenerOffer { events: rights.events.clone(), ..Default::default() }];
        }
        for guarded in &self.guard {
            if !offers.hooks.iter().any(|hook| hook.name == *guarded) {
                offers.hooks.push(HookOffer::from(guarded.clone()));
            }
        }
        Some(offers)
    }

    /// Returns the display name.
    pub fn title(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.id)
    }

    /// Returns true for a plugin with its own command (`run`), which OpenClaw's format does not have.
    pub(crate) fn is_ours(&self) -> bool {
        self.run.is_some()
    }
}

fn full<T: Clone + From<String>>(declared: &Declared<T>) -> T {
    match declared {
        Declared::Named(name) => T::from(name.clone()),
        Declared::Full(offer) => offer.clone(),
    }
}

/// A tool needs a schema, without which no model can call it.
fn full_tool(declared: &Declared<ToolOffer>) -> Option<ToolOffer> {
    match declared {
        Declared::Full(offer) if offer.parameters.is_some() => Some(offer.clone()),
        Declared::Full(_) | Declared::Named(_) => None,
    }
}

/// Validates a plugin's config; returns one line per problem.
pub fn config_problems(manifest: &Manifest, config: &Value) -> Vec<String> {
    let empty = Value::Object(Map::new());
    let config = if config.is_null() { &empty } else { config };
    let found = homard_proto::schema::Schema::compile(&manifest.config_schema).check(config);
    found.iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ours(value: &Value) -> Result<Manifest, Wrong> {
        read(OURS, &value.to_string())
    }

    #[test]
    fn an_openclaw_manifest_needs_an_id_and_a_schema() {
        let text = r#"{"id": "probe", "configSchema": {}, "kind": ["memory", "context-engine"], "activation": {"onStartup": true}}"#;
        let manifest = read("openclaw.plugin.json", text).unwrap();
        assert_eq!((manifest.id.as_str(), manifest.kind.as_deref()), ("probe", Some("memory")));
        assert_eq!((manifest.run, manifest.rights), (None, None));
        for (text, wrong) in [
            ("{id: 1}", "is not JSON: key must be a string at line 1 column 2"),
            (r#"{"configSchema": {}}"#, "has no \"id\""),
            (r#"{"id": "a"}"#, "has no \"configSchema\"; write {} if the plugin needs no config"),
            (r#"{"id": "a", "configSchema": []}"#, "has a \"configSchema\" that is not an object"),
            (
                r#"{"id": 5, "configSchema": {}}"#,
                "is no manifest of a plugin: invalid type: integer `5`, expected a string",
            ),
            (
                r#"{"id": "../a", "configSchema": {}}"#,
                "has the id \"../a\"; letters, digits, and -_.@/ between them, at most 100, are allowed",
            ),
        ] {
            assert_eq!(read("openclaw.plugin.json", text).unwrap_err(), wrong);
        }
    }

    #[test]
    fn ours_needs_a_command_and_knows_its_hooks() {
        assert_eq!(
            ours(&json!({"id": "a", "configSchema": {}})).unwrap_err(),
            "has no \"run\": the command that is the plugin, such as [\"python3\", \"plugin.py\"]"
        );
        let with = |rights: Value| json!({"id": "a", "configSchema": {}, "run": ["x"], "rights": rights});
        assert_eq!(
            ours(&with(json!({"hooks": ["before_lunch"]}))).unwrap_err(),
            "names the hook \"before_lunch\", which there is not"
        );
        assert!(ours(&with(json!({"toolz": []}))).unwrap_err().contains("unknown field `toolz`"));
        let huge = json!({"id": "a", "configSchema": {}, "run": ["x"], "memoryMb": 1});
        assert_eq!(ours(&huge).unwrap_err(), "has a \"memoryMb\" of 1; 16 to 16384 is allowed");
    }

    #[test]
    fn what_is_declared_in_full_is_known_before_the_process_runs() {
        let manifest = |tools: Value| {
            let rights = json!({"hooks": ["agent_end", {"name": "llm_input", "priority": 7}], "tools": tools});
            ours(&json!({"id": "a", "configSchema": {}, "run": ["x"], "guard": ["before_tool_call"], "rights": rights}))
                .unwrap()
        };
        assert_eq!(manifest(json!(["add"])).declared(), None);
        let tool = json!({"name": "add", "description": "adds", "parameters": {"type": "object"}});
        let declared = manifest(json!([tool])).declared().unwrap();
        let hooks: Vec<_> = declared.hooks.iter().map(|hook| (hook.name.as_str(), hook.priority)).collect();
        assert_eq!(hooks, [("agent_end", 0), ("llm_input", 7), ("before_tool_call", 0)]);
        assert_eq!(declared.tools[0].parameters, Some(json!({"type": "object"})));
    }

    #[test]
    fn a_config_is_checked_against_the_schema() {
        let schema = json!({"type": "object", "additionalProperties": false, "required": ["key"],
            "properties": {"key": {"type": "string"}}});
        let manifest = ours(&json!({"id": "a", "configSchema": schema, "run": ["x"]})).unwrap();
        assert_eq!(config_problems(&manifest, &json!({"key": "k"})), Vec::<String>::new());
        assert_eq!(config_problems(&manifest, &Value::Null).len(), 1);
        assert_eq!(config_problems(&manifest, &json!({"key": 1, "other": 2})).len(), 2);
    }
}
