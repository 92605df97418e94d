//! Failover: chooses the model for a run and decides what to do after each failure, until one answers or all candidates
//! have failed.
//!
//! A state machine driven by the agent loop, which requests an answer from [`Failover::candidate`] with
//! [`Failover::level`] and reports the outcome.
//!
//! | Failure | Same candidate | Then |
//! |---|---|---|
//! | no connection, overload, server error, malformed or truncated response | retry, within [`RetryLimits`] | next |
//! | rate limit, timeout | retry, within [`RetryLimits`]; rarely while another candidate is ready | next |
//! | 401, 403 | – | next; after 401 none with the same key |
//! | no credit | – | next; none with the same key |
//! | unknown model (404, 410), wrong address or API | – | next |
//! | reasoning level rejected, others offered | retry with an offered level, each once | end |
//! | context overflow | retry after compaction | bounded by the caller |
//! | any other invalid request, content filter | – | end: it would fail elsewhere too, or must not be circumvented |
//! | the user aborts the run | – | end; not reported to this module |
//!
//! A retry or failover is also possible after text was streamed; the caller discards that text first.

use std::{fmt, sync::Arc, time::Duration};

use crate::{
    candidates::{Candidate, Candidates, NO_CREDENTIAL, PreferredCredential},
    error::{Error, ErrorKind, failure_of},
    profile_health::{Blame, FailureReason, is_unknown_model},
    retry::{FailedAttempt, OtherCandidates, RetryBudget, RetryDelay, RetryLimits, RetrySpent},
    thinking::{self, ReasoningLevel},
};

/// True if a session cannot prefer this credential: none is needed, or it is not stored.
fn is_not_stored(profile: &str) -> bool {
    profile == NO_CREDENTIAL || ["none:", "env:", "config:", "missing:"].iter().any(|kind| profile.starts_with(kind))
}

/// Minimum idle timeout of a candidate, however many are left.
const MIN_IDLE: Duration = Duration::from_secs(5);

/// Maximum number of characters of one failure in the combined error.
const MAX_REASON_CHARS: usize = 300;

/// How the failover of one run retries and chooses candidates.
#[derive(Debug, Clone, Default)]
pub struct FailoverTerms {
    /// Credential that the session prefers.
    pub preferred: PreferredCredential,
    /// Requested reasoning level.
    pub level: ReasoningLevel,
    /// Deadline of the run in milliseconds since the epoch.
    pub deadline: Option<u64>,
    /// Retry limits.
    pub limits: RetryLimits,
    /// Jitter seed, different for each run, so that runs do not retry at the same moment.
    pub seed: u64,
}

/// What to do after a failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FailoverStep {
    /// Retry the same candidate after this delay.
    RetryAfter(RetryDelay),
    /// Retry the same candidate at once with this reasoning level.
    RetryWithLevel(ReasoningLevel),
    /// Try the new candidate at once; the notes contain the reason.
    Next,
    /// Compact the conversation, then retry the same candidate.
    Compact,
    /// No candidate is left; report this error.
    End(Error),
}

/// Why a candidate did not answer.
#[derive(Debug, Clone, PartialEq)]
pub struct CandidateNote {
    /// The candidate.
    pub candidate: Candidate,
    /// Whether it failed or was skipped.
    pub outcome: CandidateOutcome,
    /// Reason, by OpenClaw's names.
    pub reason: String,
    /// Reason, for people.
    pub why: String,
}

/// What happened to a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CandidateOutcome {
    /// It failed.
    Failed,
    /// It was not tried. A candidate in cooldown is still tried if all others fail.
    Skipped,
}

/// Failover state of a run.
#[derive(Debug)]
pub struct Failover {
    candidates: Candidates,
    terms: FailoverTerms,
    retry: RetryBudget,
    current: Candidate,
    /// Candidates not tried since the last answer, in chain order.
    untried: Vec<Candidate>,
    level: ReasoningLevel,
    tried: Vec<ReasoningLevel>,
    notes: Vec<CandidateNote>,
    /// Index of the first of `notes` that was made since a model last answered.
    notes_start: usize,
    /// When the current request was sent; `None` once something has arrived.
    requested_at: Option<u64>,
}

