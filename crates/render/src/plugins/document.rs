//! A plugin as JSON, and what its manifest declares.

use homard_plugins::{DiscoveredPlugin, Manifest, PluginOrigin, PluginStatus, RightDeclaration};
use serde_json::{Map, Value, json};

/// Returns a plugin as JSON.
pub fn document(candidate: &DiscoveredPlugin, status: &PluginStatus) -> Value {
    let manifest = &candidate.manifest;
    let state = match (status.verdict.is_enabled, &status.error) {
        (false, _) => "disabled",
        (true, None) => "enabled",
        (true, Some(_)) => "error",
    };
    let registered = status.registered.as_ref().filter(|_| status.verdict.is_enabled);
    json!({
        "id": status.id, "name": status.title, "version": status.version, "description": status.description,
        "kind": manifest.kind, "origin": origin(status.origin), "rootDir": status.root, "source": candidate.entry,
        "run": manifest.run, "enabled": status.verdict.is_enabled, "status": state, "reason": status.verdict.why,
        "error": status.error, "declares": declares(manifest), "registered": registered, "denied": status.denied,
        "configSchema": manifest.config_schema,
    })
}

/// Returns OpenClaw's name for the location of a plugin.
fn origin(origin: PluginOrigin) -> &'static str {
    match origin {
        PluginOrigin::Config => "config",
        PluginOrigin::Workspace => "workspace",
        PluginOrigin::State => "global",
    }
}

/// Returns what a manifest declares as JSON; null if it has no declarations.
pub fn declares(manifest: &Manifest) -> Value {
    if manifest.rights.is_none() {
        return Value::Null;
    }
    let all = declared(manifest).into_iter();
    Value::Object(all.map(|(kind, names)| (kind.to_owned(), json!(names))).collect::<Map<_, _>>())
}

/// Returns what a manifest declares: each kind with its names. Anything else is denied.
pub(super) fn declared(manifest: &Manifest) -> Vec<(&'static str, Vec<String>)> {
    let rights = manifest.rights.clone().unwrap_or_default();
    let all = vec![
        ("hooks", names(&rights.hooks, |right| &right.name)),
        ("guard", manifest.guard.iter().cloned().collect()),
        ("tools", names(&rights.tools, |right| &right.name)),
        ("commands", names(&rights.commands, |right| &right.name)),
        ("methods", names(&rights.methods, |right| &right.name)),
        ("routes", names(&rights.routes, |right| &right.path)),
        ("services", names(&rights.services, |right| &right.id)),
        ("events", rights.events),
        ("env", rights.env),
        ("host", rights.host),
        ("skills", manifest.skills.clone()),
    ];
    all.into_iter().filter(|(_, names)| !names.is_empty()).collect()
}

fn names<T>(all: &[RightDeclaration<T>], name: impl Fn(&T) -> &String) -> Vec<String> {
    let named = |declared: &RightDeclaration<T>| match declared {
        RightDeclaration::Named(name) => name.clone(),
        RightDeclaration::Full(right) => name(right).clone(),
    };
    all.iter().map(named).collect()
}
