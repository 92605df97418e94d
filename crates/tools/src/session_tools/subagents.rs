//! The `subagents` tool: lists, waits for and cancels the subagents that this session started.

use std::time::Duration;

use async_trait::async_trait;
use homard_agent::{
    AbortReason, Hub,
    hub::{ChildOutcome, ChildRun, RunProgress, WaitResult},
    tool::{Tool, ToolClass, ToolCx, ToolResult, ToolSpec},
};
use homard_proto::{RunId, SessionKey, session::Record};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{SessionToolError, SessionToolRules, into_result, non_blank, parse, visibility::VisibleSessions};

/// Default time that the action `wait` waits for subagents to finish, in seconds.
const DEFAULT_WAIT_SECS: f64 = 30.0;
/// Maximum time that the action `wait` waits, in seconds.
const MAX_WAIT_SECS: f64 = 60.0;
/// Default age limit of listed finished subagents, in minutes.
const RECENT_MINUTES: f64 = 30.0;
/// Maximum number of listed finished subagents.
const MAX_FINISHED: usize = 50;

/// Lists, waits for and cancels subagents.
#[derive(Debug, Clone, Copy)]
pub struct Subagents;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Args {
    action: Option<SubagentAction>,
    recent_minutes: Option<f64>,
    task_id: Option<String>,
    task_ids: Option<Vec<String>>,
    timeout_seconds: Option<f64>,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum SubagentAction {
    #[default]
    List,
    Wait,
    Cancel,
}

/// A subagent.
struct SubagentTask {
    key: SessionKey,
    label: Option<String>,
    updated_at: u64,
    child_run: ChildRun,
    progress: Option<RunProgress>,
}

impl SubagentTask {
    fn is_open(&self) -> bool {
        self.child_run.ended.is_none()
    }

    fn status(&self) -> &'static str {
        match (self.child_run.ended, self.progress) {
            (Some(outcome), _) => outcome.name(),
            (None, Some(progress)) => progress.name(),
            // It has finished, and its report is being delivered.
            (None, None) => "reporting",
        }
    }

    fn row(&self) -> Value {
        let ChildRun { run, task, .. } = &self.child_run;
        json!({
            "taskId": self.key, "runId": run, "label": self.label, "task": task, "status": self.status(),
            "updatedAt": self.updated_at,
        })
    }

    fn matches_name(&self, name: &str) -> bool {
        self.key.as_str() == name.to_lowercase()
            || self.child_run.run.as_str() == name
            || self.label.as_deref() == Some(name)
    }
}

async fn run_action(cx: &ToolCx, arguments: Value) -> Result<Value, SessionToolError> {
    let arguments: Args = parse(arguments)?;
    let rules = SessionToolRules::default();
    let visible = VisibleSessions::of(cx, &rules).await?;
    let tasks = tasks(cx, &visible);
    match arguments.action.unwrap_or_default() {
        SubagentAction::List => Ok(list(visible.hub, &tasks, arguments.recent_minutes.unwrap_or(RECENT_MINUTES))),
        SubagentAction::Wait => {
            // `Duration::from_secs_f64` would panic on NaN; this does not.
            let seconds = arguments.timeout_seconds.unwrap_or(DEFAULT_WAIT_SECS).clamp(0.0, MAX_WAIT_SECS);
            let timeout = Duration::try_from_secs_f64(seconds).unwrap_or_default();
            wait(cx, visible.hub, select_tasks(&tasks, &arguments)?, timeout).await
        }
        SubagentAction::Cancel => {
            let has_ids = arguments.task_id.is_some() || arguments.task_ids.is_some();
            if !has_ids {
                return Err(SessionToolError::error("no sub-agent is named: give taskId, as in the action `list`"));
            }
            cancel(visible.hub, select_tasks(&tasks, &arguments)?).await
        }
    }
}

/// Returns the subagents that this session started, newest first.
fn tasks(cx: &ToolCx, visible: &VisibleSessions<'_>) -> Vec<SubagentTask> {
    let live_runs = visible.hub.runs().live();
    let task = |key: &SessionKey, record: &Record| {
        let progress = live_runs.iter().find(|live_runs| live_runs.key == *key).map(|live_runs| live_runs.progress);
        let child_run = ChildRun::of(record)?;
        Some(SubagentTask {
            key: key.clone(),
            label: record.label.clone(),
            updated_at: record.updated_at,
            child_run,
            progress,
        })
    };
    let children = visible.children(&cx.session).filter(|(key, _)| visible.is_descendant(key));
    children.filter_map(|(key, record)| task(key, record)).collect()
}

