//! `sessions.resolve`, `sessions.describe` and `sessions.preview`: finding and previewing sessions.

use std::sync::Arc;

use homard_proto::{
    ErrorShape, Generation, SessionKey,
    message::{Message, join_text},
    method::{
        Params,
        sessions::{DescribeParams, ListParams, PreviewParams, ResolveParams},
    },
    session::Record,
};
use serde_json::{Value, json};

use super::matches;
use crate::{
    methods::{session_key, session_key_of_agent, unavailable},
    router::{RpcCall, RpcResult},
    session_changes::ActiveRuns,
};

/// Maximum number of sessions per preview.
const MAX_PREVIEWS: usize = 64;
/// Default number of messages per session.
const DEFAULT_ITEMS: usize = 12;
/// Default number of characters per message.
const DEFAULT_CHARS: usize = 240;

/// Resolves a session by key, id or label.
pub(crate) async fn resolve(mut call: RpcCall) -> Result<RpcResult, ErrorShape> {
    let ResolveParams { key, session_id, label, agent_id, spawned_by, include_global, include_unknown } =
        call.params()?;
    let hub = &call.server.hub;
    let rows = hub.sessions().list().await.map_err(unavailable)?;
    let non_blank =
        |text: &Option<String>| text.as_deref().map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned);
    let (key, session_id, label) = (non_blank(&key), non_blank(&session_id), non_blank(&label));
    // A session named by its key or id is returned regardless of its kind.
    let is_exact = label.is_none();
    let filter = ListParams {
        label: label.clone(),
        agent_id: agent_id.clone(),
        spawned_by,
        include_global: include_global.or(is_exact.then_some(true)),
        include_unknown: include_unknown.or(is_exact.then_some(true)),
        archived: Some("all".into()),
        ..ListParams::default()
    };
    let found = match (key, session_id, label) {
        (None, None, None) => return Err(ErrorShape::invalid("Either key, sessionId, or label is required")),
        (Some(text), None, None) => {
            let key = session_key_of_agent(&call.server, ResolveParams::METHOD, &text, agent_id.as_deref())?;
            single_match(&rows, &format!("No session found: {text}"), |(found, record)| {
                *found == key && matches(found, record, &filter, 0)
            })
        }
        (None, Some(id), None) => single_match(&rows, &format!("No session found: {id}"), |(found, record)| {
            record.session_id.as_str() == id && matches(found, record, &filter, 0)
        }),
        (None, None, Some(label)) => {
            single_match(&rows, &format!("No session found with label: {label}"), |(key, record)| {
                matches(key, record, &filter, 0)
            })
        }
        (..) => return Err(ErrorShape::invalid("specify only one of key, sessionId and label")),
    };
    let key = found?;
    let mut answer = json!({"ok": true, "key": key});
    if call.client.generation == Generation::Four {
        answer["agentId"] = json!(key.agent());
    }
    Ok(answer.into())
}

/// Returns the single matching session; `not_found` is the error text if no session matches.
fn single_match(
    rows: &[(SessionKey, Arc<Record>)],
    not_found: &str,
    is_match: impl Fn(&(SessionKey, Arc<Record>)) -> bool,
) -> Result<SessionKey, ErrorShape> {
    let found: Vec<_> = rows.iter().filter(|row| is_match(row)).map(|(key, _)| key).collect();
    match &found[..] {
        [] => Err(ErrorShape::invalid(not_found)),
        [key] => Ok((*key).clone()),
        several => {
            let keys: Vec<_> = several.iter().map(|key| key.as_str()).collect();
            Err(ErrorShape::invalid(format!("several sessions match; specify the key of one: {}", keys.join(", "))))
        }
    }
}

/// Returns the list row of a session, or `null`.
pub(crate) async fn describe(mut call: RpcCall) -> Result<RpcResult, ErrorShape> {
    let DescribeParams { key } = call.params()?;
    let key = session_key(&call.server, DescribeParams::METHOD, &key)?;
    let hub = &call.server.hub;
    let found = hub.sessions().get(&key).await.map_err(unavailable)?;
    let row = found.map(|record| ActiveRuns::now(hub).row(&key, &record, call.client.generation));
    Ok(json!({"session": row}).into())
}

/// Returns the last messages of several sessions.
pub(crate) async fn preview(mut call: RpcCall) -> Result<RpcResult, ErrorShape> {
    let PreviewParams { keys, limit, max_chars } = call.params()?;
    let hub = &call.server.hub;
    let (limit, chars) = (limit.unwrap_or(DEFAULT_ITEMS), max_chars.unwrap_or(DEFAULT_CHARS));
    let mut previews = Vec::new();
    for key in keys.iter().take(MAX_PREVIEWS) {
        let history = match session_key(&call.server, PreviewParams::METHOD, key) {
            Ok(key) => hub.sessions().history(&key).await.map_err(|error| error.to_string()),
            Err(error) => Err(error.message),
        };
        let (status, items) = match history {
            Ok(Some((_, messages))) => match last_messages(&messages, limit, chars) {
                items if items.is_empty() => ("empty", items),
                items => ("ok", items),
            },
            Ok(None) => ("missing", Vec::new()),
            Err(reason) => {
                tracing::warn!(key = %key, %reason, "failed to read a session for its preview");
                ("error", Vec::new())
            }
        };
        previews.push(json!({"key": key, "status": status, "items": items}));
    }
    Ok(json!({"ts": hub.ambient().now_ms(), "previews": previews}).into())
}

/// Returns the last messages that contain text, oldest first, each on one line and truncated.
fn last_messages(messages: &[Arc<Message>], limit: usize, chars: usize) -> Vec<Value> {
    let rows = messages.iter().rev().filter_map(|message| {
        let (role, text) = match &**message {
            Message::User(user) => ("user", user.content.text()),
            Message::Assistant(rows) => ("assistant", rows.text()),
            Message::ToolResult(result) => ("tool", join_text(&result.content)),
            Message::Other(_) => return None,
        };
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        (!text.is_empty()).then(|| json!({"role": role, "text": truncate(&text, chars)}))
    });
    let mut items: Vec<_> = rows.take(limit).collect();
    items.reverse();
    items
}

fn truncate(text: &str, chars: usize) -> String {
    if text.chars().count() <= chars {
        return text.to_owned();
    }
    let prefix: String = text.chars().take(chars.saturating_sub(1)).collect();
    format!("{}…", prefix.trim_end())
}

#[cfg(test)]
mod tests {
    use homard_proto::message::{Assistant, Block, User};

    use super::*;

    #[test]
    fn a_preview_shows_the_last_messages_truncated() {
        let assistant = |text: &str| {
            let content = vec![Block::text(text)];
            Arc::new(Message::Assistant(Assistant { content, ..Assistant::default() }))
        };
        let messages = [
            Arc::new(Message::User(User::text("one", 0))),
            assistant("two\n\n lines"),
            assistant(" "),
            assistant("é".repeat(30).as_str()),
        ];
        let item = |role: &str, text: &str| json!({"role": role, "text": text});
        let long = format!("{}…", "é".repeat(19));
        assert_eq!(
            last_messages(&messages, 12, 20),
            [item("user", "one"), item("assistant", "two lines"), item("assistant", &long)]
        );
        assert_eq!(last_messages(&messages, 1, 30), [item("assistant", &"é".repeat(30))]);
    }
}
