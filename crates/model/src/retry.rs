//! Retry budget of one run: decides when the same model is tried again.
//!
//! Nothing here sleeps or reads a clock. Times are milliseconds since the epoch, as in the whole failover code, because
//! cooldowns outlive the process.

use std::time::Duration;

use crate::error::{Error, ErrorKind};
use homard_stdx::SeededRng;

/// Default maximum retry time of a run whose sender waits for the reply.
pub const TOTAL: Duration = Duration::from_secs(60);

/// Maximum retry time of an unattended run.
pub const UNATTENDED_TOTAL: Duration = Duration::from_secs(300);

/// Retry limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryLimits {
    /// Maximum number of attempts that end in a rate limit without a success in between.
    pub rate_limits: u32,
    /// Maximum number of retries after other failures without a success in between.
    pub retries: u32,
    /// Maximum total time: a retry starts no later than this after the first failure, or after the start of the first
    /// attempt if the model sent nothing in it. An attempt in progress is not aborted.
    pub total: Duration,
    /// First backoff delay, half of it after a failed connection; each further delay doubles.
    pub initial_delay: Duration,
    /// Maximum backoff delay. A provider that asks for more is not retried.
    pub max_delay: Duration,
    /// Maximum delay while another candidate is ready. With the default first delay: three retries.
    pub max_delay_if_ready: Duration,
}

impl Default for RetryLimits {
    fn default() -> Self {
        Self {
            rate_limits: 10,
            retries: 8,
            total: TOTAL,
            initial_delay: Duration::from_secs(2),
            max_delay: Duration::from_secs(60),
            max_delay_if_ready: Duration::from_secs(8),
        }
    }
}

/// A delay before the same request is retried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryDelay {
    /// Duration of the delay.
    pub delay: Duration,
    /// Number of the next attempt of this candidate: 2 after the first failure.
    pub attempt: u32,
    /// Maximum number of attempts, if the candidate keeps failing at once.
    pub max_attempts: u32,
}

/// Attempts and time spent on a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetrySpent {
    /// Number of attempts.
    pub attempts: u32,
    /// Total time.
    pub time: Duration,
}

/// Maximum number of consecutive retries for a server that cannot be reached or sends malformed responses.
const MAX_BLIND_RETRIES: u32 = 2;

/// Returns the maximum number of consecutive retries after this failure. A server that is missing or speaks another
/// protocol is rarely fixed within a minute: the operator has to look.
fn max_consecutive_retries(error: &Error) -> u32 {
    match error.kind {
        ErrorKind::Connect | ErrorKind::Malformed => MAX_BLIND_RETRIES,
        ErrorKind::Timeout | ErrorKind::RateLimit | ErrorKind::Overloaded | ErrorKind::Server => u32::MAX,
        ErrorKind::Truncated | ErrorKind::Auth | ErrorKind::Billing | ErrorKind::Rejected => u32::MAX,
        ErrorKind::Overflow | ErrorKind::ContentFilter | ErrorKind::Misconfigured => u32::MAX,
    }
}

/// Whether another candidate could answer at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OtherCandidates {
    /// Yes: failover is better than a long delay.
    Ready,
    /// No, or only candidates in cooldown.
    None,
}

/// Remaining retry budget of one run.
#[derive(Debug, Clone)]
pub struct RetryBudget {
    limits: RetryLimits,
    /// Generator of the jitter.
    jitter: SeededRng,
    rate_limited: u32,
    retried: u32,
    /// Start of the period bounded by [`RetryLimits::total`].
    since: Option<u64>,
    /// Number of delays for the current candidate.
    streak: u32,
    /// Time of the first request to the current candidate; its first failure, if unknown.
    first_request_at: Option<u64>,
}

/// A failed request.
#[derive(Debug, Clone, Copy)]
pub struct FailedAttempt<'a> {
    /// Why it failed.
    pub error: &'a Error,
    /// Start of the failure, which is the time of the request if the candidate sent nothing at all.
    pub since: u64,
    /// End of the failure.
    pub now: u64,
}

impl RetryBudget {
    /// Creates a full budget. Runs with different seeds do not retry at the same moment.
    pub fn new(limits: RetryLimits, seed: u64) -> Self {
        Self {
            limits,
            jitter: SeededRng::new(seed),
            rate_limited: 0,
            retried: 0,
            since: None,
            streak: 0,
            first_request_at: None,
        }
    }

