//! The `sessions_spawn` tool: starts a subagent. It runs independently and reports with a message when it has finished.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use homard_agent::{
    hub::{Cleanup, SpawnParams},
    tool::{Tool, ToolClass, ToolCx, ToolResult, ToolSpec},
};
use homard_proto::{AgentId, SessionKey};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use super::{
    SessionToolError, SessionToolRules, SpawnRules, into_result, non_blank, parse, resolve_model,
    visibility::VisibleSessions,
};

/// Maximum length of a label in characters.
const MAX_LABEL_CHARS: usize = 120;
/// Maximum length of a task in characters.
const MAX_TASK_CHARS: usize = 100_000;
/// Maximum time limit of a child in seconds: one year.
const MAX_TIMEOUT_SECS: f64 = 365.0 * 24.0 * 3600.0;

/// Starts subagents.
#[derive(Debug)]
pub struct SessionsSpawn {
    rules: Arc<SessionToolRules>,
    /// Serializes calls: the tool calls of one message run concurrently, and each must count the children started
    /// before.
    lock: Mutex<()>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Args {
    task: String,
    label: Option<String>,
    task_name: Option<String>,
    agent_id: Option<String>,
    model: Option<String>,
    thinking: Option<String>,
    run_timeout_seconds: Option<f64>,
    timeout_seconds: Option<f64>,
    cleanup: Option<Cleanup>,
}

impl SessionsSpawn {
    /// Creates the tool with these rules.
    pub fn new(rules: Arc<SessionToolRules>) -> Self {
        Self { rules, lock: Mutex::new(()) }
    }

    async fn spawn(&self, cx: &ToolCx, arguments: Value) -> Result<Value, SessionToolError> {
        let arguments: Args = parse(arguments)?;
        let _mine = self.lock.lock().await;
        let visible = VisibleSessions::of(cx, &self.rules).await?;
        let rules = self.rules.spawn_rules(&visible.agent());
        check_limits(cx, &visible, rules)?;
        let agent = self.agent(cx, &visible, non_blank(arguments.agent_id.as_deref()))?;
        let model_name = non_blank(arguments.model.as_deref());
        let model = model_name.or(rules.model.as_deref()).map(|name| resolve_model(visible.hub, &agent, name));
        let (model, warning) = match model.transpose() {
            Ok(model) => (model, None),
            Err(reason) => (None, Some(format!("{reason}; using the agent's own model"))),
        };
        let spawn = SpawnParams { model, extra_prompt: Some(subagent_prompt(cx)), ..arguments.spawn(rules)? };
        let applied = spawn.model.as_ref().map(|(provider, model)| format!("{provider}/{model}"));
        let child = visible
            .hub
            .children()
            .spawn(&cx.session, &cx.origin, &agent, spawn)
            .await
            .map_err(SessionToolError::error)?;
        let mut response = json!({"status": "accepted", "childSessionKey": child.key, "runId": child.run});
        if model_name.is_some() {
            response["modelApplied"] = applied.is_some().into();
        }
        if let Some(warning) = warning {
            response["warning"] = warning.into();
        }
        response["note"] = "the report arrives as a message when the sub-agent has finished: do not poll for it".into();
        Ok(response)
    }

