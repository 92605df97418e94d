//! Registrations of a plugin, as transmitted.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// All registrations of a plugin.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Registrations {
    /// Tools.
    pub tools: Vec<ToolRegistration>,
    /// Hooks.
    pub hooks: Vec<HookRegistration>,
    /// Listeners for the events of internal hooks, such as `command:new`.
    pub internal_hooks: Vec<ListenerRegistration>,
    /// Chat commands.
    pub commands: Vec<CommandRegistration>,
    /// Background services.
    pub services: Vec<ServiceRegistration>,
    /// Gateway methods.
    pub gateway_methods: Vec<MethodRegistration>,
    /// HTTP routes.
    pub http_routes: Vec<RouteRegistration>,
    /// Registrations that are not supported here.
    pub unsupported: Vec<String>,
}

/// A tool.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ToolRegistration {
    /// Identifies the tool in calls to the plugin process, which chooses it; defaults to the name.
    #[serde(rename = "ref", skip_serializing_if = "Value::is_null")]
    pub handle: Value,
    /// Its name.
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    /// Names of all tools, if the registration is for several.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "nullable")]
    pub names: Vec<String>,
    /// True if an agent gets it only if the owner allows it by name.
    #[serde(deserialize_with = "nullable")]
    pub optional: bool,
    /// True if the plugin creates the tool anew for each run.
    #[serde(deserialize_with = "nullable")]
    pub is_factory: bool,
    /// Description for the model.
    #[serde(deserialize_with = "nullable")]
    pub description: String,
    /// JSON Schema of its arguments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parameters: Option<Value>,
    /// Label for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
}

/// A hook.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HookRegistration {
    /// Identifies the hook in calls to the plugin process, which chooses it; defaults to the name.
    #[serde(rename = "ref", skip_serializing_if = "Value::is_null")]
    pub handle: Value,
    /// The hook point.
    pub name: String,
    /// Hooks with a higher priority are called first.
    #[serde(deserialize_with = "number")]
    pub priority: i32,
    /// Deadline in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// True for a guard: if it fails, the operation is blocked.
    #[serde(deserialize_with = "nullable")]
    pub guard: bool,
}

/// A listener for the events of internal hooks.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ListenerRegistration {
    /// Identifies the listener in calls to the plugin process, which chooses it; defaults to the name.
    #[serde(rename = "ref", skip_serializing_if = "Value::is_null")]
    pub handle: Value,
    /// Events it subscribes to.
    pub events: Vec<String>,
    /// Its name.
    #[serde(deserialize_with = "nullable")]
    pub name: String,
}

/// A chat command.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CommandRegistration {
    /// Identifies the command in calls to the plugin process, which chooses it; defaults to the name.
    #[serde(rename = "ref", skip_serializing_if = "Value::is_null")]
    pub handle: Value,
    /// Its name, without the slash.
    pub name: String,
    /// Its description.
    #[serde(deserialize_with = "nullable")]
    pub description: String,
    /// True if it accepts arguments.
    #[serde(deserialize_with = "nullable")]
    pub accepts_args: bool,
    /// True if only authorised senders may use it. Without effect: only the owner's messages are parsed as commands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub require_auth: Option<bool>,
}

/// A background service.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceRegistration {
    /// Identifies the service in calls to the plugin process, which chooses it; defaults to the id.
    #[serde(rename = "ref", skip_serializing_if = "Value::is_null")]
    pub handle: Value,
    /// Its id.
    pub id: String,
}

/// A gateway method.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MethodRegistration {
    /// Identifies the method in calls to the plugin process, which chooses it; defaults to the name.
    #[serde(rename = "ref", skip_serializing_if = "Value::is_null")]
    pub handle: Value,
    /// Its name.
    pub name: String,
    /// Scope that a client needs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
}

/// An HTTP route.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RouteRegistration {
    /// Identifies the route in calls to the plugin process, which chooses it; defaults to the path.
    #[serde(rename = "ref", skip_serializing_if = "Value::is_null")]
    pub handle: Value,
    /// The path.
    #[serde(deserialize_with = "nullable")]
    pub path: String,
    /// Authentication: `gateway` requires the gateway's token, `plugin` leaves it to the plugin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth: Option<String>,
    /// How the path is matched: `exact`, `prefix`, or `any` for a route that gets all requests no other route handles.
    #[serde(rename = "match", skip_serializing_if = "Option::is_none")]
    pub matches: Option<String>,
}

