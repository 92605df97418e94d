//! Formats results of commands for the model.

use homard_agent::tool::ToolResult;
use homard_stdx::time::millis;
use serde_json::json;

use super::PROGRESS_BYTES;
use crate::job::{CommandJob, CommandOutcome};

/// Formats the result of a finished command.
pub(super) fn finished_result(job: &CommandJob, outcome: &CommandOutcome, notes: Vec<String>) -> ToolResult {
    let (aggregated, _) = job.text();
    let mut details = json!({
        "status": "failed",
        "exitCode": null,
        "durationMs": millis(outcome.duration),
        "aggregated": aggregated,
        "cwd": job.cwd,
    });
    outcome.add_to_details(&mut details);
    let mut parts = vec![if aggregated.is_empty() { "(no output)".to_owned() } else { aggregated }];
    parts.extend(outcome.error.clone());
    if outcome.leftover_processes > 0 {
        parts.push(
            "[The command left processes running, which were killed. Use background for long-running processes.]"
                .to_owned(),
        );
    }
    parts.extend(outcome.notes.iter().cloned());
    parts.extend(notes);
    ToolResult { is_error: outcome.error.is_some(), ..ToolResult::text(parts.join("\n\n")) }.with_details(details)
}

/// Formats the result of a command that continues in the background.
pub(super) fn running_result(job: &CommandJob, id: &str, notes: Vec<String>) -> ToolResult {
    let tail = job.tail(PROGRESS_BYTES);
    let details = json!({
        "status": "running",
        "sessionId": id,
        "pid": job.pid,
        "startedAt": job.started_ms,
        "cwd": job.cwd,
        "tail": tail,
    });
    let pid = job.pid.map_or_else(|| "gone".to_owned(), |pid| pid.to_string());
    let text =
        format!("Command still running (session {id}, pid {pid}). Use process to poll, read, write to or kill it.");
    let parts = Some(tail).filter(|tail| !tail.is_empty()).into_iter().chain([text]).chain(notes);
    ToolResult::text(parts.collect::<Vec<_>>().join("\n\n")).with_details(details)
}
