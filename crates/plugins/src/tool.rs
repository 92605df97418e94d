//! Tools of plugins.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use homard_agent::tool::{Tool, ToolClass, ToolCx, ToolResult, ToolSpec};
use homard_proto::message::Block;
use serde::Deserialize as _;
use serde_json::{Map, Value, json};

use crate::{
    Error,
    registrations::ToolRegistration,
    rpc_session::OnProgress,
    supervisor::{CallParams, Delivery, PluginCall, ProcessSupervisor, RegistrationAddress, RunningProcess},
};

/// Maximum duration of a call. Runs usually have less time.
const MAX_DURATION: Duration = Duration::from_secs(3600);

/// Timeout for creating the tools of a run.
const MATERIALISE_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum length of a description in characters, since every model request contains it.
const MAX_DESCRIPTION_CHARS: usize = 4000;

/// Maximum size of a schema in bytes, for the same reason.
const MAX_SCHEMA_BYTES: usize = 32 * 1024;

/// Maximum size of a result in bytes.
const MAX_RESULT_BYTES: usize = 256 * 1024;

/// A plugin's tool.
#[derive(Debug, Clone)]
pub struct PluginTool {
    worker: Arc<ProcessSupervisor>,
    address: RegistrationAddress,
    registration: ToolRegistration,
}

/// A call of a plugin's tool.
#[derive(Default)]
pub struct PluginToolCall {
    /// Tool call id.
    pub id: String,
    /// Arguments.
    pub params: Value,
    /// Origin: `agentId`, `sessionKey`, `workspaceDir` and so on.
    pub context: Value,
    /// Callback for progress.
    pub on_progress: Option<OnProgress>,
}

impl std::fmt::Debug for PluginToolCall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PluginToolCall").field("id", &self.id).finish_non_exhaustive()
    }
}

impl PluginTool {
    pub(crate) fn new(
        worker: Arc<ProcessSupervisor>,
        address: RegistrationAddress,
        registration: ToolRegistration,
    ) -> Self {
        Self { worker, address, registration }
    }

    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.registration.name
    }

    /// Returns the plugin id.
    pub fn plugin(&self) -> &str {
        &self.address.plugin
    }

    /// Returns true if an agent gets it only if the owner allows it: by its name, its plugin, or `group:plugins`.
    pub fn is_optional(&self) -> bool {
        self.registration.optional
    }

    /// Calls the tool. Dropping the future cancels the call.
    pub async fn execute(&self, call: PluginToolCall) -> Result<ToolResult, Error> {
        let plugin = self.address.plugin.as_str();
        let PluginToolCall { id, params, context, on_progress } = call;
        let created = if self.registration.is_factory { Some(self.materialise(&context).await?) } else { None };
        let plugin_call = PluginCall {
            plugin,
            method: "tools.execute",
            timeout: MAX_DURATION,
            delivery: Delivery::AtMostOnce,
            on_progress,
        };
        let write = |process: &RunningProcess| {
            let handle = match &created {
                Some(created) => created,
                None => process.handle(&self.address)?,
            };
            CallParams::plain(&json!({"ref": handle, "name": self.name(), "toolCallId": id, "params": params}))
        };
        Ok(read(&self.worker.call(plugin_call, write).await?))
    }

    /// Creates the tool for this run, and returns its handle.
    async fn materialise(&self, context: &Value) -> Result<Value, Error> {
        let plugin = self.address.plugin.as_str();
        let call = PluginCall {
            plugin,
            method: "tools.materialize",
            timeout: MATERIALISE_TIMEOUT,
            delivery: Delivery::AtLeastOnce,
            on_progress: None,
        };
        let answer = self.worker.call(call, |_| CallParams::plain(&json!({"ctx": context}))).await?;
        let matches = |tool: &&Value| tool["name"] == self.name() && tool["pluginId"] == plugin;
        let tool = answer.get("tools").and_then(Value::as_array).into_iter().flatten().find(matches);
        let missing = || Error::Failed(format!("the plugin {plugin} has no {} for this session", self.name()));
        tool.and_then(|tool| tool.get("ref")).cloned().ok_or_else(missing)
    }
}

/// Parses a result: `{content, details}`, or anything else as text.
fn read(answer: &Value) -> ToolResult {
    let Some(content) = answer.get("content").and_then(Value::as_array) else {
        let text = answer.as_str().map_or_else(|| format!("{answer:#}"), str::to_owned);
        return ToolResult::text(truncate(&text, MAX_RESULT_BYTES));
    };
    let is_error = answer.get("isError").and_then(Value::as_bool).unwrap_or(false);
    let mut remaining = MAX_RESULT_BYTES;
    let mut blocks: Vec<Block> = content.iter().filter_map(|block| readable_block(block, &mut remaining)).collect();
    if blocks.is_empty() {
        blocks.push(Block::text("(no output)"));
    }
    let details = answer.get("details").filter(|details| !details.is_null()).cloned();
    ToolResult { content: blocks, details, is_error }
}

