//! `memory`: the agents' notes, and how they are searched.

use schemars::JsonSchema;
use serde::Deserialize;

/// What agents have written down.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Memory {
    /// How it is searched; counts before `agents.defaults.memorySearch`.
    #[serde(deserialize_with = "super::object")]
    pub(crate) search: MemorySearch,
}

/// How the memory of agents is searched.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct MemorySearch {
    /// Whether there are tools for it. Default: true.
    pub(crate) enabled: Option<bool>,
    /// What a search answers.
    #[serde(deserialize_with = "super::object")]
    pub(crate) query: Query,
}

/// What a search answers.
#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Query {
    /// How many places it tells. Default: 6.
    pub(crate) max_results: Option<usize>,
    /// How good they must be, from 0 to 1. Default: 0.1.
    pub(crate) min_score: Option<f64>,
}
