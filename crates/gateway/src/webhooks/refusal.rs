//! Error responses of webhooks.

use std::time::Duration;

use axum::{
    http::{
        HeaderValue, StatusCode,
        header::{ALLOW, RETRY_AFTER},
    },
    response::{IntoResponse, Response},
};
use homard_agent::{ChangeError, hub::SubmitError};
use serde_json::json;

use super::reply;
use crate::auth::Denied;

/// Retry delay for errors caused by overload.
const AGAIN: Duration = Duration::from_secs(10);

/// An error response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    status: StatusCode,
    said: Said,
    again: Option<Duration>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Said {
    /// A line of text, for unauthenticated senders.
    Text(&'static str),
    /// `{"ok": false, "error": …}`.
    Error(String),
}

impl Refusal {
    pub(super) fn new(status: StatusCode, why: impl Into<String>) -> Self {
        Self { status, said: Said::Error(why.into()), again: None }
    }

    /// The request is invalid.
    pub(super) fn invalid(why: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, why)
    }

    /// Temporary failure; the same request may be retried.
    pub(super) fn unavailable(why: impl Into<String>) -> Self {
        Self { again: Some(AGAIN), ..Self::new(StatusCode::SERVICE_UNAVAILABLE, why) }
    }

    /// The path does not exist.
    pub(super) fn not_found() -> Self {
        Self { status: StatusCode::NOT_FOUND, said: Said::Text("Not Found"), again: None }
    }

    /// Only `POST` is allowed.
    pub(super) fn wrong_verb() -> Self {
        Self { status: StatusCode::METHOD_NOT_ALLOWED, said: Said::Text("Method Not Allowed"), again: None }
    }
}

impl From<Denied> for Refusal {
    fn from(denied: Denied) -> Self {
        match denied {
            Denied::TooOften { wait } => {
                let said = "Too many wrong tokens came from this address; wait, then use the right one.";
                Self { status: StatusCode::TOO_MANY_REQUESTS, said: Said::Text(said), again: Some(wait) }
            }
            Denied::Missing(_) | Denied::Mismatch(_) | Denied::DeviceToken => {
                Self { status: StatusCode::UNAUTHORIZED, said: Said::Text("Unauthorized"), again: None }
            }
        }
    }
}

impl From<SubmitError> for Refusal {
    fn from(error: SubmitError) -> Self {
        let why = error.to_string();
        match error {
            SubmitError::Conflict(_) | SubmitError::SessionChanged => Self::new(StatusCode::CONFLICT, why),
            SubmitError::Blocked => Self::new(StatusCode::FORBIDDEN, why),
            SubmitError::Held(_) => Self::new(StatusCode::CONFLICT, why),
            SubmitError::Overloaded => Self { again: Some(AGAIN), ..Self::new(StatusCode::TOO_MANY_REQUESTS, why) },
            // Nothing was accepted, so the same request may be retried.
            SubmitError::Stopping | SubmitError::Store(_) => Self::unavailable(why),
        }
    }
}

impl From<ChangeError> for Refusal {
    fn from(error: ChangeError) -> Self {
        let why = error.to_string();
        match error {
            ChangeError::Invalid(_)
            | ChangeError::UnknownAgent(_)
            | ChangeError::Main(_)
            | ChangeError::Refused(_)
            | ChangeError::Changed
            | ChangeError::NoSession => Self::invalid(why),
            ChangeError::Busy | ChangeError::Store(_) | ChangeError::Stopping => Self::unavailable(why),
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = match self.said {
            Said::Text(text) => (self.status, text).into_response(),
            Said::Error(why) => reply(self.status, &json!({"ok": false, "error": why})),
        };
        let headers = response.headers_mut();
        if let Some(wait) = self.again {
            headers.insert(RETRY_AFTER, HeaderValue::from(wait.as_secs().max(1)));
        }
        if self.status == StatusCode::METHOD_NOT_ALLOWED {
            headers.insert(ALLOW, HeaderValue::from_static("POST"));
        }
        response
    }
}