    /// Returns the delay before the same request is retried; `None` if it should not be.
    ///
    /// A delay is never shorter than the provider asks for and never ends at or after the deadline. Only called for
    /// transient failures; their classification is done elsewhere.
    pub fn wait(
        &mut self,
        FailedAttempt { error, since, now }: FailedAttempt<'_>,
        deadline: Option<u64>,
        others: OtherCandidates,
    ) -> Option<RetryDelay> {
        let max_delay = self.limits.max_delay;
        let is_rate_limit = error.kind == ErrorKind::RateLimit;
        if is_rate_limit {
            self.rate_limited = self.rate_limited.saturating_add(1);
        }
        self.first_request_at.get_or_insert(since);
        let start = *self.since.get_or_insert(since);
        let requested = error.retry_after.unwrap_or_default();
        let min_delay = self.backoff(error, self.streak).max(requested);
        let delay = min_delay.saturating_add(min_delay.mul_f64(self.jitter.fraction() / 4.0));
        let retry_at = now.saturating_add(homard_stdx::time::millis(delay));
        let has_budget = if is_rate_limit {
            self.rate_limited < self.limits.rate_limits
        } else {
            self.retried < self.limits.retries
        };
        let is_in_time = deadline.is_none_or(|deadline| retry_at < deadline)
            && Duration::from_millis(retry_at.saturating_sub(start)) <= self.limits.total;
        let is_worth_it = requested <= max_delay
            && min_delay <= self.max_acceptable_delay(error, others)
            && self.streak < max_consecutive_retries(error);
        if !is_worth_it || !has_budget || !is_in_time {
            return None;
        }
        let max_attempts = self.max_attempts(error, others);
        self.streak = self.streak.saturating_add(1);
        self.retried += u32::from(!is_rate_limit);
        Some(RetryDelay { delay, attempt: self.streak + 1, max_attempts: max_attempts.max(self.streak + 1) })
    }

    /// Returns the attempts and time spent on the current candidate, if it was tried more than once.
    pub fn spent(&self, now: u64) -> Option<RetrySpent> {
        let time = Duration::from_millis(now.saturating_sub(self.first_request_at?));
        (self.streak > 0).then_some(RetrySpent { attempts: self.streak + 1, time })
    }

    /// Records a failover: delays start with the first again. The budget is unchanged.
    pub fn switched(&mut self) {
        (self.streak, self.first_request_at) = (0, None);
    }

    /// Records an answer: the budget is full again.
    pub fn succeeded(&mut self) {
        *self = Self { jitter: self.jitter.clone(), ..Self::new(self.limits, 0) };
    }

    /// Returns the exponential backoff delay after `previous` earlier delays, without jitter.
    fn backoff(&self, error: &Error, previous: u32) -> Duration {
        // A refused connection fails at once: a user with a configuration error should not wait long.
        let first =
            if error.kind == ErrorKind::Connect { self.limits.initial_delay / 2 } else { self.limits.initial_delay };
        first.saturating_mul(2_u32.saturating_pow(previous)).min(self.limits.max_delay)
    }

    /// Returns the maximum acceptable delay.
    fn max_acceptable_delay(&self, error: &Error, others: OtherCandidates) -> Duration {
        match others {
            OtherCandidates::None => Duration::MAX,
            // A candidate that was silent for minutes may be silent again, and a rate limit without a retry delay
            // rarely ends within seconds.
            OtherCandidates::Ready if error.kind == ErrorKind::Timeout => Duration::ZERO,
            OtherCandidates::Ready if error.kind == ErrorKind::RateLimit && error.retry_after.is_none() => {
                Duration::ZERO
            }
            OtherCandidates::Ready => self.limits.max_delay_if_ready,
        }
    }

