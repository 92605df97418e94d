//! A scheduled run: its submission and its result.

use std::time::Duration;

use homard_agent::{
    event::HeartbeatAnswer,
    hub::{Hub, Inbound, InboundOptions, InboundReply, InboundSender, SCHEDULE, SubmitError, SubmitOutcome},
    tape::{Subscriber, TapeState},
    wire::RunReport,
};
use homard_command::{Command, levels};
use homard_prompt::timestamps::clock_line;
use homard_proto::{Generation, RunId, SessionKey, message::User};
use homard_queue::slots::RunClass;
use jiff::tz::TimeZone;
use serde_json::Value;

use super::{
    answer_target::AnswerTarget,
    job::{AgentTurn, CronJob},
};

/// Maximum time limit of a run, in seconds: a year.
const MAX_SECONDS: f64 = 365.0 * 24.0 * 3600.0;
/// Maximum characters of an answer in the run history of a job.
const SUMMARY: usize = 2_000;

/// Parameters of a scheduled run.
#[derive(Debug)]
pub(super) struct ScheduledRun {
    pub(super) run: RunId,
    pub(super) key: SessionKey,
    pub(super) class: RunClass,
    pub(super) text: String,
}

impl ScheduledRun {
    /// Builds the message for the hub. The run id is its idempotency key, so a restart can submit it again.
    pub(super) fn inbound(self, now: u64) -> Inbound {
        let sender = InboundSender::new(SCHEDULE, self.class.name());
        let plain = Inbound::plain(self.run, sender, self.key, User::text(self.text, now));
        Inbound { options: InboundOptions::new(self.class), is_literal: false, ..plain }
    }
}

/// Builds the message for a slot of an isolated job, which always starts a new transcript.
pub(super) fn isolated(scheduled: ScheduledRun, job: &CronJob, turn: &AgentTurn, now: u64) -> Inbound {
    let seconds = turn.timeout_seconds.filter(|seconds| *seconds > 0.0);
    let command = Some(Command::NewTranscriptWith(scheduled.text.clone()));
    let mut inbound = scheduled.inbound(now);
    inbound.command = command;
    inbound.session.thinking = turn.thinking.as_deref().and_then(levels::thinking).map(str::to_owned);
    inbound.session.label = Some(format!("Cron: {}", job.name));
    inbound.options.timeout = seconds.map(|seconds| Duration::from_secs_f64(seconds.min(MAX_SECONDS)));
    inbound
}

/// Adds the destination of the answer; an error says why it cannot be delivered. Missing values are taken from the
/// last route of the main session, because a job's own session has none.
pub(super) async fn with_delivery(
    hub: &Hub,
    inbound: Inbound,
    AnswerTarget { request, is_best_effort }: &AnswerTarget,
    main: &SessionKey,
) -> Result<Inbound, String> {
    Ok(match hub.deliveries().plan(main, request, *is_best_effort).await? {
        Some((route, delivery)) => Inbound { reply: InboundReply::new(route, Some(delivery)), ..inbound },
        None => inbound,
    })
}

/// Builds the prompt of an isolated job.
pub(super) fn prompt(job: &CronJob, turn: &AgentTurn, now: u64, zone: &TimeZone) -> String {
    let CronJob { id, name, .. } = job;
    format!("[cron:{id} {name}] {}\n{}", turn.message.trim(), clock_line(now, zone))
}

/// Result of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ScheduledResult {
    /// Its reply, or the error.
    pub(super) reply: Result<String, String>,
    /// Parsed answer, if it was a heartbeat that has just succeeded.
    pub(super) heartbeat: Option<HeartbeatAnswer>,
    /// Transcript, if the run started.
    pub(super) session: Option<String>,
    /// True if it had already ended before it was submitted.
    pub(super) had_ended: bool,
}

impl ScheduledResult {
    pub(super) fn failed(error: String) -> Self {
        Self { reply: Err(error), heartbeat: None, session: None, had_ended: false }
    }
}

/// Submits a run and waits for its end; `None` if the process shuts down first, and the next one submits it again.
pub(super) async fn run(hub: &Hub, inbound: Inbound) -> Option<ScheduledResult> {
    let (run, key) = (inbound.id.run.clone(), inbound.session.key.clone());
    let tape = match hub.submit(inbound).await {
        Ok(accepted) => match accepted.outcome {
            SubmitOutcome::New(tape) | SubmitOutcome::InFlight(tape) => tape,
            SubmitOutcome::Finished(report) => return Some(ScheduledResult { had_ended: true, ..result_of(&report) }),
        },
        Err(SubmitError::Stopping) => return None,
        Err(
            error @ (SubmitError::Conflict(_)
            | SubmitError::Blocked
            | SubmitError::SessionChanged
            | SubmitError::Overloaded
            | SubmitError::Store(_)
            | SubmitError::Held(_)),
        ) => return Some(ScheduledResult::failed(error.to_string())),
    };
    match Subscriber::new(tape).end().await {
        TapeState::Ended(end) => {
            let result = result_of(&RunReport::of(&run, &key, &end));
            Some(ScheduledResult { heartbeat: end.heartbeat.clone(), ..result })
        }
        // A run that is interrupted by the shutdown continues at the next start.
        TapeState::Broken(_) if hub.lifecycle().is_draining() => None,
        TapeState::Broken(why) => Some(ScheduledResult::failed(why)),
        TapeState::Rejected | TapeState::Queued | TapeState::Running => None,
    }
}

fn result_of(report: &RunReport) -> ScheduledResult {
    let result_json = report.result(Generation::Four);
    let session = result_json["meta"]["agentMeta"]["sessionId"].as_str().map(str::to_owned);
    let reply = match report.outcome().error() {
        None => Ok(report.last_answer().unwrap_or_default().to_owned()),
        Some(error) => Err(error.to_owned()),
    };
    ScheduledResult { reply, heartbeat: None, session, had_ended: false }
}

/// Shortens an answer.
pub(super) fn summary(answer: &str) -> Value {
    let answer = answer.trim();
    match answer.char_indices().nth(SUMMARY) {
        None => answer.into(),
        Some((end, _)) => format!("{}…", &answer[..end]).into(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::job::JobPayload;

    #[test]
    fn the_prompt_of_a_job_has_its_name_and_the_time() {
        let job: CronJob = serde_json::from_value(json!({
            "id": "j1", "name": "Daily look", "schedule": {"kind": "every", "everyMs": 5}, "sessionTarget": "isolated",
            "payload": {"kind": "agentTurn", "message": " look\nround "},
        }))
        .unwrap();
        let JobPayload::AgentTurn(turn) = &job.payload else { panic!("{job:?}") };
        let zone = TimeZone::get("Europe/Berlin").unwrap();
        assert_eq!(
            prompt(&job, turn, 1_794_700_800_000, &zone),
            "[cron:j1 Daily look] look\nround\nCurrent time: Sunday, 2026-11-15 01:00 +01:00 (Europe/Berlin)"
        );
    }

    #[test]
    fn a_long_answer_is_truncated_in_the_run_history() {
        assert_eq!(summary(" short "), json!("short"));
        assert_eq!(summary(&"ä".repeat(SUMMARY + 1)), json!(format!("{}…", "ä".repeat(SUMMARY))));
    }
}
