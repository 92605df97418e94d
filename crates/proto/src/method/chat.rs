//! `chat.*`: say something, what was said, stop, put words into a conversation, and take a run up again.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};

use super::{Others, text};
use crate::{EntryId, Generation, Route, RunId, SessionId};

/// What `chat.send` takes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SendParams {
    /// The session.
    pub session_key: String,
    /// What the user says; may be empty only with attachments.
    pub message: String,
    /// Names the run; the same key never runs twice.
    pub idempotency_key: RunId,
    /// The agent of the session, for a key that names none (protocol 4).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// The session id that the session must have (protocol 4).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    /// How hard the model thinks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thinking: Option<String>,
    /// Whether the answer is sent on a channel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deliver: Option<bool>,
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
    /// Pictures for the model, in base64.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<Attachment>,
    /// The last line that the sender sees of the conversation (protocol 4). It is no part of what is said: the same message
    /// may be sent again from further on.
    #[serde(default, deserialize_with = "given", skip_serializing)]
    pub expected_leaf_entry_id: Option<Leaf>,
}

/// The last line of a conversation as somebody sees it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum Leaf {
    /// This line.
    Entry(EntryId),
    /// There is none yet.
    Nothing,
}

/// Reads a member for which `null` means something else than its absence.
fn given<'de, D: Deserializer<'de>>(member: D) -> Result<Option<Leaf>, D::Error> {
    Leaf::deserialize(member).map(Some)
}

/// Something that comes with a message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "Value", into = "Value")]
pub struct Attachment {
    /// What the sender calls it.
    pub name: Option<String>,
    /// What the sender takes it for, such as `image/png`.
    pub mime: Option<String>,
    /// Base64, perhaps behind `data:…;base64,`; `None` when there is nothing in it.
    pub content: Option<String>,
}

impl From<Value> for Attachment {
    fn from(value: Value) -> Self {
        let word = |name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
        Self { name: word("fileName"), mime: word("mimeType"), content: word("content") }
    }
}

impl From<Attachment> for Value {
    fn from(attachment: Attachment) -> Self {
        json!({"fileName": attachment.name, "mimeType": attachment.mime, "content": attachment.content})
    }
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
        for name in ["agentId", "sessionId"] {
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
    ("replyToId", "quote the message that is answered"),
    ("fastMode", "there is no fast mode; choose a faster model with /model"),
    ("fastAutoOnSeconds", "there is no fast mode; choose a faster model with /model"),
    ("intent", "a message is one turn of its session"),
    ("toolBindings", "a run has the tools of its agent"),
    ("systemInputProvenance", "a message of chat.send is the owner's; use agent with inputProvenance for others"),
    ("systemProvenanceReceipt", "a message of chat.send is the owner's; use agent with inputProvenance for others"),
    ("expectedSessionRoutingContract", "sessions have none; name the session id with sessionId"),
    ("expectedPermissionMode", "sessions have none; what a run may do is set by tools in the config"),
    ("expectedToolOverrides", "sessions have none; what a run may do is set by tools in the config"),
]);

/// What `chat.history` takes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HistoryParams {
    /// The session; echoed as it was asked for.
    pub session_key: String,
    /// The agent of a key that names none (protocol 4).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// The session id that the session must have (protocol 4).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    /// How many messages; 200 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// How many of the newest are left out (protocol 4).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<usize>,
    /// How many characters of one text are told (protocol 4).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_chars: Option<usize>,
    /// How many bytes of messages are told (protocol 4).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<usize>,
    /// Where the caller's last look ended (protocol 4).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// Messages whose fate the caller asks for (protocol 4).
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
    ("messageId", "read the pages before it with offset"),
], no_effect: &[
    ("pendingBefore", "pendingInputs is always empty, so there are no pages of it"),
]);

/// What `chat.metadata` takes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MetadataParams {
    /// Whose; without one, the session's agent or the default one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// For which conversation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_key: Option<String>,
}

params!(MetadataParams, "chat.metadata", &[], |_| {
    (json!({"agentId": text(), "sessionKey": text()}), Others::PassedOver)
});

/// What `chat.abort` takes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AbortParams {
    /// The session whose runs are meant.
    pub session_key: String,
    /// The agent of a key that names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// One run of it; all when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
}

params!(AbortParams, "chat.abort", &["sessionKey"], |_| json!({
    "sessionKey": text(), "runId": text(), "agentId": text(),
}), no_effect: &[
    ("preserveSideRuns", "there are no side runs beside a session's own"),
]);

/// What `chat.inject` takes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InjectParams {
    /// The session.
    pub session_key: String,
    /// The agent of a key that names none (protocol 4).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// What its assistant is to have said.
    pub message: String,
    /// What it is about; it stands before the words.
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

/// What `chat.resume` takes. Homard's own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResumeParams {
    /// The session whose runs are meant.
    pub session_key: String,
    /// One run of it; all that are alive when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// The number of the last `agent` event of that run that the caller has heard; zero when it has heard none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_seq: Option<u64>,
}

params!(ResumeParams, "chat.resume", &["sessionKey"], |_| json!({
    "sessionKey": text(), "runId": text(), "afterSeq": {"type": "integer", "minimum": 0},
}));