    /// Returns the maximum number of attempts of one candidate if it always fails this way and at once.
    fn max_attempts(&self, error: &Error, others: OtherCandidates) -> u32 {
        let RetryLimits { rate_limits, retries, total, .. } = self.limits;
        let retries = if error.kind == ErrorKind::RateLimit { rate_limits.saturating_sub(1) } else { retries };
        let (max_delay, requested) = (self.max_acceptable_delay(error, others), error.retry_after.unwrap_or_default());
        let mut sum = Duration::ZERO;
        let fits = |previous: &u32| {
            let delay = self.backoff(error, *previous).max(requested);
            sum = sum.saturating_add(delay);
            delay <= max_delay && sum <= total
        };
        1 + (0..retries.min(max_consecutive_retries(error))).take_while(fits).count() as u32
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TRANSIENT: [ErrorKind; 7] = [
        ErrorKind::RateLimit,
        ErrorKind::Connect,
        ErrorKind::Timeout,
        ErrorKind::Overloaded,
        ErrorKind::Server,
        ErrorKind::Malformed,
        ErrorKind::Truncated,
    ];

    fn unattended() -> RetryLimits {
        RetryLimits { total: UNATTENDED_TOTAL, ..RetryLimits::default() }
    }

    fn error(kind: ErrorKind, retry_after: Option<u64>) -> Error {
        Error { retry_after: retry_after.map(Duration::from_secs), ..Error::new(kind, "no") }
    }

    /// Returns the delays in whole seconds, without jitter, for a model that always fails this way and at once.
    fn delays(error: &Error, others: OtherCandidates) -> Vec<u64> {
        let (mut retry, mut now) = (RetryBudget::new(RetryLimits::default(), 7), 0);
        let mut delays = Vec::new();
        for _ in 0..20 {
            let Some(RetryDelay { delay, .. }) = retry.wait(attempt(error, now, now), None, others) else {
                break;
            };
            now += delay.as_millis() as u64;
            // Jitter adds at most a quarter, and every step doubles: rounding down to a power of two yields the step.
            let seconds = delay.as_secs_f64();
            delays.push(if seconds >= 60.0 { 60 } else { 1 << seconds.log2() as u32 });
        }
        delays
    }

    fn attempt(error: &Error, since: u64, now: u64) -> FailedAttempt<'_> {
        FailedAttempt { error, since, now }
    }

    #[test]
    fn delays_double_until_the_budget_is_spent() {
        assert_eq!(delays(&error(ErrorKind::RateLimit, None), OtherCandidates::None), [2, 4, 8, 16]);
        assert_eq!(delays(&error(ErrorKind::Server, None), OtherCandidates::None), [2, 4, 8, 16]);
        assert_eq!(delays(&error(ErrorKind::Connect, None), OtherCandidates::None), [1, 2]);
    }

    #[test]
    fn delays_are_short_while_another_candidate_is_ready() {
        const NONE: [u64; 0] = [];
        assert_eq!(delays(&error(ErrorKind::Overloaded, None), OtherCandidates::Ready), [2, 4, 8]);
        assert_eq!(delays(&error(ErrorKind::Overloaded, Some(9)), OtherCandidates::Ready), NONE);
        assert_eq!(delays(&error(ErrorKind::RateLimit, None), OtherCandidates::Ready), NONE);
        assert_eq!(delays(&error(ErrorKind::RateLimit, Some(1)), OtherCandidates::Ready), [2, 4, 8]);
        assert_eq!(delays(&error(ErrorKind::Timeout, None), OtherCandidates::Ready), NONE);
    }

    #[test]
    fn a_requested_delay_over_a_minute_is_not_retried() {
        let mut retry = RetryBudget::new(unattended(), 0);
        assert_eq!(
            retry.wait(attempt(&error(ErrorKind::RateLimit, Some(61)), 0, 0), None, OtherCandidates::None),
            None
        );
        assert!(
            retry.wait(attempt(&error(ErrorKind::RateLimit, Some(60)), 0, 0), None, OtherCandidates::None).is_some()
        );
    }

    #[test]
    fn at_most_eight_immediate_failures_are_retried_before_a_success() {
        let mut retry = RetryBudget::new(RetryLimits { max_delay: Duration::from_secs(5), ..unattended() }, 1);
        let server = error(ErrorKind::Server, None);
        // Every request is sent and fails at time 0, so only the number of retries is limited, not their total time.
        let failure = attempt(&server, 0, 0);
        let retries = (0..20).filter(|_| retry.wait(failure, None, OtherCandidates::None).is_some()).count();
        assert_eq!(retries, 8);
        retry.succeeded();
        assert!(retry.wait(failure, None, OtherCandidates::None).is_some());
    }

    #[test]
    fn a_model_that_hangs_is_retried_only_in_unattended_runs() {
        let timeout = error(ErrorKind::Timeout, None);
        assert_eq!(
            RetryBudget::new(RetryLimits::default(), 1).wait(
                attempt(&timeout, 0, 120_000),
                None,
                OtherCandidates::None
            ),
            None
        );
        let mut retry = RetryBudget::new(unattended(), 1);
        assert!(retry.wait(attempt(&timeout, 0, 120_000), None, OtherCandidates::None).is_some());
        assert!(retry.wait(attempt(&timeout, 122_000, 242_000), None, OtherCandidates::None).is_some());
        assert_eq!(retry.wait(attempt(&timeout, 246_000, 366_000), None, OtherCandidates::None), None);
        assert_eq!(retry.spent(366_000), Some(RetrySpent { attempts: 3, time: Duration::from_secs(366) }));
    }

