//! `budgets` and `trace`: limits of tokens and cost, and the retention of run timelines.

use homard_agent::purse;
use schemars::JsonSchema;
use serde::Deserialize;

use super::object;

/// What models may take. Whoever would take more is refused before a model is asked.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Budgets {
    /// One run.
    #[serde(deserialize_with = "object")]
    pub(crate) run: Limit,
    /// One conversation, until it begins anew.
    #[serde(deserialize_with = "object")]
    pub(crate) session: Limit,
    /// Each agent, on one day (of UTC).
    #[serde(deserialize_with = "object")]
    pub(crate) agent: Limit,
    /// All of them, on one day (of UTC).
    #[serde(deserialize_with = "object")]
    pub(crate) day: Limit,
}

/// How much.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Limit {
    /// US dollars, by the prices of the models. Default: no limit.
    #[schemars(range(min = 0.0))]
    pub(crate) cost: Option<f64>,
    /// Tokens, of prompts and answers. Default: no limit.
    pub(crate) tokens: Option<u64>,
}

impl Budgets {
    /// Returns the limits for runs.
    pub(crate) fn limits(&self) -> purse::Limits {
        let limit = |limit: &Limit| purse::Limit { cost: limit.cost, tokens: limit.tokens };
        purse::Limits {
            run: limit(&self.run),
            session: limit(&self.session),
            agent: limit(&self.agent),
            day: limit(&self.day),
        }
    }
}

/// What is remembered of runs for `homard trace`.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Trace {
    /// How many of the newest runs; those of the last day are always remembered. Default: 100000.
    #[schemars(range(min = 100, max = 10_000_000))]
    pub(crate) keep_runs: Option<u32>,
}
