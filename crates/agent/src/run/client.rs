//! Client tools: tools that the sender of a message executes. The model sees them, and a call of one is returned to the
//! sender.
//!
//! Every call in a transcript has a result, so a returned call has a placeholder result. The real result arrives with
//! the sender's next message: see [`client_results`].

use std::sync::Arc;

use async_trait::async_trait;
use homard_prompt::client_results;
use homard_proto::message::{Assistant, ToolCall};
use homard_store::ToolClass;
use serde_json::Value;

use crate::tool::{Tool, ToolCx, ToolResult, ToolSpec, Toolbox};

struct ClientTool(ToolSpec);

#[async_trait]
impl Tool for ClientTool {
    fn spec(&self) -> ToolSpec {
        self.0.clone()
    }

    fn class(&self) -> ToolClass {
        ToolClass::Read
    }

    async fn call(&self, _: ToolCx, _: Value) -> ToolResult {
        let (text, details) = client_results::placeholder(&self.0.name);
        ToolResult::text(text).with_details(details)
    }
}

/// Adds the client tools to an agent's tools. On a name clash, the client's tool is called.
pub(super) fn with_client_tools(agent_tools: Toolbox, client: &[ToolSpec]) -> Toolbox {
    agent_tools.and(Toolbox::new(client.iter().map(|spec| Arc::new(ClientTool(spec.clone())) as Arc<dyn Tool>)))
}

/// Returns the calls of a message that the client executes.
pub(super) fn client_calls(client: &[ToolSpec], answer: &Assistant) -> Vec<ToolCall> {
    answer.tool_calls().filter(|call| client.iter().any(|spec| spec.name == call.name)).cloned().collect()
}

/// Adds the client tools to the tool specs for the model, also if those are a reduced set.
pub(super) fn with_client_specs(tools: Arc<[ToolSpec]>, client: &[ToolSpec]) -> Arc<[ToolSpec]> {
    let is_known = |spec: &ToolSpec| tools.iter().any(|known| known.name == spec.name);
    let missing: Vec<_> = client.iter().filter(|spec| !is_known(spec)).cloned().collect();
    if missing.is_empty() { tools } else { tools.iter().cloned().chain(missing).collect() }
}
