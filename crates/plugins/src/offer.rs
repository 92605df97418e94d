//! What a plugin registers, as the wire has it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What a plugin registers.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Offers {
    /// What agents can do with it.
    pub tools: Vec<ToolOffer>,
    /// Where it takes part in the loop.
    pub hooks: Vec<HookOffer>,
    /// What it listens to.
    pub internal_hooks: Vec<ListenerOffer>,
    /// Its slash commands.
    pub commands: Vec<CommandOffer>,
    /// What runs in the background.
    pub services: Vec<ServiceOffer>,
    /// What clients of the gateway can ask.
    pub gateway_methods: Vec<MethodOffer>,
    /// What it answers over HTTP.
    pub http_routes: Vec<RouteOffer>,
    /// What it wanted to be and cannot here.
    pub unsupported: Vec<String>,
}

/// A tool.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ToolOffer {
    /// What the process calls it; its name if it does not say.
    #[serde(rename = "ref", skip_serializing_if = "Value::is_null")]
    pub reference: Value,
    /// Its name.
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    /// The names of all, if it is several.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "nullable")]
    pub names: Vec<String>,
    /// Whether an agent has it only if the owner allows it by name.
    #[serde(deserialize_with = "nullable")]
    pub optional: bool,
    /// Whether it is made anew for each run.
    #[serde(deserialize_with = "nullable")]
    pub is_factory: bool,
    /// What the model is told of it.
    #[serde(deserialize_with = "nullable")]
    pub description: String,
    /// What it takes: a JSON Schema.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parameters: Option<Value>,
    /// What people are told of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
}

/// A part in the loop.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HookOffer {
    /// What the process calls it; its name if it does not say.
    #[serde(rename = "ref", skip_serializing_if = "Value::is_null")]
    pub reference: Value,
    /// The point.
    pub name: String,
    /// Those with more are asked first.
    #[serde(deserialize_with = "number")]
    pub priority: i32,
    /// How long it may take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// Whether nothing may happen there if it cannot answer.
    #[serde(deserialize_with = "nullable")]
    pub guard: bool,
}

/// A listener.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ListenerOffer {
    /// What the process calls it; its name if it does not say.
    #[serde(rename = "ref", skip_serializing_if = "Value::is_null")]
    pub reference: Value,
    /// What it listens to.
    pub events: Vec<String>,
    /// Its name.
    #[serde(deserialize_with = "nullable")]
    pub name: String,
}

/// A slash command.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CommandOffer {
    /// What the process calls it; its name if it does not say.
    #[serde(rename = "ref", skip_serializing_if = "Value::is_null")]
    pub reference: Value,
    /// Its name, without the slash.
    pub name: String,
    /// What it does.
    #[serde(deserialize_with = "nullable")]
    pub description: String,
    /// Whether words may follow it.
    #[serde(deserialize_with = "nullable")]
    pub accepts_args: bool,
    /// Whether only those may use it who may give orders; so if it does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub require_auth: Option<bool>,
}

/// A background service.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceOffer {
    /// What the process calls it; its id if it does not say.
    #[serde(rename = "ref", skip_serializing_if = "Value::is_null")]
    pub reference: Value,
    /// Its id.
    pub id: String,
}

/// A gateway method.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MethodOffer {
    /// What the process calls it; its name if it does not say.
    #[serde(rename = "ref", skip_serializing_if = "Value::is_null")]
    pub reference: Value,
    /// Its name.
    pub name: String,
    /// What a client must be allowed to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
}

/// An HTTP route.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RouteOffer {
    /// What the process calls it; its path if it does not say.
    #[serde(rename = "ref", skip_serializing_if = "Value::is_null")]
    pub reference: Value,
    /// The path.
    #[serde(deserialize_with = "nullable")]
    pub path: String,
    /// Who may come: `gateway` for those with the gateway's token, `plugin` if it checks itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth: Option<String>,
    /// `exact`, `prefix`, or `any` for one that looks at whatever nobody else answers.
    #[serde(rename = "match", skip_serializing_if = "Option::is_none")]
    pub matches: Option<String>,
}

/// JavaScript says null where it means nothing.
fn nullable<'de, D: serde::Deserializer<'de>, T: Default + Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// It also knows one kind of number only.
fn number<'de, D: serde::Deserializer<'de>>(from: D) -> Result<i32, D::Error> {
    // Out of bounds becomes the bound, which is right for a priority.
    Ok(Option::<f64>::deserialize(from)?.unwrap_or_default() as i32)
}

macro_rules! from_name {
    ($($offer:ident $field:ident),*) => {$(
        impl From<String> for $offer {
            fn from($field: String) -> Self {
                Self { $field, ..Self::default() }
            }
        }
    )*};
}
from_name!(ToolOffer name, HookOffer name, CommandOffer name, ServiceOffer id, MethodOffer name, RouteOffer path);

/// What a registration is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Kind {
    Tool,
    Hook,
    Listener,
    Command,
    Service,
    Method,
    Route,
}

impl Kind {
    /// Its name for people.
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

impl Offers {
    /// Everything by what it is, what it is called and its number among those of the same name, with what the process
    /// calls it.
    pub(crate) fn references(&self) -> impl Iterator<Item = (Kind, &str, &Value)> {
        let tools = self.tools.iter().map(|offer| (Kind::Tool, tool_key(offer), &offer.reference));
        let hooks = self.hooks.iter().map(|offer| (Kind::Hook, offer.name.as_str(), &offer.reference));
        let listeners = self.internal_hooks.iter().map(|offer| (Kind::Listener, offer.name.as_str(), &offer.reference));
        let commands = self.commands.iter().map(|offer| (Kind::Command, offer.name.as_str(), &offer.reference));
        let services = self.services.iter().map(|offer| (Kind::Service, offer.id.as_str(), &offer.reference));
        let methods = self.gateway_methods.iter().map(|offer| (Kind::Method, offer.name.as_str(), &offer.reference));
        let routes = self.http_routes.iter().map(|offer| (Kind::Route, offer.path.as_str(), &offer.reference));
        tools.chain(hooks).chain(listeners).chain(commands).chain(services).chain(methods).chain(routes)
    }

    /// The same without what the process calls things, to compare.
    pub(crate) fn bare(&self) -> Value {
        let mut bare = serde_json::to_value(self).unwrap_or_default();
        let lists = bare.as_object_mut().into_iter().flat_map(|lists| lists.values_mut());
        for offer in lists.filter_map(Value::as_array_mut).flatten().filter_map(Value::as_object_mut) {
            offer.remove("ref");
        }
        bare
    }
}

/// What a tool is known by.
pub(crate) fn tool_key(offer: &ToolOffer) -> &str {
    if offer.name.is_empty() { offer.names.first().map_or("", String::as_str) } else { &offer.name }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn to_compare_it_does_not_matter_what_a_process_calls_things() {
        let offers = |reference: u8| -> Offers {
            let hook = json!({"ref": reference, "name": "agent_end", "priority": 2.5, "guard": null});
            serde_json::from_value(json!({"hooks": [hook]})).unwrap()
        };
        assert_ne!(offers(1), offers(2));
        assert_eq!(offers(1).bare(), offers(2).bare());
        assert_eq!(offers(1).hooks[0].priority, 2);
    }
}
