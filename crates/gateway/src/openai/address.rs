//! Resolves the agent and the session of a request.

use axum::http::HeaderMap;
use homard_agent::Agents;
use homard_proto::{AgentId, RunId, SessionKey};
use serde_json::{Value, json};

use super::{error::ApiError, stream::OnDisconnect};
use crate::server::ServerState;

/// Model name prefix by which every agent can be addressed.
const MODEL_PREFIX: &str = "openclaw";

/// Session key parts that denote a kind of session.
const RESERVED_PARTS: [&str; 4] = ["group", "channel", "direct", "dm"];

/// The parts of a request that select agent and session.
#[derive(Debug, Clone, Copy)]
pub(super) struct RequestTarget<'a> {
    pub(super) headers: &'a HeaderMap,
    pub(super) model: Option<&'a str>,
    pub(super) user: Option<&'a str>,
    /// Id of the previous response that the request continues.
    pub(super) previous: Option<&'a str>,
    /// Prefix of the keys of sessions created by this API.
    pub(super) key_prefix: &'static str,
    /// True if a later request may refer to this response.
    pub(super) is_referable: bool,
}

/// Destination of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SessionTarget {
    pub(super) key: SessionKey,
    pub(super) on_disconnect: OnDisconnect,
    /// True if the session belongs to this request only and no later one can name it.
    pub(super) is_ephemeral: bool,
}

impl RequestTarget<'_> {
    /// Finds the session: the one named by a header, that of the previous response, the user's, or a new one named
    /// after `nonce`.
    pub(super) async fn find(&self, server: &ServerState, nonce: &str) -> Result<SessionTarget, ApiError> {
        let agents = server.hub.agents();
        let selected = self.agent(&agents)?;
        let agent = selected.as_ref().unwrap_or(agents.default_id());
        let target =
            |key: SessionKey| SessionTarget { key, on_disconnect: OnDisconnect::Continue, is_ephemeral: false };
        if let Some(text) = header(self.headers, &["x-openclaw-session-key"]) {
            let key = SessionKey::parse(text, agent).map_err(|error| wrong_key("x-openclaw-session-key", &error))?;
            return match key.agent() {
                Some(other) if agents.get(other).is_none() => Err(ApiError::invalid_field(
                    "x-openclaw-session-key",
                    &format!("names the unknown agent \"{other}\"; {}", known_agents(&agents)),
                )),
                Some(_) | None => Ok(target(key)),
            };
        }
        if let Some(previous) = self.previous {
            let key = session_of(server, previous).await?;
            return match (&selected, key.agent()) {
                (Some(selected), Some(owner)) if selected != owner => Err(ApiError::invalid_field(
                    "previous_response_id",
                    &format!(
                        "refers to a response of the agent \"{owner}\", but the request selects \"{selected}\"; select \
                         \"{owner}\" or no agent"
                    ),
                )),
                _ => Ok(target(key)),
            };
        }
        let (rest, on_disconnect) = match self.user.filter(|user| !user.trim().is_empty()) {
            Some(user) => (format!("{}-user:{}", self.key_prefix, escape_user(user)), OnDisconnect::Continue),
            None => (format!("{}:{nonce}", self.key_prefix), OnDisconnect::Abort),
        };
        let key =
            SessionKey::parse(&format!("agent:{agent}:{rest}"), agent).map_err(|error| wrong_key("user", &error))?;
        let is_ephemeral = on_disconnect == OnDisconnect::Abort && !self.is_referable;
        Ok(SessionTarget { key, on_disconnect, is_ephemeral })
    }

    /// Returns the agent that is requested by name.
    fn agent(&self, agents: &Agents) -> Result<Option<AgentId>, ApiError> {
        if let Some(text) = header(self.headers, &["x-openclaw-agent-id", "x-openclaw-agent"]) {
            let id = AgentId::normalize(text);
            return match agents.get(&id) {
                Some(_) => Ok(Some(id)),
                None => {
                    let problem = format!("names the unknown agent \"{text}\"; {}", known_agents(agents));
                    Err(ApiError::invalid_field("x-openclaw-agent-id", &problem))
                }
            };
        }
        match self.model.map_or(RequestedModel::Default, RequestedModel::read) {
            RequestedModel::Default | RequestedModel::Other => Ok(None),
            RequestedModel::Agent(id) => check_agent(agents, id).map(Some),
        }
    }
}

/// Escapes a user id to one part of a session key, injectively: keys are divided by colons and case-insensitive.
fn escape_user(user: &str) -> String {
    let mut part = String::with_capacity(user.len());
    for (at, byte) in user.bytes().enumerate() {
        let is_plain = matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-');
        if is_plain && !(at == 0 && RESERVED_PARTS.contains(&user)) {
            part.push(char::from(byte));
        } else {
            part.push_str(&format!("%{byte:02x}"));
        }
    }
    part
}

/// Meaning of a model name.
#[derive(Debug, PartialEq, Eq)]
enum RequestedModel<'a> {
    Default,
    Agent(&'a str),
    /// Another vendor's model name: programs written for one vendor send its names to any server. It is ignored.
    Other,
}

