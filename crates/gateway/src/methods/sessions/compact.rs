//! `sessions.compact`, `sessions.compactions` and `sessions.compactions.undo`: compacting a session, listing and
//! undoing compactions.
//!
//! Only the first exists in OpenClaw, where it may truncate the transcript. Here a transcript keeps every entry.

use homard_agent::ChangeError;
use homard_proto::{
    ErrorShape,
    method::sessions::{CompactParams, CompactionsParams, UndoCompactionParams},
};
use serde_json::json;

use super::change::{error_response, resolve_session};
use crate::router::{RpcCall, RpcResult};

/// Compacts a session.
pub(crate) async fn compact(mut call: RpcCall) -> Result<RpcResult, ErrorShape> {
    let CompactParams { key, agent_id, focus } = call.params()?;
    let key = resolve_session::<CompactParams>(&call.server, &key, agent_id.as_deref())?;
    let focus = focus.map(|focus| focus.trim().to_owned()).filter(|focus| !focus.is_empty());
    let not_compacted =
        |reason: String| Ok(json!({"ok": true, "key": key, "compacted": false, "reason": reason}).into());
    let report = match call.server.hub.sessions().compact(&key, focus).await {
        Ok(report) => report,
        // Nothing to compact is not an error: clients also ask for sessions without messages.
        Err(error @ ChangeError::NoSession) => return not_compacted(error.to_string()),
        Err(error) => return Err(error_response(&error)),
    };
    let Some(id) = report.entry else { return not_compacted(report.text) };
    let (before, after) = report.tokens.unzip();
    let answer = json!({
        "ok": true, "key": key, "compacted": true,
        "id": id, "tokensBefore": before, "tokensAfter": after, "way": report.strategy,
    });
    Ok(answer.into())
}

/// Lists the compactions of a session, oldest first.
pub(crate) async fn list(mut call: RpcCall) -> Result<RpcResult, ErrorShape> {
    let CompactionsParams { key, agent_id } = call.params()?;
    let key = resolve_session::<CompactionsParams>(&call.server, &key, agent_id.as_deref())?;
    let compaction = call.server.hub.sessions().compactions(&key).await.map_err(|error| error_response(&error))?;
    let rows: Vec<_> = compaction
        .into_iter()
        .map(|compaction| {
            json!({
                "id": compaction.id, "timestamp": compaction.at, "tokensBefore": compaction.tokens_before, "way": compaction.strategy,
                "undone": compaction.is_undone, "summary": compaction.summary,
            })
        })
        .collect();
    Ok(json!({"ok": true, "key": key, "compactions": rows}).into())
}

/// Undoes a compaction, so that the entries it replaced are used again.
pub(crate) async fn undo(mut call: RpcCall) -> Result<RpcResult, ErrorShape> {
    let UndoCompactionParams { key, agent_id, id } = call.params()?;
    let key = resolve_session::<UndoCompactionParams>(&call.server, &key, agent_id.as_deref())?;
    let id = call.server.hub.sessions().undo_compaction(&key, id).await.map_err(|error| error_response(&error))?;
    Ok(json!({"ok": true, "key": key, "id": id}).into())
}
