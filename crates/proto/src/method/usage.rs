//! `usage.cost`, `sessions.usage*`: what models took.

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Others, text};

/// What `usage.cost` and `sessions.usage` take, as far as it is looked at.
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
params!(PeriodParams, "usage.cost", &[], |_| {
    let day = json!({"type": "string", "pattern": "^\\d{4}-\\d{2}-\\d{2}$"});
    let properties = json!({
        "days": {"type": "integer", "minimum": 1, "maximum": 400}, "startDate": day, "endDate": day, "key": text(),
        "limit": {"type": "integer", "minimum": 1},
    });
    (properties, Others::PassedOver)
});

/// What `sessions.usage.timeseries` and `sessions.usage.logs` take.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OneParams {
    /// The session.
    pub key: String,
    /// How many lines at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

params!(OneParams, "sessions.usage", &["key"], |_| {
    (json!({"key": text(), "limit": {"type": "integer", "minimum": 1}}), Others::PassedOver)
});
