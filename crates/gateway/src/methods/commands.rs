//! `commands.list`: the available chat commands.

use homard_agent::Hub;
use homard_command::CommandInfo;
use homard_proto::{
    ErrorShape,
    method::{Params, commands::ListParams},
};
use serde_json::{Value, json};

use super::models;
use crate::router::{RpcCall, RpcResult};

/// Lists the chat commands.
pub(crate) async fn list(mut call: RpcCall) -> Result<RpcResult, ErrorShape> {
    let ListParams { agent_id, include_args } = call.params()?;
    models::profile(&call.server.hub.agents(), agent_id.as_deref(), ListParams::METHOD)?;
    Ok(json!({"commands": all(&call.server.hub, include_args == Some(true))}).into())
}

/// Returns all commands in the form that clients expect.
pub(crate) fn all(hub: &Hub, with_arguments: bool) -> Vec<Value> {
    hub.sessions().commands().iter().map(|command| row(command, with_arguments)).collect()
}

fn row(command: &CommandInfo, with_arguments: bool) -> Value {
    let without_slash = |name: &String| name.trim_start_matches('/').to_owned();
    let name = command.names.first().map(without_slash).unwrap_or_default();
    let category = match name.as_str() {
        "status" | "context" | "help" => "status",
        "approve" => "management",
        "new" | "reset" | "stop" | "compact" => "session",
        _ => "options",
    };
    let mut row = json!({
        "name": name, "textAliases": command.names, "description": command.meaning, "category": category,
        "source": "native", "scope": "text", "acceptsArgs": !command.arguments.is_empty(),
    });
    if with_arguments && !command.arguments.is_empty() {
        let is_required = command.arguments.starts_with('<');
        let argument = json!({
            "name": command.arguments, "description": command.meaning, "type": "string", "required": is_required,
        });
        row["args"] = json!([argument]);
    }
    row
}
