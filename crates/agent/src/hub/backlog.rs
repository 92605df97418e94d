//! Unfinished runs of earlier processes, until this process recovers them.
//!
//! The unfinished runs of a session precede anything new in it, whichever process opens the session: the gateway
//! recovers all of them when it starts, a local turn only those of its own session. [`Hub`](super::Hub) reads the
//! backlog before it passes a message or a change to a session, so no caller has to.

use std::sync::atomic::{AtomicBool, Ordering};

use homard_proto::SessionKey;
use homard_store::{Error as StoreError, RunState, StoreReader, UnfinishedRun};
use tokio::sync::{Mutex, MutexGuard};

use crate::tape::stored::{StoredValue, unfinished_runs};

/// Unfinished runs of earlier processes.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    /// True once nothing is left; the fast path for most requests.
    is_empty: AtomicBool,
    /// Runs not recovered yet, in the order in which they were accepted, which is not that of their times if the clock
    /// was set back. `None` until the store has been read. Locked during recovery, so that a second request for the same
    /// session waits until the recovered runs are in the session's queue.
    runs: Mutex<Option<Vec<StoredValue<UnfinishedRun>>>>,
}

/// Exclusive access to the backlog.
pub(super) struct BacklogGuard<'a> {
    backlog: &'a Backlog,
    guard: MutexGuard<'a, Option<Vec<StoredValue<UnfinishedRun>>>>,
}

impl Backlog {
    /// True if every unfinished run was recovered.
    pub(super) fn is_empty(&self) -> bool {
        self.is_empty.load(Ordering::Acquire)
    }

    /// Locks the backlog; the first call reads it from the store.
    pub(super) async fn open(&self, store: &dyn StoreReader) -> Result<BacklogGuard<'_>, StoreError> {
        let mut guard = self.runs.lock().await;
        if guard.is_none() {
            *guard = Some(unfinished_runs(store).await?);
        }
        Ok(BacklogGuard { backlog: self, guard })
    }
}

impl BacklogGuard<'_> {
    /// Number of runs to recover, without held ones.
    pub(super) fn waiting(&self) -> usize {
        self.guard.iter().flatten().filter(|unfinished| unfinished.row.state != RunState::Held).count()
    }

    /// Returns the runs of one session, in order of acceptance.
    pub(super) fn of(&self, key: &SessionKey) -> Vec<StoredValue<UnfinishedRun>> {
        self.guard.iter().flatten().filter(|unfinished| unfinished.row.key == *key).cloned().collect()
    }

    /// Returns the runs of all sessions, in order of acceptance.
    pub(super) fn all(&self) -> Vec<StoredValue<UnfinishedRun>> {
        self.guard.iter().flatten().cloned().collect()
    }

    /// Removes a session whose runs were recovered.
    pub(super) fn done(&mut self, key: &SessionKey) {
        if let Some(runs) = self.guard.as_mut() {
            runs.retain(|unfinished| unfinished.row.key != *key);
            self.backlog.is_empty.store(runs.is_empty(), Ordering::Release);
        }
    }

    /// Clears the backlog after all runs were recovered.
    pub(super) fn all_done(&mut self) {
        *self.guard = Some(Vec::new());
        self.backlog.is_empty.store(true, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use homard_proto::{
        AgentId, RunId,
        message::{Message, User},
    };
    use homard_store::{Accept, Fence, MemoryStore, Options, Rec, StoreWriter};

    use super::*;

    fn accept(run: &str, session: &str, at: u64) -> Rec {
        Rec::Accept(Box::new(Accept {
            run: RunId::parse(run).unwrap(),
            principal: "owner".to_owned(),
            method: "agent".to_owned(),
            fingerprint: run.to_owned(),
            key: SessionKey::parse(session, &AgentId::main()).unwrap(),
            message: Message::User(User::text("hi", at)),
            options: Options::default(),
            origin: None,
            at,
        }))
    }

    #[tokio::test]
    async fn runs_are_recovered_as_accepted_although_the_clock_was_set_back() {
        let store = MemoryStore::default();
        let accepted = vec![accept("a", "first", 2_000), accept("b", "second", 1_000), accept("c", "first", 500)];
        store.commit(&Fence::default(), accepted).await.unwrap();
        let backlog = Backlog::default();
        let guard = backlog.open(&store).await.unwrap();
        let names =
            |runs: Vec<StoredValue<UnfinishedRun>>| runs.iter().map(|run| run.row.run.to_string()).collect::<Vec<_>>();
        assert_eq!(names(guard.all()), ["a", "b", "c"]);
        assert_eq!(names(guard.of(&SessionKey::parse("first", &AgentId::main()).unwrap())), ["a", "c"]);
    }
}
