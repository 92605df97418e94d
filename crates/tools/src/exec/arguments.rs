//! Arguments of an `exec` call.

use std::time::Duration;

use homard_approvals::{AskMode, LevelOverrides, Security};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::{Error, error::ArgumentError, process::StdioMode, sandbox::AccessMode};

/// Minimum and maximum of the requested wait in milliseconds.
const YIELD_RANGE_MS: (f64, f64) = (10.0, 120_000.0);

/// Upper bound of a command's time limit, regardless of call and config.
const MAX_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);

/// Parsed arguments.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Args {
    pub(super) command: String,
    pub(super) workdir: Option<String>,
    #[serde(default)]
    pub(super) env: Map<String, Value>,
    #[serde(alias = "timeoutSeconds")]
    timeout: Option<f64>,
    #[serde(default)]
    background: bool,
    yield_ms: Option<f64>,
    #[serde(default)]
    pty: bool,
    #[serde(default)]
    elevated: bool,
    host: Option<String>,
    security: Option<String>,
    ask: Option<String>,
    node: Option<String>,
    /// True if a background command was requested where that is not supported.
    #[serde(skip)]
    background_refused: bool,
}

impl Args {
    pub(super) fn limit(&self, default_limit: Duration) -> Result<Duration, Error> {
        let Some(seconds) = self.timeout else { return Ok(default_limit.min(MAX_TIMEOUT)) };
        let limit = Duration::try_from_secs_f64(seconds).ok().filter(|limit| !limit.is_zero());
        Ok(limit.ok_or(Error::Argument(ArgumentError::BadTimeout(seconds)))?.min(MAX_TIMEOUT))
    }

    /// Makes the call wait for the end, whatever was requested.
    pub(super) fn forbid_background(&mut self) {
        self.background_refused = self.background || self.yield_ms.is_some();
        (self.background, self.yield_ms) = (false, None);
    }

    /// Returns how long to wait for the end; `None` for a background command.
    pub(super) fn wait(&self, default_wait: Duration) -> Option<Duration> {
        let (least, max) = YIELD_RANGE_MS;
        let clamped =
            |ms: f64| Duration::from_secs_f64(if ms.is_nan() { least } else { ms.clamp(least, max) } / 1000.0);
        (!self.background).then(|| self.yield_ms.map_or(default_wait, clamped))
    }

    /// Returns the requested security level. It can only be stricter than the configured one.
    pub(super) fn requested_levels(&self) -> LevelOverrides {
        LevelOverrides {
            security: self.security.as_deref().map(Security::parse),
            ask: self.ask.as_deref().map(AskMode::parse),
        }
    }

    pub(super) fn stdio(&self) -> StdioMode {
        match (self.pty, self.background) {
            (true, _) => StdioMode::Terminal,
            (false, true) => StdioMode::Piped,
            // No input is possible: a program that reads it gets end of file instead of blocking.
            (false, false) => StdioMode::NoInput,
        }
    }

    /// Returns notes about ignored arguments. Fails if a node, that is, another machine, was requested.
    pub(super) fn notes(&self, mode: AccessMode, is_gated: bool) -> Result<Vec<String>, Error> {
        if self.node.is_some() || self.host.as_deref() == Some("node") {
            return Err(Error::Argument(ArgumentError::UnsupportedHost));
        }
        let is_foreign = self.host.as_deref().is_some_and(|host| !matches!(host, "sandbox" | "auto"));
        let requested = [
            ("elevated", self.elevated),
            ("host", is_foreign),
            ("security", self.security.is_some() && !is_gated),
            ("ask", self.ask.is_some() && !is_gated),
        ];
        let names: Vec<_> = requested.iter().filter(|(_, is_set)| *is_set).map(|(name, _)| *name).collect();
        let confinement = if mode == AccessMode::Full { "without a sandbox" } else { "in its sandbox" };
        let requested = if is_gated { "" } else { ", without asking for approval" };
        let note = format!(
            "[The command ran on this machine, {confinement}{requested}. Not supported yet: {}.]",
            names.join(", ")
        );
        let stayed = "[The command ran to completion: background commands are not available here.]".to_owned();
        let is_long = self.timeout.is_some_and(|seconds| seconds > MAX_TIMEOUT.as_secs_f64());
        let limited = format!("[timeout is at most {} seconds.]", MAX_TIMEOUT.as_secs());
        let notes = (!names.is_empty()).then_some(note).into_iter().chain(self.background_refused.then_some(stayed));
        Ok(notes.chain(is_long.then_some(limited)).collect())
    }
}
