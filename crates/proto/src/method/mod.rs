//! Methods of the gateway, one file per family: parameters and results.

/// Implements [`Params`] for a type: which members are required and which are optional, by generation. Other members
/// are refused, unless the members say that they are ignored. `refused` and `no_effect` name parameters of OpenClaw
/// without a member, with the reason ([`Params::REFUSED`], [`Params::NO_EFFECT`]).
macro_rules! params {
    ($type:ident, $method:literal, $required:expr, $members:expr) => {
        params!($type, $method, $required, $members, refused: &[], no_effect: &[]);
    };
    ($type:ident, $method:literal, $required:expr, $members:expr, refused: $refused:expr) => {
        params!($type, $method, $required, $members, refused: $refused, no_effect: &[]);
    };
    ($type:ident, $method:literal, $required:expr, $members:expr, no_effect: $no_effect:expr) => {
        params!($type, $method, $required, $members, refused: &[], no_effect: $no_effect);
    };
    ($type:ident, $method:literal, $required:expr, $members:expr, refused: $refused:expr, no_effect: $no_effect:expr) => {
        impl $crate::method::Params for $type {
            const METHOD: &'static str = $method;
            const REFUSED: &'static [(&'static str, &'static str)] = $refused;
            const NO_EFFECT: &'static [(&'static str, &'static str)] = $no_effect;

            fn schema(generation: $crate::Generation) -> &'static $crate::schema::Schema {
                use std::sync::LazyLock;
                use $crate::{Generation, method::Members, schema::Schema};

                fn compile(generation: Generation) -> Schema {
                    let members: fn(Generation) -> _ = $members;
                    Members::from(members(generation)).compile($required)
                }
                static THREE: LazyLock<Schema> = LazyLock::new(|| compile(Generation::Three));
                static FOUR: LazyLock<Schema> = LazyLock::new(|| compile(Generation::Four));
                match generation {
                    Generation::Three => &THREE,
                    Generation::Four => &FOUR,
                }
            }
        }
    };
}

pub mod agent;
pub mod agents;
pub mod approvals;
pub mod audit;
pub mod channels;
pub mod chat;
pub mod commands;
pub mod config;
pub mod connect;
pub mod cron;
pub mod devices;
pub mod gateway;
pub mod logs;
pub mod models;
pub mod queries;
pub mod runs;
pub mod service;
pub mod sessions;
pub mod skills;
pub mod subscribe;
pub mod usage;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::{
    Generation,
    code::ErrorShape,
    schema::{Schema, summary},
};

/// Parameters of one method.
pub trait Params: DeserializeOwned {
    /// Method name.
    const METHOD: &'static str;

    /// Parameters of OpenClaw that are refused by name, each with the reason and an alternative. `null` and `false`
    /// request nothing and are accepted.
    const REFUSED: &'static [(&'static str, &'static str)] = &[];

    /// Parameters of OpenClaw's clients that are accepted and ignored, each with the reason: the gateway always does
    /// what they request, or has nothing that they apply to.
    const NO_EFFECT: &'static [(&'static str, &'static str)] = &[];

    /// Returns the schema of the parameters in a protocol generation.
    fn schema(generation: Generation) -> &'static Schema;

    /// Validates and parses parameters; absent and `null` mean none.
    fn decode(generation: Generation, params: Option<Value>) -> Result<Self, ErrorShape> {
        let mut params = params.filter(|params| !params.is_null()).unwrap_or_else(|| Value::Object(Map::new()));
        let invalid = |why: &str| ErrorShape::invalid(format!("invalid {} params: {why}", Self::METHOD));
        if let Value::Object(members) = &mut params {
            for (name, why) in Self::REFUSED {
                match members.shift_remove(*name) {
                    None | Some(Value::Null | Value::Bool(false)) => {}
                    Some(_) => return Err(invalid(&format!("{name} is not supported: {why}"))),
                }
            }
            Self::NO_EFFECT.iter().for_each(|(name, _)| drop(members.shift_remove(*name)));
        }
        let problems = Self::schema(generation).check(&params);
        if !problems.is_empty() {
            return Err(invalid(&summary(&problems)));
        }
        serde_json::from_value(params).map_err(|error| invalid(&error.to_string()))
    }
}

/// Members that parameters may have.
struct Members {
    properties: Value,
    others: UnknownMembers,
}

/// Treatment of members that the schema of the parameters does not list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UnknownMembers {
    /// They make the parameters invalid.
    Refused,
    /// They are ignored.
    Ignored,
}

impl From<Value> for Members {
    fn from(properties: Value) -> Self {
        Self { properties, others: UnknownMembers::Refused }
    }
}

impl From<(Value, UnknownMembers)> for Members {
    fn from(members: (Value, UnknownMembers)) -> Self {
        let (properties, others) = members;
        Self { properties, others }
    }
}

impl Members {
    fn compile(self, required: &[&str]) -> Schema {
        Schema::compile(&json!({
            "type": "object", "additionalProperties": self.others == UnknownMembers::Ignored,
            "required": required, "properties": self.properties,
        }))
    }
}

fn flag() -> Value {
    json!({"type": "boolean"})
}

/// Schema of a non-empty string.
fn text() -> Value {
    json!({"type": "string", "minLength": 1})
}

#[cfg(test)]
mod tests;
