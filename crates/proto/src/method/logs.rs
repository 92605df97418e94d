//! `logs.tail`: log lines of the gateway.

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::UnknownMembers;

/// Parameters of `logs.tail`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TailParams {
    /// Position at which the last response ended; if absent, the newest lines are returned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<u64>,
    /// Maximum number of lines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// Maximum number of bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<usize>,
}

params!(TailParams, "logs.tail", &[], |_| {
    let number = |minimum: u64, maximum: Option<u64>| {
        let mut schema = json!({"type": "integer", "minimum": minimum});
        if let Some(maximum) = maximum {
            schema["maximum"] = maximum.into();
        }
        schema
    };
    let properties = json!({
        "cursor": number(0, None), "limit": number(1, Some(5000)), "maxBytes": number(1, Some(1_000_000)),
    });
    (properties, UnknownMembers::Refused)
});
