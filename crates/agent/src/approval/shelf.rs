//! Where approvals and rules are kept.

use std::{
    fmt,
    sync::{Mutex, PoisonError},
};

use async_trait::async_trait;
use homard_store::Error;
use serde_json::Value;

/// Where approvals and rules are kept. One desk writes to it.
#[async_trait]
pub trait Shelf: fmt::Debug + Send + Sync {
    /// What people are told of where the rules are.
    fn place(&self) -> String;

    /// What was asked.
    async fn load(&self) -> Result<Vec<Value>, Error>;

    /// Keeps these instead of those before, whole or not at all; once it returns they outlive a crash.
    async fn save(&self, approvals: Vec<Value>) -> Result<(), Error>;

    /// The text of the rules; `None` when there are none.
    async fn policy(&self) -> Result<Option<String>, Error>;

    /// Keeps another text instead, whole or not at all.
    async fn set_policy(&self, text: String) -> Result<(), Error>;
}

/// A shelf that is gone with the process.
#[derive(Debug, Default)]
pub struct MemoryShelf {
    approvals: Mutex<Vec<Value>>,
    policy: Mutex<Option<String>>,
}

impl MemoryShelf {
    /// A shelf with these rules on it.
    pub fn with_policy(text: impl Into<String>) -> Self {
        Self { policy: Mutex::new(Some(text.into())), ..Self::default() }
    }
}

#[async_trait]
impl Shelf for MemoryShelf {
    fn place(&self) -> String {
        "memory".to_owned()
    }

    async fn load(&self) -> Result<Vec<Value>, Error> {
        Ok(self.approvals.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    async fn save(&self, approvals: Vec<Value>) -> Result<(), Error> {
        *self.approvals.lock().unwrap_or_else(PoisonError::into_inner) = approvals;
        Ok(())
    }

    async fn policy(&self) -> Result<Option<String>, Error> {
        Ok(self.policy.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    async fn set_policy(&self, text: String) -> Result<(), Error> {
        *self.policy.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
        Ok(())
    }
}
