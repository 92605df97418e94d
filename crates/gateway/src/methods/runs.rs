//! `runs.*`: queries about runs, and decisions about held runs.
//!
//! A held run was active at several crashes in a row and may be their cause. It is not resumed until it is released,
//! and ends after a day.

use std::sync::Arc;

use homard_agent::{
    hub::{HeldError, RunFilter, RunQuery, RunTrace},
    wire::run_trace,
};
use homard_proto::{
    AgentId, EntryId, ErrorShape, RunId,
    message::Message,
    method::{
        Params,
        runs::{DropParams, GetParams, HeldParams, ListParams, ReleaseParams, ToolsParams, TraceParams},
    },
};
use serde_json::{Value, json};

use super::{chat::history, session_key, unavailable};
use crate::router::{RpcCall, RpcResult};

/// Default number of runs listed.
const DEFAULT_RUNS: usize = 50;

/// Maximum total size, in bytes, of the tool results in a response.
const MAX_RESULT_BYTES: usize = 4 * 1024 * 1024;

/// Lists stored runs, newest first. With conditions, `next` says where the caller continues, if there may be more.
pub(crate) async fn list(mut call: RpcCall) -> Result<RpcResult, ErrorShape> {
    let ListParams { session_key: key, before, limit, status, agent_id, channel, model, search } = call.params()?;
    let key = key.map(|key| session_key(&call.server, ListParams::METHOD, &key)).transpose()?;
    let invalid = |error| ErrorShape::invalid(format!("invalid runs.list params: before: {error}"));
    let before = before.map(|run| RunId::parse(&run).map_err(invalid)).transpose()?;
    let limit = limit.unwrap_or(DEFAULT_RUNS);
    let agent = agent_id.as_deref().map(AgentId::normalize);
    let filter = RunFilter { status, agent, channel, model, search };
    let is_filtered = !filter.is_empty();
    let query = RunQuery { key, filter, before, limit };
    let rows = call.server.hub.runs().list(&query).await.map_err(unavailable)?;
    let ts = call.server.hub.ambient().now_ms();
    let mut answer = json!({"ts": ts, "runs": rows.iter().map(run_trace::run_row).collect::<Vec<_>>()});
    if is_filtered && rows.len() == limit {
        answer["next"] = json!(rows.last().map(|row| &row.run));
    }
    Ok(answer.into())
}

/// Returns one run.
pub(crate) async fn get(mut call: RpcCall) -> Result<RpcResult, ErrorShape> {
    let GetParams { id } = call.params()?;
    let found = find(&call, &id).await?;
    Ok(json!({"run": run_trace::run_row(&found.row)}).into())
}

/// Returns the timeline of one run.
pub(crate) async fn trace(mut call: RpcCall) -> Result<RpcResult, ErrorShape> {
    let TraceParams { id } = call.params()?;
    Ok(run_trace::run_trace(&find(&call, &id).await?).into())
}

/// Returns the tool calls of one run with their arguments and results, as far as they are in the transcript.
pub(crate) async fn tools(mut call: RpcCall) -> Result<RpcResult, ErrorShape> {
    let ToolsParams { id, max_chars } = call.params()?;
    let RunTrace { row, until, .. } = find(&call, &id).await?;
    let entries = match &row.session {
        Some(session) => call.server.hub.sessions().transcript_entries(&row.key, session).await.map_err(unavailable)?,
        None => None,
    };
    let from = row.started_at.unwrap_or(row.accepted_at);
    let calls = tool_calls(&entries.unwrap_or_default(), from, until, max_chars);
    Ok(json!({"runId": row.run, "calls": calls}).into())
}

/// Returns the calls in the messages of this period. One run at a time writes to a session, so they are those of the
/// run. A result is found after its call, because models may reuse ids.
fn tool_calls(entries: &[(EntryId, Arc<Message>)], from: u64, until: u64, max_chars: Option<usize>) -> Vec<Value> {
    let mut calls: Vec<Value> = Vec::new();
    let mut remaining = MAX_RESULT_BYTES;
    for (_, message) in entries {
        match &**message {
            Message::Assistant(assistant) if (from..=until).contains(&assistant.timestamp) => {
                let shown = history::display(message, max_chars);
                let blocks = shown["content"].as_array().map(Vec::as_slice).unwrap_or_default();
                for block in blocks.iter().filter(|block| block["type"] == "toolCall") {
                    calls.push(json!({
                        "call": block["id"], "name": block["name"], "arguments": block["arguments"],
                        "startedAt": assistant.timestamp,
                    }));
                }
            }
            Message::ToolResult(result) => {
                let is_of = |call: &&mut Value| call["call"] == result.tool_call_id && call.get("endedAt").is_none();
                let Some(call) = calls.iter_mut().find(is_of) else { continue };
                let shown = history::display(message, max_chars);
                let size = shown.to_string().len();
                call["endedAt"] = result.timestamp.into();
                call["isError"] = result.is_error.into();
                if size <= remaining {
                    remaining -= size;
                    call["result"] = json!({"content": shown["content"], "details": shown["details"]});
                } else {
                    call["omittedBytes"] = size.into();
                }
            }
            Message::Assistant(_) | Message::User(_) | Message::Other(_) => {}
        }
    }
    calls
}

/// Lists the runs that are held after repeated crashes.
pub(crate) async fn held(mut call: RpcCall) -> Result<RpcResult, ErrorShape> {
    let HeldParams {} = call.params()?;
    let held = call.server.hub.runs().held().await.map_err(unavailable)?;
    Ok(json!({"runs": held.iter().map(run_trace::held_run).collect::<Vec<_>>()}).into())
}

/// Releases a held run: its message is queued again, behind newer messages.
pub(crate) async fn release(mut call: RpcCall) -> Result<RpcResult, ErrorShape> {
    let ReleaseParams { run_id } = call.params()?;
    call.server.hub.runs().release(&run_id).await.map_err(not_held)?;
    Ok(json!({"runId": run_id, "status": "queued"}).into())
}

/// Drops a held run: it ends as failed, without being resumed.
pub(crate) async fn drop_held(mut call: RpcCall) -> Result<RpcResult, ErrorShape> {
    let DropParams { run_id } = call.params()?;
    call.server.hub.runs().drop_held(&run_id).await.map_err(not_held)?;
    Ok(json!({"runId": run_id, "status": "dropped"}).into())
}

fn not_held(error: HeldError) -> ErrorShape {
    match error {
        HeldError::NotHeld(_) => ErrorShape::invalid(error.to_string()),
        HeldError::Store(error) => unavailable(error),
    }
}

/// Finds a run by its id or an external id, with its timeline; an unknown id is an error.
async fn find(call: &RpcCall, id: &str) -> Result<RunTrace, ErrorShape> {
    let found = call.server.hub.runs().trace(id).await;
    let unknown = || ErrorShape::invalid(format!("unknown run: {id}; runs.list returns the known runs"));
    found.map_err(unavailable)?.ok_or_else(unknown)
}
