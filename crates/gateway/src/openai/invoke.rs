//! `/tools/invoke`: calls one tool of an agent without a model.

use std::{path::Path, sync::Arc, time::Duration};

use axum::{
    http::{HeaderValue, StatusCode},
    response::Response,
};
use homard_agent::{
    Profile,
    tool::{Lender, ProgressSender, RunOrigin, Tool, ToolClass, ToolCx, Toolbox},
};
use homard_command::OWNER;
use homard_proto::{AgentId, CallId, SessionKey, message::join_text};
use homard_runtime::task;
use homard_workspace::skills::Variables;
use serde_json::{Value, json};
use tokio::time::timeout;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use super::{Endpoints, reply};
use crate::server::ServerState;

/// Tools that are denied unless the config allows them, in addition to every tool with side effects. The token alone
/// must not suffice to run commands, change files, send messages as the owner or reconfigure the gateway in one
/// unattended step.
const DENIED_TOOLS: [&str; 16] = [
    "exec",
    "process",
    "terminal",
    "write",
    "edit",
    "apply_patch",
    "message",
    "sessions_spawn",
    "sessions_send",
    "subagents",
    "cron",
    "gateway",
    "nodes",
    "browser",
    "secrets",
    "whatsapp_login",
];

/// Timeout of a tool if the agent's runs have none.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(600);

impl Endpoints {
    /// Returns why a tool is denied, judging by its name.
    fn denial_reason(&self, tool: &str) -> Option<&'static str> {
        if names(&self.denied_tools, tool) {
            Some("denied by gateway.tools.deny")
        } else if !names(&self.allowed_tools, tool) && DENIED_TOOLS.contains(&tool) {
            Some("add the tool to gateway.tools.allow to call it over HTTP")
        } else {
            None
        }
    }

    /// True if the tool's class permits the call. Tools of unknown effect, such as external ones, count as having side
    /// effects.
    fn allows_class(&self, tool: &str, class: ToolClass) -> bool {
        match class {
            ToolClass::Read | ToolClass::Idempotent => true,
            ToolClass::Effect => names(&self.allowed_tools, tool),
        }
    }
}

fn names(list: &[String], tool: &str) -> bool {
    list.iter().any(|name| name.trim().eq_ignore_ascii_case(tool))
}

/// Calls a tool.
pub(super) async fn call(server: &Arc<ServerState>, body: &Value) -> Response {
    let called = match find(server, body) {
        Ok(found) => found.call(server).await,
        Err(denial) => Err(denial),
    };
    match called {
        Ok(result) => reply(StatusCode::OK, &json!({"ok": true, "result": result})),
        Err(InvokeError { status, kind, message }) => {
            let mut response = reply(status, &json!({"ok": false, "error": {"type": kind, "message": message}}));
            // A retry could repeat a side effect.
            response.headers_mut().insert("x-should-retry", HeaderValue::from_static("false"));
            response
        }
    }
}

/// Error response of a call.
struct InvokeError {
    status: StatusCode,
    kind: &'static str,
    message: String,
}

impl InvokeError {
    fn invalid(message: impl Into<String>) -> Self {
        Self { status: StatusCode::BAD_REQUEST, kind: "invalid_request", message: message.into() }
    }

    fn not_found(tool: &str) -> Self {
        Self { status: StatusCode::NOT_FOUND, kind: "not_found", message: format!("Tool not available: {tool}") }
    }

    /// The tool exists and must not be called here.
    fn forbidden(tool: &str, why: &str) -> Self {
        let message = format!("Tool not available: {tool}: {why}");
        Self { status: StatusCode::FORBIDDEN, kind: "forbidden", message }
    }

    /// The tool was called and failed.
    fn failed(status: StatusCode, message: String) -> Self {
        Self { status, kind: "tool_error", message }
    }
}

/// A tool that may be called, and its arguments.
struct ResolvedCall {
    profile: Arc<Profile>,
    key: SessionKey,
    origin: RunOrigin,
    name: String,
    tools: Toolbox,
    tool: Arc<dyn Tool>,
    arguments: Value,
}

