//! `agents`: who answers, with which model, where, and for how long.

use std::{collections::BTreeMap, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{self, MapAccess, Visitor, value::MapAccessDeserializer},
};

use super::schedule::Heartbeat;
use crate::config::Text;

/// The section.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Agents {
    #[serde(deserialize_with = "super::object")]
    pub(crate) defaults: Defaults,
    #[serde(deserialize_with = "super::objects")]
    pub(crate) list: Vec<Agent>,
}

/// What holds for every agent that does not say otherwise.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Defaults {
    pub(crate) model: Option<Choice>,
    /// The models that may be chosen for a session, by name; any if there are none.
    #[serde(deserialize_with = "super::named_objects")]
    pub(crate) models: BTreeMap<String, Listed>,
    pub(crate) workspace: Option<Text>,
    pub(crate) timeout_seconds: Option<u64>,
    pub(crate) max_concurrent: Option<usize>,
    #[serde(deserialize_with = "super::object")]
    pub(crate) subagents: Subagents,
    #[serde(deserialize_with = "super::object")]
    pub(crate) heartbeat: Heartbeat,
}

/// A model that may be chosen.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Listed {
    /// A short name for it.
    pub(crate) alias: Option<String>,
}

/// Runs that runs start.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Subagents {
    pub(crate) max_concurrent: Option<usize>,
}

/// One agent.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Agent {
    pub(crate) id: Text,
    #[serde(default)]
    pub(crate) default: bool,
    #[serde(default)]
    pub(crate) workspace: Option<Text>,
    /// Where its auth profiles are.
    #[serde(default)]
    pub(crate) agent_dir: Option<Text>,
    #[serde(default)]
    pub(crate) model: Option<Choice>,
    #[serde(default, deserialize_with = "super::maybe_object")]
    pub(crate) heartbeat: Option<Heartbeat>,
}

/// Which model: `"provider/model"`, or `{primary: "provider/model", fallbacks: ["provider/model"]}`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Choice {
    pub(crate) primary: Option<Text>,
    /// Who is asked when the first does not answer; an empty list is not the same as none.
    pub(crate) fallbacks: Option<Vec<Text>>,
}

#[derive(Deserialize)]
struct ChoiceFields {
    #[serde(default)]
    primary: Option<Text>,
    #[serde(default)]
    fallbacks: Option<Vec<Text>>,
}

impl<'de> Deserialize<'de> for Choice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = Choice;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text such as \"provider/model\", or an object with \"primary\"")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Choice, E> {
                let primary = Text::deserialize(de::value::StrDeserializer::new(text))?;
                Ok(Choice { primary: Some(primary), fallbacks: None })
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Choice, A::Error> {
                let fields = ChoiceFields::deserialize(MapAccessDeserializer::new(map))?;
                Ok(Choice { primary: fields.primary, fallbacks: fields.fallbacks })
            }
        }

        deserializer.deserialize_any(Either)
    }
}
