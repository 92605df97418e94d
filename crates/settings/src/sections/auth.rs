//! `auth`: the order of credentials. The credentials themselves are in `auth-profiles.json`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

/// Order in which credentials are used.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Auth {
    /// Ids of a provider's credentials, in order of preference. Credentials that are not listed are not used.
    pub order: BTreeMap<String, Vec<String>>,
    /// Metadata that OpenClaw stores for each credential. The credentials themselves are in `auth-profiles.json`.
    #[allow(dead_code, reason = "read by people and by OpenClaw")]
    profiles: BTreeMap<String, serde_json::Value>,
}
