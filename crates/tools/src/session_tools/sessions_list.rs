//! The `sessions_list` tool: lists sessions.

use std::{collections::HashMap, sync::Arc};

use async_trait::async_trait;
use homard_agent::{
    hub::{LiveRunStatus, RunProgress},
    row::session_row,
    tool::{Tool, ToolClass, ToolCx, ToolResult, ToolSpec},
};
use homard_proto::{AgentId, Generation, SessionKey, session::Record};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    SessionToolError, SessionToolRules, clamp_number, into_result, non_blank, parse, sessions_history,
    visibility::VisibleSessions,
};

/// Default number of sessions.
const DEFAULT_LIMIT: usize = 50;
/// Maximum number of sessions.
const MAX_LIMIT: usize = 200;
/// Maximum number of messages per session.
const MAX_MESSAGES: usize = 20;
/// Kinds that can be filtered for.
const KINDS: [&str; 6] = ["main", "group", "cron", "hook", "node", "other"];

/// Lists the sessions that a run can see.
#[derive(Debug, Clone)]
pub struct SessionsList {
    rules: Arc<SessionToolRules>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Args {
    kinds: Option<Vec<String>>,
    limit: Option<f64>,
    offset: Option<f64>,
    active_minutes: Option<f64>,
    message_limit: Option<f64>,
    label: Option<String>,
    agent_id: Option<String>,
    search: Option<String>,
    exclude_subagents: Option<bool>,
}

impl SessionsList {
    /// Creates the tool with these rules.
    pub fn new(rules: Arc<SessionToolRules>) -> Self {
        Self { rules }
    }

    async fn list(&self, cx: &ToolCx, arguments: Value) -> Result<Value, SessionToolError> {
        let arguments: Args = parse(arguments)?;
        let visible = VisibleSessions::of(cx, &self.rules).await?;
        let now = visible.hub.ambient().now_ms();
        let rows: Vec<_> = visible.rows().filter(|(key, record)| arguments.fits(key, record, now)).collect();
        let (limit, offset) = (
            clamp_number(arguments.limit, DEFAULT_LIMIT, MAX_LIMIT).max(1),
            clamp_number(arguments.offset, 0, usize::MAX),
        );
        let progress_by_key: HashMap<_, _> =
            visible.hub.runs().live().into_iter().map(|LiveRunStatus { key, progress, .. }| (key, progress)).collect();
        let messages = clamp_number(arguments.message_limit, 0, MAX_MESSAGES);
        let mut listed = Vec::new();
        for (key, record) in rows.iter().skip(offset).take(limit) {
            let mut row = describe(key, record, progress_by_key.get(key).copied());
            if messages > 0 {
                let history = visible.hub.sessions().history(key).await.map_err(SessionToolError::error)?;
                let history_messages = history.map(|(_, history_messages)| history_messages).unwrap_or_default();
                row["messages"] =
                    sessions_history::sanitize_history(&history_messages, messages, false).messages.into();
            }
            listed.push(row);
        }
        let next = offset.saturating_add(listed.len());
        let mut details = json!({"count": listed.len(), "sessions": listed});
        if next < rows.len() {
            details["totalCount"] = rows.len().into();
            details["nextOffset"] = next.into();
        }
        Ok(details)
    }
}

impl Args {
    fn fits(&self, key: &SessionKey, record: &Record, now: u64) -> bool {
        let kinds: Vec<_> = self.kinds.iter().flatten().map(|kind| kind.trim().to_lowercase()).collect();
        let agent = non_blank(self.agent_id.as_deref()).map(AgentId::normalize);
        // `as` saturates, so out-of-range values become the nearest limit.
        let since = self.active_minutes.map(|minutes| now.saturating_sub((minutes as u64).saturating_mul(60_000)));
        (kinds.is_empty() || kinds.iter().any(|wanted| wanted == kind(key)))
            && agent.is_none_or(|agent| key.agent() == Some(&agent))
            && since.is_none_or(|since| record.updated_at >= since)
            && non_blank(self.label.as_deref()).is_none_or(|label| record.label.as_deref() == Some(label))
            && non_blank(self.search.as_deref()).is_none_or(|text| mentions(key, record, text))
            && !(self.exclude_subagents == Some(true) && key.is_subagent())
    }
}

fn mentions(key: &SessionKey, record: &Record, text: &str) -> bool {
    let text = text.to_lowercase();
    let display_name = record.extra.get("displayName").and_then(Value::as_str);
    let names = [Some(key.as_str()), record.label.as_deref(), display_name];
    names.into_iter().flatten().any(|name| name.to_lowercase().contains(&text))
}

/// Returns the kind of session that a key denotes.
fn kind(key: &SessionKey) -> &'static str {
    let has_prefix = |prefix: &str| key.rest().starts_with(prefix);
    match key.kind() {
        "global" => "main",
        _ if key.is_main() => "main",
        _ if key.is_cron() => "cron",
        _ if has_prefix("hook:") => "hook",
        _ if has_prefix("node-") || has_prefix("node:") => "node",
        "group" => "group",
        _ => "other",
    }
}

fn describe(key: &SessionKey, record: &Record, progress: Option<RunProgress>) -> Value {
    let mut row = session_row(key, record, Generation::Three);
    row["kind"] = kind(key).into();
    let channel = ["channel", "lastChannel"].into_iter().find_map(|name| row.get(name).cloned());
    row["channel"] = channel.unwrap_or_else(|| "unknown".into());
    row["status"] = progress.map_or("idle", RunProgress::name).into();
    row
}

#[async_trait]
impl Tool for SessionsList {
    fn spec(&self) -> ToolSpec {
        let kinds = KINDS.join(", ");
        ToolSpec {
            name: "sessions_list".to_owned(),
            description:
                "List the sessions that are visible to this one, newest first, and whether they are active. Use \
                          messageLimit to see the last messages of each."
                    .to_owned(),
            parameters: json!({
                "type": "object",
                "required": [],
                "properties": {
                    "kinds": {"type": "array", "items": {"type": "string"}, "description": format!("Only these: {kinds}")},
                    "limit": {"type": "number", "description": "How many at most; 50 by default, never more than 200"},
                    "offset": {"type": "number", "description": "How many to skip, to continue a long list"},
                    "activeMinutes": {"type": "number", "description": "Only those updated within this many minutes"},
                    "messageLimit": {"type": "number", "description": "How many of the last messages of each to show; at most 20"},
                    "label": {"type": "string", "description": "Only the one with this label"},
                    "agentId": {"type": "string", "description": "Only those of this agent"},
                    "search": {"type": "string", "description": "Only those whose key or name contains this"},
                    "excludeSubagents": {"type": "boolean", "description": "Leave out those of sub-agents"},
                },
            }),
        }
    }

    fn class(&self) -> ToolClass {
        ToolClass::Read
    }

    async fn call(&self, cx: ToolCx, arguments: Value) -> ToolResult {
        into_result("sessions_list", self.list(&cx, arguments).await)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_keys_determine_kinds() {
        for (text, expected) in [
            ("main", "main"),
            ("global", "main"),
            ("agent:ops:cron:job", "cron"),
            ("hook:u1", "hook"),
            ("node-phone", "node"),
            ("telegram:group:1", "group"),
            ("subagent:u1", "other"),
            ("telegram:direct:1", "other"),
        ] {
            let key = SessionKey::parse(text, &AgentId::main()).unwrap();
            assert_eq!((text, kind(&key)), (text, expected));
            assert!(KINDS.contains(&expected));
        }
    }
}
