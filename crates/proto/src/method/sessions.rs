//! `sessions.*`: which conversations there are, what is in them, and how they are changed.

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

/// Members that only the newer generation sends.
fn newer(generation: Generation, mut properties: Value, more: &[(&str, Value)]) -> Value {
    if generation == Generation::Four {
        for (name, schema) in more {
            properties[*name] = schema.clone();
        }
    }
    properties
}

/// What `sessions.list` takes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ListParams {
    /// How many, newest first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// How many to pass over first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<usize>,
    /// Only those touched in the last so many minutes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active_minutes: Option<u64>,
    /// Only those with this label.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Only those started by this session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spawned_by: Option<String>,
    /// Only those of this agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// Only those whose key or label contains this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub search: Option<String>,
    /// Whether `global` is listed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub include_global: Option<bool>,
    /// Whether `unknown` is listed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub include_unknown: Option<bool>,
    /// Whether those are left out that a run started (protocol 4).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exclude_subagents: Option<bool>,
    /// Only those that have a board, or only those that have none (protocol 4).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub has_board: Option<bool>,
    /// Whether those are listed that were archived: `true` for only those, `"all"` for those, too (protocol 4).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub archived: Option<Value>,
    /// Only those whose agent is configured (protocol 4).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub configured_agents_only: Option<bool>,
    /// Only those that a person wrote to (protocol 4).
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

const ONE_OWNER: &str = "a gateway has one owner, whose the sessions are";
const ALL_OWNED: &str = "a gateway has one owner, whose all sessions are";
const NO_COLUMN: &str = "it asks for a column that rows may leave out, and they do";

/// What `sessions.resolve` takes: one of the first three.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResolveParams {
    /// The session with this key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The session with this transcript.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// The session with this label.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Only one of this agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// Only one that this session started.
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

/// What `sessions.preview` takes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PreviewParams {
    /// Which sessions.
    pub keys: Vec<String>,
    /// How many of their last messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// How much of each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_chars: Option<usize>,
}

params!(PreviewParams, "sessions.preview", &["keys"], |_| json!({
    "keys": {"type": "array", "items": text()}, "limit": count(1), "maxChars": count(20),
}));

/// What `sessions.describe` takes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DescribeParams {
    /// Which session.
    pub key: String,
}

params!(DescribeParams, "sessions.describe", &["key"], |_| json!({"key": text()}), no_effect: &[
    ("includeDerivedTitles", NO_COLUMN),
    ("includeLastMessage", NO_COLUMN),
]);

/// What `sessions.patch` takes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PatchParams {
    /// Which session.
    pub key: String,
    /// The agent of a key that names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// The transcript that the caller believes in.
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
    ("expectedMarkedUnreadAt", "the newest mark of a session counts, whoever made it"),
]);

const EXEC: &str = "commands run as tools.exec and approvals in the config say, in every session";

/// What `sessions.reset` takes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResetParams {
    /// Which session.
    pub key: String,
    /// The agent of a key that names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// What hooks are told: `new` or `reset` (protocol 4).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

params!(ResetParams, "sessions.reset", &["key"], |generation| {
    let more = [("agentId", text()), ("reason", json!({"enum": ["new", "reset"]}))];
    newer(generation, json!({"key": text()}), &more)
});

/// What `sessions.delete` takes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeleteParams {
    /// Which session.
    pub key: String,
    /// The agent of a key that names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// Whether its transcript goes, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delete_transcript: Option<bool>,
    /// The transcript that the caller believes in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_session_id: Option<SessionId>,
    /// Whether hooks are told; they always are (protocol 4).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub emit_lifecycle_hooks: Option<bool>,
}

params!(DeleteParams, "sessions.delete", &["key"], |generation| {
    let more = [("agentId", text()), ("expectedSessionId", text()), ("emitLifecycleHooks", flag())];
    newer(generation, json!({"key": text(), "deleteTranscript": flag()}), &more)
});

/// What `sessions.compact` takes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CompactParams {
    /// Which session.
    pub key: String,
    /// The agent of a key that names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// What the summary should pay attention to. OpenClaw does not have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub focus: Option<String>,
}

params!(CompactParams, "sessions.compact", &["key"], |generation| {
    let properties = json!({"key": text(), "focus": {"type": "string"}});
    newer(generation, properties, &[("agentId", text())])
}, refused: &[
    ("maxLines", "a transcript keeps every line; without it, the conversation is summarised"),
]);

/// What `sessions.compactions` takes. OpenClaw does not have it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CompactionsParams {
    /// Which session.
    pub key: String,
    /// The agent of a key that names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
}

params!(CompactionsParams, "sessions.compactions", &["key"], |_| json!({"key": text(), "agentId": text()}));

/// What `sessions.compactions.undo` takes. OpenClaw does not have it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UndoCompactionParams {
    /// Which session.
    pub key: String,
    /// The agent of a key that names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// Which compaction; without one, the last that counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<EntryId>,
}

params!(UndoCompactionParams, "sessions.compactions.undo", &["key"], |_| json!({
    "key": text(), "agentId": text(), "id": text(),
}));

/// What `sessions.create` takes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CreateParams {
    /// Its key; without one it gets a new one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Names the request: the same name makes the same session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// Its agent; without one, the default agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// The session that it comes from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_session_key: Option<String>,
    /// A name for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Another name for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    /// What it is sorted under.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub category: Option<String>,
    /// Who answers in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// How hard the model thinks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thinking_level: Option<String>,
}

params!(CreateParams, "sessions.create", &[], |_| json!({
    "key": text(), "idempotencyKey": text(), "agentId": text(), "parentSessionKey": text(),
    "label": label(Generation::Four), "displayName": {"type": "string", "minLength": 1, "maxLength": 500},
    "category": label(Generation::Four), "model": text(), "thinkingLevel": text(),
}), no_effect: &[
    ("succeedsParent", "a session that another one follows stays as it is"),
    ("emitCommandHooks", "hooks are told of the session when its first run begins"),
]);
