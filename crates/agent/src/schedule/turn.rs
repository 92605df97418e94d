//! A scheduled run: its submission and its result.

use std::time::Duration;

use homard_proto::{Generation, RunId, SessionKey, message::User};
use jiff::{Timestamp, tz::TimeZone};
use serde_json::Value;

use super::{
    address::Address,
    job::{AgentTurn, Job},
};
use crate::{
    command::Command,
    event::HeartbeatAnswer,
    hub::{Disposition, Hub, Inbound, SubmitError},
    intake,
    lane::slots::Class,
    tape::{Follower, State},
    wire::Reported,
};

/// Principal of the schedule.
pub(crate) const SCHEDULE: &str = "schedule";
/// Maximum time limit of a run, in seconds: a year.
const MAX_SECONDS: f64 = 365.0 * 24.0 * 3600.0;
/// Maximum characters of an answer in the run history of a job.
const SUMMARY: usize = 2_000;

/// Parameters of a scheduled run.
#[derive(Debug)]
pub(super) struct Ask {
    pub(super) run: RunId,
    pub(super) key: SessionKey,
    pub(super) class: Class,
    pub(super) text: String,
}

impl Ask {
    /// Builds the message for the hub. The run id is its idempotency key, so a restart can submit it again.
    pub(super) fn inbound(self, now: u64) -> Inbound {
        let asked = (SCHEDULE, self.class.name());
        let plain = Inbound::plain(self.run, asked, self.key, User::text(self.text, now));
        Inbound { class: self.class, is_literal: false, ..plain }
    }
}

/// Builds the message for a slot of an isolated job, which always starts a new transcript.
pub(super) fn isolated(ask: Ask, job: &Job, turn: &AgentTurn, now: u64) -> Inbound {
    let seconds = turn.timeout_seconds.filter(|seconds| *seconds > 0.0);
    let command = Some(Command::BeginWith(ask.text.clone()));
    Inbound {
        timeout: seconds.map(|seconds| Duration::from_secs_f64(seconds.min(MAX_SECONDS))),
        thinking: turn.thinking.as_deref().and_then(intake::thinking).map(str::to_owned),
        label: Some(format!("Cron: {}", job.name)),
        command,
        ..ask.inbound(now)
    }
}

/// Adds the destination of the answer; an error says why it cannot be delivered. Missing values are taken from the
/// last route of the main session, because a job's own session has none.
pub(super) async fn addressed(
    hub: &Hub,
    inbound: Inbound,
    Address { wish, is_best_effort }: &Address,
    main: &SessionKey,
) -> Result<Inbound, String> {
    Ok(match hub.plan_post(main, wish, *is_best_effort).await? {
        Some((route, post)) => Inbound { route, post: Some(post), ..inbound },
        None => inbound,
    })
}

/// Builds the prompt of an isolated job.
pub(super) fn prompt(job: &Job, turn: &AgentTurn, now: u64, zone: &TimeZone) -> String {
    let Job { id, name, .. } = job;
    format!("[cron:{id} {name}] {}\n{}", turn.message.trim(), clock_line(now, zone))
}

/// Formats the line with the current time.
pub(crate) fn clock_line(now: u64, zone: &TimeZone) -> String {
    let time = i64::try_from(now).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok()).unwrap_or(Timestamp::MAX);
    let place = zone.iana_name().map(|name| format!(" ({name})")).unwrap_or_default();
    format!("Current time: {}{place}", time.to_zoned(zone.clone()).strftime("%A, %Y-%m-%d %H:%M %:z"))
}

/// Result of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Came {
    /// Its reply, or the error.
    pub(super) said: Result<String, String>,
    /// Parsed answer, if it was a heartbeat that has just succeeded.
    pub(super) heartbeat: Option<HeartbeatAnswer>,
    /// Transcript, if the run started.
    pub(super) session: Option<String>,
    /// True if it had already ended before it was submitted.
    pub(super) is_old: bool,
}

impl Came {
    pub(super) fn failed(why: String) -> Self {
        Self { said: Err(why), heartbeat: None, session: None, is_old: false }
    }
}

/// Submits a run and waits for its end; `None` if the process shuts down first, and the next one submits it again.
pub(super) async fn run(hub: &Hub, inbound: Inbound) -> Option<Came> {
    let (run, key) = (inbound.run.clone(), inbound.key.clone());
    let tape = match hub.submit(inbound).await {
        Ok(accepted) => match accepted.disposition {
            Disposition::New(tape) | Disposition::InFlight(tape) => tape,
            Disposition::Finished(report) => return Some(Came { is_old: true, ..came(&report) }),
        },
        Err(SubmitError::Stopping) => return None,
        Err(
            error @ (SubmitError::Conflict(_)
            | SubmitError::Blocked
            | SubmitError::SessionChanged
            | SubmitError::Overloaded
            | SubmitError::Store(_)
            | SubmitError::Held(_)),
        ) => return Some(Came::failed(error.to_string())),
    };
    match Follower::new(tape).end().await {
        State::Ended(end) => {
            let came = came(&Reported::of(&run, &key, &end));
            Some(Came { heartbeat: end.heartbeat.clone(), ..came })
        }
        // A run that is interrupted by the shutdown continues at the next start.
        State::Broken(_) if hub.is_draining() => None,
        State::Broken(why) => Some(Came::failed(why)),
        State::Refused | State::Queued | State::Running => None,
    }
}

fn came(report: &Reported) -> Came {
    let facts = report.result(Generation::Four);
    let session = facts["meta"]["agentMeta"]["sessionId"].as_str().map(str::to_owned);
    let said = match report.outcome().error() {
        None => Ok(report.last_words().unwrap_or_default().to_owned()),
        Some(why) => Err(why.to_owned()),
    };
    Came { said, heartbeat: None, session, is_old: false }
}

/// Shortens an answer.
pub(super) fn summary(said: &str) -> Value {
    let said = said.trim();
    match said.char_indices().nth(SUMMARY) {
        None => said.into(),
        Some((at, _)) => format!("{}…", &said[..at]).into(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schedule::job::Payload;

    #[test]
    fn a_job_is_asked_with_its_name_and_the_time() {
        let job: Job = serde_json::from_value(json!({
            "id": "j1", "name": "Daily look", "schedule": {"kind": "every", "everyMs": 5}, "sessionTarget": "isolated",
            "payload": {"kind": "agentTurn", "message": " look\nround "},
        }))
        .unwrap();
        let Payload::AgentTurn(turn) = &job.payload else { panic!("{job:?}") };
        let zone = TimeZone::get("Europe/Berlin").unwrap();
        assert_eq!(
            prompt(&job, turn, 1_794_700_800_000, &zone),
            "[cron:j1 Daily look] look\nround\nCurrent time: Sunday, 2026-11-15 01:00 +01:00 (Europe/Berlin)"
        );
    }

    #[test]
    fn a_long_answer_is_cut_in_the_story() {
        assert_eq!(summary(" short "), json!("short"));
        assert_eq!(summary(&"ä".repeat(SUMMARY + 1)), json!(format!("{}…", "ä".repeat(SUMMARY))));
    }
}
