//! `sessions.*`: listing sessions. Submodules: `look` (queries), `change` (modifications), `compact` (compaction).

pub(crate) mod change;
pub(crate) mod compact;
mod levels;
pub(crate) mod queries;

use std::cmp::Reverse;

use homard_proto::{AgentId, ErrorShape, Generation, SessionKey, method::sessions::ListParams, session::Record};
use serde_json::{Value, json};

use super::unavailable;
use crate::{
    router::{RpcCall, RpcResult},
    server::ServerState,
    session_changes::ActiveRuns,
};

/// Lists matching sessions, newest first.
pub(crate) async fn list(mut call: RpcCall) -> Result<RpcResult, ErrorShape> {
    let params: ListParams = call.params()?;
    let (server, generation) = (&call.server, call.client.generation);
    let now = server.hub.ambient().now_ms();
    let mut rows = server.hub.sessions().list().await.map_err(unavailable)?;
    let agents = server.hub.agents();
    let is_configured = |key: &SessionKey| key.agent().is_some_and(|agent| agents.get(agent).is_some());
    rows.retain(|(key, record)| {
        matches(key, record, &params, now) && (params.configured_agents_only != Some(true) || is_configured(key))
    });
    if params.sort_by.as_deref() == Some("lastInteractionAt") {
        rows.sort_by_key(|(_, record)| Reverse(last_interaction(record).unwrap_or(record.updated_at)));
    }
    let total = rows.len();
    let offset = params.offset.unwrap_or(0).min(total);
    let limit = params.limit.unwrap_or(usize::MAX);
    let active_runs = ActiveRuns::now(&server.hub);
    let page = rows.iter().skip(offset).take(limit);
    let sessions: Vec<_> = page.map(|(key, record)| active_runs.row(key, record, generation)).collect();
    let mut answer = json!({
        "ts": now, "path": path(server, server.hub.agents().default_id()), "count": sessions.len(),
        "defaults": defaults(server),
    });
    if generation == Generation::Four {
        let next = offset + sessions.len();
        answer["totalCount"] = total.into();
        answer["limitApplied"] = params.limit.into();
        answer["hasMore"] = (next < total).into();
        answer["nextOffset"] = (next < total).then_some(next).into();
    }
    answer["sessions"] = sessions.into();
    Ok(answer.into())
}

/// Path where OpenClaw keeps an agent's sessions.
pub(super) fn path(server: &ServerState, agent: &AgentId) -> Value {
    json!(server.state_dir.join("agents").join(agent.as_str()).join("sessions").join("sessions.json"))
}

/// Model of a session that has no override.
pub(super) fn defaults(server: &ServerState) -> Value {
    let agents = server.hub.agents();
    let spec = agents.get(agents.default_id()).map(|profile| profile.spec());
    json!({
        "modelProvider": spec.map(|spec| &spec.provider), "model": spec.map(|spec| &spec.model),
        "contextTokens": spec.map(|spec| spec.context_window),
    })
}

/// Time when a person last wrote to a session, if ever.
fn last_interaction(record: &Record) -> Option<u64> {
    record.extra.get("lastInteractionAt").and_then(Value::as_u64)
}

/// True if a session matches the filter. Order, paging and the restriction to configured agents are applied elsewhere.
fn matches(key: &SessionKey, record: &Record, params: &ListParams, now: u64) -> bool {
    let ListParams {
        limit: _,
        offset: _,
        sort_by: _,
        configured_agents_only: _,
        active_minutes,
        label,
        spawned_by,
        agent_id,
        search,
        include_global,
        include_unknown,
        exclude_subagents,
        has_board,
        archived,
        require_last_interaction,
    } = params;
    let has_listed_kind = match key.kind() {
        "global" => include_global.unwrap_or(false),
        "unknown" => include_unknown.unwrap_or(false),
        _ => true,
    };
    let is_archived = record.extra.get("archived") == Some(&Value::Bool(true));
    let matches_archived = match archived {
        Some(Value::Bool(true)) => is_archived,
        Some(Value::String(_)) => true,
        _ => !is_archived,
    };
    let matches_text = |matches_text: &Option<String>, found: Option<&str>| {
        matches_text.as_deref().is_none_or(|matches_text| found == Some(matches_text.trim()))
    };
    let agent = agent_id.as_deref().map(AgentId::normalize);
    let is_active =
        active_minutes.is_none_or(|minutes| record.updated_at >= now.saturating_sub(minutes.saturating_mul(60_000)));
    has_listed_kind
        && is_active
        // Boards are not supported.
        && *has_board != Some(true)
        && matches_archived
        && !(*require_last_interaction == Some(true) && last_interaction(record).is_none())
        && !(*exclude_subagents == Some(true) && key.is_subagent())
        && matches_text(label, record.label.as_deref())
        && matches_text(spawned_by, record.spawned_by.as_deref())
        && agent.is_none_or(|agent| key.agent() == Some(&agent))
        && search.as_deref().is_none_or(|search| contains_text(key, record, search))
}

