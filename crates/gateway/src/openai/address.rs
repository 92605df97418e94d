//! Whom a request means: which agent, and which of its sessions.

use axum::http::HeaderMap;
use homard_agent::Agents;
use homard_proto::{AgentId, RunId, SessionKey};
use serde_json::{Value, json};

use super::{refusal::Refusal, talk::Leaving};
use crate::server::Server;

/// The name by which every agent can be asked.
const NAME: &str = "openclaw";

/// Parts of a key that say what kind of session it is.
const KINDS: [&str; 4] = ["group", "channel", "direct", "dm"];

/// What a request says about whom it means.
#[derive(Debug, Clone, Copy)]
pub(super) struct Meant<'a> {
    pub(super) headers: &'a HeaderMap,
    pub(super) model: Option<&'a str>,
    pub(super) user: Option<&'a str>,
    /// The answer that it goes on from.
    pub(super) previous: Option<&'a str>,
    /// How keys of sessions that were begun by this API begin.
    pub(super) family: &'static str,
    /// Whether a later request may name the answer.
    pub(super) is_kept: bool,
}

/// Where a request goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) key: SessionKey,
    pub(super) leaving: Leaving,
    /// Whether the session is this request's own, and no later one can name it.
    pub(super) is_ephemeral: bool,
}

impl Meant<'_> {
    /// Finds the session: the one that a header names, that of an earlier answer, the user's, or one that nobody else
    /// has, which is called by `nonce`.
    pub(super) async fn find(&self, server: &Server, nonce: &str) -> Result<Address, Refusal> {
        let agents = server.hub.agents();
        let asked = self.agent(&agents)?;
        let agent = asked.as_ref().unwrap_or(agents.default_id());
        let named = |key: SessionKey| Address { key, leaving: Leaving::GoesOn, is_ephemeral: false };
        if let Some(text) = header(self.headers, &["x-openclaw-session-key"]) {
            let key = SessionKey::parse(text, agent).map_err(|error| wrong_key("x-openclaw-session-key", &error))?;
            return match key.agent() {
                Some(other) if agents.get(other).is_none() => Err(Refusal::part(
                    "x-openclaw-session-key",
                    &format!("names the agent \"{other}\", which is not there; {}", there(&agents)),
                )),
                Some(_) | None => Ok(named(key)),
            };
        }
        if let Some(previous) = self.previous {
            let key = session_of(server, previous).await?;
            return match (&asked, key.agent()) {
                (Some(asked), Some(own)) if asked != own => Err(Refusal::part(
                    "previous_response_id",
                    &format!(
                        "names an answer of the agent \"{own}\", but \"{asked}\" is asked; ask \"{own}\", or leave it out"
                    ),
                )),
                _ => Ok(named(key)),
            };
        }
        let (rest, leaving) = match self.user.filter(|user| !user.trim().is_empty()) {
            Some(user) => (format!("{}-user:{}", self.family, escaped(user)), Leaving::GoesOn),
            None => (format!("{}:{nonce}", self.family), Leaving::Stops),
        };
        let key =
            SessionKey::parse(&format!("agent:{agent}:{rest}"), agent).map_err(|error| wrong_key("user", &error))?;
        let is_ephemeral = leaving == Leaving::Stops && !self.is_kept;
        Ok(Address { key, leaving, is_ephemeral })
    }

    /// The agent that is asked for by name.
    fn agent(&self, agents: &Agents) -> Result<Option<AgentId>, Refusal> {
        if let Some(text) = header(self.headers, &["x-openclaw-agent-id", "x-openclaw-agent"]) {
            let id = AgentId::normalize(text);
            return match agents.get(&id) {
                Some(_) => Ok(Some(id)),
                None => {
                    let must = format!("names the agent \"{text}\", which is not there; {}", there(agents));
                    Err(Refusal::part("x-openclaw-agent-id", &must))
                }
            };
        }
        match self.model.map_or(Model::Default, Model::read) {
            Model::Default | Model::Foreign => Ok(None),
            Model::Agent(id) => known(agents, id).map(Some),
        }
    }
}

/// A user's id as one part of a key that no other id becomes: a key has parts and knows no capitals.
fn escaped(user: &str) -> String {
    let mut part = String::with_capacity(user.len());
    for (at, byte) in user.bytes().enumerate() {
        let is_plain = matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-');
        if is_plain && !(at == 0 && KINDS.contains(&user)) {
            part.push(char::from(byte));
        } else {
            part.push_str(&format!("%{byte:02x}"));
        }
    }
    part
}

