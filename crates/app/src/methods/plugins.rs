//! `plugins.list`: the plugins and their state.

use homard_gateway::{Method, MethodRequest, Scope};
use homard_plugins::{PluginOrigin, PluginStatus};
use homard_proto::{ErrorShape, method::queries::NothingParams};
use serde_json::{Value, json};

use crate::plugins::PluginSet;

/// Returns the method.
pub fn method(plugins: &PluginSet) -> Method {
    let plugins = plugins.clone();
    Method::new("plugins.list", Scope::Read, move |request| list(request, plugins.clone()))
}

async fn list(mut request: MethodRequest, plugin_set: PluginSet) -> Result<Value, ErrorShape> {
    let NothingParams {} = request.params()?;
    let plugins: Vec<Value> = plugin_set.status().iter().map(row).collect();
    // Plugins are enabled in the config and installed with `homard plugins`.
    Ok(json!({"plugins": plugins, "diagnostics": [], "mutationAllowed": false}))
}

fn row(status: &PluginStatus) -> Value {
    let state = match (status.verdict.is_enabled, &status.error) {
        (false, _) => "disabled",
        (true, None) => "enabled",
        (true, Some(_)) => "error",
    };
    let origin = match status.origin {
        PluginOrigin::Config => "config",
        PluginOrigin::Workspace => "workspace",
        PluginOrigin::State => "global",
    };
    let mut row = json!({
        "id": status.id, "name": status.title, "origin": origin, "installed": true, "enabled": status.verdict.is_enabled,
        "state": state, "removable": false,
    });
    let optional = [("version", &status.version), ("description", &status.description), ("error", &status.error)];
    for (name, value) in optional {
        if let Some(value) = value {
            row[name] = value.as_str().into();
        }
    }
    row
}