fn find(server: &ServerState, body: &Value) -> Result<ResolvedCall, InvokeError> {
    for name in ["tool", "name", "action", "agentId", "sessionKey"] {
        if !body[name].is_null() && !body[name].is_string() {
            return Err(InvokeError::invalid(format!("{name} must be a string")));
        }
    }
    let text = |name: &str| body[name].as_str().map(str::trim).filter(|text| !text.is_empty());
    let name = text("tool")
        .or(text("name"))
        .ok_or_else(|| InvokeError::invalid("tools.invoke requires tool, the name of a tool"))?
        .to_owned();
    let mut arguments = body["args"].as_object().cloned().unwrap_or_default();
    if !body["args"].is_null() && !body["args"].is_object() {
        return Err(InvokeError::invalid("args must be an object"));
    }
    let agents = server.hub.agents();
    let agent = text("agentId").map_or_else(|| agents.default_id().clone(), AgentId::normalize);
    let key = SessionKey::parse(text("sessionKey").unwrap_or("main"), &agent)
        .map_err(|error| InvokeError::invalid(format!("sessionKey: {error}")))?;
    let agent = key.agent().unwrap_or(&agent);
    let Some(profile) = agents.get(agent).cloned() else {
        return Err(InvokeError::invalid(format!("unknown agent \"{agent}\"")));
    };
    let profile = profile.in_session(&key, None);
    let origin = RunOrigin { principal: OWNER.to_owned(), ..RunOrigin::default() };
    let tools = profile.tools_for(&origin, &key, profile.spec());
    if !profile.toolbox.specs().iter().any(|spec| spec.name == name) {
        return Err(InvokeError::not_found(&name));
    }
    if let Some(why) = server.routes.endpoints.denial_reason(&name) {
        return Err(InvokeError::forbidden(&name, why));
    }
    let specs = tools.specs();
    let Some(spec) = specs.iter().find(|spec| spec.name == name) else {
        return Err(InvokeError::forbidden(&name, "the agent's tool policy does not allow it"));
    };
    if let Some(action) = text("action")
        && spec.parameters["properties"]["action"].is_object()
    {
        arguments.entry("action").or_insert_with(|| action.into());
    }
    let prepared = tools.prepare(&name, &arguments.into());
    let (tool, arguments) =
        prepared.map_err(|answer| InvokeError::failed(StatusCode::BAD_REQUEST, join_text(&answer.content)))?;
    if !server.routes.endpoints.allows_class(&name, tool.class()) {
        let why = "the tool may have side effects; add it to gateway.tools.allow to call it over HTTP";
        return Err(InvokeError::forbidden(&name, why));
    }
    Ok(ResolvedCall { profile, key, origin, name, tools, tool, arguments })
}

impl ResolvedCall {
    async fn call(self, server: &ServerState) -> Result<Value, InvokeError> {
        let Self { profile, key, origin, name, tools, mut tool, mut arguments } = self;
        let cancel = CancellationToken::new();
        // Cancels the tool when this future ends or is dropped.
        let _cancel_on_drop = cancel.clone().drop_guard();
        let ambient = server.hub.ambient();
        let call = CallId::parse(&format!("http_{}", ambient.nonce()));
        let broken = |why| InvokeError::failed(StatusCode::INTERNAL_SERVER_ERROR, why);
        let call = call.map_err(|error| broken(error.to_string()))?;
        let approved = server.hub.hooks().before_call(&key, &call, &name, arguments.clone()).await;
        let approved = approved.map_err(|why| InvokeError::forbidden(&name, &why))?;
        if approved != arguments {
            let prepared = tools.prepare(&name, &approved);
            (tool, arguments) =
                prepared.map_err(|answer| InvokeError::failed(StatusCode::BAD_REQUEST, join_text(&answer.content)))?;
        }
        let cx = ToolCx {
            run: ambient.run_id(),
            session: key,
            call,
            workdir: profile.workdir.clone(),
            sandbox: profile.confinement.sandbox.clone(),
            cancel,
            progress: ProgressSender::silent(),
            slot: Lender::default(),
            variables: Variables::default(),
            origin,
            hub: Some(server.hub.clone()),
        };
        let call_task =
            AbortOnDropHandle::new(task::spawn("tool over HTTP", async move { tool.call(cx, arguments).await }));
        let result = match timeout(profile.timeout.unwrap_or(DEFAULT_TIMEOUT), call_task).await {
            Ok(Ok(result)) => result.masked(&profile.secrets),
            Ok(Err(_)) => return Err(broken(format!("{name} failed with an internal error"))),
            Err(_) => {
                let why = format!("{name} timed out and was stopped");
                return Err(InvokeError::failed(StatusCode::GATEWAY_TIMEOUT, why));
            }
        };
        if result.is_error {
            // The tool ran and reported an error: the request has to change.
            let why = without_path(join_text(&result.content), &profile.workdir);
            return Err(InvokeError::failed(StatusCode::BAD_REQUEST, why));
        }
        let mut payload = json!({ "content": result.content });
        if let Some(details) = result.details {
            payload["details"] = details;
        }
        Ok(payload)
    }
}

/// Removes the path of the workspace from an error message.
fn without_path(text: String, workspace: &Path) -> String {
    match workspace.to_str() {
        Some(path) if workspace.parent().is_some() && workspace.is_absolute() => {
            text.replace(&format!("{path}/"), "./").replace(path, "the workspace")
        }
        Some(_) | None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_do_not_reveal_the_workspace_path() {
        let redacted = |text: &str, path: &str| without_path(text.to_owned(), Path::new(path));
        let workspace = "/home/ann/work";
        assert_eq!(
            redacted("only paths inside /home/ann/work can be used", workspace),
            "only paths inside the workspace can be used"
        );
        assert_eq!(redacted("/home/ann/work/a/b.txt: no such file", workspace), "./a/b.txt: no such file");
        assert_eq!(redacted("a. b. /x", "."), "a. b. /x");
        assert_eq!(redacted("/a/b", "/"), "/a/b");
    }
}