/// What to try after a failed model request.
enum Remedy {
    /// The same candidate again, after a delay.
    Again,
    /// The next candidate.
    Next,
    /// The same candidate with another reasoning level.
    Think,
    /// Compaction of the conversation.
    Compact,
    /// Nothing: the run fails.
    End,
}

impl Remedy {
    fn of(error: &Error) -> Self {
        match error.kind {
            ErrorKind::Connect | ErrorKind::Timeout | ErrorKind::RateLimit | ErrorKind::Overloaded => Self::Again,
            ErrorKind::Server | ErrorKind::Malformed | ErrorKind::Truncated => Self::Again,
            ErrorKind::Auth | ErrorKind::Billing | ErrorKind::Misconfigured => Self::Next,
            ErrorKind::Overflow => Self::Compact,
            ErrorKind::Rejected if is_unknown_model(error) => Self::Next,
            ErrorKind::Rejected => Self::Think,
            ErrorKind::ContentFilter => Self::End,
        }
    }
}

impl Failover {
    /// Chooses the first candidate. Candidates skipped because of a cooldown are recorded in the notes.
    pub fn begin(candidates: Candidates, terms: FailoverTerms, now: u64) -> Self {
        let untried = candidates.chain(&candidates.health.lock(), &terms.preferred);
        let mut failover = Self {
            retry: RetryBudget::new(terms.limits, terms.seed),
            current: candidates.first.clone(),
            untried,
            level: terms.level,
            tried: Vec::new(),
            notes: Vec::new(),
            notes_start: 0,
            requested_at: None,
            candidates,
            terms,
        };
        failover.advance(now);
        failover
    }

    /// Returns the current candidate.
    pub fn candidate(&self) -> &Candidate {
        &self.current
    }

    /// Returns all candidates that may be tried before one answers: the current one, then the others.
    pub fn candidates(&self) -> impl Iterator<Item = &Candidate> {
        std::iter::once(&self.current).chain(&self.untried)
    }

    /// Returns the current reasoning level.
    pub fn level(&self) -> ReasoningLevel {
        self.level
    }

    /// Returns which candidates did not answer so far, and why, oldest first. The list only grows.
    pub fn notes(&self) -> &[CandidateNote] {
        &self.notes
    }

    /// Returns the total retry time over all candidates before the run fails.
    pub fn retry_time(&self) -> Duration {
        self.terms.limits.total
    }

    /// Returns the idle timeout of the current candidate: its own, but at most its share of the remaining time, so that
    /// every candidate can be tried before the deadline.
    pub fn idle(&self, now: u64) -> Duration {
        let idle = self.current.model.spec().idle_timeout;
        // The last candidate has all the remaining time; only the run's deadline ends it.
        let Some(deadline) = self.terms.deadline.filter(|_| !self.untried.is_empty()) else { return idle };
        let share = deadline.saturating_sub(now) / (self.untried.len() as u64 + 1);
        idle.min(Duration::from_millis(share).max(MIN_IDLE))
    }

    /// Returns the credential that the session should prefer next time; `None` if a fallback answered, because a
    /// fallback applies to one run only.
    pub fn sticky(&self) -> Option<&Arc<str>> {
        let (first, current) = (self.candidates.first.model.spec(), self.current.model.spec());
        let is_first_choice = (&first.provider, &first.model) == (&current.provider, &current.model);
        is_first_choice.then_some(&self.current.profile).filter(|profile| !is_not_stored(profile))
    }

    /// Records a complete answer. The candidate stays current; those that failed may be tried again later in the run.
    pub fn succeeded(&mut self, now: u64) {
        let Candidate { profile, model, .. } = &self.current;
        self.candidates.health.change(|health| health.succeeded(profile, &model.spec().model, now));
        self.retry.succeeded();
        self.untried = self.candidates.chain(&self.candidates.health.lock(), &self.terms.preferred);
        self.untried.retain(|candidate| *candidate != self.current);
        self.notes_start = self.notes.len();
    }

