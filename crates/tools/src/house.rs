//! Tools that look at other sessions, talk to them, and start runs.
//!
//! `rules` is what the owner allows, `sight` which sessions a run may see at all; every tool here asks it first. A
//! session that may not be seen is answered for in the same way whether it is there or not.

mod agents_list;
mod rules;
mod session_status;
mod sessions_history;
mod sessions_list;
mod sessions_send;
mod sessions_spawn;
mod sight;
mod subagents;

use std::sync::Arc;

use homard_agent::{
    Hub,
    tool::{Tool, ToolCx, ToolResult},
};
use homard_proto::AgentId;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

pub use agents_list::AgentsList;
pub use rules::{AgentToAgent, HouseRules, SpawnRules, Visibility};
pub use session_status::SessionStatus;
pub use sessions_history::SessionsHistory;
pub use sessions_list::SessionsList;
pub use sessions_send::SessionsSend;
pub use sessions_spawn::SessionsSpawn;
pub use subagents::Subagents;

/// The tools of this room.
pub fn all(rules: HouseRules) -> Vec<Arc<dyn Tool>> {
    let rules = Arc::new(rules);
    vec![
        Arc::new(SessionsList::new(rules.clone())),
        Arc::new(SessionsHistory::new(rules.clone())),
        Arc::new(SessionsSend::new(rules.clone())),
        Arc::new(SessionsSpawn::new(rules.clone())),
        Arc::new(SessionStatus::new(rules.clone())),
        Arc::new(AgentsList::new(rules)),
        Arc::new(Subagents),
    ]
}

/// Why a tool of this room did not do it.
#[derive(Debug, thiserror::Error)]
enum No {
    /// It may not be.
    #[error("{0}")]
    Forbidden(String),
    /// It cannot be.
    #[error("{0}")]
    Error(String),
}

impl No {
    #[allow(clippy::needless_pass_by_value, reason = "what map_err wants")]
    fn error(why: impl ToString) -> Self {
        Self::Error(why.to_string())
    }

    fn status(&self) -> &'static str {
        match self {
            Self::Forbidden(_) => "forbidden",
            Self::Error(_) => "error",
        }
    }
}

/// An answer that programs and models read alike.
fn told(facts: Value) -> ToolResult {
    // A value that is a value already is written without fail.
    ToolResult::text(serde_json::to_string_pretty(&facts).unwrap_or_default()).with_details(facts)
}

fn refused(tool: &str, no: &No) -> ToolResult {
    let facts = json!({"status": no.status(), "tool": tool, "error": no.to_string()});
    ToolResult { is_error: true, ..told(facts) }
}

fn answer(tool: &str, result: Result<Value, No>) -> ToolResult {
    match result {
        Ok(facts) => told(facts),
        Err(no) => refused(tool, &no),
    }
}

/// The schema was checked before the call; this is for callers that did not.
fn parse<A: DeserializeOwned>(arguments: Value) -> Result<A, No> {
    serde_json::from_value(arguments).map_err(|error| No::Error(format!("the arguments do not fit: {error}")))
}

fn hub(cx: &ToolCx) -> Result<&Hub, No> {
    cx.hub.as_ref().ok_or_else(|| No::error("there are no sessions outside a run"))
}

/// A text without blanks around it; `None` if that leaves nothing.
fn given(text: Option<&str>) -> Option<&str> {
    text.map(str::trim).filter(|text| !text.is_empty())
}

/// A number as models send it, in whole; `as` saturates, so nonsense becomes the nearest limit.
fn whole(number: Option<f64>, usual: usize, most: usize) -> usize {
    number.map_or(usual, |number| number as usize).min(most)
}

/// Words of others, cut; the cap stands where it is used.
fn cut(text: &str, most: usize) -> (String, bool) {
    match text.char_indices().nth(most) {
        None => (text.to_owned(), false),
        Some((at, _)) => (format!("{}\n…(truncated)…", &text[..at]), true),
    }
}

/// The model that a name means for an agent, as provider and model; an error says why it cannot be.
fn chosen(hub: &Hub, agent: &AgentId, name: &str) -> Result<(String, String), String> {
    let agents = hub.agents();
    let profile = agents.get(agent).or_else(|| agents.get(agents.default_id()));
    let profile = profile.ok_or_else(|| format!("there is no agent {agent}"))?;
    let roster = (profile.choose)(name.trim()).map_err(|why| format!("{name} cannot be chosen: {why}"))?;
    let spec = roster.first().spec();
    Ok((spec.provider.clone(), spec.model.clone()))
}
