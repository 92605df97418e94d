//! Runs whose result the main session has not been informed of. They are stored in its record and survive a restart.
//!
//! A run is recorded before it is submitted and removed after the report, so it is reported at least once, and twice
//! only if the process dies between report and removal.

use homard_agent::Patch;
use homard_proto::{Extra, RunId, SessionKey};
use homard_schedule::job::WakeMode;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{WebhookContext, rejection::WebhookRejection, run};
use crate::server::ServerState;

/// Member of a main session's record that contains them.
const RECORD_KEY: &str = "webhookRuns";
/// Maximum number recorded; further runs are reported only if the process lives long enough.
const MAX_PENDING: usize = 200;

/// What the report of a finished run needs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PendingReport {
    /// Display name of the webhook.
    pub(super) name: String,
    /// When the main session is informed.
    #[serde(default)]
    pub(super) wake_mode: WakeMode,
}

/// Records a run for a main session.
pub(super) async fn record(
    context: &WebhookContext,
    main: &SessionKey,
    run: &RunId,
    report: &PendingReport,
) -> Result<(), WebhookRejection> {
    let report = serde_json::to_value(report).map_err(|error| WebhookRejection::invalid(error.to_string()))?;
    change(context, main, |runs| {
        let fits = runs.len() < MAX_PENDING || runs.contains_key(run.as_str());
        if fits {
            runs.insert(run.to_string(), report);
        }
        fits
    })
    .await
}

/// Removes a run.
pub(super) async fn remove(context: &WebhookContext, main: &SessionKey, run: &RunId) {
    let removed = change(context, main, |runs| runs.shift_remove(run.as_str()).is_some()).await;
    if let Err(why) = removed {
        tracing::warn!(%run, ?why, "failed to record that a webhook run was reported to the main session");
    }
}

/// Changes the recorded runs; writes only if something changed.
async fn change(
    WebhookContext { server, hooks }: &WebhookContext,
    main: &SessionKey,
    change: impl FnOnce(&mut Map<String, Value>) -> bool,
) -> Result<(), WebhookRejection> {
    let _guard = hooks.record_lock.lock().await;
    let record = run::record(server, main).await?;
    let stored = record.as_ref().and_then(|record| record.extra.get(RECORD_KEY)?.as_object());
    let mut runs = stored.cloned().unwrap_or_default();
    if change(&mut runs) {
        let runs = if runs.is_empty() { Value::Null } else { runs.into() };
        let changes = Extra::from_iter([(RECORD_KEY.to_owned(), runs)]);
        server.hub.sessions().patch(main, Patch { expected: None, changes }).await?;
    }
    Ok(())
}

/// Returns all recorded runs with their main sessions.
pub(super) async fn all(server: &ServerState) -> Vec<(SessionKey, RunId, PendingReport)> {
    let sessions = match server.hub.sessions().unsorted().await {
        Ok(sessions) => sessions,
        Err(error) => {
            tracing::warn!(%error, "failed to read the sessions; pending webhook reports are not resumed");
            return Vec::new();
        }
    };
    let mut found = Vec::new();
    for (key, record) in sessions.iter().filter(|(key, _)| key.is_main()) {
        for (run, report) in record.extra.get(RECORD_KEY).and_then(Value::as_object).into_iter().flatten() {
            if let (Ok(run), Ok(report)) = (RunId::parse(run), serde_json::from_value(report.clone())) {
                found.push((key.clone(), run, report));
            }
        }
    }
    found
}
