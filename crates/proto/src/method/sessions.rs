//! `sessions.*`: lists, reads and changes sessions.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{flag, text};
use crate::{EntryId, Extra, Generation, SessionId};

fn count(minimum: u64) -> Value {
    json!({"type": "integer", "minimum": minimum})
}

fn or_null(schema: &Value) -> Value {
    json!({"anyOf": [schema, {"type": "null"}]})
}

fn label(generation: Generation) -> Value {
    let longest = match generation {
        Generation::Three => 64,
        Generation::Four => 512,
    };
    json!({"type": "string", "minLength": 1, "maxLength": longest})
}

/// Adds parameters that exist only in protocol 4 to the schemas of a method's parameters, if the connection uses it.
fn newer(generation: Generation, mut properties: Value, added: &[(&str, Value)]) -> Value {
    if generation == Generation::Four {
        for (name, schema) in added {
            properties[*name] = schema.clone();
        }
    }
    properties
}

/// Parameters of `sessions.list`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ListParams {
    /// Maximum number of sessions, newest first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// Number of sessions to skip.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<usize>,
    /// Only sessions active in the last this many minutes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active_minutes: Option<u64>,
    /// Only sessions with this label.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Only sessions started by this session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spawned_by: Option<String>,
    /// Only sessions of this agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// Only sessions whose key or label contains this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub search: Option<String>,
    /// Whether `global` is listed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub include_global: Option<bool>,
    /// Whether `unknown` is listed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub include_unknown: Option<bool>,
    /// Whether sessions started by a run are excluded (protocol 4).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exclude_subagents: Option<bool>,
    /// Only sessions with a board, or only those without one (protocol 4).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub has_board: Option<bool>,
    /// Archived sessions: `true` for only those, `"all"` to include them (protocol 4).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub archived: Option<Value>,
    /// Only sessions whose agent is configured (protocol 4).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub configured_agents_only: Option<bool>,
    /// Only sessions that a person wrote to (protocol 4).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub require_last_interaction: Option<bool>,
    /// `updatedAt`, `activity` (which is the same here) or `lastInteractionAt` (protocol 4).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sort_by: Option<String>,
}

params!(ListParams, "sessions.list", &[], |generation| {
    let properties = json!({
        "limit": count(1), "activeMinutes": count(1),
        "includeGlobal": flag(), "includeUnknown": flag(),
        "label": label(Generation::Four), "spawnedBy": text(), "agentId": text(), "search": {"type": "string"},
    });
    let mut more = vec![("offset", count(0)), ("archived", json!({"anyOf": [{"type": "boolean"}, {"const": "all"}]}))];
    let flags = ["requireLastInteraction", "configuredAgentsOnly", "excludeSubagents", "hasBoard"];
    more.extend(flags.map(|name| (name, flag())));
    more.push(("sortBy", json!({"enum": ["updatedAt", "activity", "lastInteractionAt"]})));
    newer(generation, properties, &more)
}, refused: &[
    ("boardFace", "sessions have no boards"),
    ("creatorId", ONE_OWNER),
    ("ownerId", ONE_OWNER),
    ("involvingProfileId", ONE_OWNER),
], no_effect: &[
    ("includeDerivedTitles", NO_COLUMN),
    ("includeLastMessage", NO_COLUMN),
    ("includeActivitySummary", NO_COLUMN),
    ("ownerFirst", ALL_OWNED),
    ("involvingMe", ALL_OWNED),
    ("includePeople", ALL_OWNED),
]);

const ONE_OWNER: &str = "all sessions belong to the gateway's one owner";
const ALL_OWNED: &str = "all sessions belong to the gateway's one owner, so this holds for each";
const NO_COLUMN: &str = "the column is optional and is not returned";

/// Parameters of `sessions.resolve`: one of the first three.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResolveParams {
    /// Session with this key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Session with this session id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// Session with this label.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Only a session of this agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// Only a session that this session started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spawned_by: Option<String>,
    /// Whether `global` may be found by its label.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub include_global: Option<bool>,
    /// Whether `unknown` may be found by its label.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub include_unknown: Option<bool>,
}

params!(ResolveParams, "sessions.resolve", &[], |generation| json!({
    "key": text(), "sessionId": text(), "label": label(generation), "agentId": text(), "spawnedBy": text(),
    "includeGlobal": flag(), "includeUnknown": flag(),
}));

/// Parameters of `sessions.preview`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PreviewParams {
    /// Session keys.
    pub keys: Vec<String>,
    /// Number of last messages of each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// Maximum number of characters of each message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_chars: Option<usize>,
}

params!(PreviewParams, "sessions.preview", &["keys"], |_| json!({
    "keys": {"type": "array", "items": text()}, "limit": count(1), "maxChars": count(20),
}));

/// Parameters of `sessions.describe`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DescribeParams {
    /// Session key.
    pub key: String,
}

params!(DescribeParams, "sessions.describe", &["key"], |_| json!({"key": text()}), no_effect: &[
    ("includeDerivedTitles", NO_COLUMN),
    ("includeLastMessage", NO_COLUMN),
]);

