//! `plugins.list`: the plugins and their state.

use homard_gateway::{Method, MethodRequest, Scope};
use homard_plugins::{PluginOrigin, PluginStatus};
use homard_proto::{ErrorShape, method::queries::NothingParams};
use serde_json::{Value, json};

use crate::assemble::plugins::PluginSet;

/// Returns the method.
pub(crate) fn method(guests: &PluginSet) -> Method {
    let guests = guests.clone();
    Method::new("plugins.list", Scope::Read, move |asked| list(asked, guests.clone()))
}

async fn list(mut asked: MethodRequest, guests: PluginSet) -> Result<Value, ErrorShape> {
    let NothingParams {} = asked.params()?;
    let plugins: Vec<Value> = guests.status().iter().map(row).collect();
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
    let more = [("version", &status.version), ("description", &status.description), ("error", &status.error)];
    for (name, value) in more {
        if let Some(value) = value {
            row[name] = value.as_str().into();
        }
    }
    row
}
