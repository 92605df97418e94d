//! The sections of the config, one per file.

pub(crate) mod agents;
pub(crate) mod audit;
pub(crate) mod auth;
pub(crate) mod bindings;
pub(crate) mod budgets;
pub(crate) mod channels;
pub(crate) mod commands;
pub(crate) mod compaction;
pub(crate) mod gateway;
pub(crate) mod hooks;
pub(crate) mod internal_hooks;
pub(crate) mod logging;
pub(crate) mod mcp;
pub(crate) mod memory;
pub(crate) mod messages;
pub(crate) mod models;
mod number;
pub(crate) mod plugins;
pub(crate) mod pruning;
pub(crate) mod replies;
pub(crate) mod sandbox;
pub(crate) mod schedule;
pub(crate) mod session;
pub(crate) mod skills;
pub(crate) mod tools;
pub(crate) mod typing;
pub(crate) mod word;

use std::{collections::BTreeMap, fmt, marker::PhantomData};

use schemars::JsonSchema;
use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor, value::MapAccessDeserializer},
};

/// The config file.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Config {
    /// Files that it was read from.
    #[serde(skip)]
    pub(crate) files: Vec<std::path::PathBuf>,
    /// The agents and their default settings.
    #[serde(deserialize_with = "object")]
    pub(crate) agents: agents::Agents,
    /// Settings of the audit log.
    #[serde(deserialize_with = "object")]
    pub(crate) audit: audit::Audit,
    /// Order in which credentials are used.
    #[serde(deserialize_with = "object")]
    pub(crate) auth: auth::Auth,
    /// Bindings: which agent receives which messages. The most specific match applies; of equally specific ones, the first.
    #[serde(deserialize_with = "objects")]
    pub(crate) bindings: Vec<bindings::Binding>,
    /// Limits of token usage and cost.
    #[serde(deserialize_with = "object")]
    pub(crate) budgets: budgets::Budgets,
    /// Chat platforms, by name.
    #[serde(deserialize_with = "named_objects")]
    pub(crate) channels: BTreeMap<String, channels::Channel>,
    /// Owners on chat platforms.
    #[serde(deserialize_with = "object")]
    pub(crate) commands: commands::Commands,
    /// Scheduled jobs.
    #[serde(deserialize_with = "object")]
    pub(crate) cron: schedule::Cron,
    /// Values for `${NAME}` in this file and for skills, where the environment does not set them: `{vars: {NAME: "value"}}`, or `{NAME: "value"}`.
    #[allow(dead_code, reason = "used while the file is read")]
    env: BTreeMap<String, serde_json::Value>,
    /// Network address, authentication and HTTP endpoints of the gateway.
    #[serde(deserialize_with = "object")]
    pub(crate) gateway: gateway::Gateway,
    /// Webhooks and internal hooks.
    #[serde(deserialize_with = "object")]
    pub(crate) hooks: hooks::Hooks,
    /// Log level, files and redaction.
    #[serde(deserialize_with = "object")]
    pub(crate) logging: logging::Logging,
    /// Tools of external servers, through the Model Context Protocol.
    #[serde(deserialize_with = "object")]
    pub(crate) mcp: mcp::Mcp,
    /// Memory of agents.
    #[serde(deserialize_with = "object")]
    pub(crate) memory: memory::Memory,
    /// Handling of incoming and outgoing messages.
    #[serde(deserialize_with = "object")]
    pub(crate) messages: messages::Messages,
    /// Metadata of the last write to this file.
    #[allow(dead_code, reason = "read by people and by OpenClaw")]
    meta: BTreeMap<String, serde_json::Value>,
    /// Model providers and their models.
    #[serde(deserialize_with = "object")]
    pub(crate) models: models::Models,
    /// Plugins and their settings.
    #[serde(deserialize_with = "object")]
    pub(crate) plugins: plugins::Plugins,
    /// Session routing and automatic resets.
    #[serde(deserialize_with = "object")]
    pub(crate) session: session::Session,
    /// Skills and their settings.
    #[serde(deserialize_with = "object")]
    pub(crate) skills: skills::Skills,
    /// Tool policies and settings of tools.
    #[serde(deserialize_with = "object")]
    pub(crate) tools: tools::Tools,
    /// Retention of runs for `homard trace`.
    #[serde(deserialize_with = "object")]
    pub(crate) trace: budgets::Trace,
    /// Notes of OpenClaw's setup wizard.
    #[allow(dead_code, reason = "read by people and by OpenClaw")]
    wizard: BTreeMap<String, serde_json::Value>,
}

/// Accepts objects only: by default serde also reads a list as the fields in order.
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
