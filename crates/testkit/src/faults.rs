//! A store that fails or dawdles where it is told to.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use async_trait::async_trait;
use homard_proto::{RunId, SessionId, SessionKey, session};
use homard_store::{Error, Fence, Rec, RunRow, Session, Store, Unfinished, Verdict};

/// What goes wrong with a commit.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Fault {
    /// How long the commit takes.
    pub delay: Duration,
    /// Why the disk does not take it; nothing of the batch is stored then.
    pub error: Option<String>,
}

/// A store whose commits, counted from 1, meet these faults.
#[derive(Debug)]
pub struct FaultyStore<S> {
    inner: S,
    faults: BTreeMap<u64, Fault>,
    commits: AtomicU64,
}

impl<S> FaultyStore<S> {
    /// Wraps a store.
    pub fn new(inner: S, faults: BTreeMap<u64, Fault>) -> Self {
        Self { inner, faults, commits: AtomicU64::new(0) }
    }

    /// Faults that no commit met.
    pub fn complaints(&self) -> Vec<String> {
        let commits = self.commits.load(Ordering::Relaxed);
        let unmet = self.faults.keys().filter(|&&number| number > commits);
        unmet.map(|number| format!("`fault store.commit #{number}` never happened")).collect()
    }
}

#[async_trait]
impl<S: Store> Store for FaultyStore<S> {
    async fn commit(&self, fence: &Fence, batch: Vec<Rec>) -> Result<Vec<Verdict>, Error> {
        let number = self.commits.fetch_add(1, Ordering::Relaxed) + 1;
        if let Some(fault) = self.faults.get(&number) {
            if !fault.delay.is_zero() {
                tokio::time::sleep(fault.delay).await;
            }
            if let Some(why) = &fault.error {
                return Err(Error::Disk(why.clone()));
            }
        }
        self.inner.commit(fence, batch).await
    }

    async fn load(&self, key: &SessionKey) -> Result<Option<Session>, Error> {
        self.inner.load(key).await
    }

    async fn run(&self, run: &RunId) -> Result<Option<RunRow>, Error> {
        self.inner.run(run).await
    }

    async fn list(&self) -> Result<Vec<(SessionKey, session::Record)>, Error> {
        self.inner.list().await
    }

    async fn find(&self, session: &SessionId) -> Result<Option<SessionKey>, Error> {
        self.inner.find(session).await
    }

    async fn recover(&self) -> Result<Vec<Unfinished>, Error> {
        self.inner.recover().await
    }
}
