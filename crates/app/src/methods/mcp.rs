//! `mcp.status`: the MCP servers and their connections.

use homard_gateway::{Method, Scope};
use homard_proto::method::queries::NothingParams;
use homard_stdx::time::millis;
use homard_tools::mcp::{ServerState, ServerStatus};
use serde_json::{Value, json};

use crate::mcp_servers::McpConnections;

/// Returns the method.
pub(crate) fn method(servers: &McpConnections) -> Method {
    let servers = servers.clone();
    Method::new("mcp.status", Scope::Read, move |mut request| {
        let servers = servers.clone();
        async move {
            let NothingParams {} = request.params()?;
            Ok(json!({"servers": servers.status().iter().map(row).collect::<Vec<_>>()}))
        }
    })
}

fn row(status: &ServerStatus) -> Value {
    let ServerStatus { name, state, server, tools, error, cooldown } = status;
    let state = match state {
        ServerState::Starting => "starting",
        ServerState::Ready => "ready",
        ServerState::Down => "down",
    };
    let retry_ms = cooldown.map(millis);
    let mut row = json!({
        "name": name, "state": state, "server": server, "tools": tools, "error": error, "retryMs": retry_ms,
    });
    if let Value::Object(fields) = &mut row {
        fields.retain(|_, value| !value.is_null());
    }
    row
}
