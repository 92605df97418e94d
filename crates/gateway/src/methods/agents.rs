//! `agents.list` and `agent.identity.get`: the configured agents and their identities.

use homard_agent::{Agents, Profile, profile::AgentIdentity};
use homard_proto::{
    AgentId, ErrorShape, Generation, SessionKey,
    method::agents::{IdentityParams, ListParams},
};
use serde_json::{Map, Value, json};

use crate::router::{RpcCall, RpcResult};

/// Name of an agent that has none.
const DEFAULT_NAME: &str = "Assistant";
/// Avatar of an agent that has none.
const DEFAULT_AVATAR: &str = "A";

/// Lists all agents, the default one first.
pub(crate) async fn list(mut call: RpcCall) -> Result<RpcResult, ErrorShape> {
    let ListParams {} = call.params()?;
    let (agents, generation) = (call.server.hub.agents(), call.client.generation);
    let default = agents.default_id();
    let mut profiles: Vec<_> = agents.iter().collect();
    profiles.sort_by_key(|profile| (profile.id != *default, &profile.id));
    let rows: Vec<_> = profiles.into_iter().map(|profile| row(profile, generation)).collect();
    let mut answer = json!({"defaultId": default, "mainKey": "main", "scope": "per-sender", "agents": rows});
    if generation == Generation::Four {
        answer["ownership"] = "sole".into();
        answer["selectionRequired"] = false.into();
    }
    Ok(answer.into())
}

fn row(profile: &Profile, generation: Generation) -> Value {
    let mut row = json!({"id": profile.id});
    if let Some(name) = non_blank(profile.name.as_ref()) {
        row["name"] = name.into();
    }
    let AgentIdentity { name, emoji, theme, avatar } = &profile.identity;
    let parts = [("name", name), ("theme", theme), ("emoji", emoji), ("avatar", avatar)];
    let identity: Map<_, _> = parts
        .into_iter()
        .filter_map(|(part, text)| Some((part.to_owned(), non_blank(text.as_ref())?.into())))
        .collect();
    if !identity.is_empty() {
        row["identity"] = identity.into();
    }
    if generation == Generation::Four {
        let spec = profile.spec();
        row["kind"] = "agent".into();
        // Without it, clients assume that no model is configured.
        row["model"] = json!({"primary": format!("{}/{}", spec.provider, spec.model)});
    }
    row
}

/// Returns the identity of an agent; an unknown one gets the default identity.
pub(crate) async fn identity(mut call: RpcCall) -> Result<RpcResult, ErrorShape> {
    let IdentityParams { agent_id, session_key } = call.params()?;
    let agents = call.server.hub.agents();
    let id = resolve_agent(agent_id.as_ref(), session_key.as_ref(), agents.default_id())?;
    Ok(identity_json(&agents, &id).into())
}

/// Builds an agent's name and avatar.
pub(crate) fn identity_json(agents: &Agents, id: &AgentId) -> Value {
    let profile = agents.get(id);
    let identity = profile.map(|profile| profile.identity.clone()).unwrap_or_default();
    let configured_name = profile.and_then(|profile| profile.name.as_ref());
    let emoji = non_blank(identity.emoji.as_ref());
    let mut answer = json!({
        "agentId": id,
        "name": non_blank(identity.name.as_ref()).or(non_blank(configured_name)).unwrap_or(DEFAULT_NAME),
        "avatar": non_blank(identity.avatar.as_ref()).or(emoji).unwrap_or(DEFAULT_AVATAR),
    });
    if let Some(emoji) = emoji {
        answer["emoji"] = emoji.into();
    }
    answer
}

/// Resolves the agent of a request: by name, by its session, or the default one.
fn resolve_agent(agent: Option<&String>, key: Option<&String>, default: &AgentId) -> Result<AgentId, ErrorShape> {
    let invalid = |why: String| ErrorShape::invalid(format!("invalid agent.identity.get params: {why}"));
    let named = non_blank(agent).map(AgentId::normalize);
    let key = non_blank(key).map(|key| SessionKey::parse(key, named.as_ref().unwrap_or(default)));
    let key = key.transpose().map_err(|error| invalid(format!("sessionKey: {error}")))?;
    let owner = key.as_ref().and_then(SessionKey::agent);
    match (named, owner) {
        (Some(named), Some(owner)) if named != *owner => {
            Err(invalid(format!("agent \"{named}\" does not match session key agent \"{owner}\"")))
        }
        (Some(named), _) => Ok(named),
        (None, owner) => Ok(owner.unwrap_or(default).clone()),
    }
}

/// Returns the trimmed text, unless it is blank.
fn non_blank(text: Option<&String>) -> Option<&str> {
    text.map(|text| text.trim()).filter(|text| !text.is_empty())
}
