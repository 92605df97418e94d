//! When the same model is asked again: the budget of one run.
//!
//! Nothing here sleeps or looks at a clock. Times are milliseconds since the epoch, as in everything around failover,
//! because cooldowns outlive the process.

use std::time::Duration;

use crate::error::{Error, ErrorKind};

/// How often and how long a run waits for a model that may answer a moment later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// How many attempts may end in a rate limit without a success between them.
    pub rate_limits: u32,
    /// How many retries other failures get without a success between them.
    pub retries: u32,
    /// How long after the first of those failures a retry may still begin.
    pub window: Duration,
    /// The first wait, half of it after a connection that failed; each further one is twice as long.
    pub first: Duration,
    /// The longest wait. A provider that asks for more is left alone.
    pub longest: Duration,
    /// The longest wait while somebody else could answer at once. With the usual first wait: three retries.
    pub patience: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            rate_limits: 10,
            retries: 8,
            window: Duration::from_secs(90),
            first: Duration::from_secs(2),
            longest: Duration::from_secs(60),
            patience: Duration::from_secs(8),
        }
    }
}

/// How often in a row a server is asked again that cannot be reached or makes no sense.
const BLIND: u32 = 2;

/// Whether somebody else could answer at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Others {
    /// Yes: a long wait is worse than another model.
    Ready,
    /// No, or only ones that failed lately.
    None,
}

/// What one run has left of its patience.
#[derive(Debug, Clone)]
pub struct Retry {
    limits: Limits,
    /// The state of the jitter.
    chance: u64,
    rate_limited: u32,
    retried: u32,
    /// The first failure of the window.
    since: Option<u64>,
    /// Waits for the candidate at hand.
    streak: u32,
}

impl Retry {
    /// A full budget. Runs with different seeds do not come back at the same moment.
    pub fn new(limits: Limits, seed: u64) -> Self {
        Self { limits, chance: seed, rate_limited: 0, retried: 0, since: None, streak: 0 }
    }

