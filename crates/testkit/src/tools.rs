//! Scripted tools: they return, fail, hang, panic and report progress.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::pending,
    panic::resume_unwind,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use homard_agent::{
    CommandOrigin, Hub,
    channel_sender::{ChannelSender, OutgoingAction},
    hub::BackgroundCommand,
    tool::{ProgressSender, Tool, ToolCx, ToolResult, Toolbox},
};
use homard_model::ToolSpec;
use homard_proto::{CallId, RunId, message::Block};
use homard_runtime::task;
use homard_store::ToolClass;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::{channel_sender::FakePlatforms, clock::TraceClock};

/// A tool as the model sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolDefinition {
    /// Name.
    pub name: String,
    /// Whether it may be repeated.
    pub class: ToolClass,
    /// JSON Schema of its arguments.
    pub parameters: Value,
}

/// Behaviour of a tool call.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolBehaviour {
    /// Time until it returns.
    pub delay: Duration,
    /// Progress reports and their times. One that is due after the result is sent nevertheless.
    pub reports: Vec<(Duration, String)>,
    /// True if it ends when cancelled.
    pub is_cancellable: bool,
    /// True if it lends the run's slot to others meanwhile.
    pub lends_slot: bool,
    /// A background command that it starts, named after the call: when it ends, and how.
    pub background: Option<(Duration, String)>,
    /// Whether it sends its argument `message` to the chat that it names as `target`, or to the chat of its run.
    pub sends: bool,
    /// The background command whose end it reads.
    pub reads_background: Option<String>,
    /// What it returns.
    pub answer: ToolAnswer,
}

/// Result of a tool call.
#[derive(Debug, Clone, PartialEq)]
pub enum ToolAnswer {
    /// Returns a result, possibly an error.
    Says(ToolResult),
    /// Panics.
    Panics(String),
    /// Never returns.
    Hangs,
}

/// The scripted tools of one trace and their behaviours, by call id or tool name.
#[derive(Debug)]
pub struct ScriptedTools {
    behaviours: BTreeMap<String, ToolBehaviour>,
    clock: TraceClock,
    numbering: ResultNumbering,
    platforms: Option<Arc<FakePlatforms>>,
    inner: Mutex<ScriptedToolsInner>,
}

/// Whether the result of a tool contains the number of the start that produced it, so that a result that is used for
/// two calls is detected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResultNumbering {
    Plain,
    Numbered,
}

/// Text before the number of the start in a numbered result.
pub(crate) const START_NUMBER: &str = " from launch ";

#[derive(Debug, Default)]
struct ScriptedToolsInner {
    used: BTreeSet<String>,
    started_calls: Vec<StartedCall>,
    complaints: Vec<String>,
}

/// A tool call that was actually started.
#[derive(Debug, Clone)]
pub(crate) struct StartedCall {
    /// Time since the beginning.
    pub(crate) at: Duration,
    pub(crate) run: RunId,
    pub(crate) call: CallId,
    pub(crate) tool: String,
    pub(crate) class: ToolClass,
}

impl ScriptedTools {
    /// Creates tools with these behaviours.
    pub fn new(behaviours: BTreeMap<String, ToolBehaviour>) -> Arc<Self> {
        Self::on(TraceClock::new(), behaviours, ResultNumbering::Plain, None)
    }

    /// Creates tools with this clock, and with the platforms to which they send messages.
    pub(crate) fn on(
        clock: TraceClock,
        behaviours: BTreeMap<String, ToolBehaviour>,
        numbering: ResultNumbering,
        platforms: Option<Arc<FakePlatforms>>,
    ) -> Arc<Self> {
        Arc::new(Self { behaviours, clock, numbering, platforms, inner: Mutex::default() })
    }

    /// Returns the started calls, in order.
    pub(crate) fn started_calls(&self) -> Vec<StartedCall> {
        self.lock().started_calls.clone()
    }

    /// Records a start and returns its number and behaviour.
    fn record_start(&self, cx: &ToolCx, tool: &ToolDefinition) -> (usize, Option<ToolBehaviour>) {
        let behaviour = self.find(cx.call.as_str(), &tool.name);
        let mut inner = self.lock();
        let (run, call) = (cx.run.clone(), cx.call.clone());
        inner.started_calls.push(StartedCall {
            at: self.clock.now(),
            run,
            call,
            tool: tool.name.clone(),
            class: tool.class,
        });
        (inner.started_calls.len(), behaviour)
    }

    /// Returns the tools.
    pub fn toolbox(self: &Arc<Self>, definitions: &[ToolDefinition]) -> Toolbox {
        let tool = |definition: &ToolDefinition| -> Arc<dyn Tool> {
            Arc::new(ScriptedTool { definition: definition.clone(), tools: self.clone() })
        };
        Toolbox::new(definitions.iter().map(tool))
    }

    /// Returns deviations from the script: calls without a behaviour, behaviours without a call.
    pub fn complaints(&self) -> Vec<String> {
        let inner = self.lock();
        let unused = self.behaviours.keys().filter(|name| !inner.used.contains(*name));
        let unused = unused.map(|name| format!("`tool {name}` was never called"));
        inner.complaints.iter().cloned().chain(unused).collect()
    }

