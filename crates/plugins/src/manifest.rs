//! Plugin manifests, read before any plugin code runs: `homard.plugin.json`, or OpenClaw's file.

use std::collections::BTreeSet;

use homard_hooks::HookPoint;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::registrations::{
    CommandRegistration, HookRegistration, MethodRegistration, Registrations, RouteRegistration, ServiceRegistration,
    ToolRegistration,
};

/// Homard's own file name.
pub(crate) const OWN_NAME: &str = "homard.plugin.json";

/// Manifest file names in order of precedence. The last two are OpenClaw's former ones.
pub const FILE_NAMES: [&str; 4] = [OWN_NAME, "openclaw.plugin.json", "moltbot.plugin.json", "clawdbot.plugin.json"];

/// Maximum size of a manifest in bytes.
pub(crate) const MAX_MANIFEST_BYTES: u64 = 256 * 1024;

/// Default memory limit of a process in MiB.
const DEFAULT_MEMORY_MB: u64 = 1024;

/// Maximum memory limit in MiB.
const MAX_MEMORY_MB: u64 = 16 * 1024;

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
    pub rights: Option<DeclaredRights>,
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
pub struct DeclaredRights {
    /// Hooks.
    pub hooks: Vec<RightDeclaration<HookRegistration>>,
    /// Tools.
    pub tools: Vec<RightDeclaration<ToolRegistration>>,
    /// Chat commands.
    pub commands: Vec<RightDeclaration<CommandRegistration>>,
    /// Gateway methods.
    pub methods: Vec<RightDeclaration<MethodRegistration>>,
    /// HTTP routes.
    pub routes: Vec<RightDeclaration<RouteRegistration>>,
    /// Background services.
    pub services: Vec<RightDeclaration<ServiceRegistration>>,
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
pub enum RightDeclaration<T> {
    /// By name.
    Named(String),
    /// Complete.
    Full(T),
}

/// The manifest as written, before validation.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawManifest {
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
    rights: Option<DeclaredRights>,
    memory_mb: Option<u64>,
    #[serde(default)]
    skills: Vec<String>,
}

/// What is wrong with a manifest, as the rest of a sentence that begins with its path.
pub(crate) type ManifestError = String;

