//! Error codes and messages of responses.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Error code for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Code {
    /// The request is invalid; repeating it will not help.
    InvalidRequest,
    /// The gateway cannot do it at present.
    Unavailable,
    /// The device is not paired with the gateway.
    NotPaired,
    /// A channel account is not linked.
    NotLinked,
    /// The run timed out.
    AgentTimeout,
    /// The connection lacks a scope (protocol 4).
    Forbidden,
    /// The approval is no longer pending (protocol 4).
    ApprovalNotFound,
}

/// The `error` member of a response.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ErrorShape {
    /// Code for programs.
    pub code: Code,
    /// Message for people.
    pub message: String,
    /// Structured details.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Value>,
    /// True if the same request may succeed later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retryable: Option<bool>,
    /// Delay before the retry in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
}

impl ErrorShape {
    /// Creates an error.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), details: None, retryable: None, retry_after_ms: None }
    }

    /// Creates an error for an invalid request.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(Code::InvalidRequest, message)
    }

    /// Creates an error for something that the gateway cannot do at present.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(Code::Unavailable, message)
    }

    /// Adds structured details.
    pub fn with_details(mut self, details: Value) -> Self {
        self.details = Some(details);
        self
    }
}