    #[test]
    fn a_delay_has_the_attempt_number_and_the_maximum() {
        let counted = |kind, retry_after, others| {
            let mut retry = RetryBudget::new(RetryLimits::default(), 3);
            let mut now = 0;
            let mut counted = Vec::new();
            while let Some(wait) = retry.wait(attempt(&error(kind, retry_after), now, now), None, others) {
                now += wait.delay.as_millis() as u64;
                counted.push((wait.attempt, wait.max_attempts));
            }
            counted
        };
        assert_eq!(counted(ErrorKind::Overloaded, None, OtherCandidates::None), [(2, 5), (3, 5), (4, 5), (5, 5)]);
        assert_eq!(counted(ErrorKind::Overloaded, None, OtherCandidates::Ready), [(2, 4), (3, 4), (4, 4)]);
        assert_eq!(counted(ErrorKind::Connect, None, OtherCandidates::None), [(2, 3), (3, 3)]);
        assert_eq!(counted(ErrorKind::RateLimit, Some(20), OtherCandidates::None), [(2, 4), (3, 4)]);
    }

    #[test]
    fn different_seeds_give_different_delays() {
        let wait = |seed| {
            let (since, now) = (0, 0);
            let mut budget = RetryBudget::new(RetryLimits::default(), seed);
            let delay = budget.wait(attempt(&error(ErrorKind::Server, None), since, now), None, OtherCandidates::None);
            delay.unwrap().delay
        };
        let delays: std::collections::BTreeSet<_> = (0..50).map(wait).collect();
        assert_eq!(delays.len(), 50);
        assert_eq!(wait(3), wait(3));
    }

    #[derive(Debug, Clone)]
    struct Failure {
        kind: ErrorKind,
        retry_after: Option<u64>,
        elapsed: u64,
        is_switched: bool,
        others: OtherCandidates,
    }

    fn failure() -> impl Strategy<Value = Failure> {
        let others = prop_oneof![Just(OtherCandidates::Ready), Just(OtherCandidates::None)];
        (
            proptest::sample::select(&TRANSIENT[..]),
            proptest::option::of(0..100_u64),
            0..20_000_u64,
            any::<bool>(),
            others,
        )
            .prop_map(|(kind, retry_after, elapsed, is_switched, others)| Failure {
                kind,
                retry_after,
                elapsed,
                is_switched,
                others,
            })
    }

    proptest! {
        #[test]
        fn retries_stay_within_the_budget_and_the_deadline(
            failures in proptest::collection::vec(failure(), 0..200),
            seed in any::<u64>(),
            deadline in proptest::option::of(0..600_000_u64),
            total in 0..400_u64,
        ) {
            let limits = RetryLimits { total: Duration::from_secs(total), ..RetryLimits::default() };
            let (mut retry, mut now) = (RetryBudget::new(limits, seed), 0);
            let (mut rate_limited, mut other_retries, mut first) = (0, 0, None);
            for failure in failures {
                let started = now;
                now += failure.elapsed;
                let error = error(failure.kind, failure.retry_after);
                first.get_or_insert(started);
                match retry.wait(attempt(&error, started, now), deadline, failure.others) {
                    Some(RetryDelay { delay, attempt, max_attempts: max }) => {
                        now += delay.as_millis() as u64;
                        prop_assert!(delay >= error.retry_after.unwrap_or_default().max(limits.initial_delay / 2));
                        prop_assert!(delay <= limits.max_delay.mul_f64(1.25));
                        prop_assert!(deadline.is_none_or(|deadline| now < deadline));
                        prop_assert!(now - first.unwrap_or(now) <= total * 1_000);
                        prop_assert!(attempt > 1 && attempt <= max);
                        if failure.kind == ErrorKind::RateLimit { rate_limited += 1 } else { other_retries += 1 }
                    }
                    None => if failure.is_switched { retry.switched() },
                }
            }
            prop_assert!(rate_limited < 10 && other_retries <= 8, "{rate_limited} {other_retries}");
        }
    }
}
