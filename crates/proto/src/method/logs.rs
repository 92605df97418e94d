//! `logs.tail`: what the gateway said of itself.

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::Others;

/// What `logs.tail` takes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TailParams {
    /// Where the last answer ended; without it, the newest lines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<u64>,
    /// How many lines at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// How many bytes at most.
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
    (properties, Others::Refused)
});
