//! Sends texts to a main session, each at most once per idempotency key.

use std::sync::Arc;

use axum::http::StatusCode;
use homard_agent::{ChangeError, Patch, schedule::job::Wake, tool::Authority};
use homard_proto::{Extra, SessionKey};
use serde_json::{Value, json};

use super::{Hooks, errand::Nudge, once::Once, refusal::Refusal, run};
use crate::server::Server;

/// Member of a session's record that contains the processed requests.
const TOLD: &str = "webhookEvents";
/// Number of processed requests that are remembered.
const REMEMBERED: usize = 200;

/// Sends a text; returns when the session reads it. A request that was processed before is ignored; another one with
/// the same key is a conflict.
pub(super) async fn tell(
    server: &Arc<Server>,
    hooks: &Hooks,
    nudge: &Nudge,
    once: Option<&Once>,
) -> Result<&'static str, Refusal> {
    let schedule = server.schedule.as_ref().map_err(Refusal::unavailable)?;
    let agent = run::named(server, &hooks.settings, nudge.agent.as_deref())?;
    let agent = agent.unwrap_or_else(|| server.hub.agents().default_id().clone());
    let mode = if nudge.wake == Wake::NextHeartbeat { "next-heartbeat" } else { "now" };
    let Some(once) = once else {
        schedule.wake(Some(agent), (&nudge.text, Authority::Full), &nudge.wake).await?;
        return Ok(mode);
    };
    let _turn = hooks.notes.lock().await;
    let key = agent.main_session();
    let mut told = told(server, &key).await?;
    if let Some(before) = told.iter().find(|before| before.id == once.id) {
        let is_other = before.asked.as_ref().zip(once.asked.as_ref()).is_some_and(|(before, now)| before != now);
        return match is_other {
            true => Err(Refusal::new(StatusCode::CONFLICT, "the idempotency key was used with another request")),
            false => Ok(mode),
        };
    }
    // The event first: after a crash in between it is delivered twice rather than never.
    schedule.wake(Some(agent), (&nudge.text, Authority::Full), &nudge.wake).await?;
    told.push(once.clone());
    told.drain(..told.len().saturating_sub(REMEMBERED));
    let changes = Extra::from_iter([(TOLD.to_owned(), told.iter().map(remembered).collect())]);
    server.hub.patch(&key, Patch { expected: None, changes }).await?;
    Ok(mode)
}

/// Returns the processed requests of a session.
async fn told(server: &Server, key: &SessionKey) -> Result<Vec<Once>, Refusal> {
    let record = run::record(server, key).await?;
    let told = record.as_ref().and_then(|record| record.extra.get(TOLD)?.as_array());
    Ok(told.into_iter().flatten().filter_map(known).collect())
}

/// Serialises a processed request for the record.
fn remembered(once: &Once) -> Value {
    json!({"id": once.id, "asked": once.asked})
}

/// Deserialises a processed request. Versions before 0.2 stored the id alone.
fn known(value: &Value) -> Option<Once> {
    let id = value.as_str().or_else(|| value["id"].as_str())?.to_owned();
    Some(Once { id, asked: value["asked"].as_str().map(str::to_owned) })
}

/// Reports a result to a main session.
pub(super) async fn report(server: &Server, main: &SessionKey, text: &str, wake: &Wake) -> Result<(), ChangeError> {
    match &server.schedule {
        Ok(schedule) => schedule.wake(main.agent().cloned(), (text, Authority::Full), wake).await,
        Err(_) => server.hub.note_event(main, text.to_owned()).await,
    }
}