/// Returns a block that models can read; other kinds are described in text.
fn readable_block(block: &Value, remaining: &mut usize) -> Option<Block> {
    match Block::deserialize(block) {
        Ok(Block::Text(text)) => {
            let truncated = truncate(&text.text, *remaining);
            *remaining = remaining.saturating_sub(truncated.len());
            (!truncated.is_empty()).then(|| Block::text(truncated))
        }
        Ok(image @ Block::Image(_)) => Some(image),
        Ok(Block::Thinking(_) | Block::ToolCall(_) | Block::Other(_)) | Err(_) => {
            let kind = block.get("type").and_then(Value::as_str).unwrap_or("unknown");
            Some(Block::text(format!("[content of type {kind:.40} omitted]")))
        }
    }
}

fn truncate(text: &str, max_bytes: usize) -> String {
    if text.len() <= max_bytes {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(max_bytes);
    format!("{}\n[{} more bytes omitted]", &text[..end], text.len() - end)
}

#[async_trait]
impl Tool for PluginTool {
    fn spec(&self) -> ToolSpec {
        let mut description: String = self.registration.description.chars().take(MAX_DESCRIPTION_CHARS).collect();
        if description.trim().is_empty() {
            description = format!("{} of the plugin {}", self.name(), self.plugin());
        }
        ToolSpec {
            name: self.name().to_owned(),
            description,
            parameters: parameters(self.registration.parameters.as_ref()),
        }
    }

    /// Its effects are unknown.
    fn class(&self) -> ToolClass {
        ToolClass::Effect
    }

    async fn call(&self, cx: ToolCx, arguments: Value) -> ToolResult {
        let progress = cx.progress.clone();
        let call = PluginToolCall {
            id: cx.call.to_string(),
            params: arguments,
            context: json!({
                "agentId": agent_of(&cx.session.to_string()),
                "sessionKey": cx.session,
                "workspaceDir": cx.workdir,
                "messageChannel": cx.origin.route.channel,
                "sandboxed": false,
            }),
            on_progress: Some(Box::new(move |value| progress.report(read(&value)))),
        };
        let Some(result) = cx.cancel.run_until_cancelled(self.execute(call)).await else {
            return ToolResult::error(format!("{}: the run was aborted before the plugin answered", self.name()));
        };
        result.unwrap_or_else(|error| {
            let unknown_effect =
                if error.trips_breaker() { ". It is unknown whether the call took effect" } else { "" };
            let (tool, plugin) = (self.name(), self.plugin());
            ToolResult::error(format!("{tool}: the plugin {plugin} failed: {error}{unknown_effect}"))
                .with_details(json!({"status": "error", "tool": tool, "error": error.to_string()}))
        })
    }
}

/// Returns the agent in a session key.
fn agent_of(session: &str) -> &str {
    session.strip_prefix("agent:").and_then(|rest| rest.split(':').next()).unwrap_or("main")
}

/// Returns the schema of the arguments; one that is too large is omitted, since the plugin validates them anyway.
fn parameters(registered: Option<&Value>) -> Value {
    let mut schema: Map<String, Value> = registered.and_then(Value::as_object).cloned().unwrap_or_default();
    schema.insert("type".to_owned(), json!("object"));
    schema.entry("properties").or_insert_with(|| json!({}));
    let schema = Value::Object(schema);
    if schema.to_string().len() > MAX_SCHEMA_BYTES { json!({"type": "object", "properties": {}}) } else { schema }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_result_is_its_content_or_text() {
        let result = read(&json!({"content": [{"type": "text", "text": "a"}, {"type": "audio"}], "details": {"x": 1}}));
        let expected = ToolResult {
            content: vec![Block::text("a"), Block::text("[content of type audio omitted]")],
            details: Some(json!({"x": 1})),
            is_error: false,
        };
        assert_eq!(result, expected);
        assert_eq!(read(&json!("plain")), ToolResult::text("plain"));
        assert_eq!(read(&json!({"content": [], "isError": true})), ToolResult::error("(no output)"));
    }

    #[test]
    fn a_tool_result_is_truncated_for_the_model() {
        let long = "é".repeat(MAX_RESULT_BYTES);
        let result = read(&json!({"content": [{"type": "text", "text": long}, {"type": "text", "text": "more"}]}));
        let Block::Text(text) = &result.content[0] else { panic!("{result:?}") };
        assert!(text.text.ends_with("more bytes omitted]") && text.text.len() < MAX_RESULT_BYTES + 100);
    }

    #[test]
    fn a_parameter_schema_is_an_object_of_limited_size() {
        assert_eq!(parameters(None), json!({"type": "object", "properties": {}}));
        let huge = json!({"description": "x".repeat(MAX_SCHEMA_BYTES)});
        assert_eq!(parameters(Some(&huge)), json!({"type": "object", "properties": {}}));
    }
}
