//! `chat.send`, `chat.history` and `chat.abort`: say something, what was said, and stop.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Params;
use crate::{Generation, Route, RunId, SessionId, schema::Schema};

/// What `chat.send` takes. Only the members that the loop uses have a field; the schema knows all of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SendParams {
    /// The session.
    pub session_key: String,
    /// What the user says; may be empty only with attachments.
    pub message: String,
    /// Names the run; the same key never runs twice.
    pub idempotency_key: RunId,
    /// The transcript that the sender believes in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    /// How hard the model thinks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thinking: Option<String>,
    /// What becomes of the message if the agent is busy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_mode: Option<String>,
    /// The platform that it came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub originating_channel: Option<String>,
    /// The person or group there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub originating_to: Option<String>,
    /// The account that talks to them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub originating_account_id: Option<String>,
    /// The thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub originating_thread_id: Option<String>,
    /// Milliseconds that the run may take; zero means as long as it takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// Whether a text that looks like a command is meant as it is written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suppress_command_interpretation: Option<bool>,
    /// Images; read when the loop can show them to a model.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<Value>,
}

impl SendParams {
    /// Where the message came from.
    pub fn route(&self) -> Route {
        Route::new(
            self.originating_channel.as_deref(),
            self.originating_to.as_deref(),
            self.originating_account_id.as_deref(),
            self.originating_thread_id.as_deref(),
        )
    }
}

fn send_members(generation: Generation) -> Value {
    let mut properties = json!({
        "sessionKey": {"type": "string", "minLength": 1},
        "message": {"type": "string"},
        "idempotencyKey": {"type": "string", "minLength": 1, "maxLength": 256},
        "thinking": {"type": "string"},
        "deliver": {"type": "boolean"},
        "attachments": {"type": "array"},
        "timeoutMs": {"type": "integer", "minimum": 0},
    });
    if generation == Generation::Four {
        properties["sessionKey"]["maxLength"] = 512.into();
        for name in ["agentId", "sessionId", "replyToId", "expectedSessionRoutingContract"] {
            properties[name] = json!({"type": "string", "minLength": 1});
        }
        for name in [
            "originatingChannel",
            "originatingTo",
            "originatingAccountId",
            "originatingThreadId",
            "systemProvenanceReceipt",
        ] {
            properties[name] = json!({"type": "string"});
        }
        for name in ["intent", "toolBindings", "systemInputProvenance"] {
            properties[name] = json!({"type": "object"});
        }
        for name in ["fastMode", "expectedLeafEntryId", "expectedPermissionMode", "expectedToolOverrides"] {
            properties[name] = json!({});
        }
        properties["fastAutoOnSeconds"] = json!({"type": "integer", "minimum": 1});
        properties["suppressCommandInterpretation"] = json!({"type": "boolean"});
        properties["queueMode"] = json!({"enum": ["steer", "followup", "collect", "interrupt"]});
    }
    properties
}

params!(SendParams, "chat.send", &["sessionKey", "message", "idempotencyKey"], send_members);

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
