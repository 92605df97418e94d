//! State changes of slots, in a job and in its run history. Pure.

use homard_proto::AgentId;
use serde_json::{Value, json};

use super::{
    due::{DueSlots, MissedSlots},
    job::{CronJob, JobSchedule},
    run::{self, ScheduledResult},
};

/// A running slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RunningSlot {
    pub(super) job: String,
    pub(super) slot: u64,
    pub(super) started_at_ms: u64,
}

/// History entries to append, and slots to start.
#[derive(Debug, Default)]
pub(super) struct SettleOutput {
    /// History entries, by job.
    pub(super) lines: Vec<(String, Value)>,
    /// Slots to start, by job.
    pub(super) starts: Vec<(String, u64)>,
}

/// Applies what is due to a job, and collects the entries and starts that follow.
pub(super) fn settle(job: &mut CronJob, due: &DueSlots, now: u64, output: &mut SettleOutput) {
    job.state.settled_at_ms = due.settled;
    job.state.next_run_at_ms = due.next;
    if let Some(missed) = due.missed {
        job.state.missed_slots = Some(job.state.missed_slots.unwrap_or(0) + missed.count);
        output.lines.push((job.id.clone(), missed_entry(job, missed, now)));
        if matches!(job.schedule, JobSchedule::At(_)) {
            job.enabled = false;
        }
    }
    let Some(slot) = due.run else { return };
    if job.state.running_at_ms.is_some() {
        let reason = "skipped: the previous run is still active";
        output.lines.push((
            job.id.clone(),
            json!({
                "ts": now, "jobId": job.id, "action": "finished", "status": "skipped", "outcome": "skipped",
                "error": reason, "slotMs": slot, "runAtMs": slot, "nextRunAtMs": due.next,
            }),
        ));
        return;
    }
    job.state.running_at_ms = Some(now);
    job.state.running_slot_ms = Some(slot);
    output.starts.push((job.id.clone(), slot));
}

fn missed_entry(job: &CronJob, missed: MissedSlots, now: u64) -> Value {
    let count = if missed.is_at_least { format!("at least {}", missed.count) } else { missed.count.to_string() };
    let reason = format!("missed runs: {count}; they were not started in time");
    json!({
        "ts": now, "jobId": job.id, "action": "finished", "status": "skipped", "outcome": "missed", "error": reason,
        "slotMs": missed.last, "firstSlotMs": missed.first, "slots": missed.count, "runAtMs": missed.last,
        "nextRunAtMs": job.state.next_run_at_ms,
    })
}

/// Builds the history entry of a run.
pub(super) fn run_entry(
    running: &RunningSlot,
    result: &ScheduledResult,
    job: Option<&CronJob>,
    default: &AgentId,
    now: u64,
) -> Value {
    let (status, error) = match &result.reply {
        Ok(_) => ("ok", None),
        Err(reason) => ("error", Some(reason)),
    };
    let key = job.and_then(|job| job.session(default)).filter(|_| result.session.is_some());
    json!({
        "ts": now, "jobId": running.job, "action": "finished", "status": status, "outcome": "ran", "error": error,
        "summary": result.reply.as_deref().ok().map(run::summary), "sessionId": result.session, "sessionKey": key,
        "runId": job.and_then(|job| job.run_id(running.slot)), "runAtMs": running.started_at_ms, "slotMs": running.slot,
        "durationMs": now.saturating_sub(running.started_at_ms),
        "nextRunAtMs": job.and_then(|job| job.state.next_run_at_ms),
    })
}

/// Records the end of a run in its job.
pub(super) fn record_end(job: &mut CronJob, running: &RunningSlot, error: Option<String>, now: u64) {
    let status = if error.is_none() { "ok" } else { "error" };
    let state = &mut job.state;
    state.running_at_ms = None;
    state.running_slot_ms = None;
    state.last_run_at_ms = Some(running.started_at_ms);
    state.last_status = Some(status.to_owned());
    state.last_run_status = Some(status.to_owned());
    state.last_duration_ms = Some(now.saturating_sub(running.started_at_ms));
    state.consecutive_errors = Some(if error.is_none() { 0 } else { state.consecutive_errors.unwrap_or(0) + 1 });
    state.last_error = error;
}
