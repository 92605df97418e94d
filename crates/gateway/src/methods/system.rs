//! Methods about the gateway itself: tools, environments, memory, and features that have nothing to list here.

use homard_agent::tool::{Authority, RunOrigin, ToolSpec};
use homard_command::OWNER;
use homard_proto::{
    ErrorShape,
    method::queries::{
        AgentQueryParams, CatalogParams, NodeListParams, NothingParams, SystemEventParams, ToolsParams,
        UsageStatusParams,
    },
};
use homard_schedule::job::WakeMode;
use serde_json::{Value, json};

use super::{models::profile, session_key, unavailable};
use crate::router::{RpcCall, RpcResult};

/// `node.list`: nodes are not supported, so the list is empty.
pub(crate) async fn nodes(mut call: RpcCall) -> Result<RpcResult, ErrorShape> {
    let NodeListParams {} = call.params()?;
    Ok(json!({"ts": call.server.hub.ambient().now_ms(), "nodes": []}).into())
}

/// `usage.status`: providers are not asked for their quotas.
pub(crate) async fn usage_status(mut call: RpcCall) -> Result<RpcResult, ErrorShape> {
    let UsageStatusParams {} = call.params()?;
    Ok(json!({"updatedAt": call.server.hub.ambient().now_ms(), "providers": []}).into())
}

/// `tools.catalog`: the tools of an agent.
pub(crate) async fn tools(mut call: RpcCall) -> Result<RpcResult, ErrorShape> {
    let CatalogParams { agent_id } = call.params()?;
    let agents = call.server.hub.agents();
    let profile = profile(&agents, agent_id.as_deref(), "tools.catalog")?;
    let tool = |spec: &ToolSpec| {
        json!({
            "id": spec.name, "label": spec.name, "description": spec.description, "source": "core",
            "defaultProfiles": ["full"],
        })
    };
    let tools: Vec<_> = profile.toolbox.specs().iter().map(tool).collect();
    Ok(json!({
        "agentId": profile.id, "profiles": [{"id": "full", "label": "Full"}],
        "groups": [{"id": "tools", "label": "Tools", "source": "core", "tools": tools}],
    })
    .into())
}

/// `tools.effective`: the tools of an agent in a session, for a run started by this connection.
pub(crate) async fn effective_tools(mut call: RpcCall) -> Result<RpcResult, ErrorShape> {
    let ToolsParams { agent_id, session_key: key } = call.params()?;
    let agents = call.server.hub.agents();
    let key = key.map(|key| session_key(&call.server, "tools.effective", &key)).transpose()?;
    let named = agent_id.or_else(|| Some(key.as_ref()?.agent()?.to_string()));
    let profile = profile(&agents, named.as_deref(), "tools.effective")?;
    let key = key.unwrap_or_else(|| profile.id.main_session());
    let tool = |spec: &ToolSpec| {
        let summary = spec.description.lines().next().unwrap_or_default();
        json!({
            "id": spec.name, "label": spec.name, "description": summary, "rawDescription": spec.description,
            "source": "core",
        })
    };
    let owner = RunOrigin { principal: OWNER.to_owned(), authority: call.client.authority(), ..RunOrigin::default() };
    let toolbox = profile.tools_for(&owner, &key, profile.spec());
    let tools: Vec<_> = toolbox.specs().iter().map(tool).collect();
    let group = json!({"id": "core", "label": "Tools", "source": "core", "tools": tools});
    Ok(json!({"agentId": profile.id, "profile": "full", "groups": [group]}).into())
}

/// `environments.list`: agents run on the gateway's machine only.
pub(crate) async fn environments(call: RpcCall) -> Result<RpcResult, ErrorShape> {
    let local = json!({
        "id": "gateway", "type": "local", "label": "Gateway", "status": "available",
        "capabilities": ["agent.run", "sessions", "tools", "workspace"],
    });
    empty(call, json!({"environments": [local]}))
}

/// `doctor.memory.status`: how memory is searched. It is a full-text search, which clients call the provider `none`,
/// because it uses no embedding model.
pub(crate) async fn memory_status(mut call: RpcCall) -> Result<RpcResult, ErrorShape> {
    let AgentQueryParams { agent_id } = call.params()?;
    let agents = call.server.hub.agents();
    let profile = profile(&agents, agent_id.as_deref(), "doctor.memory.status")?;
    let searches = profile.toolbox.specs().iter().any(|spec| spec.name == "memory_search");
    let state = if searches { json!({"ok": true}) } else { json!({"ok": false, "error": "memory is disabled"}) };
    Ok(json!({
        "agentId": profile.id, "provider": "none", "searchRuntimeRegistered": searches, "embedding": state,
    })
    .into())
}

/// `webSearch.status`: whether an agent can search the web. The search provider is set in the config and is not
/// reported here.
pub(crate) async fn web_search_status(mut call: RpcCall) -> Result<RpcResult, ErrorShape> {
    let AgentQueryParams { agent_id } = call.params()?;
    let agents = call.server.hub.agents();
    let profile = profile(&agents, agent_id.as_deref(), "webSearch.status")?;
    let is_on = profile.toolbox.specs().iter().any(|spec| spec.name == "web_search");
    let route = if is_on {
        json!({"kind": "managed", "label": "Configured in tools.web.search", "testable": false})
    } else {
        let reason = "No search provider is configured; see tools.web.search in the config.";
        json!({"kind": "unavailable", "label": "No search provider available", "testable": false, "reason": reason})
    };
    let spec = profile.spec();
    let model = json!({"provider": spec.provider, "id": spec.model, "runtime": "homard", "runtimeLabel": "Homard"});
    Ok(json!({
        "enabled": is_on, "provider": null, "agentId": profile.id, "model": model, "providers": [], "route": route,
    })
    .into())
}

/// `system-event`: queues a text for the main session of the default agent, to be read with its next heartbeat.
pub(crate) async fn system_event(mut call: RpcCall) -> Result<RpcResult, ErrorShape> {
    let SystemEventParams { text } = call.params()?;
    let schedule = call.server.schedule.as_ref().map_err(ErrorShape::unavailable)?;
    schedule.wake(None, text.trim(), Authority::Full, &WakeMode::NextHeartbeat).await.map_err(unavailable)?;
    Ok(json!({"ok": true}).into())
}

/// Returns a fixed response for a feature that is not supported.
fn empty(mut call: RpcCall, answer: Value) -> Result<RpcResult, ErrorShape> {
    let NothingParams {} = call.params()?;
    Ok(answer.into())
}

/// `question.list`: questions to people are not supported.
pub(crate) async fn questions(call: RpcCall) -> Result<RpcResult, ErrorShape> {
    empty(call, json!({"questions": []}))
}

/// Approvals of other kinds than commands: they are not supported.
pub(crate) async fn other_approvals(call: RpcCall) -> Result<RpcResult, ErrorShape> {
    empty(call, json!([]))
}

/// `themes.list`: custom themes are not supported.
pub(crate) async fn themes(call: RpcCall) -> Result<RpcResult, ErrorShape> {
    let default_theme = json!({"id": "default", "source": "builtin"});
    empty(call, json!({"themes": [], "current": {"requestedId": null}, "theme": default_theme, "definition": null}))
}
