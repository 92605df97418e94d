//! News of conversations: which of them changed, for clients that show a list of them.
//!
//! What changes is announced by whoever sees it, a moment is waited for more, and then the rows are read once for all of
//! it: a busy house costs a few readings a second, not one for each step of each run.

use std::time::Duration;

use homard_agent::{Hub, row::session_row, task};
use homard_proto::{Generation, SessionKey, session::Record};
use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio_util::task::AbortOnDropHandle;

use crate::projector::Projector;

/// How long is waited for more.
const MOMENT: Duration = Duration::from_millis(50);

/// What became of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Change {
    /// Which one.
    pub(crate) key: SessionKey,
    /// What, in a word.
    pub(crate) reason: &'static str,
}

/// Tells those who follow conversations what changes, for as long as the handle lives.
pub(crate) fn tell(hub: Hub, projector: Projector, mut changes: UnboundedReceiver<Change>) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(task::spawn("session news", async move {
        while let Some(first) = changes.recv().await {
            tokio::time::sleep(MOMENT).await;
            let mut all = vec![first];
            while let Ok(next) = changes.try_recv() {
                // The newest word about a conversation stands for the others.
                all.retain(|change| change.key != next.key);
                all.push(next);
            }
            if projector.followers() == 0 {
                continue;
            }
            let rows = match hub.sessions().await {
                Ok(rows) => rows,
                Err(error) => {
                    tracing::warn!(%error, "changes of sessions are not told");
                    continue;
                }
            };
            for change in all {
                let found = rows.iter().find(|(key, _)| *key == change.key);
                let row = found.map(|(key, record)| live_row(&hub, key, record, Generation::Four));
                projector.tell_followers(&payload(&change, row, hub.ambient().now_ms()));
            }
        }
    }))
}

fn payload(Change { key, reason }: &Change, row: Option<Value>, now: u64) -> Value {
    let mut payload = json!({"sessionKey": key, "key": key, "agentId": key.agent(), "reason": reason, "ts": now});
    if let Some(row) = row {
        payload["sessionId"] = row["sessionId"].clone();
        payload["updatedAt"] = row["updatedAt"].clone();
        payload["session"] = row;
    }
    payload
}

/// A conversation as lists show it, with what is at work in it for those who know about that.
pub(crate) fn live_row(hub: &Hub, key: &SessionKey, record: &Record, generation: Generation) -> Value {
    let mut row = session_row(key, record, generation);
    if generation == Generation::Four {
        let work = hub.work();
        let active: Vec<_> = work.iter().filter(|work| work.key == *key).map(|work| &work.run).collect();
        row["hasActiveRun"] = (!active.is_empty()).into();
        row["activeRunIds"] = json!(active);
        row["snapshotAt"] = hub.ambient().now_ms().into();
    }
    row
}