    /// Records that the candidate was requested.
    pub fn requested(&mut self, now: u64) {
        self.requested_at = Some(now);
    }

    /// Records that the candidate produced output, so that it is no longer silent.
    pub fn responded(&mut self) {
        self.requested_at = None;
    }

    /// Records a failure of the candidate and returns the next step.
    pub fn failed(&mut self, error: &Error, now: u64) -> FailoverStep {
        match Remedy::of(error) {
            Remedy::Compact => FailoverStep::Compact,
            Remedy::Again => {
                let since = self.requested_at.take().unwrap_or(now);
                match self.retry.wait(FailedAttempt { error, since, now }, self.terms.deadline, self.others(now)) {
                    Some(wait) => FailoverStep::RetryAfter(wait),
                    None => self.next(&self.exhausted(error, now), now),
                }
            }
            Remedy::Next => self.next(error, now),
            Remedy::Think => {
                let supported = &self.current.model.spec().thinking;
                let mut offered = thinking::offered_levels(error).into_iter();
                match offered.find(|&level| !self.tried.contains(&level.clamp(supported))) {
                    Some(level) => {
                        self.think(level);
                        FailoverStep::RetryWithLevel(level)
                    }
                    None => FailoverStep::End(self.give_up(error, now)),
                }
            }
            Remedy::End => FailoverStep::End(self.give_up(error, now)),
        }
    }

    /// Skips the candidate without trying it, because it cannot handle the request. This is not held against it, and
    /// another candidate may succeed.
    pub fn skip_current(&mut self, error: &Error, now: u64) -> FailoverStep {
        self.skip(self.current.clone(), FailureReason::of(error).as_str().to_owned(), error.cause().to_owned());
        if self.advance(now) { FailoverStep::Next } else { FailoverStep::End(self.combined_error(error)) }
    }

    /// Records a failure after which no other candidate is tried, for example when compaction is not possible. Returns
    /// the error to report.
    pub fn give_up(&mut self, error: &Error, now: u64) -> Error {
        self.record_failure(error, now);
        self.combined_error(error)
    }

    /// Records that the run's deadline passed while the candidate was active: this counts as its failure.
    pub fn timed_out(&mut self, now: u64) {
        self.record_failure(&Error::new(ErrorKind::Timeout, "the run timed out"), now);
    }

    fn others(&self, now: u64) -> OtherCandidates {
        let health = self.candidates.health.lock();
        let is_ready = |candidate: &Candidate| self.terms.preferred.ready_at(candidate, &health, now) == 0;
        if self.untried.iter().any(is_ready) { OtherCandidates::Ready } else { OtherCandidates::None }
    }

    /// Returns the error of a candidate that is not retried any more, with the number of attempts, the time spent, and
    /// the wait requested by the provider if that was too long.
    fn exhausted(&self, error: &Error, now: u64) -> Error {
        let requested =
            error.retry_after.filter(|wait| *wait > self.terms.limits.total.min(self.terms.limits.max_delay));
        let requested = requested.map(|wait| format!("the provider asks to wait {} s", wait.as_secs()));
        let spent = self.retry.spent(now);
        let spent = spent.map(|RetrySpent { attempts, time }| format!("{attempts} attempts in {} s", time.as_secs()));
        let details: Vec<_> = spent.into_iter().chain(requested).collect();
        if details.is_empty() {
            return error.clone();
        }
        let cause = error.cause();
        let advice =
            if cause.len() < error.message.len() { format!("; {}", error.kind.advice()) } else { String::new() };
        Error { message: format!("{cause} ({}){advice}", details.join(", ")), ..error.clone() }
    }

