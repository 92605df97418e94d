//! Publishes session changes (`sessions.changed`) to clients that show a list of sessions.
//!
//! Changes are collected for a short time and deduplicated, then each changed session is read once. A busy session
//! therefore costs a few reads a second, not one per step of each run.

use std::{collections::HashMap, time::Duration};

use homard_agent::{Hub, row::session_row};
use homard_proto::{Generation, RunId, SessionKey, session::Record};
use homard_runtime::task;
use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio_util::task::AbortOnDropHandle;

use crate::projector::Projector;

/// Time to collect further changes before they are published.
const COLLECT_DELAY: Duration = Duration::from_millis(50);

/// A change of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SessionChange {
    pub(crate) key: SessionKey,
    /// Reason as sent to clients.
    pub(crate) reason: &'static str,
}

/// Publishes changes to subscribed clients until the handle is dropped.
pub(crate) fn publish(
    hub: Hub,
    projector: Projector,
    mut changes: UnboundedReceiver<SessionChange>,
) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(task::spawn("session changes", async move {
        while let Some(first) = changes.recv().await {
            tokio::time::sleep(COLLECT_DELAY).await;
            let mut pending = vec![first];
            while let Ok(next) = changes.try_recv() {
                // The newest change of a session replaces earlier ones.
                pending.retain(|change| change.key != next.key);
                pending.push(next);
            }
            if projector.session_subscribers() == 0 {
                continue;
            }
            let active_runs = ActiveRuns::now(&hub);
            for change in pending {
                match hub.sessions().get(&change.key).await {
                    Ok(found) => {
                        let row = found.map(|record| active_runs.row(&change.key, &record, Generation::Four));
                        projector.publish_session_change(&payload(&change, row, hub.ambient().now_ms()));
                    }
                    Err(error) => {
                        tracing::warn!(key = %change.key, %error, "failed to read a changed session; the change is not published")
                    }
                }
            }
        }
    }))
}

fn payload(SessionChange { key, reason }: &SessionChange, row: Option<Value>, now: u64) -> Value {
    let mut payload = json!({"sessionKey": key, "key": key, "agentId": key.agent(), "reason": reason, "ts": now});
    if let Some(row) = row {
        payload["sessionId"] = row["sessionId"].clone();
        payload["updatedAt"] = row["updatedAt"].clone();
        payload["session"] = row;
    }
    payload
}

/// Active runs by session, read once for all rows of a list.
#[derive(Debug)]
pub(crate) struct ActiveRuns {
    runs: HashMap<SessionKey, Vec<RunId>>,
    read_at: u64,
}

impl ActiveRuns {
    /// Reads the active runs.
    pub(crate) fn now(hub: &Hub) -> Self {
        let mut runs = HashMap::<_, Vec<_>>::new();
        for run in hub.runs().live() {
            runs.entry(run.key).or_default().push(run.run);
        }
        Self { runs, read_at: hub.ambient().now_ms() }
    }

    /// Builds the list row of a session; for protocol 4 with its active runs.
    pub(crate) fn row(&self, key: &SessionKey, record: &Record, generation: Generation) -> Value {
        let mut row = session_row(key, record, generation);
        if generation == Generation::Four {
            let active = self.runs.get(key).map(Vec::as_slice).unwrap_or_default();
            row["hasActiveRun"] = (!active.is_empty()).into();
            row["activeRunIds"] = json!(active);
            row["snapshotAt"] = self.read_at.into();
        }
        row
    }
}
