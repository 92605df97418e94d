//! `runs.*`: queries about runs, and decisions about held runs.
//!
//! A held run was active at several crashes in a row and may be their cause. It is not resumed until it is released,
//! and ends after a day.

use homard_agent::{
    hub::{HeldError, RunQuery, RunTrace},
    wire::run_trace,
};
use homard_proto::{
    ErrorShape, RunId,
    method::{
        Params,
        runs::{DropParams, GetParams, HeldParams, ListParams, ReleaseParams, TraceParams},
    },
};
use serde_json::json;

use super::{session_key, unavailable};
use crate::router::{RpcCall, RpcResult};

/// Default number of runs listed.
const DEFAULT_RUNS: usize = 50;

/// Lists stored runs, newest first.
pub(crate) async fn list(mut call: RpcCall) -> Result<RpcResult, ErrorShape> {
    let ListParams { session_key: key, before, limit } = call.params()?;
    let key = key.map(|key| session_key(&call.server, ListParams::METHOD, &key)).transpose()?;
    let invalid = |error| ErrorShape::invalid(format!("invalid runs.list params: before: {error}"));
    let before = before.map(|run| RunId::parse(&run).map_err(invalid)).transpose()?;
    let query = RunQuery { key, before, limit: limit.unwrap_or(DEFAULT_RUNS) };
    let rows = call.server.hub.runs(&query).await.map_err(unavailable)?;
    let ts = call.server.hub.ambient().now_ms();
    Ok(json!({"ts": ts, "runs": rows.iter().map(run_trace::run_row).collect::<Vec<_>>()}).into())
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

/// Lists the runs that are held after repeated crashes.
pub(crate) async fn held(mut call: RpcCall) -> Result<RpcResult, ErrorShape> {
    let HeldParams {} = call.params()?;
    let held = call.server.hub.held().await.map_err(unavailable)?;
    Ok(json!({"runs": held.iter().map(run_trace::held_run).collect::<Vec<_>>()}).into())
}

/// Releases a held run: its message is queued again, behind newer messages.
pub(crate) async fn release(mut call: RpcCall) -> Result<RpcResult, ErrorShape> {
    let ReleaseParams { run_id } = call.params()?;
    call.server.hub.release(&run_id).await.map_err(not_held)?;
    Ok(json!({"runId": run_id, "status": "queued"}).into())
}

/// Drops a held run: it ends as failed, without being resumed.
pub(crate) async fn drop_held(mut call: RpcCall) -> Result<RpcResult, ErrorShape> {
    let DropParams { run_id } = call.params()?;
    call.server.hub.drop_held(&run_id).await.map_err(not_held)?;
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
    let found = call.server.hub.trace(id).await;
    let unknown = || ErrorShape::invalid(format!("unknown run: {id}; runs.list returns the known runs"));
    found.map_err(unavailable)?.ok_or_else(unknown)
}
