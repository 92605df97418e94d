//! What is set up and does not work now, as health reports it.

use std::sync::Arc;

use serde::Serialize;

/// Something that is set up and does not work now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Outage {
    /// What kind of thing it is: `model`, `channel`, `config`, `plugin`, `hook`, or a `run` that is held.
    pub part: &'static str,
    /// Which one: an agent, a channel with its account, a file, a run.
    pub id: String,
    /// Why, and what to do.
    pub why: String,
}

impl Outage {
    /// Whether the gateway cannot serve because of it. What fails beside the loop is no reason to send requests elsewhere.
    pub(crate) fn prevents_service(&self) -> bool {
        !matches!(self.part, "plugin" | "hook")
    }
}

/// Lists what is down. It must not ask anybody outside the process.
pub type Outages = Arc<dyn Fn() -> Vec<Outage> + Send + Sync>;
