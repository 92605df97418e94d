//! `auth`: the order of credentials. The credentials themselves are in `auth-profiles.json`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

/// In which order credentials are used.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Auth {
    /// The ids of a provider's credentials, first choice first. Those that are not listed are not used.
    pub(crate) order: BTreeMap<String, Vec<String>>,
    /// What OpenClaw notes of each credential. The credentials themselves are in `auth-profiles.json`.
    #[allow(dead_code, reason = "read by people and by OpenClaw")]
    profiles: BTreeMap<String, serde_json::Value>,
}
