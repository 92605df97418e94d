//! `usage.cost`, `sessions.usage*`: token usage and cost.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{UnknownMembers, text};

/// Parameters of `usage.cost`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CostParams {
    /// Number of days back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub days: Option<u32>,
    /// First day, as `2026-11-15`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_date: Option<String>,
    /// Last day.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_date: Option<String>,
}

// Clients of each generation send more than is used here.
params!(CostParams, "usage.cost", &[], |_| (days(), UnknownMembers::Ignored));

/// Returns the schema of the members that name a period.
fn days() -> Value {
    let day = json!({"type": "string", "pattern": "^\\d{4}-\\d{2}-\\d{2}$"});
    json!({"days": {"type": "integer", "minimum": 1, "maximum": 400}, "startDate": day, "endDate": day})
}

/// Parameters of `sessions.usage`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PeriodParams {
    /// Number of days back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub days: Option<u32>,
    /// First day, as `2026-11-15`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_date: Option<String>,
    /// Last day.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_date: Option<String>,
    /// Only this session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Maximum number of sessions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

// Clients of each generation send more than is used here.
params!(PeriodParams, "sessions.usage", &[], |_| {
    let mut properties = days();
    properties["key"] = text();
    properties["limit"] = json!({"type": "integer", "minimum": 1});
    (properties, UnknownMembers::Ignored)
});

/// Parameters of `sessions.usage.timeseries`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TimeseriesParams {
    /// Session key.
    pub key: String,
}

params!(TimeseriesParams, "sessions.usage.timeseries", &["key"], |_| (json!({"key": text()}), UnknownMembers::Ignored));

/// Parameters of `sessions.usage.logs`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LogsParams {
    /// Session key.
    pub key: String,
    /// Maximum number of lines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

params!(LogsParams, "sessions.usage.logs", &["key"], |_| {
    (json!({"key": text(), "limit": {"type": "integer", "minimum": 1}}), UnknownMembers::Ignored)
});
