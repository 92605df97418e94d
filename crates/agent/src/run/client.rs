//! Tools that the sender of a message has itself: the model is told of them, and a call of one is handed over.
//!
//! Every call in a transcript has a result, so one that is handed over has one too, which says so. What came of the call
//! arrives with the sender's next message: see [`client_results`].

use std::sync::Arc;

use async_trait::async_trait;
use homard_proto::message::{Assistant, ToolCall};
use homard_store::ToolClass;
use serde_json::Value;

use crate::{
    context::client_results,
    tool::{Tool, ToolCx, ToolResult, ToolSpec, Toolbox},
};

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
        let (text, details) = client_results::pending(&self.0.name);
        ToolResult::text(text).with_details(details)
    }
}

/// An agent's tools with the sender's beside them. Where two have one name the sender's is called.
pub(super) fn beside(own: Toolbox, client: &[ToolSpec]) -> Toolbox {
    own.and(Toolbox::new(client.iter().map(|spec| Arc::new(ClientTool(spec.clone())) as Arc<dyn Tool>)))
}

/// The calls of a message that are the sender's to make.
pub(super) fn handed(client: &[ToolSpec], said: &Assistant) -> Vec<ToolCall> {
    said.tool_calls().filter(|call| client.iter().any(|spec| spec.name == call.name)).cloned().collect()
}

/// What a model is told of tools, also where it is told of few: the sender's are always among them.
pub(super) fn told(tools: Arc<[ToolSpec]>, client: &[ToolSpec]) -> Arc<[ToolSpec]> {
    let is_told = |spec: &ToolSpec| tools.iter().any(|told| told.name == spec.name);
    let missing: Vec<_> = client.iter().filter(|spec| !is_told(spec)).cloned().collect();
    if missing.is_empty() { tools } else { tools.iter().cloned().chain(missing).collect() }
}
