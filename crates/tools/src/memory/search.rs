//! The `memory_search` tool: full-text search in an agent's notes.

use std::{collections::BTreeMap, io::Read, sync::Arc};

use async_trait::async_trait;
use homard_agent::tool::{Tool, ToolClass, ToolCx, ToolResult, ToolSpec};
use homard_memory::{Memory, MemoryQuery};
use homard_proto::AgentId;
use homard_stdx::sync::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    MemorySettings,
    files::{MAX_FILE_BYTES, MemoryFiles},
    json_result,
};
use crate::{Error, cancel_reader::CancelReader, on_disk, path_guard::PathGuard};

/// Maximum number of results; with snippets of 700 characters each, this bounds the size of the result.
const MAX_RESULTS: usize = 50;

/// Maximum number of skipped files that are listed.
const MAX_SKIPPED_SHOWN: usize = 10;

/// Searches an agent's notes.
#[derive(Debug)]
pub struct MemorySearch {
    settings: Arc<MemorySettings>,
    /// One index per agent, opened at its first query; queries of an agent are serialized.
    memories: Mutex<BTreeMap<AgentId, Arc<Mutex<Memory>>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Args {
    query: String,
    max_results: Option<f64>,
    min_score: Option<f64>,
    corpus: Option<String>,
}

impl MemorySearch {
    /// Creates the tool with these settings.
    pub fn new(settings: Arc<MemorySettings>) -> Self {
        Self { settings, memories: Mutex::default() }
    }

    fn memory(&self, cx: &ToolCx) -> Arc<Mutex<Memory>> {
        let agent = cx.session.agent().cloned().unwrap_or_else(AgentId::main);
        let mut memories = self.memories.lock();
        let memory = memories.entry(agent).or_insert_with_key(|agent| {
            let file = self.settings.folder.as_ref().map(|folder| folder.join(format!("{agent}.homard.sqlite")));
            Arc::new(Mutex::new(file.map_or_else(Memory::in_ram, Memory::on_disk)))
        });
        memory.clone()
    }
}

#[async_trait]
impl Tool for MemorySearch {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "memory_search".to_owned(),
            description:
                "Search what was written down earlier, in MEMORY.md and memory/*.md: decisions, dates, people, \
                          preferences, open points. It looks for words, not for meanings: if nothing is found, try \
                          other words. Returns snippets with path and lines; memory_get reads more of them."
                    .to_owned(),
            parameters: json!({
                "type": "object",
                "required": ["query"],
                "properties": {
                    "query": {"type": "string", "description": "Words to look for, in any order"},
                    "maxResults": {"type": "integer", "minimum": 1, "description": "How many places to return at most"},
                    "minScore": {"type": "number", "description": "How well they must fit, from 0 to 1"},
                    "corpus": {
                        "type": "string",
                        "enum": ["memory", "wiki", "all", "sessions"],
                        "description": "What to search; only memory can be searched here",
                    },
                },
            }),
        }
    }

    fn class(&self) -> ToolClass {
        ToolClass::Read
    }

    async fn call(&self, cx: ToolCx, arguments: Value) -> ToolResult {
        let (settings, memory) = (self.settings.clone(), self.memory(&cx));
        on_disk("memory_search", arguments, move |arguments| search(&settings, &memory, &cx, &arguments)).await
    }
}

fn search(
    settings: &MemorySettings,
    memory: &Mutex<Memory>,
    cx: &ToolCx,
    arguments: &Args,
) -> Result<ToolResult, Error> {
    if let Some(other @ ("wiki" | "sessions")) = arguments.corpus.as_deref() {
        let error = format!("there is no index of {other}: leave out corpus to search the memory files");
        return Ok(json_result(json!({"results": [], "disabled": true, "error": error})));
    }
    let guard = settings.files.open(settings.workspace(cx))?;
    let files = MemoryFiles::of(&guard, &cx.cancel)?;
    let query = MemoryQuery {
        text: arguments.query.clone(),
        // `as` saturates, so out-of-range values become the nearest limit.
        max_results: arguments.max_results.map_or(settings.max_results, |max| max as usize).clamp(1, MAX_RESULTS),
        min_score: arguments.min_score.unwrap_or(settings.min_score).clamp(0.0, 1.0),
    };
    let read = |path: &str| text(&guard, path, cx);
    let found = memory.lock().search(&files.sources, read, &query);
    let hits = match found {
        Ok(hits) => hits,
        // Not even an in-memory index can be built, and the model can do nothing about it.
        Err(error) => {
            let error = format!("cannot search the memory ({error}): use memory_get or grep");
            return Ok(json_result(json!({"results": [], "disabled": true, "error": error})));
        }
    };
    let results: Vec<Value> = hits
        .into_iter()
        .map(|hit| {
            json!({
                "path": hit.path,
                "startLine": hit.start,
                "endLine": hit.end,
                "score": (hit.score * 1000.0).round() / 1000.0,
                "snippet": hit.snippet,
                "source": "memory",
            })
        })
        .collect();
    // No embedding provider: the search is full-text only.
    let mut payload = json!({"results": results, "provider": "none", "searchMode": "fts-only"});
    if !files.skipped.is_empty() {
        let shown_paths = &files.skipped[..files.skipped.len().min(MAX_SKIPPED_SHOWN)];
        payload["leftOut"] =
            json!({"count": files.skipped.len(), "paths": shown_paths, "why": "too large or too many"});
    }
    Ok(json_result(payload))
}

/// Returns the text to index. Invalid UTF-8 is replaced.
fn text(guard: &PathGuard, path: &str, cx: &ToolCx) -> Option<String> {
    let mut bytes = Vec::new();
    let file = guard.file(path).ok()?;
    CancelReader::new(file, &cx.cancel).take(MAX_FILE_BYTES).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}
