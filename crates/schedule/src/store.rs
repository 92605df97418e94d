//! Storage of jobs and their run history.
//!
//! It reads and writes JSON as it is on disk, so that a job of another version is preserved.

use std::{collections::BTreeMap, fmt};

use async_trait::async_trait;
use homard_stdx::sync::Mutex;
use homard_store::Error;
use serde_json::Value;

/// Storage of jobs. It has one writer.
#[async_trait]
pub trait JobStore: fmt::Debug + Send + Sync {
    /// Returns its location, for messages.
    fn location(&self) -> String;

    /// Loads the jobs.
    async fn load(&self) -> Result<Vec<Value>, Error>;

    /// Replaces the jobs atomically.
    async fn save(&self, jobs: Vec<Value>) -> Result<(), Error>;

    /// Appends to the run history of a job.
    async fn append(&self, job: &str, line: Value) -> Result<(), Error>;

    /// Returns the run history of a job, oldest first.
    async fn history(&self, job: &str) -> Result<Vec<Value>, Error>;
}

/// An in-memory store.
#[derive(Debug, Default)]
pub struct MemoryJobStore {
    jobs: Mutex<Vec<Value>>,
    runs: Mutex<BTreeMap<String, Vec<Value>>>,
}

impl MemoryJobStore {
    /// Creates a store with these jobs.
    pub fn with(jobs: Vec<Value>) -> Self {
        Self { jobs: Mutex::new(jobs), ..Self::default() }
    }
}

#[async_trait]
impl JobStore for MemoryJobStore {
    fn location(&self) -> String {
        "memory".to_owned()
    }

    async fn load(&self) -> Result<Vec<Value>, Error> {
        Ok(self.jobs.lock().clone())
    }

    async fn save(&self, jobs: Vec<Value>) -> Result<(), Error> {
        *self.jobs.lock() = jobs;
        Ok(())
    }

    async fn append(&self, job: &str, line: Value) -> Result<(), Error> {
        let mut runs = self.runs.lock();
        runs.entry(job.to_owned()).or_default().push(line);
        Ok(())
    }

    async fn history(&self, job: &str) -> Result<Vec<Value>, Error> {
        let runs = self.runs.lock();
        Ok(runs.get(job).cloned().unwrap_or_default())
    }
}
