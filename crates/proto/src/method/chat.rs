//! `chat.*`: send, history, abort, inject a message, and follow a run again.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};

use super::{UnknownMembers, text};
use crate::{EntryId, Generation, Route, RunId, SessionId};

/// Parameters of `chat.send`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SendParams {
    /// Session key.
    pub session_key: String,
    /// The user's message; may be empty only with attachments.
    pub message: String,
    /// Run id; the same key never runs twice.
    pub idempotency_key: RunId,
    /// Agent of the session, for a key that names none (protocol 4).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// Expected session id of the session (protocol 4).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    /// Reasoning level.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thinking: Option<String>,
    /// Whether the reply is sent on a channel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deliver: Option<bool>,
    /// Queue mode of the message if the session is busy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_mode: Option<String>,
    /// Channel that the message came from; [`route`](Self::route) combines it with the next three.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub originating_channel: Option<String>,
    /// Person or group that the message came from, on that channel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub originating_to: Option<String>,
    /// Our account that received the message, on that channel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub originating_account_id: Option<String>,
    /// Thread that the message came from, in the conversation with that person or group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub originating_thread_id: Option<String>,
    /// Time limit in milliseconds; zero means none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// Whether a text that looks like a command is taken literally.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suppress_command_interpretation: Option<bool>,
    /// Working directory of the run's tools (protocol 4). A Homard extension, as for `agent`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Images for the model, in base64.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<Attachment>,
    /// The last entry that the sender sees of the conversation (protocol 4). It is not part of the request's
    /// fingerprint: the same message may be sent again after the conversation has grown.
    #[serde(default, deserialize_with = "given", skip_serializing)]
    pub expected_leaf_entry_id: Option<Leaf>,
}

/// The last entry of a conversation as seen by a client.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum Leaf {
    /// This entry.
    Entry(EntryId),
    /// There is none yet.
    Nothing,
}

/// Deserializes a member for which `null` differs from absence.
fn given<'de, D: Deserializer<'de>>(member: D) -> Result<Option<Leaf>, D::Error> {
    Leaf::deserialize(member).map(Some)
}

/// An attachment of a message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "Value", into = "Value")]
pub struct Attachment {
    /// File name given by the sender.
    pub name: Option<String>,
    /// MIME type given by the sender, such as `image/png`.
    pub mime: Option<String>,
    /// Base64, possibly after `data:…;base64,`; `None` if it is empty.
    pub content: Option<String>,
}

impl From<Value> for Attachment {
    fn from(value: Value) -> Self {
        let text = |name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
        Self { name: text("fileName"), mime: text("mimeType"), content: text("content") }
    }
}

impl From<Attachment> for Value {
    fn from(attachment: Attachment) -> Self {
        json!({"fileName": attachment.name, "mimeType": attachment.mime, "content": attachment.content})
    }
}

impl SendParams {
    /// Returns the origin of the message.
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
        for name in ["agentId", "sessionId", "cwd"] {
            properties[name] = json!({"type": "string", "minLength": 1});
        }
        for name in ["originatingChannel", "originatingTo", "originatingAccountId", "originatingThreadId"] {
            properties[name] = json!({"type": "string"});
        }
        properties["expectedLeafEntryId"] = json!({"type": ["string", "null"], "minLength": 1});
        properties["suppressCommandInterpretation"] = json!({"type": "boolean"});
        properties["queueMode"] = json!({"enum": ["steer", "followup", "collect", "interrupt"]});
    }
    properties
}

