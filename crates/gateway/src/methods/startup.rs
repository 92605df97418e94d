//! `chat.startup` and `chat.metadata`: everything a page needs to show a session, in one request.

use homard_agent::Hub;
use homard_proto::{AgentId, ErrorShape, Generation, SessionKey, method::chat::MetadataParams};
use serde_json::{Value, json};

use super::{chat::history, commands, models};
use crate::router::{RpcCall, RpcResult};

/// Returns the history, and the commands and models.
pub(crate) async fn startup(call: RpcCall) -> Result<RpcResult, ErrorShape> {
    let hub = call.server.hub.clone();
    let requested_key = call.raw_param("sessionKey");
    match history::history(call).await? {
        RpcResult::Single(mut payload, None) => {
            let agents = hub.agents();
            let key = requested_key.and_then(|key| SessionKey::parse(&key, agents.default_id()).ok());
            payload["metadata"] = metadata_of(&hub, key.as_ref().and_then(SessionKey::agent))?;
            Ok(payload.into())
        }
        other @ (RpcResult::Single(..)
        | RpcResult::Gated(..)
        | RpcResult::Revoking(..)
        | RpcResult::WithFinal(..)
        | RpcResult::Resume(_)) => Ok(other),
    }
}

/// Returns the commands and models.
pub(crate) async fn metadata(mut call: RpcCall) -> Result<RpcResult, ErrorShape> {
    let MetadataParams { agent_id, session_key } = call.params()?;
    let hub = &call.server.hub;
    let agents = hub.agents();
    let key = session_key.and_then(|key| SessionKey::parse(&key, agents.default_id()).ok());
    let named = agent_id.as_deref().map(AgentId::normalize);
    Ok(metadata_of(hub, named.as_ref().or(key.as_ref().and_then(SessionKey::agent)))?.into())
}

fn metadata_of(hub: &Hub, agent: Option<&AgentId>) -> Result<Value, ErrorShape> {
    let (agents, now) = (hub.agents(), hub.ambient().now_ms());
    let profile = models::profile(&agents, agent.map(AgentId::as_str), "chat.metadata")?;
    let models = models::choices(profile, now, Generation::Four);
    Ok(json!({"models": models, "commands": commands::all(hub, false)}))
}
