//! Implementations of the RPC methods, one file per family.

pub(crate) mod agent;
pub(crate) mod agents;
pub(crate) mod chat;
pub(crate) mod commands;
pub(crate) mod cron;
pub(crate) mod devices;
pub(crate) mod health;
pub(crate) mod logs;
pub(crate) mod models;
pub(crate) mod overrides;
pub(crate) mod prompts;
pub(crate) mod runs;
pub(crate) mod sessions;
pub(crate) mod startup;
pub(crate) mod stubs;
mod submit;
pub(crate) mod subscriptions;
pub(crate) mod system;
pub(crate) mod system_info;
pub(crate) mod tasks;
pub(crate) mod usage;

use std::fmt::Display;

use homard_proto::{AgentId, ErrorShape, SessionKey};

pub use self::chat::history::displayed_messages;
use crate::server::ServerState;

/// Error for a failed store operation.
pub(crate) fn unavailable(error: impl Display) -> ErrorShape {
    ErrorShape::unavailable(error.to_string())
}

/// Parses the session key of a request.
fn session_key(server: &ServerState, method: &str, text: &str) -> Result<SessionKey, ErrorShape> {
    session_key_of_agent(server, method, text, None)
}

/// Parses the session key of a request. A key without an agent belongs to the agent that the request names.
fn session_key_of_agent(
    server: &ServerState,
    method: &str,
    text: &str,
    agent: Option<&str>,
) -> Result<SessionKey, ErrorShape> {
    let invalid = |why: String| ErrorShape::invalid(format!("invalid {method} params: {why}"));
    let agents = server.hub.agents();
    let named = agent.map(AgentId::normalize);
    if let Some(named) = named.as_ref().filter(|named| agents.get(named).is_none()) {
        return Err(invalid(format!("unknown agent id \"{named}\"")));
    }
    let key = SessionKey::parse(text, named.as_ref().unwrap_or(agents.default_id()))
        .map_err(|error| invalid(format!("sessionKey: {error}")))?;
    match (&named, key.agent()) {
        (Some(named), Some(owner)) if named != owner => {
            Err(invalid(format!("agent \"{named}\" does not match session key agent \"{owner}\"")))
        }
        _ => Ok(key),
    }
}
