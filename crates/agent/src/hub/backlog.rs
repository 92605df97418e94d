//! Unfinished runs of earlier processes, until this process recovers them.
//!
//! The unfinished runs of a session precede anything new in it, whichever process opens the session: the gateway
//! recovers all of them when it starts, a local turn only those of its own session. [`Hub`](super::Hub) reads the
//! backlog before it passes a message or a change to a session, so no caller has to.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, Ordering},
};

use homard_proto::SessionKey;
use homard_store::{Error as StoreError, RunState, StoreReader, UnfinishedRun};
use tokio::sync::{Mutex, MutexGuard};

/// Unfinished runs not recovered yet, by session, in order of acceptance.
pub(super) type UnfinishedBySession = BTreeMap<SessionKey, Vec<UnfinishedRun>>;

/// Unfinished runs of earlier processes.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    /// True once nothing is left; the fast path for most requests.
    is_empty: AtomicBool,
    /// `None` until the store has been read. Locked during recovery, so that a second request for the same session
    /// waits until the recovered runs are in the session's queue.
    sessions: Mutex<Option<UnfinishedBySession>>,
}

/// Exclusive access to the backlog.
pub(super) struct BacklogGuard<'a> {
    backlog: &'a Backlog,
    guard: MutexGuard<'a, Option<UnfinishedBySession>>,
}

impl Backlog {
    /// True if every unfinished run was recovered.
    pub(super) fn is_empty(&self) -> bool {
        self.is_empty.load(Ordering::Acquire)
    }

    /// Locks the backlog; the first call reads it from the store.
    pub(super) async fn open(&self, store: &dyn StoreReader) -> Result<BacklogGuard<'_>, StoreError> {
        let mut guard = self.sessions.lock().await;
        if guard.is_none() {
            let mut sessions = UnfinishedBySession::new();
            for unfinished in store.recover().await? {
                sessions.entry(unfinished.row.key.clone()).or_default().push(unfinished);
            }
            *guard = Some(sessions);
        }
        Ok(BacklogGuard { backlog: self, guard })
    }
}

impl BacklogGuard<'_> {
    /// Number of runs to recover, without held ones.
    pub(super) fn waiting(&self) -> usize {
        let all = self.guard.iter().flat_map(BTreeMap::values).flatten();
        all.filter(|unfinished| unfinished.row.state != RunState::Held).count()
    }

    /// Returns the runs of one session.
    pub(super) fn of(&self, key: &SessionKey) -> Vec<UnfinishedRun> {
        self.guard.iter().filter_map(|sessions| sessions.get(key)).flatten().cloned().collect()
    }

    /// Returns the runs of all sessions, in order of acceptance.
    pub(super) fn all(&self) -> Vec<UnfinishedRun> {
        let mut all: Vec<_> = self.guard.iter().flat_map(BTreeMap::values).flatten().cloned().collect();
        // Stable sort: runs of one session that were accepted in the same millisecond keep their order.
        all.sort_by_key(|unfinished| unfinished.row.accepted_at);
        all
    }

    /// Removes a session whose runs were recovered.
    pub(super) fn done(&mut self, key: &SessionKey) {
        if let Some(sessions) = self.guard.as_mut() {
            sessions.remove(key);
            self.backlog.is_empty.store(sessions.is_empty(), Ordering::Release);
        }
    }

    /// Clears the backlog after all runs were recovered.
    pub(super) fn all_done(&mut self) {
        *self.guard = Some(UnfinishedBySession::new());
        self.backlog.is_empty.store(true, Ordering::Release);
    }
}
