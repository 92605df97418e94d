//! Errors as clients see them: a code to branch on, a text to read.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What went wrong, for machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Code {
    /// The request itself is wrong; sending it again will not help.
    InvalidRequest,
    /// The gateway could not do it, now.
    Unavailable,
    /// The device is not known to the gateway.
    NotPaired,
    /// A channel account is not linked.
    NotLinked,
    /// The run took too long.
    AgentTimeout,
    /// The connection lacks a scope (protocol 4).
    Forbidden,
    /// The approval is not pending any more (protocol 4).
    ApprovalNotFound,
}

/// The `error` member of a response.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ErrorShape {
    /// What to branch on.
    pub code: Code,
    /// What to show.
    pub message: String,
    /// Facts for clients that know them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Value>,
    /// Whether the same request may succeed later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retryable: Option<bool>,
    /// How long to wait before that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
}

impl ErrorShape {
    /// An error with a code and a text.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), details: None, retryable: None, retry_after_ms: None }
    }

    /// A wrong request.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(Code::InvalidRequest, message)
    }

    /// Something that the gateway could not do.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(Code::Unavailable, message)
    }

    /// The same error with facts for machines.
    pub fn with_details(mut self, details: Value) -> Self {
        self.details = Some(details);
        self
    }
}