/// Deserializes a value that may be null, which JavaScript plugins send for missing values: null gives the default.
fn nullable<'de, D: serde::Deserializer<'de>, T: Default + Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// Deserializes an integer from a floating-point number, the only kind of number that JavaScript has.
fn number<'de, D: serde::Deserializer<'de>>(from: D) -> Result<i32, D::Error> {
    // The conversion saturates, which is right for a priority.
    Ok(Option::<f64>::deserialize(from)?.unwrap_or_default() as i32)
}

macro_rules! from_name {
    ($($registration:ident $field:ident),*) => {$(
        impl From<String> for $registration {
            fn from($field: String) -> Self {
                Self { $field, ..Self::default() }
            }
        }
    )*};
}
from_name!(ToolRegistration name, HookRegistration name, CommandRegistration name, ServiceRegistration id, MethodRegistration name, RouteRegistration path);

/// Kind of a registration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum RegistrationKind {
    Tool,
    Hook,
    Listener,
    Command,
    Service,
    Method,
    Route,
}

impl RegistrationKind {
    /// Returns its display name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Tool => "tool",
            Self::Hook => "hook",
            Self::Listener => "listener",
            Self::Command => "command",
            Self::Service => "service",
            Self::Method => "method",
            Self::Route => "route",
        }
    }
}

impl Registrations {
    /// Returns kind, name and handle of every registration. The handle identifies it in calls to the process.
    pub(crate) fn handles(&self) -> impl Iterator<Item = (RegistrationKind, &str, &Value)> {
        let tools = self
            .tools
            .iter()
            .map(|registration| (RegistrationKind::Tool, tool_key(registration), &registration.handle));
        let hooks = self
            .hooks
            .iter()
            .map(|registration| (RegistrationKind::Hook, registration.name.as_str(), &registration.handle));
        let listeners = self
            .internal_hooks
            .iter()
            .map(|registration| (RegistrationKind::Listener, registration.name.as_str(), &registration.handle));
        let commands = self
            .commands
            .iter()
            .map(|registration| (RegistrationKind::Command, registration.name.as_str(), &registration.handle));
        let services = self
            .services
            .iter()
            .map(|registration| (RegistrationKind::Service, registration.id.as_str(), &registration.handle));
        let methods = self
            .gateway_methods
            .iter()
            .map(|registration| (RegistrationKind::Method, registration.name.as_str(), &registration.handle));
        let routes = self
            .http_routes
            .iter()
            .map(|registration| (RegistrationKind::Route, registration.path.as_str(), &registration.handle));
        tools.chain(hooks).chain(listeners).chain(commands).chain(services).chain(methods).chain(routes)
    }

    /// Serialises the registrations without handles, for comparison.
    pub(crate) fn without_handles(&self) -> Value {
        let mut bare = serde_json::to_value(self).unwrap_or_default();
        let lists = bare.as_object_mut().into_iter().flat_map(|lists| lists.values_mut());
        for registration in lists.filter_map(Value::as_array_mut).flatten().filter_map(Value::as_object_mut) {
            registration.remove("ref");
        }
        bare
    }
}

/// Returns the name that identifies a tool.
pub(crate) fn tool_key(registration: &ToolRegistration) -> &str {
    if registration.name.is_empty() {
        registration.names.first().map_or("", String::as_str)
    } else {
        &registration.name
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn comparison_ignores_the_handles_of_a_process() {
        let registrations = |handle: u8| -> Registrations {
            let hook = json!({"ref": handle, "name": "agent_end", "priority": 2.5, "guard": null});
            serde_json::from_value(json!({"hooks": [hook]})).unwrap()
        };
        assert_ne!(registrations(1), registrations(2));
        assert_eq!(registrations(1).without_handles(), registrations(2).without_handles());
        assert_eq!(registrations(1).hooks[0].priority, 2);
    }
}
