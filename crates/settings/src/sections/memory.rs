//! `memory`: the agents' notes, and how they are searched.

use schemars::JsonSchema;
use serde::Deserialize;

/// Memory of agents.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Memory {
    /// Search in memory files; takes precedence over `agents.defaults.memorySearch`.
    #[serde(deserialize_with = "super::object")]
    pub search: MemorySearch,
}

/// Search in the memory files of agents.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub struct MemorySearch {
    /// Offer the memory tools. Default: true.
    pub enabled: Option<bool>,
    /// Limits of search results.
    #[serde(deserialize_with = "super::object")]
    pub query: Query,
}

/// Limits of search results.
#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Query {
    /// Maximum number of results. Default: 6.
    pub max_results: Option<usize>,
    /// Minimum score of a result, from 0 to 1. Default: 0.1.
    pub min_score: Option<f64>,
}
