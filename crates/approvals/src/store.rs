//! Storage of approvals and rules.

use std::fmt;

use async_trait::async_trait;
use homard_stdx::sync::Mutex;
use homard_store::Error;
use serde_json::Value;

/// Storage of approvals and rules. It has one writer.
#[async_trait]
pub trait ApprovalStore: fmt::Debug + Send + Sync {
    /// Returns the location of the rules, for messages.
    fn location(&self) -> String;

    /// Loads the stored requests.
    async fn load(&self) -> Result<Vec<Value>, Error>;

    /// Replaces the stored requests atomically and durably.
    async fn save(&self, approvals: Vec<Value>) -> Result<(), Error>;

    /// Returns the text of the rules; `None` if there are none.
    async fn policy(&self) -> Result<Option<String>, Error>;

    /// Replaces the text of the rules atomically.
    async fn set_policy(&self, text: String) -> Result<(), Error>;
}

/// An in-memory store.
#[derive(Debug, Default)]
pub struct MemoryApprovalStore {
    approvals: Mutex<Vec<Value>>,
    policy: Mutex<Option<String>>,
}

impl MemoryApprovalStore {
    /// Creates a store with these rules.
    pub fn with_policy(text: impl Into<String>) -> Self {
        Self { policy: Mutex::new(Some(text.into())), ..Self::default() }
    }
}

#[async_trait]
impl ApprovalStore for MemoryApprovalStore {
    fn location(&self) -> String {
        "memory".to_owned()
    }

    async fn load(&self) -> Result<Vec<Value>, Error> {
        Ok(self.approvals.lock().clone())
    }

    async fn save(&self, approvals: Vec<Value>) -> Result<(), Error> {
        *self.approvals.lock() = approvals;
        Ok(())
    }

    async fn policy(&self) -> Result<Option<String>, Error> {
        Ok(self.policy.lock().clone())
    }

    async fn set_policy(&self, text: String) -> Result<(), Error> {
        *self.policy.lock() = Some(text);
        Ok(())
    }
}
