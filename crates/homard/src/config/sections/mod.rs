//! What the file can say, one file per section.

pub(crate) mod agents;
pub(crate) mod auth;
pub(crate) mod gateway;
pub(crate) mod messages;
pub(crate) mod models;
pub(crate) mod schedule;
pub(crate) mod session;

use std::{collections::BTreeMap, fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor, value::MapAccessDeserializer},
};

/// The whole file.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Config {
    #[serde(deserialize_with = "object")]
    pub(crate) agents: agents::Agents,
    #[serde(deserialize_with = "object")]
    pub(crate) auth: auth::Auth,
    #[serde(deserialize_with = "object")]
    pub(crate) cron: schedule::Cron,
    #[serde(deserialize_with = "object")]
    pub(crate) gateway: gateway::Gateway,
    #[serde(deserialize_with = "object")]
    pub(crate) messages: messages::Messages,
    #[serde(deserialize_with = "object")]
    pub(crate) models: models::Models,
    #[serde(deserialize_with = "object")]
    pub(crate) session: session::Session,
}

/// Something that must be an object: left to itself, serde reads a list as the fields in their order.
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
