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

/// The whole file.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Config {
    /// The files that it was read from.
    #[serde(skip)]
    pub(crate) files: Vec<std::path::PathBuf>,
    /// Who answers.
    #[serde(deserialize_with = "object")]
    pub(crate) agents: agents::Agents,
    /// Where the state of the audit log is copied to.
    #[serde(deserialize_with = "object")]
    pub(crate) audit: audit::Audit,
    /// In which order credentials are used.
    #[serde(deserialize_with = "object")]
    pub(crate) auth: auth::Auth,
    /// Which agent answers whom; the first that fits best.
    #[serde(deserialize_with = "objects")]
    pub(crate) bindings: Vec<bindings::Binding>,
    /// What models may take.
    #[serde(deserialize_with = "object")]
    pub(crate) budgets: budgets::Budgets,
    /// The chats that agents take part in, by name.
    #[serde(deserialize_with = "named_objects")]
    pub(crate) channels: BTreeMap<String, channels::Channel>,
    /// Who may give commands on chat platforms.
    #[serde(deserialize_with = "object")]
    pub(crate) commands: commands::Commands,
    /// Jobs at set times.
    #[serde(deserialize_with = "object")]
    pub(crate) cron: schedule::Cron,
    /// Variables for `${NAME}` in this file and for skills, where the environment does not have them: `{vars: {NAME: "value"}}`, or the names themselves.
    #[allow(dead_code, reason = "used while the file is read")]
    env: BTreeMap<String, serde_json::Value>,
    /// Where the gateway listens, and for whom.
    #[serde(deserialize_with = "object")]
    pub(crate) gateway: gateway::Gateway,
    /// What other programs may send to agents, and what runs beside them.
    #[serde(deserialize_with = "object")]
    pub(crate) hooks: hooks::Hooks,
    /// What is written about the work, and where.
    #[serde(deserialize_with = "object")]
    pub(crate) logging: logging::Logging,
    /// Tools of other programs, through the Model Context Protocol.
    #[serde(deserialize_with = "object")]
    pub(crate) mcp: mcp::Mcp,
    /// What agents have written down.
    #[serde(deserialize_with = "object")]
    pub(crate) memory: memory::Memory,
    /// What becomes of messages.
    #[serde(deserialize_with = "object")]
    pub(crate) messages: messages::Messages,
    /// Who wrote this file last.
    #[allow(dead_code, reason = "read by people and by OpenClaw")]
    meta: BTreeMap<String, serde_json::Value>,
    /// Providers and what they offer.
    #[serde(deserialize_with = "object")]
    pub(crate) models: models::Models,
    /// Programs of others that take part in what agents do.
    #[serde(deserialize_with = "object")]
    pub(crate) plugins: plugins::Plugins,
    /// Which conversation a message belongs to, and when one begins anew.
    #[serde(deserialize_with = "object")]
    pub(crate) session: session::Session,
    /// What agents can read how to do.
    #[serde(deserialize_with = "object")]
    pub(crate) skills: skills::Skills,
    /// What agents may do.
    #[serde(deserialize_with = "object")]
    pub(crate) tools: tools::Tools,
    /// What is remembered of runs.
    #[serde(deserialize_with = "object")]
    pub(crate) trace: budgets::Trace,
    /// What OpenClaw's setup noted.
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
