//! Outages: configured components that do not work at present, as reported by health.

use std::sync::Arc;

use serde::Serialize;

/// A configured component that does not work at present.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Outage {
    /// Kind of component: `model`, `channel`, `config`, `plugin`, `hook`, or a `run` that is held.
    pub part: &'static str,
    /// Its identity: an agent, a channel with its account, a file, a run.
    pub id: String,
    /// The reason, and what to do.
    pub why: String,
}

impl Outage {
    /// True if the outage makes the gateway unready. Failing plugins and hooks do not.
    pub(crate) fn prevents_service(&self) -> bool {
        !matches!(self.part, "plugin" | "hook")
    }
}

/// Returns the current outages. Must not make requests outside the process.
pub type Outages = Arc<dyn Fn() -> Vec<Outage> + Send + Sync>;