params!(SendParams, "chat.send", &["sessionKey", "message", "idempotencyKey"], send_members, refused: &[
    ("replyToId", "quote the message in the text instead"),
    ("fastMode", "there is no fast mode; choose a faster model with /model"),
    ("fastAutoOnSeconds", "there is no fast mode; choose a faster model with /model"),
    ("intent", "every message is a turn of its session"),
    ("toolBindings", "a run uses the tools of its agent"),
    ("systemInputProvenance", "messages of chat.send are from the owner; for others, use agent with inputProvenance"),
    ("systemProvenanceReceipt", "messages of chat.send are from the owner; for others, use agent with inputProvenance"),
    ("expectedSessionRoutingContract", "sessions have no routing contract; use sessionId"),
    ("expectedPermissionMode", "sessions have no permissions of their own; configure them with tools in the config"),
    ("expectedToolOverrides", "sessions have no permissions of their own; configure them with tools in the config"),
]);

/// Parameters of `chat.history`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HistoryParams {
    /// Session key; echoed as requested.
    pub session_key: String,
    /// Agent to use if the session key names no agent (protocol 4).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// Expected session id of the session (protocol 4).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    /// Maximum number of messages; 200 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// Number of newest messages to skip (protocol 4).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<usize>,
    /// Maximum number of characters of one text (protocol 4).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_chars: Option<usize>,
    /// Maximum number of bytes of messages (protocol 4).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<usize>,
    /// Position at which the caller's last request ended (protocol 4).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// Runs whose state the caller asks for (protocol 4).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_run_ids: Option<Vec<String>>,
}

fn history_members(generation: Generation) -> Value {
    let mut properties = json!({
        "sessionKey": text(),
        "limit": {"type": "integer", "minimum": 1, "maximum": 1000},
    });
    if generation == Generation::Four {
        properties["cursor"] = json!({"type": "string"});
        for name in ["agentId", "sessionId"] {
            properties[name] = text();
        }
        for name in ["offset", "maxBytes"] {
            properties[name] = json!({"type": "integer", "minimum": 0});
        }
        properties["maxChars"] = json!({"type": "integer", "minimum": 1, "maximum": 500_000});
        properties["inputRunIds"] = json!({"type": "array", "items": {"type": "string"}});
    }
    properties
}

params!(HistoryParams, "chat.history", &["sessionKey"], history_members, refused: &[
    ("messageId", "use offset to read earlier pages"),
], no_effect: &[
    ("pendingBefore", "pendingInputs is always empty, so there are no pages of it"),
]);

/// Parameters of `chat.metadata`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MetadataParams {
    /// Agent id; defaults to the session's agent or the default one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// Session key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_key: Option<String>,
}

params!(MetadataParams, "chat.metadata", &[], |_| {
    (json!({"agentId": text(), "sessionKey": text()}), UnknownMembers::Ignored)
});

/// Parameters of `chat.abort`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AbortParams {
    /// Session whose runs are aborted.
    pub session_key: String,
    /// Agent to use if the session key names no agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// One run of it; all when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
}

params!(AbortParams, "chat.abort", &["sessionKey"], |_| json!({
    "sessionKey": text(), "runId": text(), "agentId": text(),
}), no_effect: &[
    ("preserveSideRuns", "side runs are not supported"),
]);

/// Parameters of `chat.inject`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InjectParams {
    /// Session key.
    pub session_key: String,
    /// Agent to use if the session key names no agent (protocol 4).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// Text of the assistant message to insert.
    pub message: String,
    /// Label that precedes the text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
}

params!(InjectParams, "chat.inject", &["sessionKey", "message"], |generation| {
    let mut properties =
        json!({"sessionKey": text(), "message": text(), "label": {"type": "string", "maxLength": 100}});
    if generation == Generation::Four {
        properties["agentId"] = text();
    }
    properties
});

/// Parameters of `chat.resume`. A Homard extension.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResumeParams {
    /// Session whose runs are followed.
    pub session_key: String,
    /// One run of it; all active ones when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// Sequence number of the last `agent` event of that run that the caller received; zero if none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_seq: Option<u64>,
}

params!(ResumeParams, "chat.resume", &["sessionKey"], |_| json!({
    "sessionKey": text(), "runId": text(), "afterSeq": {"type": "integer", "minimum": 0},
}));