fn list(hub: &Hub, tasks: &[SubagentTask], minutes: f64) -> Value {
    // `as` saturates, so out-of-range values become the nearest limit.
    let since = hub.ambient().now_ms().saturating_sub((minutes as u64).saturating_mul(60_000));
    let active: Vec<_> = tasks.iter().filter(|task| task.is_open()).map(SubagentTask::row).collect();
    let ended = tasks.iter().filter(|task| !task.is_open() && task.updated_at >= since);
    let recent: Vec<_> = ended.take(MAX_FINISHED).map(SubagentTask::row).collect();
    json!({"status": "ok", "action": "list", "active": active, "recent": recent})
}

/// Returns the named subagents; the active ones if none is named.
fn select_tasks<'a>(tasks: &'a [SubagentTask], arguments: &Args) -> Result<Vec<&'a SubagentTask>, SessionToolError> {
    let names: Vec<_> = arguments.task_id.iter().chain(arguments.task_ids.iter().flatten()).collect();
    if names.is_empty() {
        return Ok(tasks.iter().filter(|task| task.is_open()).collect());
    }
    let find = |name: &&String| {
        let found = non_blank(Some(name)).and_then(|name| tasks.iter().find(|task| task.matches_name(name)));
        found.ok_or_else(|| {
            SessionToolError::Error(format!(
                "this session has no sub-agent {name:?}: use the action `list` to see its sub-agents"
            ))
        })
    };
    names.iter().map(find).collect()
}

async fn wait(cx: &ToolCx, hub: &Hub, tasks: Vec<&SubagentTask>, timeout: Duration) -> Result<Value, SessionToolError> {
    let runs: Vec<(&SubagentTask, &RunId)> = tasks.iter().map(|task| (*task, &task.child_run.run)).collect();
    // Never waits for a session that waits for this one.
    let pending: Vec<_> = runs.iter().map(|(task, _)| hub.sessions().wait_for(&cx.session, &task.key)).collect();
    let all = async {
        let mut rows = Vec::new();
        let until = tokio::time::Instant::now() + timeout;
        for ((task, run), waiting) in runs.iter().zip(&pending) {
            let left =
                if waiting.is_some() { until.duration_since(tokio::time::Instant::now()) } else { Duration::ZERO };
            let status =
                match (task.child_run.ended, hub.runs().wait(run, left).await.map_err(SessionToolError::error)?) {
                    (Some(outcome), _) => outcome,
                    (None, WaitResult::Ended(report)) => ChildOutcome::of(report.outcome()),
                    (None, WaitResult::Queued | WaitResult::Timeout | WaitResult::Broken(_)) => {
                        rows.push(task.row());
                        continue;
                    }
                };
            let mut row = task.row();
            row["status"] = status.name().into();
            rows.push(row);
        }
        Ok::<_, SessionToolError>(rows)
    };
    let rows = tokio::select! {
        biased;
        () = cx.cancel.cancelled() => return Err(SessionToolError::error("the run was stopped")),
        rows = cx.slot.lend(all) => rows?,
    };
    let note = "reports arrive as messages";
    Ok(json!({"status": "ok", "action": "wait", "tasks": rows, "note": note}))
}

async fn cancel(hub: &Hub, tasks: Vec<&SubagentTask>) -> Result<Value, SessionToolError> {
    let mut rows = Vec::new();
    for task in tasks {
        let stopped = hub.runs().abort(&task.key, None, AbortReason::User).await;
        rows.push(json!({"taskId": task.key, "runId": task.child_run.run, "cancelled": !stopped.is_empty()}));
    }
    Ok(json!({"status": "ok", "action": "cancel", "tasks": rows}))
}

#[async_trait]
impl Tool for Subagents {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "subagents".to_owned(),
            description:
                "Manage the sub-agents that this session started: list, wait for or cancel them. Their reports arrive \
                          as messages, so do not poll for them."
                    .to_owned(),
            parameters: json!({
                "type": "object",
                "properties": {
                    "action": {"type": "string", "enum": ["list", "wait", "cancel"], "description": "list by default"},
                    "recentMinutes": {"type": "number", "description": "How far back the list goes; 30 by default"},
                    "taskId": {"type": "string", "description": "The sub-agent: its taskId, runId or label"},
                    "taskIds": {"type": "array", "items": {"type": "string"}, "description": "Several of them"},
                    "timeoutSeconds": {"type": "number", "description": "How long to wait; 30 by default, at most 60"},
                },
            }),
        }
    }

    fn class(&self) -> ToolClass {
        ToolClass::Idempotent
    }

    async fn call(&self, cx: ToolCx, arguments: Value) -> ToolResult {
        into_result("subagents", run_action(&cx, arguments).await)
    }
}