    /// How long to wait before the same question is asked again; `None` if it is not worth it.
    ///
    /// A wait is never shorter than the provider asks for and never ends at or after the deadline. What a failure means
    /// is decided elsewhere: this is only asked about one that may pass.
    pub fn wait(&mut self, error: &Error, now: u64, deadline: Option<u64>, others: Others) -> Option<Duration> {
        let Limits { longest, patience, .. } = self.limits;
        let is_rate_limit = error.kind == ErrorKind::RateLimit;
        if is_rate_limit {
            self.rate_limited = self.rate_limited.saturating_add(1);
        } else {
            self.since.get_or_insert(now);
        }
        // A server that refuses connections says so at once: a person who made a mistake should not wait for it.
        let first = if error.kind == ErrorKind::Connect { self.limits.first / 2 } else { self.limits.first };
        let backoff = first.saturating_mul(2_u32.saturating_pow(self.streak)).min(longest);
        let asked = error.retry_after.unwrap_or_default();
        let least = backoff.max(asked);
        let is_worth_it = match others {
            Others::None => true,
            // Whoever was silent for minutes may be so again, and a limit that names no end rarely ends in seconds.
            Others::Ready if error.kind == ErrorKind::Timeout => false,
            Others::Ready if is_rate_limit && error.retry_after.is_none() => false,
            Others::Ready => least <= patience,
        };
        let wait = least.saturating_add(least.mul_f64(self.roll() / 4.0));
        let wakes = now.saturating_add(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
        let has_budget = if is_rate_limit {
            self.rate_limited < self.limits.rate_limits
        } else {
            let begins = self.since.map_or(0, |since| wakes.saturating_sub(since));
            self.retried < self.limits.retries && Duration::from_millis(begins) <= self.limits.window
        };
        let is_in_time = deadline.is_none_or(|deadline| wakes < deadline);
        // A server that is not there, or is another one, is rarely right a minute later: somebody has to look.
        let is_hopeless = matches!(error.kind, ErrorKind::Connect | ErrorKind::Malformed) && self.streak >= BLIND;
        if asked > longest || is_hopeless || !is_worth_it || !has_budget || !is_in_time {
            return None;
        }
        self.streak = self.streak.saturating_add(1);
        self.retried += u32::from(!is_rate_limit);
        Some(wait)
    }

    /// Somebody else is asked now: waits begin with the first again. The budget stays what it is.
    pub fn switched(&mut self) {
        self.streak = 0;
    }

    /// The model answered: the budget is full again.
    pub fn succeeded(&mut self) {
        *self = Self::new(self.limits, self.chance);
    }

    /// The next number of the jitter, from 0 to 1 (SplitMix64).
    fn roll(&mut self) -> f64 {
        self.chance = self.chance.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.chance;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
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

    fn error(kind: ErrorKind, retry_after: Option<u64>) -> Error {
        Error { retry_after: retry_after.map(Duration::from_secs), ..Error::new(kind, "no") }
    }

    /// The waits in whole seconds, without their jitter, of a model that fails at once and always the same way.
    fn waits(error: &Error, others: Others) -> Vec<u64> {
        let (mut retry, mut now) = (Retry::new(Limits::default(), 7), 0);
        let mut waits = Vec::new();
        for _ in 0..20 {
            let Some(wait) = retry.wait(error, now, None, others) else { break };
            now += wait.as_millis() as u64;
            // The jitter adds at most a quarter, and every step is a doubling: the floor to a power of two is the step.
            let seconds = wait.as_secs_f64();
            waits.push(if seconds >= 60.0 { 60 } else { 1 << seconds.log2() as u32 });
        }
        waits
    }

    #[test]
    fn waits_double_until_the_budget_is_spent() {
        assert_eq!(waits(&error(ErrorKind::RateLimit, None), Others::None), [2, 4, 8, 16, 32, 60, 60, 60, 60]);
        assert_eq!(waits(&error(ErrorKind::Server, None), Others::None), [2, 4, 8, 16, 32]);
    }

    #[test]
    fn nobody_waits_long_while_another_is_ready() {
        const NONE: [u64; 0] = [];
        assert_eq!(waits(&error(ErrorKind::Overloaded, None), Others::Ready), [2, 4, 8]);
        assert_eq!(waits(&error(ErrorKind::Overloaded, Some(9)), Others::Ready), NONE);
        assert_eq!(waits(&error(ErrorKind::RateLimit, None), Others::Ready), NONE);
        assert_eq!(waits(&error(ErrorKind::RateLimit, Some(1)), Others::Ready), [2, 4, 8]);
        assert_eq!(waits(&error(ErrorKind::Timeout, None), Others::Ready), NONE);
    }

    #[test]
    fn a_wait_of_more_than_a_minute_is_not_slept() {
        let mut retry = Retry::new(Limits::default(), 0);
        assert_eq!(retry.wait(&error(ErrorKind::RateLimit, Some(61)), 0, None, Others::None), None);
        assert!(retry.wait(&error(ErrorKind::RateLimit, Some(60)), 0, None, Others::None).is_some());
    }

    #[test]
    fn eight_retries_fit_into_a_window_of_quick_failures() {
        let mut retry = Retry::new(Limits { longest: Duration::from_secs(5), ..Limits::default() }, 1);
        let server = error(ErrorKind::Server, None);
        let tries = (0..20).filter(|_| retry.wait(&server, 0, None, Others::None).is_some()).count();
        assert_eq!(tries, 8);
        retry.succeeded();
        assert!(retry.wait(&server, 0, None, Others::None).is_some());
    }

    #[test]
    fn a_model_that_hangs_is_asked_twice() {
        let (mut retry, timeout) = (Retry::new(Limits::default(), 1), error(ErrorKind::Timeout, None));
        assert!(retry.wait(&timeout, 120_000, None, Others::None).is_some());
        assert_eq!(retry.wait(&timeout, 242_000, None, Others::None), None);
    }

    #[test]
    fn runs_with_different_seeds_come_back_at_different_moments() {
        let wait = |seed| {
            Retry::new(Limits::default(), seed).wait(&error(ErrorKind::Server, None), 0, None, Others::None).unwrap()
        };
        let waits: std::collections::BTreeSet<_> = (0..50).map(wait).collect();
        assert_eq!(waits.len(), 50);
        assert_eq!(wait(3), wait(3));
    }

    #[derive(Debug, Clone)]
    struct Fall {
        kind: ErrorKind,
        retry_after: Option<u64>,
        took: u64,
        is_switched: bool,
        others: Others,
    }

    fn fall() -> impl Strategy<Value = Fall> {
        let others = prop_oneof![Just(Others::Ready), Just(Others::None)];
        (
            proptest::sample::select(&TRANSIENT[..]),
            proptest::option::of(0..100_u64),
            0..20_000_u64,
            any::<bool>(),
            others,
        )
            .prop_map(|(kind, retry_after, took, is_switched, others)| Fall {
                kind,
                retry_after,
                took,
                is_switched,
                others,
            })
    }

    proptest! {
        #[test]
        fn no_run_of_failures_gets_more_than_the_budget_or_sleeps_past_the_deadline(
            falls in proptest::collection::vec(fall(), 0..200),
            seed in any::<u64>(),
            deadline in proptest::option::of(0..600_000_u64),
        ) {
            let limits = Limits::default();
            let (mut retry, mut now) = (Retry::new(limits, seed), 0);
            let (mut limited, mut others, mut first) = (0, 0, None);
            for fall in falls {
                now += fall.took;
                let error = error(fall.kind, fall.retry_after);
                if fall.kind != ErrorKind::RateLimit {
                    first.get_or_insert(now);
                }
                match retry.wait(&error, now, deadline, fall.others) {
                    Some(wait) => {
                        now += wait.as_millis() as u64;
                        prop_assert!(wait >= error.retry_after.unwrap_or_default().max(limits.first / 2));
                        prop_assert!(wait <= limits.longest.mul_f64(1.25));
                        prop_assert!(deadline.is_none_or(|deadline| now < deadline));
                        if fall.kind == ErrorKind::RateLimit {
                            limited += 1;
                        } else {
                            others += 1;
                            prop_assert!(now - first.unwrap_or(now) <= 90_000);
                        }
                    }
                    None => if fall.is_switched { retry.switched() },
                }
            }
            prop_assert!(limited < 10 && others <= 8, "{limited} {others}");
        }
    }
}
