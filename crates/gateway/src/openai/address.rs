//! Whom a request means: which agent, and which of its sessions.

use axum::http::HeaderMap;
use homard_agent::Agents;
use homard_proto::{AgentId, RunId, SessionKey};
use serde_json::{Value, json};

use super::{refusal::Refusal, talk::Leaving};
use crate::server::Server;

/// The name by which every agent can be asked.
const NAME: &str = "openclaw";

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
}

/// Where a request goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) key: SessionKey,
    pub(super) leaving: Leaving,
}

impl Meant<'_> {
    /// Finds the session: the one that a header names, that of an earlier answer, the user's, or one that nobody else
    /// has, which is called by `nonce`.
    pub(super) async fn find(&self, server: &Server, nonce: &str) -> Result<Address, Refusal> {
        let agents = server.hub.agents();
        let agent = self.agent(&agents)?;
        let named = |key: SessionKey| Address { key, leaving: Leaving::GoesOn };
        if let Some(text) = header(self.headers, &["x-openclaw-session-key"]) {
            let key = SessionKey::parse(text, &agent).map_err(|error| wrong_key("x-openclaw-session-key", &error))?;
            return match key.agent() {
                Some(other) if agents.get(other).is_none() => Err(Refusal::part(
                    "x-openclaw-session-key",
                    &format!("names the agent \"{other}\", which is not there; {}", there(&agents)),
                )),
                Some(_) | None => Ok(named(key)),
            };
        }
        if let Some(previous) = self.previous {
            return session_of(server, previous).await.map(named);
        }
        let (rest, leaving) = match self.user.map(str::trim).filter(|user| !user.is_empty()) {
            Some(user) => (format!("{}-user:{user}", self.family), Leaving::GoesOn),
            None => (format!("{}:{nonce}", self.family), Leaving::Stops),
        };
        let key =
            SessionKey::parse(&format!("agent:{agent}:{rest}"), &agent).map_err(|error| wrong_key("user", &error))?;
        Ok(Address { key, leaving })
    }

    fn agent(&self, agents: &Agents) -> Result<AgentId, Refusal> {
        if let Some(text) = header(self.headers, &["x-openclaw-agent-id", "x-openclaw-agent"]) {
            let id = AgentId::normalize(text);
            return match agents.get(&id) {
                Some(_) => Ok(id),
                None => {
                    let must = format!("names the agent \"{text}\", which is not there; {}", there(agents));
                    Err(Refusal::part("x-openclaw-agent-id", &must))
                }
            };
        }
        match self.model.map_or(Model::Default, Model::read) {
            Model::Default | Model::Foreign => Ok(agents.default_id().clone()),
            Model::Agent(id) => known(agents, id),
        }
    }
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
    use super::*;

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
