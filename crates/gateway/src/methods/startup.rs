//! `chat.startup` and `chat.metadata`: everything a page needs to show a session, in one request.

use homard_agent::Hub;
use homard_proto::{AgentId, ErrorShape, Generation, SessionKey, method::chat::MetadataParams};
use serde_json::{Value, json};

use super::{chat::history, commands, models};
use crate::router::{Answer, Call};

/// Returns the history, and the commands and models.
pub(crate) async fn startup(call: Call) -> Result<Answer, ErrorShape> {
    let hub = call.server.hub.clone();
    let named = call.asked("sessionKey");
    match history::history(call).await? {
        Answer::Once(mut said, None) => {
            let agents = hub.agents();
            let key = named.and_then(|key| SessionKey::parse(&key, agents.default_id()).ok());
            said["metadata"] = metadata_of(&hub, key.as_ref().and_then(SessionKey::agent))?;
            Ok(said.into())
        }
        other @ (Answer::Once(..) | Answer::Held(..) | Answer::Twice(..) | Answer::Missed(_)) => Ok(other),
    }
}

/// Returns the commands and models.
pub(crate) async fn metadata(mut call: Call) -> Result<Answer, ErrorShape> {
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
