//! The sections of the config, one per file.

pub mod agents;
pub mod audit;
pub mod auth;
pub mod bindings;
pub mod budgets;
pub mod channels;
pub mod commands;
pub mod compaction;
pub mod gateway;
pub mod hooks;
pub mod internal_hooks;
pub mod logging;
pub mod mcp;
pub mod memory;
pub mod messages;
pub mod models;
mod number;
pub mod plugins;
pub mod pruning;
pub mod replies;
pub mod sandbox;
pub mod schedule;
pub mod session;
pub mod skills;
pub mod tools;
pub mod typing;
pub mod word;

use std::{collections::BTreeMap, fmt, marker::PhantomData};

use schemars::JsonSchema;
use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor, value::MapAccessDeserializer},
};

/// The config file.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Config {
    /// Files that it was read from.
    #[serde(skip)]
    pub files: Vec<std::path::PathBuf>,
    /// The agents and their default settings.
    #[serde(deserialize_with = "object")]
    pub agents: agents::Agents,
    /// Settings of the audit log.
    #[serde(deserialize_with = "object")]
    pub audit: audit::Audit,
    /// Order in which credentials are used.
    #[serde(deserialize_with = "object")]
    pub auth: auth::Auth,
    /// Bindings: which agent receives which messages. The most specific match applies; of equally specific ones, the first.
    #[serde(deserialize_with = "objects")]
    pub bindings: Vec<bindings::Binding>,
    /// Limits of token usage and cost.
    #[serde(deserialize_with = "object")]
    pub budgets: budgets::Budgets,
    /// Chat platforms, by name.
    #[serde(deserialize_with = "named_objects")]
    pub channels: BTreeMap<String, channels::Channel>,
    /// Owners on chat platforms.
    #[serde(deserialize_with = "object")]
    pub commands: commands::Commands,
    /// Scheduled jobs.
    #[serde(deserialize_with = "object")]
    pub cron: schedule::Cron,
    /// Values for `${NAME}` in this file and for skills, where the environment does not set them: `{vars: {NAME: "value"}}`, or `{NAME: "value"}`.
    #[allow(dead_code, reason = "used while the file is read")]
    env: BTreeMap<String, serde_json::Value>,
    /// Network address, authentication and HTTP endpoints of the gateway.
    #[serde(deserialize_with = "object")]
    pub gateway: gateway::Gateway,
    /// Webhooks and internal hooks.
    #[serde(deserialize_with = "object")]
    pub hooks: hooks::Hooks,
    /// Log level, files and redaction.
    #[serde(deserialize_with = "object")]
    pub logging: logging::Logging,
    /// Tools of external servers, through the Model Context Protocol.
    #[serde(deserialize_with = "object")]
    pub mcp: mcp::Mcp,
    /// Memory of agents.
    #[serde(deserialize_with = "object")]
    pub memory: memory::Memory,
    /// Handling of incoming and outgoing messages.
    #[serde(deserialize_with = "object")]
    pub messages: messages::Messages,
    /// Metadata of the last write to this file.
    #[allow(dead_code, reason = "read by people and by OpenClaw")]
    meta: BTreeMap<String, serde_json::Value>,
    /// Model providers and their models.
    #[serde(deserialize_with = "object")]
    pub models: models::Models,
    /// Plugins and their settings.
    #[serde(deserialize_with = "object")]
    pub plugins: plugins::Plugins,
    /// Session routing and automatic resets.
    #[serde(deserialize_with = "object")]
    pub session: session::Session,
    /// Skills and their settings.
    #[serde(deserialize_with = "object")]
    pub skills: skills::Skills,
    /// Tool policies and settings of tools.
    #[serde(deserialize_with = "object")]
    pub tools: tools::Tools,
    /// Retention of runs for `homard trace`.
    #[serde(deserialize_with = "object")]
    pub trace: budgets::Trace,
    /// Notes of OpenClaw's setup wizard.
    #[allow(dead_code, reason = "read by people and by OpenClaw")]
    wizard: BTreeMap<String, serde_json::Value>,
}

/// Accepts objects only: by default serde also reads a list as the fields in order.
#[derive(Debug)]
pub(crate) struct Object<T>(pub(crate) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Fields<T> {
            type Value = T;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map))
            }
        }

        deserializer.deserialize_map(Fields(PhantomData)).map(Self)
    }
}

fn object<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<T, D::Error> {
    Object::deserialize(deserializer).map(|object| object.0)
}

fn maybe_object<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    let object = Option::<Object<T>>::deserialize(deserializer)?;
    Ok(object.map(|object| object.0))
}

fn objects<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    let objects = Vec::<Object<T>>::deserialize(deserializer)?;
    Ok(objects.into_iter().map(|object| object.0).collect())
}

fn named_objects<'de, D, T>(deserializer: D) -> Result<BTreeMap<String, T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    let objects = BTreeMap::<String, Object<T>>::deserialize(deserializer)?;
    Ok(objects.into_iter().map(|(name, object)| (name, object.0)).collect())
}
