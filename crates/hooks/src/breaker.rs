//! Circuit breaker for hooks that time out.

use std::{collections::VecDeque, time::Duration};

use tokio::time::Instant;

/// Number of failures within [`WITHIN`] that opens the breaker.
const FAILURES: usize = 3;
/// Period over which failures are counted.
const WITHIN: Duration = Duration::from_secs(60);
/// Time the breaker stays open.
const REST: Duration = Duration::from_secs(60);

/// State of a circuit breaker.
#[derive(Debug, Default)]
pub(crate) struct Breaker {
    failures: VecDeque<Instant>,
    rests_until: Option<Instant>,
}

impl Breaker {
    /// Returns true if the hook must not be called.
    pub(crate) fn is_open(&mut self, now: Instant) -> bool {
        if self.rests_until.is_some_and(|until| until <= now) {
            // Half-open: the next failure opens it again.
            self.rests_until = None;
        }
        self.rests_until.is_some()
    }

    /// Records a failure; returns true if it opens the breaker.
    pub(crate) fn failed(&mut self, now: Instant) -> bool {
        self.failures.retain(|at| now.duration_since(*at) < WITHIN);
        self.failures.push_back(now);
        let is_enough = self.failures.len() >= FAILURES;
        if is_enough {
            self.failures.pop_front();
            self.rests_until = Some(now + REST);
        }
        is_enough
    }

    /// Records a success.
    pub(crate) fn succeeded(&mut self) {
        self.failures.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_failures_within_a_minute_give_a_minute_of_rest() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let mut breaker = Breaker::default();
        assert_eq!([breaker.failed(at(0)), breaker.failed(at(1)), breaker.failed(at(62))], [false, false, false]);
        assert!(!breaker.is_open(at(62)));
        assert_eq!([breaker.failed(at(63)), breaker.failed(at(64))], [false, true]);
        assert_eq!([breaker.is_open(at(65)), breaker.is_open(at(123)), breaker.is_open(at(124))], [true, true, false]);
        breaker.succeeded();
        assert!(!breaker.failed(at(125)));
    }
}
