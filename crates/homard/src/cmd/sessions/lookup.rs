//! Finds a session by what was typed, or the one that was used last.

use anyhow::Result;
use homard_agent::row::session_row;
use homard_proto::{Generation, SessionKey};
use serde_json::{Value, json};

use crate::{
    cli_error::CliError,
    cmd::{
        ids::{self, Candidate},
        query::CommandContext,
    },
};

/// First parts of the keys of sessions in which no person writes.
const UNATTENDED: [&str; 4] = ["cron", "hook", "subagent", "heartbeat"];

/// Returns the rows of all sessions, newest first: the gateway's, or those in the state directory.
async fn all(setup: &CommandContext) -> Result<Vec<Value>> {
    let params = json!({"includeGlobal": true, "includeUnknown": true});
    Ok(match setup.query_with("sessions.list", params).await? {
        Some(mut listed) => listed["sessions"].as_array_mut().map(std::mem::take).unwrap_or_default(),
        None => {
            let sessions = setup.sessions().await?;
            sessions.iter().map(|(key, record)| session_row(key, record, Generation::Four)).collect()
        }
    })
}

/// Returns the key of the session in which a person wrote last, among those of an agent or of all agents. Groups are
/// left out: what is written there is for others, too.
pub(in crate::cmd) async fn last_used(setup: &CommandContext, agent: Option<&str>) -> Result<Option<String>> {
    let rows = all(setup).await?;
    let wanted = rows.iter().filter(|row| {
        let key = row["key"].as_str().unwrap_or_default();
        let rest = key.splitn(3, ':').nth(2).unwrap_or_default();
        row["kind"] == "direct"
            && agent.is_none_or(|agent| row["agentId"] == agent)
            && !UNATTENDED.contains(&rest.split(':').next().unwrap_or_default())
    });
    let newest = wanted.max_by_key(|row| row["updatedAt"].as_u64());
    Ok(newest.and_then(|row| row["key"].as_str()).map(str::to_owned))
}

/// Returns the key of the session that was typed: by its key, its label, its session id, or a unique prefix of the key
/// or session id. Returns the text itself if there is no such session.
pub(super) async fn find_session(setup: &CommandContext, input: &str) -> Result<String> {
    find_in(setup, &all(setup).await?, input)
}

fn find_in(setup: &CommandContext, rows: &[Value], input: &str) -> Result<String> {
    let key = named(setup, input).map(|key| key.to_string());
    let keys: Vec<_> = rows
        .iter()
        .filter_map(|row| Some(Candidate { id: row["key"].as_str()?, name: row["label"].as_str() }))
        .collect();
    if let Ok(key) = &key
        && keys.iter().any(|candidate| candidate.id == key)
    {
        return Ok(key.clone());
    }
    if let Some(key) = ids::resolve("session", input, &keys)? {
        return Ok(key.to_owned());
    }
    let sessions: Vec<_> = rows
        .iter()
        .filter_map(|row| Some(Candidate { id: row["sessionId"].as_str()?, name: row["key"].as_str() }))
        .collect();
    let id = ids::resolve("session", input, &sessions)?;
    let found = sessions.iter().find(|candidate| Some(candidate.id) == id).and_then(|candidate| candidate.name);
    match found {
        Some(found) => Ok(found.to_owned()),
        None => Ok(key.map(|_| input.to_owned())?),
    }
}

/// Same as `find_session`, for a session that must exist.
pub(super) async fn find_existing(setup: &CommandContext, input: &str) -> Result<String> {
    let rows = all(setup).await?;
    let key = find_in(setup, &rows, input)?;
    match rows.iter().any(|row| row["key"] == key.as_str()) {
        true => Ok(key),
        false => Err(unknown(&named(setup, &key)?).into()),
    }
}

/// Returns the session key that a text names.
pub(super) fn named(setup: &CommandContext, text: &str) -> Result<SessionKey, CliError> {
    SessionKey::parse(text, &super::default_agent(setup))
        .map_err(|error| CliError::usage(format!("session key: {error}")))
}

pub(super) fn unknown(key: &SessionKey) -> CliError {
    CliError::not_found(format!("session {key} not found; list sessions with: homard sessions"))
}
