//! Sends texts to a main session, each at most once per idempotency key.

use axum::http::StatusCode;
use homard_agent::{ChangeError, Patch, tool::Authority};
use homard_proto::{Extra, SessionKey};
use homard_schedule::job::WakeMode;
use serde_json::{Value, json};

use super::{WebhookContext, action::WakeText, dedupe_key::DedupeKey, rejection::WebhookRejection, run};
use crate::server::ServerState;

/// Member of a session's record that contains the processed requests.
const RECORD_KEY: &str = "webhookEvents";
/// Number of processed requests that are remembered.
const MAX_REMEMBERED: usize = 200;

/// Sends a text; returns when the session reads it. A request that was processed before is ignored; another one with
/// the same key is a conflict.
pub(super) async fn send(
    WebhookContext { server, hooks }: &WebhookContext,
    wake: &WakeText,
    dedupe_key: Option<&DedupeKey>,
) -> Result<&'static str, WebhookRejection> {
    let schedule = server.schedule.as_ref().map_err(WebhookRejection::unavailable)?;
    let agent = run::resolve_agent(server, &hooks.settings, wake.agent.as_deref())?;
    let agent = agent.unwrap_or_else(|| server.hub.agents().default_id().clone());
    let mode = if wake.wake == WakeMode::NextHeartbeat { "next-heartbeat" } else { "now" };
    let Some(dedupe_key) = dedupe_key else {
        schedule.wake(Some(agent), &wake.text, Authority::Full, &wake.wake).await?;
        return Ok(mode);
    };
    let _guard = hooks.record_lock.lock().await;
    let key = agent.main_session();
    let mut processed_keys = processed(server, &key).await?;
    if let Some(before) = processed_keys.iter().find(|before| before.id == dedupe_key.id) {
        let has_other_body =
            before.body_digest.as_ref().zip(dedupe_key.body_digest.as_ref()).is_some_and(|(before, now)| before != now);
        return match has_other_body {
            true => {
                Err(WebhookRejection::new(StatusCode::CONFLICT, "the idempotency key was used with another request"))
            }
            false => Ok(mode),
        };
    }
    // The event first: after a crash in between it is delivered twice rather than never.
    schedule.wake(Some(agent), &wake.text, Authority::Full, &wake.wake).await?;
    processed_keys.push(dedupe_key.clone());
    processed_keys.drain(..processed_keys.len().saturating_sub(MAX_REMEMBERED));
    let changes = Extra::from_iter([(RECORD_KEY.to_owned(), processed_keys.iter().map(to_json).collect())]);
    server.hub.sessions().patch(&key, Patch { expected: None, changes }).await?;
    Ok(mode)
}

/// Returns the processed requests of a session.
async fn processed(server: &ServerState, key: &SessionKey) -> Result<Vec<DedupeKey>, WebhookRejection> {
    let record = run::record(server, key).await?;
    let stored = record.as_ref().and_then(|record| record.extra.get(RECORD_KEY)?.as_array());
    Ok(stored.into_iter().flatten().filter_map(from_json).collect())
}

/// Serialises a processed request for the record.
fn to_json(key: &DedupeKey) -> Value {
    json!({"id": key.id, "asked": key.body_digest})
}

/// Deserialises a processed request. Versions before 0.2 stored the id alone.
fn from_json(value: &Value) -> Option<DedupeKey> {
    let id = value.as_str().or_else(|| value["id"].as_str())?.to_owned();
    Some(DedupeKey { id, body_digest: value["asked"].as_str().map(str::to_owned) })
}

/// Reports a result to a main session.
pub(super) async fn report(
    server: &ServerState,
    main: &SessionKey,
    text: &str,
    wake: &WakeMode,
) -> Result<(), ChangeError> {
    match &server.schedule {
        Ok(schedule) => schedule.wake(main.agent().cloned(), text, Authority::Full, wake).await,
        Err(_) => server.hub.sessions().note_event(main, text.to_owned()).await,
    }
}
