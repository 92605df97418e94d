//! Adapts a server's tool to the `Tool` trait.

use std::sync::Arc;

use async_trait::async_trait;
use homard_agent::tool::{Tool, ToolClass, ToolCx, ToolResult, ToolSpec};
use rmcp::model::Tool as Offer;
use serde_json::{Map, Value, json};
use tokio::task::spawn_blocking;

use super::{connection::Error, result, supervisor::ServerSupervisor};
use crate::{external::clean, failure};

/// Maximum length of a description in characters, because every model request contains it.
const MAX_DESCRIPTION_CHARS: usize = 4000;

/// Maximum size of a schema in bytes, for the same reason.
const MAX_SCHEMA_BYTES: usize = 32 * 1024;

/// A tool of an MCP server.
pub(super) struct McpTool {
    supervisor: Arc<ServerSupervisor>,
    /// Its name on the server.
    tool: String,
    spec: ToolSpec,
}

impl McpTool {
    pub(super) fn new(supervisor: Arc<ServerSupervisor>, name: String, offer: Offer) -> Self {
        let described = offer.description.as_deref().or(offer.title.as_deref()).unwrap_or_default();
        let mut description: String = clean(described).chars().take(MAX_DESCRIPTION_CHARS).collect();
        if description.trim().is_empty() {
            description = format!("{} of the MCP server {}", offer.name, supervisor.name());
        }
        let spec = ToolSpec { name, description, parameters: parameters(&offer) };
        Self { supervisor, tool: offer.name.into_owned(), spec }
    }
}

#[async_trait]
impl Tool for McpTool {
    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    /// Always `Effect`, because the server's own annotations are only hints.
    fn class(&self) -> ToolClass {
        ToolClass::Effect
    }

    async fn call(&self, cx: ToolCx, arguments: Value) -> ToolResult {
        let arguments = match arguments {
            Value::Object(arguments) => Some(arguments),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => None,
        };
        let Some(called) = cx.cancel.run_until_cancelled(self.supervisor.call(self.tool.clone(), arguments)).await
        else {
            return failure(&self.spec.name, &"the run was stopped before the MCP server answered");
        };
        let (server, tool) = (self.supervisor.name().to_owned(), self.tool.clone());
        match called {
            Ok(answer) => match spawn_blocking(move || result::tool_result(&server, &tool, answer)).await {
                Ok(result) => result,
                Err(error) => failure(&self.spec.name, &format!("internal error: {error}")),
            },
            Err(error) => {
                let uncertainty = match error {
                    Error::Disconnected(_) | Error::Timeout(_) => ". It is unknown whether the call was carried out",
                    Error::Start(_) | Error::Rejected(_) | Error::Cooldown { .. } => "",
                };
                failure(&self.spec.name, &format!("call to MCP server {server} failed: {error}{uncertainty}"))
            }
        }
    }
}

/// Returns the schema of the arguments. One that is too large is omitted; the server validates them anyway.
fn parameters(offer: &Offer) -> Value {
    let mut schema: Map<String, Value> = (*offer.input_schema).clone();
    schema.insert("type".to_owned(), json!("object"));
    schema.entry("properties").or_insert_with(|| json!({}));
    let schema = Value::Object(schema);
    if schema.to_string().len() > MAX_SCHEMA_BYTES { json!({"type": "object", "properties": {}}) } else { schema }
}
