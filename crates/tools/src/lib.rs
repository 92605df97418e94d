//! Tools of agents: read, write, change and search files, run commands, fetch web pages, use sessions and MCP servers.
//!
//! One file per tool. Paths from a model are resolved in `path_guard` and nowhere else; commands are started, watched
//! and killed in `process`, confined by the crate `homard-sandbox`, and kept in `background` when they take long. This crate does not
//! depend on the gateway, the providers, config files or the environment.
//! Start with `read`, the simplest tool, then `path_guard`; then `exec`, `job` and `process`.
#![warn(missing_docs)]

mod apply_patch;
pub mod argv;
mod atomic_file;
mod background;
mod cancel_reader;
mod edit;
mod egress_audit;
mod error;
mod exec;
mod exec_policy;
mod file_access;
mod file_locks;
mod find;
mod glob;
mod grep;
mod hints;
mod job;
mod keys;
mod load_gate;
mod ls;
pub mod mcp;
mod memory;
mod message;
mod output;
mod page;
mod path_guard;
mod process;
mod process_tool;
mod read;
mod recipients;
mod sandboxed_run;
pub mod search;
pub mod session_tools;
mod similarity;
mod terminal;
#[cfg(test)]
#[path = "../../egress/src/test_server.rs"]
mod test_server;
mod text;
mod ttl_cache;
mod variables;
mod walk;
mod web_fetch;
mod web_search;
mod write;

use std::{fmt::Display, sync::Arc};

use homard_agent::{
    external,
    tool::{Tool, ToolResult},
};
use homard_egress::SystemResolver;
use homard_runtime::ambient::Ambient;
use homard_sandbox as sandbox;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::error::{ArgumentError, Error};

pub use crate::{
    apply_patch::ApplyPatch,
    background::BackgroundCommands,
    edit::Edit,
    exec::{Exec, ExecApprovalSettings, ExecSettings},
    exec_policy::{ExecDecision, ExecPolicy, ExecRequest},
    file_access::FileAccess,
    find::Find,
    grep::Grep,
    ls::Ls,
    memory::{MemoryGet, MemorySearch, MemorySettings, memory},
    message::{MessageRules, MessageTool, read_attachment},
    process_tool::ProcessTool,
    read::Read,
    recipients::Recipients,
    web_fetch::{WebFetch, WebFetchSettings},
    web_search::{WebSearch, WebSearchSettings},
    write::Write,
};

/// Returns every tool of this crate with default settings: commands run in a sandbox and see a part of `exec_env`.
pub fn all(exec_env: Vec<(String, String)>) -> Vec<Arc<dyn Tool>> {
    all_with(ExecSettings::from(exec_env))
}

/// Returns every tool of this crate, with these settings for commands.
pub fn all_with(exec: ExecSettings) -> Vec<Arc<dyn Tool>> {
    let files = FileAccess::with_watches(&exec.sandbox, exec.background.watches(), exec.approvals.is_some());
    let memory = Arc::new(MemorySettings { files: files.clone(), ..MemorySettings::default() });
    vec![
        Arc::new(Read::new(files.clone())),
        Arc::new(Write::new(files.clone())),
        Arc::new(Edit::new(files.clone())),
        Arc::new(ApplyPatch::new(files.clone())),
        Arc::new(Grep::new(files.clone())),
        Arc::new(Find::new(files.clone())),
        Arc::new(Ls::new(files)),
        Arc::new(MemorySearch::new(memory.clone())),
        Arc::new(MemoryGet::new(memory)),
        Arc::new(ProcessTool::new(exec.background.clone(), exec.keep_finished)),
        Arc::new(Exec::new(exec)),
        Arc::new(WebFetch::new(WebFetchSettings::default(), Arc::new(SystemResolver), Ambient::system())),
        Arc::new(WebSearch::new(WebSearchSettings::default(), None, Arc::new(SystemResolver), Ambient::system())),
    ]
}

/// Parses the arguments and runs `operation` on a blocking thread.
async fn on_disk<A>(
    tool: &'static str,
    arguments: Value,
    operation: impl FnOnce(A) -> Result<ToolResult, Error> + Send + 'static,
) -> ToolResult
where
    A: DeserializeOwned + Send + 'static,
{
    let done = tokio::task::spawn_blocking(move || operation(parse(arguments)?)).await;
    match done.map_err(Error::Thread).flatten() {
        Ok(result) => result,
        Err(error) => failure(tool, &error),
    }
}

/// Parses arguments. Most callers validate them against the schema first, so errors are rare.
fn parse<A: DeserializeOwned>(arguments: Value) -> Result<A, Error> {
    serde_json::from_value(arguments).map_err(|error| Error::Argument(ArgumentError::Arguments(error)))
}

/// Returns the path argument of a file tool: `path`, or its alias `file_path`.
fn either(path: Option<String>, file_path: Option<String>) -> Result<String, Error> {
    path.or(file_path).filter(|path| !path.is_empty()).ok_or(Error::Argument(ArgumentError::NoPath))
}

fn failure(tool: &str, error: &impl Display) -> ToolResult {
    let error = error.to_string();
    ToolResult::error(&error).with_details(json!({"status": "error", "tool": tool, "error": error}))
}