    fn next(&mut self, error: &Error, now: u64) -> FailoverStep {
        self.record_failure(error, now);
        if self.terms.deadline.is_some_and(|deadline| deadline <= now) {
            for candidate in std::mem::take(&mut self.untried) {
                self.skip(
                    candidate,
                    FailureReason::Timeout.as_str().to_owned(),
                    "not tried, no time was left".to_owned(),
                );
            }
        }
        if self.advance(now) { FailoverStep::Next } else { FailoverStep::End(self.combined_error(error)) }
    }

    /// Records a failure against the credential or model at fault.
    fn record_failure(&mut self, error: &Error, now: u64) {
        let candidate = self.current.clone();
        let (profile, model) = (candidate.profile.clone(), candidate.model.clone());
        let reason = FailureReason::of(error).as_str().to_owned();
        self.candidates.health.change(|health| health.failed(&profile, &model.spec().model, error, now));
        let same_profile: Vec<_> = match Blame::of(error) {
            Blame::Profile => self.untried.extract_if(.., |other| other.profile == profile).collect(),
            Blame::Model | Blame::Request => Vec::new(),
        };
        let why = error.cause().to_owned();
        self.notes.push(CandidateNote { candidate, outcome: CandidateOutcome::Failed, reason: reason.clone(), why });
        for other in same_profile {
            self.skip(
                other,
                reason.clone(),
                format!("not tried, because a request with the credential {profile} just failed"),
            );
        }
    }

    /// Advances to the first candidate that is not in cooldown, else to the one whose cooldown ends first.
    fn advance(&mut self, now: u64) -> bool {
        let health = self.candidates.health.lock();
        let ready_at = |(_, candidate): &(usize, &Candidate)| self.terms.preferred.ready_at(candidate, &health, now);
        let Some((index, _)) = self.untried.iter().enumerate().min_by_key(ready_at) else { return false };
        let in_cooldown = |candidate: &Candidate| Some((candidate.clone(), candidate.cooldown(&health, now)?));
        let skipped: Vec<_> = self.untried[..index].iter().filter_map(in_cooldown).collect();
        drop(health);
        for (candidate, cooldown) in skipped {
            if !self.notes[self.notes_start..].iter().any(|note| note.candidate == candidate) {
                let why = format!("not tried, in cooldown for another {} s", (cooldown.until - now).div_ceil(1000));
                self.skip(candidate, cooldown.reason, why);
            }
        }
        self.current = self.untried.remove(index);
        self.retry.switched();
        self.tried.clear();
        self.think(self.terms.level);
        true
    }

    fn think(&mut self, level: ReasoningLevel) {
        self.level = level;
        self.tried.push(level.clamp(&self.current.model.spec().thinking));
    }

    fn skip(&mut self, candidate: Candidate, reason: String, why: String) {
        self.notes.push(CandidateNote { candidate, outcome: CandidateOutcome::Skipped, reason, why });
    }

    /// Combines the failures into one error: a single failure unchanged, else a list of candidates and reasons.
    fn combined_error(&self, last: &Error) -> Error {
        let notes = &self.notes[self.notes_start..];
        let is_latest = |(index, note): &(usize, &CandidateNote)| {
            !notes[index + 1..].iter().any(|later| later.candidate == note.candidate)
        };
        let lines: Vec<_> = notes.iter().enumerate().filter(is_latest).map(|(_, note)| note.to_string()).collect();
        if lines.len() < 2 {
            return last.clone();
        }
        let message =
            format!("no model answered: {}; try again later, or see `homard models status`", lines.join(" | "));
        Error { message, ..last.clone() }
    }
}

impl fmt::Display for CandidateNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why: String = self.why.trim_end_matches('.').chars().take(MAX_REASON_CHARS).collect();
        let failure = failure_of(&self.candidate.to_string(), &why);
        match self.reason.as_str() {
            reason if reason == FailureReason::Unknown.as_str() => write!(f, "{failure}"),
            reason => write!(f, "{failure} ({reason})"),
        }
    }
}

#[cfg(test)]
mod tests;
