//! Registry of lanes: a job finds its lane or starts it, and a lane ends only if no job is on its way to it.
//!
//! All methods take the registry by reference and leave the locking to its owner. The hub uses a plain mutex;
//! `tests/races.rs` uses one whose threads are scheduled in thousands of orders.

use std::{collections::HashMap, hash::Hash};

/// Sender of a lane's job queue.
pub(crate) trait Mailbox {
    /// A job for a lane.
    type Job;
    /// Receiver of the job queue.
    type Jobs;

    /// Enqueues a job. The receiver exists as long as the lane is registered.
    fn put(&self, job: Self::Job);
    /// True if the queue is empty.
    fn is_empty(jobs: &Self::Jobs) -> bool;
    /// Removes all queued jobs.
    fn drain(jobs: &mut Self::Jobs) -> Vec<Self::Job>;
}

/// The lanes, at most one per key.
#[derive(Debug)]
pub(crate) struct Registry<K, M>(HashMap<K, M>);

impl<K, M> Default for Registry<K, M> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: Hash + Eq + Clone, M: Mailbox> Registry<K, M> {
    /// Enqueues a job for the key's lane; `start` starts the lane if there is none.
    pub(crate) fn send(&mut self, key: &K, job: M::Job, start: impl FnOnce() -> M) {
        self.0.entry(key.clone()).or_insert_with(start).put(job);
    }

    /// True if the key has a lane.
    pub(crate) fn contains(&self, key: &K) -> bool {
        self.0.contains_key(key)
    }

    /// Unregisters an idle lane. Returns false if a job arrived in the meantime; the lane must then continue.
    pub(crate) fn retire(&mut self, key: &K, jobs: &M::Jobs) -> bool {
        let is_idle = M::is_empty(jobs);
        if is_idle {
            self.0.remove(key);
        }
        is_idle
    }

    /// Visits the queued jobs of a lane. Their order is kept, because the registry is locked.
    pub(crate) fn visit_jobs(&self, key: &K, jobs: &mut M::Jobs, mut visit: impl FnMut(&M::Job)) {
        let Some(mailbox) = self.0.get(key) else { return };
        for job in M::drain(jobs) {
            visit(&job);
            mailbox.put(job);
        }
    }
}
