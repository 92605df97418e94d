//! Runs of which the main session is yet to hear. They stand in its record, so that a restart knows them, too.
//!
//! A run is noted before it is asked for and forgotten once it was told, so whatever happens in between it is told at
//! least once; and twice only if the process dies between the telling and the forgetting.

use std::sync::Arc;

use homard_agent::{Patch, schedule::job::Wake};
use homard_proto::{Extra, RunId, SessionKey};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Hooks, refusal::Refusal, run};
use crate::server::Server;

/// The member of a main session's record that holds them.
const RUNS: &str = "webhookRuns";
/// So many are noted at most; one more is told only if the process lives that long.
const MOST: usize = 200;

/// What has to be known of a webhook when its run is over.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Mark {
    /// What people call it.
    pub(super) name: String,
    /// When the main session hears of it.
    #[serde(default)]
    pub(super) wake_mode: Wake,
}

/// Notes a run for a main session.
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

/// Forgets a run.
pub(super) async fn forget((server, hooks): (&Arc<Server>, &Hooks), main: &SessionKey, run: &RunId) {
    let forgotten = change((server, hooks), main, |runs| runs.shift_remove(run.as_str()).is_some()).await;
    if let Err(why) = forgotten {
        tracing::warn!(%run, ?why, "it could not be noted that the main session heard of a webhook");
    }
}

/// Changes what is noted, if there is something to change.
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

/// All that are noted, with the main sessions that are yet to hear of them.
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