/// Parameters of `sessions.patch`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PatchParams {
    /// Session key.
    pub key: String,
    /// Agent to use if the session key names no agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// Expected session id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_session_id: Option<SessionId>,
    /// New values; `null` clears one.
    #[serde(flatten)]
    pub changes: Extra,
}

params!(PatchParams, "sessions.patch", &["key"], |generation| {
    let mut properties = json!({
        "key": text(), "label": or_null(&label(generation)),
        "responseUsage": or_null(&json!({"enum": ["off", "tokens", "full", "on"]})),
        "sendPolicy": or_null(&json!({"enum": ["allow", "deny"]})),
        "groupActivation": or_null(&json!({"enum": ["mention", "always"]})),
    });
    for name in ["thinkingLevel", "verboseLevel", "reasoningLevel", "model", "spawnedBy"] {
        properties[name] = or_null(&text());
    }
    let words = ["icon", "color", "category"].map(|name| (name, or_null(&json!({"type": "string", "maxLength": 512}))));
    let flags = ["archived", "pinned", "unread"].map(|name| (name, flag()));
    let guards = ["agentId", "expectedSessionId"].map(|name| (name, text()));
    newer(generation, properties, &[&words[..], &flags, &guards].concat())
}, refused: &[
    ("elevatedLevel", EXEC),
    ("execHost", EXEC),
    ("execSecurity", EXEC),
    ("execAsk", EXEC),
    ("execNode", EXEC),
], no_effect: &[
    ("expectedMarkedUnreadAt", "the most recent mark of a session takes effect"),
]);

const EXEC: &str = "tools.exec and approvals in the config apply to commands in every session";

/// Parameters of `sessions.reset`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResetParams {
    /// Session key.
    pub key: String,
    /// Agent to use if the session key names no agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// Reason reported to hooks: `new` or `reset` (protocol 4).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

params!(ResetParams, "sessions.reset", &["key"], |generation| {
    let more = [("agentId", text()), ("reason", json!({"enum": ["new", "reset"]}))];
    newer(generation, json!({"key": text()}), &more)
});

/// Parameters of `sessions.delete`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeleteParams {
    /// Session key.
    pub key: String,
    /// Agent to use if the session key names no agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// Whether its transcript is deleted as well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delete_transcript: Option<bool>,
    /// Expected session id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_session_id: Option<SessionId>,
    /// Whether hooks are notified; they always are (protocol 4).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub emit_lifecycle_hooks: Option<bool>,
}

params!(DeleteParams, "sessions.delete", &["key"], |generation| {
    let more = [("agentId", text()), ("expectedSessionId", text()), ("emitLifecycleHooks", flag())];
    newer(generation, json!({"key": text(), "deleteTranscript": flag()}), &more)
});

/// Parameters of `sessions.compact`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CompactParams {
    /// Session key.
    pub key: String,
    /// Agent to use if the session key names no agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// What the summary should pay attention to. A Homard extension.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub focus: Option<String>,
}

params!(CompactParams, "sessions.compact", &["key"], |generation| {
    let properties = json!({"key": text(), "focus": {"type": "string"}});
    newer(generation, properties, &[("agentId", text())])
}, refused: &[
    ("maxLines", "transcripts are never truncated; omit it to compact the session"),
]);

/// Parameters of `sessions.compactions`. A Homard extension.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CompactionsParams {
    /// Session key.
    pub key: String,
    /// Agent to use if the session key names no agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
}

params!(CompactionsParams, "sessions.compactions", &["key"], |_| json!({"key": text(), "agentId": text()}));

/// Parameters of `sessions.compactions.undo`. A Homard extension.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UndoCompactionParams {
    /// Session key.
    pub key: String,
    /// Agent to use if the session key names no agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// Entry id of the compaction; defaults to the last one in effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<EntryId>,
}

params!(UndoCompactionParams, "sessions.compactions.undo", &["key"], |_| json!({
    "key": text(), "agentId": text(), "id": text(),
}));

/// Parameters of `sessions.create`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CreateParams {
    /// Session key; generated if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Idempotency key: the same one yields the same session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// Agent id; defaults to the default agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// Session that it originates from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_session_key: Option<String>,
    /// Label for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Display name for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    /// Category in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub category: Option<String>,
    /// Model of the session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Reasoning level.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thinking_level: Option<String>,
    /// Whether hooks hear `command:new` for the session that it comes from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub emit_command_hooks: Option<bool>,
}

params!(CreateParams, "sessions.create", &[], |_| json!({
    "key": text(), "idempotencyKey": text(), "agentId": text(), "parentSessionKey": text(),
    "label": label(Generation::Four), "displayName": {"type": "string", "minLength": 1, "maxLength": 500},
    "category": label(Generation::Four), "model": text(), "thinkingLevel": text(),
    "emitCommandHooks": {"type": "boolean"},
}), no_effect: &[
    ("succeedsParent", "the parent session is not changed"),
]);
