//! A small config for tests.

use std::collections::BTreeMap;

use homard_config::Sections;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Config {
    gateway: SampleGateway,
    agents: Agents,
    models: Models,
}

impl Sections for Config {}

/// Where the gateway listens.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
struct SampleGateway {
    port: Option<u16>,
    bind: Option<Bind>,
    token: Option<String>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Bind {
    Loopback,
    Lan,
}

#[derive(Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
struct Agents {
    list: Vec<Agent>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
struct Agent {
    id: String,
    #[serde(default)]
    workspace: Option<String>,
}

#[derive(Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
struct Models {
    providers: BTreeMap<String, Provider>,
}

#[derive(Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
struct Provider {
    base_url: Option<String>,
    api_key: Option<String>,
}

/// Environment of all tests.
pub(crate) fn variable(name: &str) -> Option<String> {
    match name {
        "KEY" => Some("sk-1".to_owned()),
        "BLANK" => Some(" ".to_owned()),
        _ => None,
    }
}

/// Returns the secret of a reference.
pub(crate) fn secret(_: homard_config::SecretReference<'_>) -> Result<String, String> {
    Err("names a secret that is not here".to_owned())
}
