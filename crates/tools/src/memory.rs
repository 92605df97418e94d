//! `memory_search` and `memory_get`: what an agent has written down, in `MEMORY.md`, `memory.md` and `memory/**/*.md`.

mod files;
mod get;
mod search;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use homard_agent::tool::{Tool, ToolCx, ToolResult};
use homard_proto::AgentId;
use serde_json::Value;

use crate::FileAccess;

pub use self::{get::MemoryGet, search::MemorySearch};

/// How the memory of agents is kept and searched.
#[derive(Debug, Clone)]
pub struct MemorySettings {
    /// Which files may be opened.
    pub files: FileAccess,
    /// Where the indexes are, a file for each agent; without it they are made anew in every process.
    pub folder: Option<PathBuf>,
    /// Where agents have their memory, if not where they work.
    pub workspaces: BTreeMap<AgentId, PathBuf>,
    /// How many places a search tells when nobody says so.
    pub max_results: usize,
    /// How good they must be when nobody says so, from 0 to 1.
    pub min_score: f64,
}

impl Default for MemorySettings {
    fn default() -> Self {
        // A place that has only words such as "the" in common with a question scores below a tenth.
        Self { files: FileAccess::default(), folder: None, workspaces: BTreeMap::new(), max_results: 6, min_score: 0.1 }
    }
}

impl MemorySettings {
    /// Where the memory of the agent that calls is.
    fn workspace<'a>(&'a self, cx: &'a ToolCx) -> &'a Path {
        let own = cx.session.agent().and_then(|agent| self.workspaces.get(agent));
        own.unwrap_or(&cx.workdir)
    }
}

/// The tools for the memory of agents.
pub fn memory(settings: MemorySettings) -> Vec<Arc<dyn Tool>> {
    let settings = Arc::new(settings);
    vec![Arc::new(MemorySearch::new(settings.clone())), Arc::new(MemoryGet::new(settings))]
}

/// An answer that people and programs read alike.
fn told(payload: Value) -> ToolResult {
    ToolResult::text(format!("{payload:#}")).with_details(payload)
}
