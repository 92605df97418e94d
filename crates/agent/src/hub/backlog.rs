//! Unfinished runs that earlier processes left on disk, until this process takes them up.
//!
//! A session's unfinished runs come before anything new in it, whichever process opens the session: the gateway takes up all
//! of them when it starts, a local turn only those of the session that it works in. [`Hub`](super::Hub) asks for them
//! before it hands a message or a change to a session, so no caller can forget to.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, Ordering},
};

use homard_proto::SessionKey;
use homard_store::{Error as StoreError, RunState, Store, Unfinished};
use tokio::sync::{Mutex, MutexGuard};

/// Unfinished runs that nobody has taken up yet, by session and in the order in which they were accepted.
pub(super) type Sessions = BTreeMap<SessionKey, Vec<Unfinished>>;

/// Unfinished runs of earlier processes.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    /// True once nothing is left. Most requests need no more than this.
    is_empty: AtomicBool,
    /// `None` until the store was asked. Held while runs are taken up, so that a second request for the same session waits
    /// until they have their place in its queue.
    sessions: Mutex<Option<Sessions>>,
}

/// The right to take runs out of the backlog.
pub(super) struct Opened<'a> {
    backlog: &'a Backlog,
    guard: MutexGuard<'a, Option<Sessions>>,
}

impl Backlog {
    /// Whether every unfinished run was taken up.
    pub(super) fn is_empty(&self) -> bool {
        self.is_empty.load(Ordering::Acquire)
    }

    /// Opens the backlog; the first time, the store is asked.
    pub(super) async fn open(&self, store: &dyn Store) -> Result<Opened<'_>, StoreError> {
        let mut guard = self.sessions.lock().await;
        if guard.is_none() {
            let mut sessions = Sessions::new();
            for found in store.recover().await? {
                sessions.entry(found.row.key.clone()).or_default().push(found);
            }
            *guard = Some(sessions);
        }
        Ok(Opened { backlog: self, guard })
    }
}

impl Opened<'_> {
    /// How many runs wait to be taken up. Held ones do not.
    pub(super) fn waiting(&self) -> usize {
        let all = self.guard.iter().flat_map(BTreeMap::values).flatten();
        all.filter(|found| found.row.state != RunState::Held).count()
    }

    /// The runs of one session.
    pub(super) fn of(&self, key: &SessionKey) -> Vec<Unfinished> {
        self.guard.iter().filter_map(|sessions| sessions.get(key)).flatten().cloned().collect()
    }

    /// The runs of all sessions, in the order in which they were accepted.
    pub(super) fn all(&self) -> Vec<Unfinished> {
        let mut all: Vec<_> = self.guard.iter().flat_map(BTreeMap::values).flatten().cloned().collect();
        // Stable, so runs of one session that were accepted in the same millisecond keep their order.
        all.sort_by_key(|found| found.row.accepted_at);
        all
    }

    /// Notes that the runs of a session were taken up.
    pub(super) fn done(&mut self, key: &SessionKey) {
        if let Some(sessions) = self.guard.as_mut() {
            sessions.remove(key);
            self.backlog.is_empty.store(sessions.is_empty(), Ordering::Release);
        }
    }

    /// Notes that all runs were taken up.
    pub(super) fn all_done(&mut self) {
        *self.guard = Some(Sessions::new());
        self.backlog.is_empty.store(true, Ordering::Release);
    }
}
