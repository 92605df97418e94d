//! Rows of session lists, with and without the gateway.

use std::cmp::Ordering;

use homard_proto::{Generation, SessionKey, session::Record};
use serde_json::{Map, Value, json};

/// Fields of a record that this version only preserves, and that lists show.
const PRESERVED_FIELDS: [&str; 21] = [
    "modelOverride",
    "providerOverride",
    "displayName",
    "channel",
    "subject",
    "chatType",
    "origin",
    "systemSent",
    "reasoningLevel",
    "elevatedLevel",
    "responseUsage",
    "deliveryContext",
    "lastChannel",
    "lastTo",
    "lastAccountId",
    "archived",
    "pinned",
    "unread",
    "icon",
    "color",
    "category",
];

/// Sort order of lists.
pub fn newest_first(a_key: &SessionKey, a: &Record, b_key: &SessionKey, b: &Record) -> Ordering {
    b.updated_at.cmp(&a.updated_at).then_with(|| a_key.cmp(b_key))
}

/// Builds the row of a session in the status report.
pub fn status_row(key: &SessionKey, record: &Record, now: u64) -> Value {
    let (total, window) = (record.total_tokens, record.context_tokens);
    let used = total.zip(window.filter(|&window| window > 0));
    json!({
        "agentId": key.agent(), "key": key, "kind": key.kind(), "sessionId": record.session_id,
        "updatedAt": record.updated_at, "age": now.saturating_sub(record.updated_at),
        "abortedLastRun": record.aborted_last_run, "thinkingLevel": record.thinking_level,
        "inputTokens": record.input_tokens, "outputTokens": record.output_tokens, "totalTokens": total,
        "remainingTokens": used.map(|(total, window)| window.saturating_sub(total)),
        "percentUsed": used.map(|(total, window)| (total.saturating_mul(100) / window).min(999)),
        "model": record.model, "contextTokens": window, "flags": [format!("id:{}", record.session_id)],
    })
}

/// Builds the row of a session.
pub fn session_row(key: &SessionKey, record: &Record, generation: Generation) -> Value {
    let mut row = Map::new();
    let mut put = |name: &str, value: Value| {
        if !value.is_null() {
            row.insert(name.to_owned(), value);
        }
    };
    put("key", json!(key));
    put("kind", key.kind().into());
    put("label", json!(record.label));
    put("updatedAt", record.updated_at.into());
    put("sessionId", json!(record.session_id));
    put("spawnedBy", json!(record.spawned_by));
    put("sendPolicy", json!(record.send_policy));
    put("thinkingLevel", json!(record.thinking_level));
    put("verboseLevel", json!(record.verbose_level));
    put("modelProvider", json!(record.model_provider));
    put("model", json!(record.model));
    put("contextTokens", json!(record.context_tokens));
    put("inputTokens", json!(record.input_tokens));
    put("outputTokens", json!(record.output_tokens));
    put("totalTokens", json!(record.total_tokens));
    put("abortedLastRun", json!(record.aborted_last_run));
    for name in PRESERVED_FIELDS {
        put(name, record.extra.get(name).cloned().unwrap_or_default());
    }
    if generation == Generation::Four {
        put("agentId", json!(key.agent()));
        put("isMain", key.is_main().into());
    }
    Value::Object(row)
}
