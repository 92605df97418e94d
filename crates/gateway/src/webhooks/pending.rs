//! Runs whose result the main session has not been informed of. They are stored in its record and survive a restart.
//!
//! A run is recorded before it is submitted and removed after the report, so it is reported at least once, and twice
//! only if the process dies between report and removal.

use std::sync::Arc;

use homard_agent::{Patch, schedule::job::Wake};
use homard_proto::{Extra, RunId, SessionKey};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Hooks, refusal::Refusal, run};
use crate::server::Server;

/// Member of a main session's record that contains them.
const RUNS: &str = "webhookRuns";
/// Maximum number recorded; further runs are reported only if the process lives long enough.
const MOST: usize = 200;

/// What the report of a finished run needs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Mark {
    /// Display name of the webhook.
    pub(super) name: String,
    /// When the main session is informed.
    #[serde(default)]
    pub(super) wake_mode: Wake,
}

/// Records a run for a main session.
pub(super) async fn note(
    (server, hooks): (&Arc<Server>, &Hooks),
    main: &SessionKey,
    run: &RunId,
    mark: &Mark,
) -> Result<(), Refusal> {
    let mark = serde_json::to_value(mark).map_err(|error| Refusal::invalid(error.to_string()))?;
    change((server, hooks), main, |runs| {
        let has_room = runs.len() < MOST || runs.contains_key(run.as_str());
        if has_room {
            runs.insert(run.to_string(), mark);
        }
        has_room
    })
    .await
}

/// Removes a run.
pub(super) async fn forget((server, hooks): (&Arc<Server>, &Hooks), main: &SessionKey, run: &RunId) {
    let forgotten = change((server, hooks), main, |runs| runs.shift_remove(run.as_str()).is_some()).await;
    if let Err(why) = forgotten {
        tracing::warn!(%run, ?why, "it could not be noted that the main session heard of a webhook");
    }
}

/// Changes the recorded runs; writes only if something changed.
async fn change(
    (server, hooks): (&Arc<Server>, &Hooks),
    main: &SessionKey,
    change: impl FnOnce(&mut Map<String, Value>) -> bool,
) -> Result<(), Refusal> {
    let _turn = hooks.notes.lock().await;
    let record = run::record(server, main).await?;
    let noted = record.as_ref().and_then(|record| record.extra.get(RUNS)?.as_object());
    let mut runs = noted.cloned().unwrap_or_default();
    if change(&mut runs) {
        let runs = if runs.is_empty() { Value::Null } else { runs.into() };
        let changes = Extra::from_iter([(RUNS.to_owned(), runs)]);
        server.hub.patch(main, Patch { expected: None, changes }).await?;
    }
    Ok(())
}

/// Returns all recorded runs with their main sessions.
pub(super) async fn all(server: &Server) -> Vec<(SessionKey, RunId, Mark)> {
    let sessions = match server.hub.unsorted_sessions().await {
        Ok(sessions) => sessions,
        Err(error) => {
            tracing::warn!(%error, "it is not known of which webhooks main sessions are yet to hear");
            return Vec::new();
        }
    };
    let mut found = Vec::new();
    for (key, record) in sessions.iter().filter(|(key, _)| key.is_main()) {
        for (run, mark) in record.extra.get(RUNS).and_then(Value::as_object).into_iter().flatten() {
            if let (Ok(run), Ok(mark)) = (RunId::parse(run), serde_json::from_value(mark.clone())) {
                found.push((key.clone(), run, mark));
            }
        }
    }
    found
}
