//! The `cron` tool: scheduled jobs, and `wake`, which sends a text to the main session.

use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use homard_agent::tool::{Tool, ToolClass, ToolCx, ToolResult, ToolSpec};
use homard_proto::{AgentId, Extra};
use homard_runtime::ambient::iso;
use homard_schedule::{
    JobCheck, RunMode, RunNowResult, Schedule,
    job::{CronJob, WakeMode},
};
use homard_tools::Recipients;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{failure, json_result, refusal};

const NAME: &str = "cron";

/// Answer to an argument of OpenClaw's that is unsupported.
const NO_CONTEXT: &str = "contextMessages is not supported; write the necessary context into the job's text";

/// Maximum runs of a job that are listed.
const MAX_RUNS: usize = 50;

const DESCRIPTION: &str = "\
Scheduled jobs and reminders. Actions: status; list (includeDisabled); add (job); update, remove, run, runs \
(jobId; patch for update, runMode due|force for run); wake (text, mode now|next-heartbeat) sends an event to the main \
session.
A job: {name, schedule, payload, sessionTarget, delivery?, enabled?}.
schedule: {kind:\"at\", at:\"2026-01-31T09:00:00+01:00\"} once, {kind:\"every\", everyMs:3600000}, or \
{kind:\"cron\", expr:\"0 9 * * 1-5\", tz:\"Europe/Berlin\"}. Check the current time before you set one.
payload and sessionTarget: {kind:\"systemEvent\", text} for \"main\": the text is sent to the main session; \
{kind:\"agentTurn\", message, model?, thinking?, timeoutSeconds?} for \"isolated\": an agent does it in a session of its own. delivery, for \
\"isolated\": {mode:\"announce\", channel?, to?} sends the reply; without a channel, to the chat that the main session \
used last; {mode:\"none\"} or no delivery sends nothing.";

pub(crate) struct Cron {
    schedule: Arc<OnceLock<Schedule>>,
    recipients: Recipients,
}

/// Arguments of the tool.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Args {
    action: String,
    gateway_url: Option<String>,
    #[serde(default)]
    include_disabled: bool,
    job: Option<Extra>,
    job_id: Option<String>,
    /// Alias of `job_id`.
    id: Option<String>,
    patch: Option<Extra>,
    text: Option<String>,
    mode: Option<String>,
    run_mode: Option<String>,
    context_messages: Option<f64>,
}

impl Args {
    fn job(&self) -> Result<&str, String> {
        let id = self.job_id.as_deref().or(self.id.as_deref()).map(str::trim).filter(|id| !id.is_empty());
        id.ok_or_else(|| format!("action {} needs a jobId; action list shows all jobs", self.action))
    }
}

impl Cron {
    /// Creates the tool; it works once the schedule exists.
    pub(crate) fn new(schedule: Arc<OnceLock<Schedule>>, recipients: Recipients) -> Self {
        Self { schedule, recipients }
    }

    /// Returns the check that a job's replies go only to chats that this run may write to.
    fn permit(&self, cx: &ToolCx) -> JobCheck {
        let (recipients, cx) = (self.recipients.clone(), cx.clone());
        Box::new(move |job| job.recipient().map_or(Ok(()), |route| recipients.check(&cx, NAME, &route)))
    }

    /// Records that a job whose replies go to a chat was created or changed.
    fn record_job(&self, cx: &ToolCx, job: &CronJob) -> Value {
        if let Some(route) = job.recipient() {
            self.recipients.audit(cx, NAME, &route, "scheduled");
        }
        json!(job)
    }

    async fn execute(&self, cx: &ToolCx, arguments: Value) -> Result<Value, String> {
        let mut arguments: Args =
            serde_json::from_value(arguments).map_err(|error| format!("the arguments cannot be read: {error}"))?;
        if let Some(why) = refusal(&cx.origin, arguments.gateway_url.as_deref()) {
            return Err(why.to_owned());
        }
        let schedule = self.schedule.get().ok_or("the scheduler is not running; see the gateway's log")?;
        let agent = cx.session.agent();
        match arguments.action.as_str() {
            "status" => Ok(status(schedule)),
            "list" => Ok(list(schedule, arguments.include_disabled)),
            "add" => {
                let job = job(&mut arguments, agent)?;
                let mut created = self.record_job(cx, &schedule.add_if(job, self.permit(cx)).await.map_err(plain)?);
                if arguments.context_messages.is_some_and(|count| count >= 1.0) {
                    created["note"] = json!(NO_CONTEXT);
                }
                Ok(created)
            }
            "update" => {
                let patch = arguments.patch.take().ok_or("action update needs a patch: the fields to change")?;
                let changed = schedule.update_if(arguments.job()?, patch, self.permit(cx)).await;
                changed.map(|job| self.record_job(cx, &job)).map_err(plain)
            }
            "remove" => {
                let removed = schedule.remove(arguments.job()?).await.map_err(plain)?;
                Ok(json!({"ok": true, "removed": removed}))
            }
            "run" => {
                let mode = if arguments.run_mode.as_deref() == Some("due") { RunMode::Due } else { RunMode::Force };
                let ran = schedule.run(arguments.job()?, mode).await.map_err(plain)?;
                Ok(match ran {
                    RunNowResult::Started(run) => json!({"ok": true, "ran": true, "runId": run}),
                    RunNowResult::NotDue => json!({"ok": true, "ran": false, "reason": "not-due"}),
                    RunNowResult::AlreadyRunning => json!({"ok": true, "ran": false, "reason": "already-running"}),
                })
            }
            "runs" => {
                let runs = schedule.history(arguments.job()?).await.map_err(plain)?;
                Ok(json!({"entries": &runs[runs.len().saturating_sub(MAX_RUNS)..]}))
            }
            "wake" => {
                let text = arguments.text.as_deref().map(str::trim).filter(|text| !text.is_empty());
                let text = text.ok_or("action wake needs a text: the event for the main session")?;
                let mode =
                    if arguments.mode.as_deref() == Some("now") { WakeMode::Now } else { WakeMode::NextHeartbeat };
                schedule.wake(agent.cloned(), text, cx.origin.authority, &mode).await.map_err(plain)?;
                Ok(json!({"ok": true}))
            }
            other => Err(format!("unknown action {other}; supported: {}", ACTIONS.join(", "))),
        }
    }
}

const ACTIONS: [&str; 8] = ["status", "list", "add", "update", "remove", "run", "runs", "wake"];

#[expect(clippy::needless_pass_by_value, reason = "it is what map_err gives")]
fn plain(error: impl ToString) -> String {
    error.to_string()
}

fn status(schedule: &Schedule) -> Value {
    let view = schedule.view();
    let next = view.jobs.iter().filter(|job| job.enabled).filter_map(|job| job.state.next_run_at_ms).min();
    let next = next.filter(|_| view.is_enabled);
    json!({
        "enabled": view.is_enabled, "storePath": schedule.location(), "jobs": view.jobs.len(), "nextWakeAtMs": next,
        "nextWakeAt": next.map(iso),
    })
}

/// Returns the jobs, the next one first.
fn list(schedule: &Schedule, with_disabled: bool) -> Value {
    let view = schedule.view();
    let mut jobs: Vec<&CronJob> = view.jobs.iter().filter(|job| job.enabled || with_disabled).collect();
    jobs.sort_by_key(|job| job.state.next_run_at_ms.unwrap_or(u64::MAX));
    json!({"jobs": jobs})
}

/// Returns the fields of a new job; its agent defaults to the caller.
fn job(arguments: &mut Args, agent: Option<&AgentId>) -> Result<Extra, String> {
    let mut job = arguments.job.take().ok_or("action add needs a job: its name, schedule and payload")?;
    if let Some(agent) = agent {
        job.entry("agentId").or_insert_with(|| json!(agent));
    }
    Ok(job)
}

#[async_trait]
impl Tool for Cron {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: NAME.to_owned(),
            description: DESCRIPTION.to_owned(),
            parameters: json!({
                "type": "object",
                "required": ["action"],
                "properties": {
                    "action": {"type": "string", "enum": ACTIONS},
                    "gatewayUrl": {"type": "string"},
                    "gatewayToken": {"type": "string"},
                    "timeoutMs": {"type": "number"},
                    "includeDisabled": {"type": "boolean"},
                    "job": {"type": "object", "properties": {}},
                    "jobId": {"type": "string"},
                    "id": {"type": "string"},
                    "patch": {"type": "object", "properties": {}},
                    "text": {"type": "string"},
                    "mode": {"type": "string", "enum": ["now", "next-heartbeat"]},
                    "runMode": {"type": "string", "enum": ["due", "force"]},
                    "contextMessages": {"type": "number"},
                },
            }),
        }
    }

    fn class(&self) -> ToolClass {
        ToolClass::Effect
    }

    async fn call(&self, cx: ToolCx, arguments: Value) -> ToolResult {
        match self.execute(&cx, arguments).await {
            Ok(payload) => json_result(payload),
            Err(why) => failure(NAME, &why),
        }
    }
}
