//! `health` and `status`: state of the gateway.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::Params;
use crate::{Generation, schema::Schema};

static OPEN: LazyLock<Schema> = LazyLock::new(|| Schema::compile(&json!({"type": "object"})));

/// Parameters of `health`: all are ignored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthParams {}

impl Params for HealthParams {
    const METHOD: &'static str = "health";

    fn schema(_: Generation) -> &'static Schema {
        &OPEN
    }
}

/// Parameters of `status`: all are ignored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusParams {}

impl Params for StatusParams {
    const METHOD: &'static str = "status";

    fn schema(_: Generation) -> &'static Schema {
        &OPEN
    }
}