/// True if the key, a name or the id contains the text, ignoring case.
fn contains_text(key: &SessionKey, record: &Record, text: &str) -> bool {
    let text = text.trim().to_lowercase();
    let extra_text = |name: &str| record.extra.get(name).and_then(Value::as_str);
    let names = [Some(key.as_str()), Some(record.session_id.as_str()), record.label.as_deref()];
    let names = names.into_iter().chain([extra_text("displayName"), extra_text("subject")]).flatten();
    names.into_iter().any(|name| name.to_lowercase().contains(&text))
}

#[cfg(test)]
mod tests {
    use homard_agent::row::session_row;
    use homard_proto::SessionId;

    use super::*;

    fn session(key: &str, label: Option<&str>) -> (SessionKey, Record) {
        let mut record = Record::new(SessionId::parse("s-1").unwrap(), 600_000);
        record.label = label.map(str::to_owned);
        (SessionKey::parse(key, &AgentId::main()).unwrap(), record)
    }

    #[test]
    fn filters_select_the_listed_sessions() {
        let (key, record) = session("agent:ops:Garden", Some("Plants"));
        let listed = |params: Value| matches(&key, &record, &serde_json::from_value(params).unwrap(), 660_000);
        for params in [
            json!({}),
            json!({"label": "Plants"}),
            json!({"agentId": "OPS"}),
            json!({"search": "PLANT"}),
            json!({"search": "garden"}),
            json!({"activeMinutes": 1}),
            json!({"excludeSubagents": true, "hasBoard": false}),
            json!({"archived": "all"}),
            json!({"archived": false}),
        ] {
            assert!(listed(params.clone()), "{params}");
        }
        for params in [
            json!({"hasBoard": true}),
            json!({"archived": true}),
            json!({"requireLastInteraction": true}),
            json!({"label": "plants"}),
            json!({"agentId": "main"}),
            json!({"search": "kitchen"}),
            json!({"spawnedBy": "agent:main:main"}),
        ] {
            assert!(!listed(params.clone()), "{params}");
        }
        assert!(!matches(&key, &record, &serde_json::from_value(json!({"activeMinutes": 1})).unwrap(), 660_001));
    }

    #[test]
    fn the_global_session_is_listed_on_request() {
        let (key, record) = session("global", None);
        let listed = |params: Value| matches(&key, &record, &serde_json::from_value(params).unwrap(), 0);
        assert!(!listed(json!({})));
        assert!(!listed(json!({"includeUnknown": true})));
        assert!(listed(json!({"includeGlobal": true})));
    }

    #[test]
    fn a_row_contains_only_known_public_fields() {
        let (key, mut record) = session("main", None);
        record.total_tokens = Some(12);
        record.extra.insert("lastChannel".to_owned(), "webchat".into());
        record.extra.insert("authProfileOverride".to_owned(), "private".into());
        let expected = json!({
            "key": "agent:main:main", "kind": "direct", "updatedAt": 600_000, "sessionId": "s-1", "totalTokens": 12,
            "lastChannel": "webchat",
        });
        assert_eq!(session_row(&key, &record, Generation::Three), expected);
        let mut newer = expected;
        newer["agentId"] = "main".into();
        newer["isMain"] = true.into();
        assert_eq!(session_row(&key, &record, Generation::Four), newer);
    }
}
