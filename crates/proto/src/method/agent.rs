//! `agent` and `agent.wait`: start a turn, wait for its end.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Params, chat::Attachment};
use crate::{Generation, RunId, SessionId, schema::Schema};

/// Parameters of `agent`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentParams {
    /// The user's message.
    pub message: String,
    /// Run id; the same key never runs twice.
    pub idempotency_key: RunId,
    /// Agent id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// Session key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_key: Option<String>,
    /// Session id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    /// Reasoning level.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thinking: Option<String>,
    /// Channel that the message belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    /// Channel of the reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_channel: Option<String>,
    /// Whether the reply is sent on a channel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deliver: Option<bool>,
    /// Whether the run succeeds although its reply could not be sent; the default in main sessions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best_effort_deliver: Option<bool>,
    /// Person or chat that the message belongs to on its channel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Recipient of the reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<String>,
    /// Account on the channel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account_id: Option<String>,
    /// Account that sends the reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_account_id: Option<String>,
    /// Thread id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<String>,
    /// Time limit in seconds; zero means the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<u64>,
    /// Slot pool: `main`, `subagent` or `cron`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lane: Option<String>,
    /// Text that this run adds to the system prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extra_system_prompt: Option<String>,
    /// Label of the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Session that started this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spawned_by: Option<String>,
    /// Treatment of the run if a restart finds it unfinished: `resume` (the default) or `interrupt`. A Homard
    /// extension.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_restart: Option<String>,
    /// Whether the run fails, before a model request, if the message does not fit into the context window; otherwise
    /// the model gets its beginning and its end. A Homard extension.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strict: Option<bool>,
    /// Images for the model, in base64.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<Attachment>,
    /// The only model of this run, as `provider/model`, or without a provider (protocol 4).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Provider of that model (protocol 4).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// Absolute working directory of the run's tools (protocol 4).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// How much of the system prompt the model gets: `full`, `minimal` or `none` (protocol 4).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_mode: Option<String>,
    /// `lightweight` omits the workspace files from the system prompt (protocol 4).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bootstrap_context_mode: Option<String>,
    /// Whether the run does not have the tool `message` (protocol 4).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disable_message_tool: Option<bool>,
    /// Expected session id of the session (protocol 4).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_existing_session_id: Option<SessionId>,
    /// Origin of the message, stored with it (protocol 4).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_provenance: Option<Value>,
}

fn agent_schema(generation: Generation) -> Schema {
    let text = || json!({"type": "string"});
    let mut properties = json!({
        "message": {"type": "string", "minLength": 1},
        "idempotencyKey": {"type": "string", "minLength": 1, "maxLength": 256},
        "agentId": {"type": "string", "minLength": 1},
        "deliver": {"type": "boolean"},
        "attachments": {"type": "array"},
        "timeout": {"type": "integer", "minimum": 0},
        "label": {"type": "string", "minLength": 1, "maxLength": 64},
        "onRestart": {"enum": ["resume", "interrupt"]},
        "strict": {"type": "boolean"},
    });
    for name in [
        "to",
        "replyTo",
        "sessionId",
        "sessionKey",
        "thinking",
        "channel",
        "replyChannel",
        "accountId",
        "replyAccountId",
        "threadId",
        "lane",
        "extraSystemPrompt",
        "spawnedBy",
    ] {
        properties[name] = text();
    }
    if generation == Generation::Four {
        properties["label"]["maxLength"] = 512.into();
        for name in ["provider", "model"] {
            properties[name] = text();
        }
        for name in ["cwd", "expectedExistingSessionId"] {
            properties[name] = json!({"type": "string", "minLength": 1});
        }
        for name in ["bestEffortDeliver", "disableMessageTool"] {
            properties[name] = json!({"type": "boolean"});
        }
        properties["promptMode"] = json!({"enum": ["full", "minimal", "none"]});
        properties["bootstrapContextMode"] = json!({"enum": ["full", "lightweight"]});
        properties["inputProvenance"] = json!({
            "type": "object", "additionalProperties": false, "required": ["kind"],
            "properties": {
                "kind": {"enum": ["external_user", "inter_session", "internal_system"]},
                "originSessionId": {"type": "string"}, "sourceSessionKey": {"type": "string"},
                "sourceChannel": {"type": "string"}, "sourceTool": {"type": "string"},
            },
        });
    }
    Schema::compile(&json!({
        "type": "object", "additionalProperties": false,
        "required": ["message", "idempotencyKey"], "properties": properties,
    }))
}

/// Why the parameters about a group are refused.
const GROUPS: &str = "a group is identified by its session key; use sessionKey";

impl Params for AgentParams {
    const METHOD: &'static str = "agent";
    const REFUSED: &'static [(&'static str, &'static str)] = &[
        ("groupId", GROUPS),
        ("groupChannel", GROUPS),
        ("groupSpace", GROUPS),
        (
            "modelRun",
            "a run uses its agent's prompt and tools; for a bare model request, use promptMode \"none\" in a separate \
             session",
        ),
        (
            "suppressPromptPersistence",
            "every message is stored in the transcript, because recovery after a restart reads it",
        ),
        ("sessionEffects", "every run is visible; to leave a session unchanged, use a separate one"),
        ("internalEvents", "use system-event to report background events"),
    ];

    fn schema(generation: Generation) -> &'static Schema {
        static THREE: LazyLock<Schema> = LazyLock::new(|| agent_schema(Generation::Three));
        static FOUR: LazyLock<Schema> = LazyLock::new(|| agent_schema(Generation::Four));
        match generation {
            Generation::Three => &THREE,
            Generation::Four => &FOUR,
        }
    }
}

/// Parameters of `agent.wait`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WaitParams {
    /// Run to wait for.
    pub run_id: RunId,
    /// Timeout; 30 s when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

impl Params for WaitParams {
    const METHOD: &'static str = "agent.wait";

    fn schema(_: Generation) -> &'static Schema {
        static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
            Schema::compile(&json!({
                "type": "object", "additionalProperties": false, "required": ["runId"],
                "properties": {
                    "runId": {"type": "string", "minLength": 1},
                    "timeoutMs": {"type": "integer", "minimum": 0},
                },
            }))
        });
        &SCHEMA
    }
}
