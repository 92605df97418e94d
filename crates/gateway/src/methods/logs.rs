//! `logs.tail`: recent log lines.

use homard_proto::{ErrorShape, method::logs::TailParams};
use serde_json::json;

use crate::router::{RpcCall, RpcResult};

/// Default number of lines.
const DEFAULT_LINES: usize = 500;
/// Default number of bytes.
const DEFAULT_BYTES: usize = 250_000;

/// Returns the newest lines, or those after the cursor.
pub(crate) async fn tail(mut call: RpcCall) -> Result<RpcResult, ErrorShape> {
    let TailParams { cursor, limit, max_bytes } = call.params()?;
    let log = &call.server.monitoring.log;
    let page = log.read(cursor, limit.unwrap_or(DEFAULT_LINES), max_bytes.unwrap_or(DEFAULT_BYTES));
    Ok(json!({
        "file": log.location(), "cursor": page.cursor, "size": page.size, "lines": page.lines,
        "truncated": page.is_truncated, "reset": page.is_reset,
    })
    .into())
}
