//! Where jobs and the story of their runs are kept.
//!
//! A shelf takes and gives JSON as it is on disk, so a job that this version cannot read survives.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Mutex, PoisonError},
};

use async_trait::async_trait;
use homard_store::Error;
use serde_json::Value;

/// Where jobs are kept. One schedule writes to it.
#[async_trait]
pub trait Shelf: fmt::Debug + Send + Sync {
    /// What people are told of where it is.
    fn place(&self) -> String;

    /// The jobs.
    async fn load(&self) -> Result<Vec<Value>, Error>;

    /// Keeps these jobs instead of those before, whole or not at all.
    async fn save(&self, jobs: Vec<Value>) -> Result<(), Error>;

    /// Adds to the story of a job's runs.
    async fn append(&self, job: &str, line: Value) -> Result<(), Error>;

    /// The story of a job's runs, oldest first.
    async fn runs(&self, job: &str) -> Result<Vec<Value>, Error>;
}

/// A shelf that is gone with the process.
#[derive(Debug, Default)]
pub struct MemoryShelf {
    jobs: Mutex<Vec<Value>>,
    runs: Mutex<BTreeMap<String, Vec<Value>>>,
}

impl MemoryShelf {
    /// A shelf with these jobs on it.
    pub fn with(jobs: Vec<Value>) -> Self {
        Self { jobs: Mutex::new(jobs), ..Self::default() }
    }
}

#[async_trait]
impl Shelf for MemoryShelf {
    fn place(&self) -> String {
        "memory".to_owned()
    }

    async fn load(&self) -> Result<Vec<Value>, Error> {
        Ok(self.jobs.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    async fn save(&self, jobs: Vec<Value>) -> Result<(), Error> {
        *self.jobs.lock().unwrap_or_else(PoisonError::into_inner) = jobs;
        Ok(())
    }

    async fn append(&self, job: &str, line: Value) -> Result<(), Error> {
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        runs.entry(job.to_owned()).or_default().push(line);
        Ok(())
    }

    async fn runs(&self, job: &str) -> Result<Vec<Value>, Error> {
        let runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(runs.get(job).cloned().unwrap_or_default())
    }
}