    fn find(&self, call: &str, name: &str) -> Option<ToolBehaviour> {
        let mut inner = self.lock();
        let found = [call, name].into_iter().find_map(|target| self.behaviours.get_key_value(target));
        match found {
            Some((target, behaviour)) => {
                inner.used.insert(target.clone());
                Some(behaviour.clone())
            }
            None => {
                inner.complaints.push(format!("call {call} of {name} was not expected: no `tool` line for it"));
                None
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, ScriptedToolsInner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts a background command, which is lost with the process.
async fn start(hub: &Hub, cx: &ToolCx, after: Duration, report: String) {
    let (session, id, stop) = (cx.session.clone(), cx.call.to_string(), CancellationToken::new());
    let origin = CommandOrigin::from(&cx.origin);
    let command = BackgroundCommand { id: id.clone(), command: format!("work {id}"), origin, stop: stop.clone() };
    hub.background().started(&session, command, true).await;
    let hub = hub.clone();
    task::spawn("background command", async move {
        match stop.run_until_cancelled(tokio::time::sleep(after)).await {
            Some(()) => hub.background().ended(&session, &id, &report).await,
            None => hub.background().settled(&session, &id).await,
        }
    });
}

/// Prefix of the ids of messages that tools send. They do not go through the outbox.
pub(crate) const TOOL_SENT: &str = "tool:";

/// Sends a message as the `message` tool does: an error says that it did not arrive, or that this is not known.
async fn send(platforms: &FakePlatforms, cx: &ToolCx, number: usize, arguments: &Value) -> Result<(), ToolResult> {
    let route = &cx.origin.route;
    let target = arguments["target"].as_str().or(route.to.as_deref()).unwrap_or_default();
    let outgoing = OutgoingAction {
        id: format!("{TOOL_SENT}{}/{number}", cx.call),
        channel: route.channel.clone(),
        to: target.to_owned(),
        account: route.account.clone(),
        text: arguments["message"].as_str().unwrap_or_default().to_owned(),
        ..OutgoingAction::default()
    };
    match platforms.deliver(outgoing).await {
        Ok(_) => Ok(()),
        Err(error) => Err(ToolResult::error(error.to_string())),
    }
}

struct ScriptedTool {
    definition: ToolDefinition,
    tools: Arc<ScriptedTools>,
}

#[async_trait]
impl Tool for ScriptedTool {
    fn spec(&self) -> ToolSpec {
        let ToolDefinition { name, parameters, .. } = self.definition.clone();
        ToolSpec { description: format!("The scripted tool {name}."), name, parameters }
    }

    fn class(&self) -> ToolClass {
        self.definition.class
    }

    async fn call(&self, cx: ToolCx, arguments: Value) -> ToolResult {
        let (number, behaviour) = self.tools.record_start(&cx, &self.definition);
        let Some(mut behaviour) = behaviour else {
            return ToolResult::error("the script has no line for this call");
        };
        if let ToolAnswer::Says(result) = &mut behaviour.answer {
            let workdir = cx.workdir.display().to_string();
            for block in &mut result.content {
                if let Block::Text(text) = block {
                    text.text = text.text.replace("{workdir}", &workdir);
                }
            }
        }
        if let (Some((after, report)), Some(hub)) = (behaviour.background.clone(), &cx.hub) {
            start(hub, &cx, after, report.replace("{call}", cx.call.as_str())).await;
        }
        if let (true, Some(platforms)) = (behaviour.sends, &self.tools.platforms)
            && let Err(error_result) = send(platforms, &cx, number, &arguments).await
        {
            behaviour.answer = ToolAnswer::Says(error_result);
        }
        if let (Some(command), Some(hub)) = (&behaviour.reads_background, &cx.hub) {
            hub.background().settled(&cx.session, command).await;
        }
        let (is_cancellable, lends_slot) = (behaviour.is_cancellable, behaviour.lends_slot);
        let work = run_behaviour(behaviour, cx.progress);
        let work = async { if lends_slot { cx.slot.lend(work).await } else { work.await } };
        let mut result = tokio::select! {
            biased;
            () = cx.cancel.cancelled(), if is_cancellable => ToolResult::error("stopped as it was told to"),
            result = work => result,
        };
        match self.tools.numbering {
            ResultNumbering::Plain => {}
            ResultNumbering::Numbered => result.content.push(Block::text(format!("{START_NUMBER}{number}"))),
        }
        result
    }
}

async fn run_behaviour(behaviour: ToolBehaviour, progress: ProgressSender) -> ToolResult {
    let start = Instant::now();
    let ToolBehaviour { delay, reports, answer, .. } = behaviour;
    let (early, late): (Vec<_>, Vec<_>) =
        reports.into_iter().partition(|(at, _)| *at < delay || answer == ToolAnswer::Hangs);
    if !late.is_empty() {
        // Detached, like a tool that keeps reporting after its result.
        drop(task::spawn("late reports", report(start, late, progress.clone())));
    }
    report(start, early, progress).await;
    sleep_until(start + delay).await;
    match answer {
        ToolAnswer::Says(result) => result,
        // Bypasses the panic hook, so that the test's output stays clean.
        ToolAnswer::Panics(text) => resume_unwind(Box::new(text)),
        ToolAnswer::Hangs => pending().await,
    }
}

async fn report(start: Instant, reports: Vec<(Duration, String)>, progress: ProgressSender) {
    for (at, text) in reports {
        sleep_until(start + at).await;
        progress.report(ToolResult::text(text));
    }
}

/// Returns the tools that every trace has: `exec {cmd}` has side effects, `read {path}` has none.
pub fn default_tools() -> Vec<ToolDefinition> {
    let tool = |name: &str, class, argument: &str| ToolDefinition {
        name: name.to_owned(),
        class,
        parameters: json!({
            "type": "object", "required": [argument], "properties": {argument: {"type": "string"}},
        }),
    };
    vec![tool("exec", ToolClass::Effect, "cmd"), tool("read", ToolClass::Read, "path")]
}
