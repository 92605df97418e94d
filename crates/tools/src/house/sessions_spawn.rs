//! The `sessions_spawn` tool: starts a subagent. It runs independently and reports with a message when it has finished.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use homard_agent::{
    hub::{Cleanup, Spawn},
    intake,
    tool::{Tool, ToolClass, ToolCx, ToolResult, ToolSpec},
};
use homard_proto::{AgentId, SessionKey};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use super::{HouseRules, No, SpawnRules, answer, chosen, given, parse, sight::Sight};

/// Maximum length of a label in characters.
const LABEL: usize = 120;
/// Maximum length of a task in characters.
const TASK: usize = 100_000;
/// Maximum time limit of a child in seconds: one year.
const YEAR: f64 = 365.0 * 24.0 * 3600.0;

/// Starts subagents.
#[derive(Debug)]
pub struct SessionsSpawn {
    rules: Arc<HouseRules>,
    /// Serializes calls: the tool calls of one message run concurrently, and each must count the children started
    /// before.
    turn: Mutex<()>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Arguments {
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
    pub fn new(rules: Arc<HouseRules>) -> Self {
        Self { rules, turn: Mutex::new(()) }
    }

    async fn spawn(&self, cx: &ToolCx, arguments: Value) -> Result<Value, No> {
        let arguments: Arguments = parse(arguments)?;
        let _mine = self.turn.lock().await;
        let sight = Sight::of(cx, &self.rules).await?;
        let rules = self.rules.spawns(&sight.agent());
        check_room(cx, &sight, rules)?;
        let agent = self.agent(cx, &sight, given(arguments.agent_id.as_deref()))?;
        let wanted = given(arguments.model.as_deref());
        let model = wanted.or(rules.model.as_deref()).map(|name| chosen(sight.hub, &agent, name));
        let (model, warning) = match model.transpose() {
            Ok(model) => (model, None),
            Err(why) => (None, Some(format!("{why}; the agent's own model answers"))),
        };
        let spawn = Spawn { model, extra_prompt: Some(told(cx)), ..arguments.spawn(rules)? };
        let applied = spawn.model.as_ref().map(|(provider, model)| format!("{provider}/{model}"));
        let child = sight.hub.spawn((&cx.session, &cx.origin), &agent, spawn).await.map_err(No::error)?;
        let mut facts = json!({"status": "accepted", "childSessionKey": child.key, "runId": child.run});
        if wanted.is_some() {
            facts["modelApplied"] = applied.is_some().into();
        }
        if let Some(warning) = warning {
            facts["warning"] = warning.into();
        }
        facts["note"] =
            "its report comes by itself as a message when it is done: do not ask for it again and again".into();
        Ok(facts)
    }

    /// Returns the agent to run, if it is allowed.
    fn agent(&self, cx: &ToolCx, sight: &Sight<'_>, named: Option<&str>) -> Result<AgentId, No> {
        let me = sight.agent();
        let agent = named.map_or_else(|| me.clone(), AgentId::normalize);
        // Only callers that may start the agent learn whether it exists.
        if !self.rules.spawns(&me).allows(&me, &agent) {
            return Err(No::Forbidden(format!(
                "agent {agent} may not be started from here: use agents_list to see which may. The owner can allow it \
                 with subagents.allowAgents"
            )));
        }
        match sight.hub.agents().get(&agent) {
            // Children of a sandboxed run must be sandboxed too; otherwise spawning would escape the sandbox.
            Some(other) if cx.sandbox.is_some() && !other.sandboxing.holds_subagents() => Err(No::Forbidden(format!(
                "agent {agent} is not sandboxed, and a sandboxed session may start only agents that are. The owner \
                     can change its sandbox.mode"
            ))),
            Some(_) => Ok(agent),
            None => Err(No::Error(format!("there is no agent {agent}: use agents_list to see which there are"))),
        }
    }
}

/// Checks the limits on depth and number of children.
fn check_room(cx: &ToolCx, sight: &Sight<'_>, rules: &SpawnRules) -> Result<(), No> {
    if sight.depth(&cx.session) >= rules.max_depth {
        return Err(No::Forbidden(match cx.session.is_subagent() {
            true => "a sub-agent starts no others: do the task yourself, or say in your report what is left".to_owned(),
            false => "no sub-agents may be started here (subagents.maxSpawnDepth)".to_owned(),
        }));
    }
    let work = sight.hub.work();
    let is_at_work = |key: &SessionKey| work.iter().any(|work| work.key == *key);
    let count = sight.children(&cx.session).filter(|(child, _)| is_at_work(child)).count();
    if count >= rules.max_children {
        return Err(No::Forbidden(format!(
            "{count} sub-agents of this session are at work, and more may not be: wait for a report, or use subagents to \
             cancel one"
        )));
    }
    Ok(())
}

impl Arguments {
    fn spawn(&self, rules: &SpawnRules) -> Result<Spawn, No> {
        let task = given(Some(&self.task)).ok_or_else(|| No::error("task is empty: say what is to be done"))?;
        if task.chars().count() > TASK {
            return Err(No::Error(format!("task has more than {TASK} characters: put the rest into a file")));
        }
        let level = |word: &str| {
            let levels = intake::THINKING_LEVELS.join(", ");
            intake::thinking(word).ok_or_else(|| No::Error(format!("thinking is {word:?}: use one of {levels}")))
        };
        let thinking = given(self.thinking.as_deref()).or(rules.thinking.as_deref()).map(level).transpose()?;
        let label = given(self.label.as_deref()).or(given(self.task_name.as_deref()));
        // Missing, zero and invalid values mean the default, as in OpenClaw.
        let seconds = self.run_timeout_seconds.or(self.timeout_seconds).filter(|seconds| *seconds > 0.0);
        Ok(Spawn {
            task: task.to_owned(),
            label: label.map(|label| label.chars().filter(|c| !c.is_control()).take(LABEL).collect()),
            thinking: thinking.map(str::to_owned),
            timeout: seconds.map(|seconds| Duration::from_secs_f64(seconds.min(YEAR))).or(rules.timeout),
            cleanup: self.cleanup.unwrap_or_default(),
            ..Spawn::default()
        })
    }
}

/// Returns the addition to a child's system prompt.
fn told(cx: &ToolCx) -> String {
    format!(
        "You are a sub-agent. The session {} started you for one task: the first message. Do that and nothing else, and \
         finish it; nobody answers questions meanwhile. Your last message is your report, and the only thing that is passed \
         on: say what you found or did, with what the reader needs to go on, in few words. Do not write to people yourself.",
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
                          report comes as a message here when it is done."
                    .to_owned(),
            parameters: json!({
                "type": "object",
                "required": ["task"],
                "properties": {
                    "task": {"type": "string", "description": "What it is to do, with all that it needs to know: it sees nothing of this conversation"},
                    "label": {"type": "string", "description": "A short name for it"},
                    "taskName": {"type": "string", "description": "The same as label"},
                    "agentId": {"type": "string", "description": "The agent that works; this one by default. See agents_list"},
                    "model": {"type": "string", "description": "The model that answers, as provider/model"},
                    "thinking": {"type": "string", "description": "How hard it thinks: off, minimal, low, medium, high, xhigh"},
                    "runTimeoutSeconds": {"type": "number", "description": "How long it may take; 0 for the usual limit"},
                    "timeoutSeconds": {"type": "number", "description": "The same as runTimeoutSeconds"},
                    "cleanup": {"type": "string", "enum": ["delete", "keep"], "description": "What becomes of its session after its report; keep by default"},
                },
            }),
        }
    }

    fn class(&self) -> ToolClass {
        ToolClass::Effect
    }

    async fn call(&self, cx: ToolCx, arguments: Value) -> ToolResult {
        answer("sessions_spawn", self.spawn(&cx, arguments).await)
    }
}
