//! Tools that inspect other sessions, write to them, and start runs.
//!
//! `rules` holds what the owner allows; `visibility` decides which sessions a run can see, and every tool here checks
//! it first. The answer for a session that may not be seen is the same whether or not it exists.

mod agents_list;
mod rules;
mod session_status;
mod sessions_history;
mod sessions_list;
mod sessions_send;
mod sessions_spawn;
mod subagents;
mod visibility;

use std::sync::Arc;

use homard_agent::{
    Hub,
    tool::{Tool, ToolCx, ToolResult},
};
use homard_proto::AgentId;
use homard_stdx::text::beginning;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

pub use agents_list::AgentsList;
pub use rules::{AgentToAgent, SessionToolRules, SpawnRules, Visibility};
pub use session_status::SessionStatus;
pub use sessions_history::SessionsHistory;
pub use sessions_list::SessionsList;
pub use sessions_send::SessionsSend;
pub use sessions_spawn::SessionsSpawn;
pub use subagents::Subagents;

/// Returns the session tools.
pub fn all(rules: SessionToolRules) -> Vec<Arc<dyn Tool>> {
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

/// Why a session tool failed.
#[derive(Debug, thiserror::Error)]
enum SessionToolError {
    /// Not permitted.
    #[error("{0}")]
    Forbidden(String),
    /// Failed.
    #[error("{0}")]
    Error(String),
}

impl SessionToolError {
    #[allow(clippy::needless_pass_by_value, reason = "what map_err wants")]
    fn error(reason: impl ToString) -> Self {
        Self::Error(reason.to_string())
    }

    fn status(&self) -> &'static str {
        match self {
            Self::Forbidden(_) => "forbidden",
            Self::Error(_) => "error",
        }
    }
}

/// Formats a result as JSON, for both programs and models.
fn json_result(details: Value) -> ToolResult {
    // Serializing a `Value` cannot fail.
    ToolResult::text(serde_json::to_string_pretty(&details).unwrap_or_default()).with_details(details)
}

fn error_result(tool: &str, no: &SessionToolError) -> ToolResult {
    let details = json!({"status": no.status(), "tool": tool, "error": no.to_string()});
    ToolResult { is_error: true, ..json_result(details) }
}

fn into_result(tool: &str, result: Result<Value, SessionToolError>) -> ToolResult {
    match result {
        Ok(details) => json_result(details),
        Err(no) => error_result(tool, &no),
    }
}

/// Parses arguments. Most callers validate them against the schema first, so errors are rare.
fn parse<A: DeserializeOwned>(arguments: Value) -> Result<A, SessionToolError> {
    serde_json::from_value(arguments).map_err(|error| SessionToolError::Error(format!("invalid arguments: {error}")))
}

fn hub(cx: &ToolCx) -> Result<&Hub, SessionToolError> {
    cx.hub.as_ref().ok_or_else(|| SessionToolError::error("session tools are available only in a run"))
}

/// Trims a text; `None` if nothing is left.
fn non_blank(text: Option<&str>) -> Option<&str> {
    text.map(str::trim).filter(|text| !text.is_empty())
}

/// Converts a number sent by a model. `as` saturates, so out-of-range values become the nearest limit.
fn clamp_number(number: Option<f64>, default: usize, max: usize) -> usize {
    number.map_or(default, |number| number as usize).min(max)
}

/// Truncates text from other sessions to `max` characters.
fn truncate(text: &str, max: usize) -> (String, bool) {
    let kept = beginning(text, max);
    if kept.len() == text.len() { (text.to_owned(), false) } else { (format!("{kept}\n…(truncated)…"), true) }
}

/// Resolves a model name for an agent to provider and model; the error says why it cannot be used.
fn resolve_model(hub: &Hub, agent: &AgentId, name: &str) -> Result<(String, String), String> {
    let agents = hub.agents();
    let profile = agents.get(agent).or_else(|| agents.get(agents.default_id()));
    let profile = profile.ok_or_else(|| format!("agent {agent} does not exist"))?;
    let candidates =
        (profile.resolve_model)(name.trim()).map_err(|reason| format!("model {name} cannot be used: {reason}"))?;
    let spec = candidates.first().spec();
    Ok((spec.provider.clone(), spec.model.clone()))
}