/// Parses a manifest. `file` is its name, which determines the required fields.
pub(crate) fn read(file: &str, text: &str) -> Result<Manifest, ManifestError> {
    let raw: Value = serde_json::from_str(text).map_err(|error| format!("is not JSON: {error}"))?;
    let read: RawManifest =
        RawManifest::deserialize(&raw).map_err(|error| format!("is not a valid plugin manifest: {error}"))?;
    let id = read.id.map(|id| id.trim().to_owned()).filter(|id| !id.is_empty()).ok_or("has no \"id\"")?;
    if !is_id(&id) {
        return Err(format!("has the invalid id {id:?}; use at most 100 letters and digits, with -_.@/ between them"));
    }
    let config_schema = match read.config_schema {
        Some(schema @ Value::Object(_)) => schema,
        Some(_) => return Err("has a \"configSchema\" that is not an object".to_owned()),
        None => return Err("has no \"configSchema\"; write {} if the plugin needs no config".to_owned()),
    };
    let is_ours = file == OWN_NAME;
    let run = read.run.filter(|_| is_ours);
    if is_ours && run.as_ref().is_none_or(|run| run.first().is_none_or(|program| program.trim().is_empty())) {
        return Err(
            "has no \"run\"; set it to the command that starts the plugin, such as [\"python3\", \"plugin.py\"]"
                .to_owned(),
        );
    }
    let rights = if is_ours { Some(read.rights.unwrap_or_default()) } else { read.rights };
    if let Some(name) =
        read.guard.iter().chain(rights.iter().flat_map(hook_names)).find(|name| HookPoint::named(name).is_none())
    {
        return Err(format!("names the unknown hook {name:?}"));
    }
    let memory_mb = read.memory_mb.unwrap_or(DEFAULT_MEMORY_MB);
    if !(16..=MAX_MEMORY_MB).contains(&memory_mb) {
        return Err(format!("has a \"memoryMb\" of {memory_mb}; 16 to {MAX_MEMORY_MB} is allowed"));
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

/// Returns the names of the hooks that a plugin declares.
fn hook_names(rights: &DeclaredRights) -> impl Iterator<Item = &String> {
    rights.hooks.iter().map(|hook| match hook {
        RightDeclaration::Named(name) => name,
        RightDeclaration::Full(declaration) => &declaration.name,
    })
}

/// Returns the exclusive role in the field `kind` of a manifest: a string, or a list of strings, of which only the
/// first is used.
fn kind(value: &Value) -> Option<String> {
    let first = value.as_array().and_then(|all| all.first()).unwrap_or(value);
    first.as_str().map(str::to_owned)
}

/// True if a text is a valid plugin id. Ids are used as directory names and config keys, and may be scoped package
/// names.
fn is_id(id: &str) -> bool {
    let is_inner = |c: char| c.is_ascii_alphanumeric() || "-_.@/".contains(c);
    id.len() <= 100 && id.chars().all(is_inner) && id.chars().any(|c| c.is_ascii_alphanumeric()) && !id.contains("..")
}

impl Manifest {
    /// Returns all registrations, if the manifest declares them completely: then the process is started only when
    /// needed.
    pub(crate) fn declared(&self) -> Option<Registrations> {
        let rights = self.rights.as_ref()?;
        let mut registrations = Registrations {
            tools: rights.tools.iter().map(full_tool).collect::<Option<_>>()?,
            hooks: rights.hooks.iter().map(full_declaration).collect(),
            commands: rights.commands.iter().map(full_declaration).collect(),
            services: rights.services.iter().map(full_declaration).collect(),
            gateway_methods: rights.methods.iter().map(full_declaration).collect(),
            http_routes: rights.routes.iter().map(full_declaration).collect(),
            ..Registrations::default()
        };
        if !rights.events.is_empty() {
            registrations.internal_hooks = vec![crate::registrations::ListenerRegistration {
                events: rights.events.clone(),
                ..Default::default()
            }];
        }
        for guarded in &self.guard {
            if !registrations.hooks.iter().any(|hook| hook.name == *guarded) {
                registrations.hooks.push(HookRegistration::from(guarded.clone()));
            }
        }
        Some(registrations)
    }

    /// Returns the display name.
    pub fn title(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.id)
    }

    /// Returns true for a plugin with its own command (`run`), which OpenClaw's format does not have.
    pub(crate) fn has_command(&self) -> bool {
        self.run.is_some()
    }
}

/// Returns a declaration in its complete form; all fields but the name have default values if it is by name only.
fn full_declaration<T: Clone + From<String>>(declared: &RightDeclaration<T>) -> T {
    match declared {
        RightDeclaration::Named(name) => T::from(name.clone()),
        RightDeclaration::Full(declaration) => declaration.clone(),
    }
}

/// Returns the complete declaration of a tool; `None` if it has no schema, without which no model can call it.
fn full_tool(declared: &RightDeclaration<ToolRegistration>) -> Option<ToolRegistration> {
    match declared {
        RightDeclaration::Full(declaration) if declaration.parameters.is_some() => Some(declaration.clone()),
        RightDeclaration::Full(_) | RightDeclaration::Named(_) => None,
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

    fn ours(value: &Value) -> Result<Manifest, ManifestError> {
        read(OWN_NAME, &value.to_string())
    }

    #[test]
    fn an_openclaw_manifest_needs_an_id_and_a_schema() {
        let text = r#"{"id": "probe", "configSchema": {}, "kind": ["memory", "context-engine"], "activation": {"onStartup": true}}"#;
        let manifest = read("openclaw.plugin.json", text).unwrap();
        assert_eq!((manifest.id.as_str(), manifest.kind.as_deref()), ("probe", Some("memory")));
        assert_eq!((manifest.run, manifest.rights), (None, None));
        for (text, expected) in [
            ("{id: 1}", "is not JSON: key must be a string at line 1 column 2"),
            (r#"{"configSchema": {}}"#, "has no \"id\""),
            (r#"{"id": "a"}"#, "has no \"configSchema\"; write {} if the plugin needs no config"),
            (r#"{"id": "a", "configSchema": []}"#, "has a \"configSchema\" that is not an object"),
            (
                r#"{"id": 5, "configSchema": {}}"#,
                "is not a valid plugin manifest: invalid type: integer `5`, expected a string",
            ),
            (
                r#"{"id": "../a", "configSchema": {}}"#,
                "has the invalid id \"../a\"; use at most 100 letters and digits, with -_.@/ between them",
            ),
        ] {
            assert_eq!(read("openclaw.plugin.json", text).unwrap_err(), expected);
        }
    }

    #[test]
    fn a_homard_manifest_needs_a_command_and_known_hooks() {
        assert_eq!(
            ours(&json!({"id": "a", "configSchema": {}})).unwrap_err(),
            "has no \"run\"; set it to the command that starts the plugin, such as [\"python3\", \"plugin.py\"]"
        );
        let manifest_with = |rights: Value| json!({"id": "a", "configSchema": {}, "run": ["x"], "rights": rights});
        assert_eq!(
            ours(&manifest_with(json!({"hooks": ["before_lunch"]}))).unwrap_err(),
            "names the unknown hook \"before_lunch\""
        );
        assert!(ours(&manifest_with(json!({"toolz": []}))).unwrap_err().contains("unknown field `toolz`"));
        let huge = json!({"id": "a", "configSchema": {}, "run": ["x"], "memoryMb": 1});
        assert_eq!(ours(&huge).unwrap_err(), "has a \"memoryMb\" of 1; 16 to 16384 is allowed");
    }

    #[test]
    fn full_declarations_are_known_before_the_process_runs() {
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
