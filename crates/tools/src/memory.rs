//! The `memory_search` and `memory_get` tools: an agent's notes in `MEMORY.md`, `memory.md` and `memory/**/*.md`.

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

/// Settings of the memory tools.
#[derive(Debug, Clone)]
pub struct MemorySettings {
    /// File access.
    pub files: FileAccess,
    /// Directory of the index files, one per agent; `None` keeps the indexes in memory.
    pub folder: Option<PathBuf>,
    /// Workspaces of agents whose notes are not in the working directory.
    pub workspaces: BTreeMap<AgentId, PathBuf>,
    /// Default number of results.
    pub max_results: usize,
    /// Default minimum score, from 0 to 1.
    pub min_score: f64,
}

impl Default for MemorySettings {
    fn default() -> Self {
        // A passage that shares only words such as "the" with the query scores below 0.1.
        Self { files: FileAccess::default(), folder: None, workspaces: BTreeMap::new(), max_results: 6, min_score: 0.1 }
    }
}

impl MemorySettings {
    /// Returns the workspace with the notes of the calling agent.
    fn workspace<'a>(&'a self, cx: &'a ToolCx) -> &'a Path {
        let configured = cx.session.agent().and_then(|agent| self.workspaces.get(agent));
        configured.unwrap_or(&cx.workdir)
    }
}

/// Returns the memory tools.
pub fn memory(settings: MemorySettings) -> Vec<Arc<dyn Tool>> {
    let settings = Arc::new(settings);
    vec![Arc::new(MemorySearch::new(settings.clone())), Arc::new(MemoryGet::new(settings))]
}

/// Formats a result as JSON, for both people and programs.
fn json_result(payload: Value) -> ToolResult {
    ToolResult::text(format!("{payload:#}")).with_details(payload)
}
