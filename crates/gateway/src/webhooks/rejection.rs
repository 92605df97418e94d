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
use crate::auth::AuthError;

/// Retry delay for errors caused by overload.
const RETRY_DELAY: Duration = Duration::from_secs(10);

/// An error response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WebhookRejection {
    status: StatusCode,
    body: RejectionBody,
    retry_after: Option<Duration>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum RejectionBody {
    /// A line of text, for unauthenticated senders.
    Text(&'static str),
    /// `{"ok": false, "error": …}`.
    Error(String),
}

impl WebhookRejection {
    pub(super) fn new(status: StatusCode, why: impl Into<String>) -> Self {
        Self { status, body: RejectionBody::Error(why.into()), retry_after: None }
    }

    /// The request is invalid.
    pub(super) fn invalid(why: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, why)
    }

    /// Temporary failure; the same request may be retried.
    pub(super) fn unavailable(why: impl Into<String>) -> Self {
        Self { retry_after: Some(RETRY_DELAY), ..Self::new(StatusCode::SERVICE_UNAVAILABLE, why) }
    }

    /// The path does not exist.
    pub(super) fn not_found() -> Self {
        Self { status: StatusCode::NOT_FOUND, body: RejectionBody::Text("Not Found"), retry_after: None }
    }

    /// Only `POST` is allowed.
    pub(super) fn method_not_allowed() -> Self {
        Self {
            status: StatusCode::METHOD_NOT_ALLOWED,
            body: RejectionBody::Text("Method Not Allowed"),
            retry_after: None,
        }
    }
}

impl From<AuthError> for WebhookRejection {
    fn from(error: AuthError) -> Self {
        match error {
            AuthError::RateLimited { wait } => {
                let message = "Too many failed attempts from this address; wait, then retry with the correct token.";
                Self {
                    status: StatusCode::TOO_MANY_REQUESTS,
                    body: RejectionBody::Text(message),
                    retry_after: Some(wait),
                }
            }
            AuthError::Missing(_) | AuthError::Mismatch(_) | AuthError::DeviceToken => {
                Self { status: StatusCode::UNAUTHORIZED, body: RejectionBody::Text("Unauthorized"), retry_after: None }
            }
        }
    }
}

impl From<SubmitError> for WebhookRejection {
    fn from(error: SubmitError) -> Self {
        let why = error.to_string();
        match error {
            SubmitError::Conflict(_) | SubmitError::SessionChanged => Self::new(StatusCode::CONFLICT, why),
            SubmitError::Blocked => Self::new(StatusCode::FORBIDDEN, why),
            SubmitError::Held(_) => Self::new(StatusCode::CONFLICT, why),
            SubmitError::Overloaded => {
                Self { retry_after: Some(RETRY_DELAY), ..Self::new(StatusCode::TOO_MANY_REQUESTS, why) }
            }
            // Nothing was accepted, so the same request may be retried.
            SubmitError::Stopping | SubmitError::Store(_) => Self::unavailable(why),
        }
    }
}

impl From<ChangeError> for WebhookRejection {
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

impl IntoResponse for WebhookRejection {
    fn into_response(self) -> Response {
        let mut response = match self.body {
            RejectionBody::Text(text) => (self.status, text).into_response(),
            RejectionBody::Error(why) => reply(self.status, &json!({"ok": false, "error": why})),
        };
        let headers = response.headers_mut();
        if let Some(wait) = self.retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(wait.as_secs().max(1)));
        }
        if self.status == StatusCode::METHOD_NOT_ALLOWED {
            headers.insert(ALLOW, HeaderValue::from_static("POST"));
        }
        response
    }
}
