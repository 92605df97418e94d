//! Why a model did not answer.

use std::time::Duration;

/// A failure, with the facts that a retry or a failover decides on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// What the caller can do about it.
    pub kind: ErrorKind,
    /// The provider's HTTP status, if it got that far.
    pub status: Option<u16>,
    /// How long the provider asks to wait.
    pub retry_after: Option<Duration>,
    /// For people: names the provider, what it said and the way out.
    pub message: String,
    /// The head of what the provider sent, without keys; empty if it sent nothing.
    pub excerpt: String,
    /// The provider's name for the request, for its support.
    pub request_id: Option<String>,
}

/// What the caller can do about a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The provider was not reached.
    Connect,
    /// Nothing came for too long, or the provider says that it took too long.
    Timeout,
    /// Too many requests.
    RateLimit,
    /// The provider has too much to do.
    Overloaded,
    /// The provider is broken.
    Server,
    /// The key is wrong or may not do this.
    Auth,
    /// The account has no money left.
    Billing,
    /// The request is wrong; the same one will fail again.
    Rejected,
    /// Nothing is there that speaks this API: the address, the API or the model's name is wrong.
    Misconfigured,
    /// The conversation is too long for the model.
    Overflow,
    /// The provider does not want to answer this.
    ContentFilter,
    /// The answer was not what the wire promises: not a stream, not JSON.
    Malformed,
    /// The answer stopped in the middle.
    Truncated,
}

impl Error {
    /// A failure of which only this is known.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { kind, status: None, retry_after: None, message, excerpt: String::new(), request_id: None }
    }
}

impl Error {
    /// What happened, without the advice: for lines that say themselves what comes next.
    pub fn cause(&self) -> &str {
        self.message
            .strip_suffix(self.kind.advice())
            .and_then(|cause| cause.strip_suffix("; "))
            .unwrap_or(&self.message)
    }
}

/// Whose failure it is and what it was, in one line. A cause that begins with the provider's name goes on from there:
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
    /// Whether the same request may succeed a moment later.
    pub fn is_transient(self) -> bool {
        match self {
            Self::Connect | Self::Timeout | Self::RateLimit | Self::Overloaded | Self::Server => true,
            Self::Malformed | Self::Truncated => true,
            Self::Auth | Self::Billing | Self::Rejected | Self::Misconfigured => false,
            Self::Overflow | Self::ContentFilter => false,
        }
    }

    /// What a person can do about it.
    pub fn advice(self) -> &'static str {
        match self {
            Self::Connect => "check baseUrl and the network",
            Self::Timeout => "try again, or choose a faster model",
            Self::RateLimit => "wait a little, or choose another model",
            Self::Overloaded | Self::Server => "try again in a moment, or choose another model",
            Self::Auth => "check the API key and what it may do",
            Self::Billing => "add credit to the account, or choose another provider",
            Self::Rejected => "check the model's name and its settings",
            Self::Misconfigured => "check the provider's baseUrl and api, and the model's name",
            Self::Overflow => "the conversation is too long for this model: use /compact or /new",
            Self::ContentFilter => "say it in other words, or choose another model",
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