/// What a model's name means.
#[derive(Debug, PartialEq, Eq)]
enum Model<'a> {
    Default,
    Agent(&'a str),
    /// Nothing to us: programs that know one vendor's models name one of those, whoever they speak to.
    Foreign,
}

impl<'a> Model<'a> {
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
            None if name.is_empty() || name.eq_ignore_ascii_case(NAME) => Self::Default,
            None => Self::Foreign,
        }
    }
}

fn known(agents: &Agents, name: &str) -> Result<AgentId, Refusal> {
    let id = AgentId::normalize(name);
    match agents.get(&id) {
        Some(_) => Ok(id),
        None => Err(Refusal::no_model(format!("there is no agent \"{name}\"; {}", there(agents)))),
    }
}

/// Who is there instead.
fn there(agents: &Agents) -> String {
    let names: Vec<_> = agents.iter().map(|agent| agent.id.as_str()).collect();
    format!("known are: {}", names.join(", "))
}

/// The session of an earlier answer, which is called as its run.
async fn session_of(server: &Server, answer: &str) -> Result<SessionKey, Refusal> {
    let unknown =
        || Refusal::part("previous_response_id", "names an answer that is not known here; send the whole conversation");
    let run = RunId::parse(answer).ok().ok_or_else(unknown)?;
    let found = server.hub.session_of_run(&run).await;
    found.map_err(|error| Refusal::failed(error.to_string()))?.ok_or_else(unknown)
}

/// The first of these headers that says something.
fn header<'a>(headers: &'a HeaderMap, names: &[&str]) -> Option<&'a str> {
    let texts = names.iter().filter_map(|name| headers.get(*name)?.to_str().ok());
    texts.map(str::trim).find(|text| !text.is_empty())
}

fn wrong_key(part: &str, error: &dyn std::fmt::Display) -> Refusal {
    Refusal::part(part, &format!("does not name a session: {error}"))
}

/// All models, as `/v1/models` lists them: every agent is one.
pub(super) fn models(agents: &Agents) -> Value {
    let own = agents.iter().map(|agent| format!("{NAME}/{}", agent.id));
    let names = [NAME.to_owned(), format!("{NAME}/default")].into_iter().chain(own);
    json!({"object": "list", "data": names.map(|name| model(&name)).collect::<Vec<_>>()})
}

/// One of them, under any of its names.
pub(super) fn one_model(agents: &Agents, name: &str) -> Result<Value, Refusal> {
    match Model::read(name) {
        Model::Default => Ok(model(name)),
        Model::Agent(id) => known(agents, id).map(|_| model(name)),
        Model::Foreign => Err(Refusal::no_model(format!(
            "there is no model \"{name}\"; use {NAME}, or {NAME}/<agent>; {}",
            there(agents)
        ))),
    }
}

fn model(name: &str) -> Value {
    json!({"id": name, "object": "model", "created": 0, "owned_by": NAME, "permission": []})
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_user_has_a_session_of_its_own_that_is_a_plain_one() {
        let users =
            ["alice", "Alice", "alice:thread:1", "%41lice", "alice ", "группа", "group", "channel", "direct", "dm"];
        let keys = users.map(|user| {
            let text = format!("agent:main:openai-user:{}", escaped(user));
            let key = SessionKey::parse(&text, &AgentId::main()).unwrap();
            assert_eq!((key.as_str(), key.kind(), key.thread_parent()), (&*text, "direct", None), "{user}");
            text
        });
        assert_eq!(HashSet::from(keys).len(), users.len());
        assert_eq!(
            ["user_7-b", "Ann@x.org", "group", "groups"].map(escaped),
            ["user_7-b", "%41nn%40x%2eorg", "%67roup", "groups"]
        );
    }

    #[test]
    fn a_model_is_an_agent_under_several_names() {
        for (name, model) in [
            ("", Model::Default),
            ("OpenClaw", Model::Default),
            ("openclaw/default", Model::Default),
            ("openclaw:", Model::Default),
            ("openclaw/ops", Model::Agent("ops")),
            ("openclaw:ops", Model::Agent("ops")),
            ("Agent:ops", Model::Agent("ops")),
            ("gpt-5", Model::Foreign),
            ("openclawé", Model::Foreign),
        ] {
            assert_eq!(Model::read(name), model, "{name}");
        }
    }
}