impl<'a> RequestedModel<'a> {
    fn read(name: &'a str) -> Self {
        let name = name.trim();
        let after = |prefix: &str| {
            let (start, rest) = name.split_at_checked(prefix.len())?;
            start.eq_ignore_ascii_case(prefix).then_some(rest)
        };
        let agent = ["openclaw:", "openclaw/", "agent:"].into_iter().find_map(after).map(str::trim);
        match agent {
            Some(agent) if agent.eq_ignore_ascii_case("default") || agent.is_empty() => Self::Default,
            Some(agent) => Self::Agent(agent),
            None if name.is_empty() || name.eq_ignore_ascii_case(MODEL_PREFIX) => Self::Default,
            None => Self::Other,
        }
    }
}

fn check_agent(agents: &Agents, name: &str) -> Result<AgentId, ApiError> {
    let id = AgentId::normalize(name);
    match agents.get(&id) {
        Some(_) => Ok(id),
        None => Err(ApiError::no_model(format!("unknown agent \"{name}\"; {}", known_agents(agents)))),
    }
}

/// Lists the known agents, for an error message.
fn known_agents(agents: &Agents) -> String {
    let names: Vec<_> = agents.iter().map(|agent| agent.id.as_str()).collect();
    format!("known agents: {}", names.join(", "))
}

/// Returns the session of a previous response, whose id is its run's.
async fn session_of(server: &ServerState, answer: &str) -> Result<SessionKey, ApiError> {
    let unknown = || {
        ApiError::invalid_field("previous_response_id", "refers to an unknown response; send the whole conversation")
    };
    let run = RunId::parse(answer).ok().ok_or_else(unknown)?;
    let found = server.hub.runs().find_session(&run).await;
    found.map_err(|error| ApiError::failed(error.to_string()))?.ok_or_else(unknown)
}

/// Returns the first of these headers that is not blank.
fn header<'a>(headers: &'a HeaderMap, names: &[&str]) -> Option<&'a str> {
    let texts = names.iter().filter_map(|name| headers.get(*name)?.to_str().ok());
    texts.map(str::trim).find(|text| !text.is_empty())
}

fn wrong_key(part: &str, error: &dyn std::fmt::Display) -> ApiError {
    ApiError::invalid_field(part, &format!("cannot be used as a session key: {error}"))
}

/// Returns the list for `/v1/models`: every agent is a model.
pub(super) fn models(agents: &Agents) -> Value {
    let agent_models = agents.iter().map(|agent| format!("{MODEL_PREFIX}/{}", agent.id));
    let names = [MODEL_PREFIX.to_owned(), format!("{MODEL_PREFIX}/default")].into_iter().chain(agent_models);
    json!({"object": "list", "data": names.map(|name| model(&name)).collect::<Vec<_>>()})
}

/// Returns one model, under any of its names.
pub(super) fn one_model(agents: &Agents, name: &str) -> Result<Value, ApiError> {
    match RequestedModel::read(name) {
        RequestedModel::Default => Ok(model(name)),
        RequestedModel::Agent(id) => check_agent(agents, id).map(|_| model(name)),
        RequestedModel::Other => Err(ApiError::no_model(format!(
            "unknown model \"{name}\"; use {MODEL_PREFIX} or {MODEL_PREFIX}/<agent>; {}",
            known_agents(agents)
        ))),
    }
}

fn model(name: &str) -> Value {
    json!({"id": name, "object": "model", "created": 0, "owned_by": MODEL_PREFIX, "permission": []})
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_user_has_its_own_plain_session() {
        let users =
            ["alice", "Alice", "alice:thread:1", "%41lice", "alice ", "группа", "group", "channel", "direct", "dm"];
        let keys = users.map(|user| {
            let text = format!("agent:main:openai-user:{}", escape_user(user));
            let key = SessionKey::parse(&text, &AgentId::main()).unwrap();
            assert_eq!((key.as_str(), key.kind(), key.thread_parent()), (&*text, "direct", None), "{user}");
            text
        });
        assert_eq!(HashSet::from(keys).len(), users.len());
        assert_eq!(
            ["user_7-b", "Ann@x.org", "group", "groups"].map(escape_user),
            ["user_7-b", "%41nn%40x%2eorg", "%67roup", "groups"]
        );
    }

    #[test]
    fn a_model_is_an_agent_under_several_names() {
        for (name, model) in [
            ("", RequestedModel::Default),
            ("OpenClaw", RequestedModel::Default),
            ("openclaw/default", RequestedModel::Default),
            ("openclaw:", RequestedModel::Default),
            ("openclaw/ops", RequestedModel::Agent("ops")),
            ("openclaw:ops", RequestedModel::Agent("ops")),
            ("Agent:ops", RequestedModel::Agent("ops")),
            ("gpt-5", RequestedModel::Other),
            ("openclawé", RequestedModel::Other),
        ] {
            assert_eq!(RequestedModel::read(name), model, "{name}");
        }
    }
}
