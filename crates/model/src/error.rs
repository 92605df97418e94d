//! Errors of model requests.

use std::time::Duration;

/// An error, with the facts that retry and failover need.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// Class of the error.
    pub kind: ErrorKind,
    /// HTTP status of the provider, if it responded.
    pub status: Option<u16>,
    /// Delay requested by the provider.
    pub retry_after: Option<Duration>,
    /// Message for people: names the provider, its message and a remedy.
    pub message: String,
    /// Beginning of the response, with keys redacted; empty if there was none.
    pub excerpt: String,
    /// The provider's request id, for its support.
    pub request_id: Option<String>,
}

/// Classes of errors, by possible remedy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The provider could not be reached.
    Connect,
    /// Nothing arrived within the idle timeout, or the provider reports a timeout.
    Timeout,
    /// Too many requests.
    RateLimit,
    /// The provider is overloaded.
    Overloaded,
    /// Internal error of the provider.
    Server,
    /// The key is invalid or lacks permission.
    Auth,
    /// The account has no credit.
    Billing,
    /// The request is invalid; repeating it will fail again.
    Rejected,
    /// The endpoint does not provide this API: the address, the API or the model name is wrong.
    Misconfigured,
    /// The conversation exceeds the context window.
    Overflow,
    /// The provider's content filter refused the request.
    ContentFilter,
    /// The response does not follow the wire format: not a stream, not JSON.
    Malformed,
    /// The response ended prematurely.
    Truncated,
}

impl Error {
    /// Creates an error without further facts.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { kind, status: None, retry_after: None, message, excerpt: String::new(), request_id: None }
    }
}

impl Error {
    /// Returns the message without the advice, for texts that name the next step themselves.
    pub fn cause(&self) -> &str {
        self.message
            .strip_suffix(self.kind.advice())
            .and_then(|cause| cause.strip_suffix("; "))
            .unwrap_or(&self.message)
    }
}

/// Formats a model and the cause of its failure as one line. A provider name at the start of the cause is not repeated:
/// `p/m (host): HTTP 503: busy`.
pub fn failure_of(model: &str, cause: &str) -> String {
    let cause = cause.trim_end_matches('.');
    let provider = model.split('/').next().unwrap_or(model);
    let rest = cause.strip_prefix(provider).filter(|rest| rest.starts_with(": ") || rest.starts_with(" ("));
    match rest.or_else(|| cause.strip_prefix(model).filter(|rest| rest.starts_with(' '))) {
        Some(rest) => format!("{model}{rest}"),
        None => format!("{model}: {cause}"),
    }
}

impl ErrorKind {
    /// True if the same request may succeed a moment later.
    pub fn is_transient(self) -> bool {
        match self {
            Self::Connect | Self::Timeout | Self::RateLimit | Self::Overloaded | Self::Server => true,
            Self::Malformed | Self::Truncated => true,
            Self::Auth | Self::Billing | Self::Rejected | Self::Misconfigured => false,
            Self::Overflow | Self::ContentFilter => false,
        }
    }

    /// Returns advice for people.
    pub fn advice(self) -> &'static str {
        match self {
            Self::Connect => "check baseUrl and the network",
            Self::Timeout => "try again, or choose a faster model",
            Self::RateLimit => "wait a little, or choose another model",
            Self::Overloaded | Self::Server => "try again in a moment, or choose another model",
            Self::Auth => "check the API key and its permissions",
            Self::Billing => "add credit to the account, or choose another provider",
            Self::Rejected => "check the model's name and its settings",
            Self::Misconfigured => "check the provider's baseUrl and api, and the model's name",
            Self::Overflow => "the conversation is too long for this model: use /compact or /new",
            Self::ContentFilter => "rephrase the message, or choose another model",
            Self::Malformed => "check baseUrl: this does not look like the model's API",
            Self::Truncated => "try again",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_has_no_advice_and_names_the_model_once() {
        let advice = ErrorKind::Overloaded.advice();
        let error = Error::new(ErrorKind::Overloaded, format!("p (host): HTTP 503: busy; {advice}"));
        assert_eq!(error.cause(), "p (host): HTTP 503: busy");
        assert_eq!(failure_of("p/m", error.cause()), "p/m (host): HTTP 503: busy");
        assert_eq!(failure_of("p/m", "p: busy."), "p/m: busy");
        assert_eq!(failure_of("p/m", "p/m said nothing for 120 s"), "p/m said nothing for 120 s");
        assert_eq!(failure_of("p/m", "pale and busy"), "p/m: pale and busy");
        assert_eq!(Error::new(ErrorKind::Server, "busy").cause(), "busy");
    }
}
