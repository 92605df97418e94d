//! `budgets` and `trace`: limits of tokens and cost, and the retention of run timelines.

use homard_agent::budget;
use schemars::JsonSchema;
use serde::Deserialize;

use super::object;

/// Limits of token usage and cost. A request that would exceed a limit is refused before it is sent to a model.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Budgets {
    /// Limits per run.
    #[serde(deserialize_with = "object")]
    pub run: Limit,
    /// Limits per session, until it is reset.
    #[serde(deserialize_with = "object")]
    pub session: Limit,
    /// Limits per agent and day (UTC).
    #[serde(deserialize_with = "object")]
    pub agent: Limit,
    /// Limits per day (UTC) for all agents together.
    #[serde(deserialize_with = "object")]
    pub day: Limit,
}

/// A limit of token usage and cost.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Limit {
    /// Maximum cost in US dollars, by the prices of the models. Default: no limit.
    #[schemars(range(min = 0.0))]
    pub cost: Option<f64>,
    /// Maximum number of tokens, input and output together. Default: no limit.
    pub tokens: Option<u64>,
}

impl Budgets {
    /// Returns the limits for runs.
    pub fn limits(&self) -> budget::BudgetLimits {
        let limit = |limit: &Limit| budget::BudgetLimit { cost: limit.cost, tokens: limit.tokens };
        budget::BudgetLimits {
            run: limit(&self.run),
            session: limit(&self.session),
            agent: limit(&self.agent),
            day: limit(&self.day),
        }
    }
}

/// Retention of runs for `homard trace`.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Trace {
    /// Number of newest runs that are kept; those of the last day are always kept. Default: 100000.
    pub keep_runs: Option<u32>,
    /// Maximum size in bytes of the system prompts and tool lists that are kept for `runs.prompt`. A prompt is stored once, however many requests use it; those that were not used for the longest time are removed first. 0 keeps none. Default: 16777216.
    pub keep_prompt_bytes: Option<u64>,
}
