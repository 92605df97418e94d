//! `usage.cost`, `sessions.usage*`: what models took.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Others, text};

/// What `usage.cost` takes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CostParams {
    /// How many days back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub days: Option<u32>,
    /// From which day on, as `2026-11-15`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_date: Option<String>,
    /// Up to which day.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_date: Option<String>,
}

// Clients of each generation say more than is looked at here.
params!(CostParams, "usage.cost", &[], |_| (days(), Others::PassedOver));

/// The members that name a period.
fn days() -> Value {
    let day = json!({"type": "string", "pattern": "^\\d{4}-\\d{2}-\\d{2}$"});
    json!({"days": {"type": "integer", "minimum": 1, "maximum": 400}, "startDate": day, "endDate": day})
}

/// What `sessions.usage` takes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PeriodParams {
    /// How many days back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub days: Option<u32>,
    /// From which day on, as `2026-11-15`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_date: Option<String>,
    /// Up to which day.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_date: Option<String>,
    /// Only this session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// How many sessions at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

// Clients of each generation say more than is looked at here.
params!(PeriodParams, "sessions.usage", &[], |_| {
    let mut properties = days();
    properties["key"] = text();
    properties["limit"] = json!({"type": "integer", "minimum": 1});
    (properties, Others::PassedOver)
});

/// What `sessions.usage.timeseries` takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TimeseriesParams {
    /// The session.
    pub key: String,
}

params!(TimeseriesParams, "sessions.usage.timeseries", &["key"], |_| (json!({"key": text()}), Others::PassedOver));

/// What `sessions.usage.logs` takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LogsParams {
    /// The session.
    pub key: String,
    /// How many lines at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

params!(LogsParams, "sessions.usage.logs", &["key"], |_| {
    (json!({"key": text(), "limit": {"type": "integer", "minimum": 1}}), Others::PassedOver)
});