    /// Returns the agent to run, if it is allowed.
    fn agent(
        &self,
        cx: &ToolCx,
        visible: &VisibleSessions<'_>,
        requested: Option<&str>,
    ) -> Result<AgentId, SessionToolError> {
        let own_id = visible.agent();
        let agent = requested.map_or_else(|| own_id.clone(), AgentId::normalize);
        // Only callers that may start the agent learn whether it exists.
        if !self.rules.spawn_rules(&own_id).allows(&own_id, &agent) {
            return Err(SessionToolError::Forbidden(format!(
                "agent {agent} may not be started from here: use agents_list to see the allowed agents. The owner can \
                 allow it with subagents.allowAgents"
            )));
        }
        match visible.hub.agents().get(&agent) {
            // Children of a sandboxed run must be sandboxed too; otherwise spawning would escape the sandbox.
            Some(other) if cx.sandbox.is_some() && !other.sandboxing.sandboxes_subagents() => {
                Err(SessionToolError::Forbidden(format!(
                    "agent {agent} is not sandboxed, and a sandboxed session may start only sandboxed agents. The owner \
                     can change its sandbox.mode"
                )))
            }
            Some(_) => Ok(agent),
            None => {
                Err(SessionToolError::Error(format!("agent {agent} does not exist: use agents_list to see the agents")))
            }
        }
    }
}

/// Checks the limits on depth and number of children.
fn check_limits(cx: &ToolCx, visible: &VisibleSessions<'_>, rules: &SpawnRules) -> Result<(), SessionToolError> {
    if visible.depth(&cx.session) >= rules.max_depth {
        return Err(SessionToolError::Forbidden(match cx.session.is_subagent() {
            true => {
                "a sub-agent cannot start others: do the task yourself, or report what remains to be done".to_owned()
            }
            false => "no sub-agents may be started here (subagents.maxSpawnDepth)".to_owned(),
        }));
    }
    let live_runs = visible.hub.runs().live();
    let is_active = |key: &SessionKey| live_runs.iter().any(|live_runs| live_runs.key == *key);
    let count = visible.children(&cx.session).filter(|(child, _)| is_active(child)).count();
    if count >= rules.max_children {
        return Err(SessionToolError::Forbidden(format!(
            "{count} sub-agents of this session are active, which is the maximum: wait for a report, or use subagents \
             to cancel one"
        )));
    }
    Ok(())
}

impl Args {
    fn spawn(&self, rules: &SpawnRules) -> Result<SpawnParams, SessionToolError> {
        let task =
            non_blank(Some(&self.task)).ok_or_else(|| SessionToolError::error("task is empty: describe the task"))?;
        if task.chars().count() > MAX_TASK_CHARS {
            return Err(SessionToolError::Error(format!(
                "task has more than {MAX_TASK_CHARS} characters: put the rest into a file"
            )));
        }
        let level = |field: &str| {
            let levels = homard_command::levels::THINKING_LEVELS.join(", ");
            homard_command::levels::thinking(field)
                .ok_or_else(|| SessionToolError::Error(format!("thinking is {field:?}: use one of {levels}")))
        };
        let thinking = non_blank(self.thinking.as_deref()).or(rules.thinking.as_deref()).map(level).transpose()?;
        let label = non_blank(self.label.as_deref()).or(non_blank(self.task_name.as_deref()));
        // Missing, zero and invalid values mean the default, as in OpenClaw.
        let seconds = self.run_timeout_seconds.or(self.timeout_seconds).filter(|seconds| *seconds > 0.0);
        Ok(SpawnParams {
            task: task.to_owned(),
            label: label.map(|label| label.chars().filter(|c| !c.is_control()).take(MAX_LABEL_CHARS).collect()),
            thinking: thinking.map(str::to_owned),
            timeout: seconds.map(|seconds| Duration::from_secs_f64(seconds.min(MAX_TIMEOUT_SECS))).or(rules.timeout),
            cleanup: self.cleanup.unwrap_or_default(),
            ..SpawnParams::default()
        })
    }
}

/// Returns the addition to a child's system prompt.
fn subagent_prompt(cx: &ToolCx) -> String {
    format!(
        "You are a sub-agent. The session {} started you for one task: the first message. Do that and nothing else, \
         and finish it; questions are not answered in the meantime. Your last message is your report, and the only \
         thing that is passed on: say concisely what you found or did, with what the reader needs to continue. Do not \
         send messages to people yourself.",
        cx.session
    )
}

#[async_trait]
impl Tool for SessionsSpawn {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "sessions_spawn".to_owned(),
            description:
                "Start a sub-agent that works on a task by itself, in a session of its own. Returns at once; its \
                          report arrives here as a message when it has finished."
                    .to_owned(),
            parameters: json!({
                "type": "object",
                "required": ["task"],
                "properties": {
                    "task": {"type": "string", "description": "What it is to do, with all that it needs to know: it sees nothing of this conversation"},
                    "label": {"type": "string", "description": "A short name for it"},
                    "taskName": {"type": "string", "description": "The same as label"},
                    "agentId": {"type": "string", "description": "The agent that works; this one by default. See agents_list"},
                    "model": {"type": "string", "description": "The model to use, as provider/model"},
                    "thinking": {"type": "string", "description": "How hard it thinks: off, minimal, low, medium, high, xhigh"},
                    "runTimeoutSeconds": {"type": "number", "description": "How long it may take; 0 for the usual limit"},
                    "timeoutSeconds": {"type": "number", "description": "The same as runTimeoutSeconds"},
                    "cleanup": {"type": "string", "enum": ["delete", "keep"], "description": "What to do with its session after its report; keep by default"},
                },
            }),
        }
    }

    fn class(&self) -> ToolClass {
        ToolClass::Effect
    }

    async fn call(&self, cx: ToolCx, arguments: Value) -> ToolResult {
        into_result("sessions_spawn", self.spawn(&cx, arguments).await)
    }
}
