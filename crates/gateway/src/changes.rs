//! News of conversations: which of them changed, for clients that show a list of them.
//!
//! What changes is announced by whoever sees it, a moment is waited for more, and then each of them is read once: a busy
//! one costs a few readings a second, not one for each step of each run.

use std::{collections::HashMap, time::Duration};

use homard_agent::{Hub, row::session_row, task};
use homard_proto::{Generation, RunId, SessionKey, session::Record};
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
            let at_work = AtWork::now(&hub);
            for change in all {
                match hub.session(&change.key).await {
                    Ok(found) => {
                        let row = found.map(|record| at_work.row(&change.key, &record, Generation::Four));
                        projector.tell_followers(&payload(&change, row, hub.ambient().now_ms()));
                    }
                    Err(error) => tracing::warn!(key = %change.key, %error, "a change of a session is not told"),
                }
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

/// What is at work in which conversation, read once for all rows of a list.
#[derive(Debug)]
pub(crate) struct AtWork {
    runs: HashMap<SessionKey, Vec<RunId>>,
    read_at: u64,
}

impl AtWork {
    /// What is at work now.
    pub(crate) fn now(hub: &Hub) -> Self {
        let mut runs = HashMap::<_, Vec<_>>::new();
        for work in hub.work() {
            runs.entry(work.key).or_default().push(work.run);
        }
        Self { runs, read_at: hub.ambient().now_ms() }
    }

    /// A conversation as lists show it, with what is at work in it for those who know about that.
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
