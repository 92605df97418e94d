//! Which lanes there are: a job finds its lane or starts it, and a lane leaves only when no job is on its way to it.
//!
//! Everything here wants the registry for itself, so whoever owns it decides on the lock. The hub has a plain one;
//! `tests/races.rs` has one whose threads are scheduled in thousands of orders.

use std::{collections::HashMap, hash::Hash};

/// The sending end of what brings jobs to a lane.
pub(crate) trait Mailbox {
    /// Something for a lane to do.
    type Job;
    /// The lane's end.
    type Jobs;

    /// Puts a job behind the others. The lane's end is there as long as the lane is registered.
    fn put(&self, job: Self::Job);
    /// Whether there is no job that the lane has not taken.
    fn is_empty(jobs: &Self::Jobs) -> bool;
    /// Takes out all jobs that the lane has not taken.
    fn drain(jobs: &mut Self::Jobs) -> Vec<Self::Job>;
}

/// The lanes, at most one for a key.
#[derive(Debug)]
pub(crate) struct Registry<K, M>(HashMap<K, M>);

impl<K, M> Default for Registry<K, M> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: Hash + Eq + Clone, M: Mailbox> Registry<K, M> {
    /// Hands a job to the key's lane; if there is none, `start` starts it.
    pub(crate) fn send(&mut self, key: &K, job: M::Job, start: impl FnOnce() -> M) {
        self.0.entry(key.clone()).or_insert_with(start).put(job);
    }

    /// Whether the key has a lane.
    pub(crate) fn contains(&self, key: &K) -> bool {
        self.0.contains_key(key)
    }

    /// Lets a lane with nothing to do go, unless a job came in the meantime: then it has to stay.
    pub(crate) fn retire(&mut self, key: &K, jobs: &M::Jobs) -> bool {
        let is_idle = M::is_empty(jobs);
        if is_idle {
            self.0.remove(key);
        }
        is_idle
    }

    /// Looks at the jobs that a lane has not taken. They stay in their order, as nothing can come between.
    pub(crate) fn look_through(&self, key: &K, jobs: &mut M::Jobs, mut look: impl FnMut(&M::Job)) {
        let Some(mailbox) = self.0.get(key) else { return };
        for job in M::drain(jobs) {
            look(&job);
            mailbox.put(job);
        }
    }
}
