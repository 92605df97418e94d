//! `chat.history` and `chat.abort`: what was said, and stop.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::Params;
use crate::{Generation, RunId, schema::Schema};

/// What `chat.history` takes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HistoryParams {
    /// The session; echoed as it was asked for.
    pub session_key: String,
    /// How many of the newest messages; 200 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

impl Params for HistoryParams {
    const METHOD: &'static str = "chat.history";

    fn schema(generation: Generation) -> &'static Schema {
        fn compile(generation: Generation) -> Schema {
            let mut properties = json!({
                "sessionKey": {"type": "string", "minLength": 1},
                "limit": {"type": "integer", "minimum": 1, "maximum": 1000},
            });
            if generation == Generation::Four {
                for name in ["agentId", "cursor", "messageId", "sessionId"] {
                    properties[name] = json!({"type": "string"});
                }
                for name in ["offset", "pendingBefore", "maxChars", "maxBytes"] {
                    properties[name] = json!({"type": "integer", "minimum": 0});
                }
                properties["inputRunIds"] = json!({"type": "array", "items": {"type": "string"}});
            }
            Schema::compile(&json!({
                "type": "object", "additionalProperties": false,
                "required": ["sessionKey"], "properties": properties,
            }))
        }
        static THREE: LazyLock<Schema> = LazyLock::new(|| compile(Generation::Three));
        static FOUR: LazyLock<Schema> = LazyLock::new(|| compile(Generation::Four));
        match generation {
            Generation::Three => &THREE,
            Generation::Four => &FOUR,
        }
    }
}

/// What `chat.abort` takes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AbortParams {
    /// The session whose runs are meant.
    pub session_key: String,
    /// One run of it; all when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
}

impl Params for AbortParams {
    const METHOD: &'static str = "chat.abort";

    fn schema(_: Generation) -> &'static Schema {
        static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
            Schema::compile(&json!({
                "type": "object", "additionalProperties": false, "required": ["sessionKey"],
                "properties": {
                    "sessionKey": {"type": "string", "minLength": 1},
                    "runId": {"type": "string", "minLength": 1},
                    "agentId": {"type": "string"},
                    "preserveSideRuns": {"type": "boolean"},
                },
            }))
        });
        &SCHEMA
    }
}
