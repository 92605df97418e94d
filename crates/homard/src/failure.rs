//! How a command fails: what people read, what programs read, and the exit code.

use std::{fmt, process::ExitCode};

use serde_json::{Value, json};

/// A failure that is more than a text. Any other error is a plain failure with exit code 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    /// What programs branch on: a code of the gateway's, or `usage`, `config`, `connection`, `interrupted`, `failed`.
    pub(crate) kind: String,
    /// What people read: what failed, where, and what to do next.
    pub(crate) message: String,
    /// The run that is meant.
    pub(crate) run: Option<String>,
    /// Who says so: `gateway` or `local`.
    pub(crate) origin: Option<&'static str>,
    /// The exit code.
    pub(crate) exit: u8,
    /// Whether the output says it already, so that only the exit code is left to tell.
    pub(crate) is_told: bool,
}

impl Failure {
    /// A failure with exit code 1.
    pub(crate) fn new(kind: impl Into<String>, message: impl Into<String>) -> Self {
        Self { kind: kind.into(), message: message.into(), run: None, origin: None, exit: 1, is_told: false }
    }

    /// The command was called in a way that cannot work.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self { exit: 2, ..Self::new("usage", message) }
    }

    /// The config file cannot be used, so nothing was started: the system's EX_CONFIG.
    pub(crate) fn config(message: impl Into<String>) -> Self {
        Self { exit: 78, ..Self::new("config", message) }
    }

    /// The same failure, of this run.
    pub(crate) fn of(mut self, run: &str, origin: &'static str) -> Self {
        self.run = Some(run.to_owned());
        self.origin = Some(origin);
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

/// Whether the output says already what went wrong.
pub(crate) fn is_told(error: &anyhow::Error) -> bool {
    error.downcast_ref::<Failure>().is_some_and(|failure| failure.is_told)
}

/// The exit code of an error.
pub(crate) fn exit_code(error: &anyhow::Error) -> ExitCode {
    ExitCode::from(error.downcast_ref::<Failure>().map_or(1, |failure| failure.exit))
}

/// An error as programs read it.
pub(crate) fn document(error: &anyhow::Error) -> Value {
    let failure = error.downcast_ref::<Failure>();
    let kind = failure.map_or("failed", |failure| &failure.kind);
    let mut document = json!({"ok": false, "error": {"type": kind, "message": format!("{error:#}")}});
    if let Some(run) = failure.and_then(|failure| failure.run.as_deref()) {
        document["runId"] = run.into();
    }
    if let Some(origin) = failure.and_then(|failure| failure.origin) {
        document["origin"] = origin.into();
    }
    document
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_learn_the_kind_the_run_and_who_says_so() {
        let error = Failure::new("UNAVAILABLE", "no answer").of("r1", "gateway");
        assert_eq!(
            document(&error.into()),
            json!({"ok": false, "error": {"type": "UNAVAILABLE", "message": "no answer"}, "runId": "r1", "origin": "gateway"})
        );
        let plain = anyhow::anyhow!("disk full").context("cannot write");
        let told = json!({"ok": false, "error": {"type": "failed", "message": "cannot write: disk full"}});
        assert_eq!(document(&plain), told);
    }
}
