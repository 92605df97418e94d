//! Error responses in OpenAI's format.

use std::time::Duration;

use axum::{
    http::{
        HeaderValue, Method, StatusCode,
        header::{ALLOW, RETRY_AFTER},
    },
    response::{IntoResponse, Response},
};
use homard_agent::hub::SubmitError;
use serde_json::{Value, json};

use super::reply;
use crate::auth::{AuthError, format_wait, whole_seconds};

/// An error response, and whether the request may be retried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ApiError {
    status: StatusCode,
    kind: &'static str,
    message: String,
    /// Request field that caused the error.
    param: Option<String>,
    code: Option<&'static str>,
    retry: RetryAdvice,
}

/// Retry advice. The official clients retry by themselves unless the response forbids it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RetryAdvice {
    /// A retry would fail again or repeat a side effect.
    Never,
    /// At any time.
    Soon,
    /// After this delay.
    After(Duration),
}

impl ApiError {
    pub(super) fn new(status: StatusCode, kind: &'static str, message: impl Into<String>) -> Self {
        Self { status, kind, message: message.into(), param: None, code: None, retry: RetryAdvice::Never }
    }

    /// The request is invalid.
    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_request_error", message)
    }

    /// A field is invalid; `problem` states the constraint and follows the field name.
    pub(super) fn invalid_field(field: &str, problem: &str) -> Self {
        Self { param: Some(field.to_owned()), ..Self::invalid(format!("{field} {problem}")) }
    }

    /// The field contains no user message.
    pub(super) fn missing_message(part: &str) -> Self {
        Self { param: Some(part.to_owned()), ..Self::invalid(format!("Missing user message in `{part}`.")) }
    }

    /// The model does not exist.
    pub(super) fn no_model(message: impl Into<String>) -> Self {
        let param = Some("model".to_owned());
        Self {
            param,
            code: Some("model_not_found"),
            ..Self::new(StatusCode::NOT_FOUND, "invalid_request_error", message)
        }
    }

    /// Internal error.
    pub(super) fn failed(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "api_error", message)
    }

    /// The gateway is shutting down.
    pub(super) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "api_error", message)
    }

    pub(super) fn message(&self) -> &str {
        &self.message
    }

    /// Returns the JSON body.
    pub(super) fn body(&self) -> Value {
        let mut error = json!({"message": self.message, "type": self.kind});
        if let Some(param) = &self.param {
            error["param"] = param.as_str().into();
        }
        if let Some(code) = self.code {
            error["code"] = code.into();
        }
        json!({ "error": error })
    }
}

impl From<AuthError> for ApiError {
    fn from(error: AuthError) -> Self {
        match error {
            AuthError::RateLimited { wait } => Self {
                retry: RetryAdvice::After(wait),
                ..Self::new(
                    StatusCode::TOO_MANY_REQUESTS,
                    "rate_limited",
                    format!(
                        "Too many failed attempts from this address; retry with the correct secret in {}.",
                        format_wait(wait)
                    ),
                )
            },
            AuthError::Missing(_) | AuthError::Mismatch(_) | AuthError::DeviceToken => {
                Self::new(StatusCode::UNAUTHORIZED, "unauthorized", "Unauthorized")
            }
        }
    }
}

impl From<SubmitError> for ApiError {
    fn from(error: SubmitError) -> Self {
        let why = error.to_string();
        match error {
            SubmitError::Conflict(_) | SubmitError::SessionChanged => {
                Self::new(StatusCode::CONFLICT, "invalid_request_error", why)
            }
            SubmitError::Blocked => Self::new(StatusCode::FORBIDDEN, "permission_error", why),
            SubmitError::Overloaded => {
                Self { retry: RetryAdvice::Soon, ..Self::new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_error", why) }
            }
            // Nothing was accepted, so the request can be retried when the gateway is back.
            SubmitError::Stopping => Self { retry: RetryAdvice::Soon, ..Self::unavailable(why) },
            SubmitError::Store(_) | SubmitError::Held(_) => Self::failed(why),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = reply(self.status, &self.body());
        let headers = response.headers_mut();
        match self.retry {
            RetryAdvice::Never => {
                headers.insert("x-should-retry", HeaderValue::from_static("false"));
            }
            RetryAdvice::Soon => {}
            RetryAdvice::After(wait) => {
                headers.insert(RETRY_AFTER, HeaderValue::from(whole_seconds(wait).max(1)));
            }
        }
        response
    }
}

/// Returns an optional string; `part` is the field name.
pub(super) fn text<'a>(value: &'a Value, part: &str) -> Result<Option<&'a str>, ApiError> {
    match value.as_str() {
        None if !value.is_null() => Err(ApiError::invalid_field(part, "must be a string")),
        text => Ok(text),
    }
}

/// Returns a required string; `part` is the field name.
pub(super) fn required_text<'a>(value: &'a Value, part: &str) -> Result<&'a str, ApiError> {
    text(value, part)?.ok_or_else(|| ApiError::invalid_field(part, "must be a string"))
}

/// Builds the response for a wrong HTTP method.
pub(super) fn method_not_allowed(used: &Method, path: &str, allowed: &'static str) -> Response {
    let why = format!("{path} does not support {used}; use {allowed}");
    let error = ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "invalid_request_error", why);
    let mut response = error.into_response();
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    response
}
