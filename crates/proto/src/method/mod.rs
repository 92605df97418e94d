//! The methods of the gateway, one file a family: what they take and what they give.

pub mod agent;
pub mod chat;
pub mod connect;
pub mod cron;
pub mod gateway;
pub mod sessions;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::{
    Generation,
    code::ErrorShape,
    schema::{Schema, summary},
};

/// The parameters of one method.
pub trait Params: DeserializeOwned {
    /// The method's name.
    const METHOD: &'static str;

    /// What a caller of that generation may send.
    fn schema(generation: Generation) -> &'static Schema;

    /// Checks and reads parameters; absent and `null` mean "none".
    fn decode(generation: Generation, params: Option<Value>) -> Result<Self, ErrorShape> {
        let params = params.filter(|params| !params.is_null()).unwrap_or_else(|| Value::Object(Map::new()));
        let wrong = |why: &str| ErrorShape::invalid(format!("invalid {} params: {why}", Self::METHOD));
        let problems = Self::schema(generation).check(&params);
        if !problems.is_empty() {
            return Err(wrong(&summary(&problems)));
        }
        serde_json::from_value(params).map_err(|error| wrong(&error.to_string()))
    }
}
