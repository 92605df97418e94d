//! Circuit breaker for hooks that time out.

use std::{collections::VecDeque, time::Duration};

use tokio::time::Instant;

/// Number of failures within [`FAILURE_WINDOW`] that opens the breaker.
const MAX_FAILURES: usize = 3;
/// Period over which failures are counted.
const FAILURE_WINDOW: Duration = Duration::from_secs(60);
/// Time the breaker stays open.
const OPEN_DURATION: Duration = Duration::from_secs(60);

/// State of a circuit breaker.
#[derive(Debug, Default)]
pub(crate) struct CircuitBreaker {
    failures: VecDeque<Instant>,
    open_until: Option<Instant>,
}

impl CircuitBreaker {
    /// Returns true if the hook must not be called.
    pub(crate) fn is_open(&mut self, now: Instant) -> bool {
        if self.open_until.is_some_and(|until| until <= now) {
            // Earlier failures no longer count, because the pause is as long as the window.
            self.open_until = None;
        }
        self.open_until.is_some()
    }

    /// Records a failure; returns true if it opens the breaker.
    pub(crate) fn record_failure(&mut self, now: Instant) -> bool {
        self.failures.retain(|at| now.duration_since(*at) < FAILURE_WINDOW);
        self.failures.push_back(now);
        let is_tripped = self.failures.len() >= MAX_FAILURES;
        if is_tripped {
            // Keeps the deque short: calls in flight may still fail while the breaker is open.
            self.failures.pop_front();
            self.open_until = Some(now + OPEN_DURATION);
        }
        is_tripped
    }

    /// Records a success.
    pub(crate) fn record_success(&mut self) {
        self.failures.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_failures_within_a_minute_give_a_minute_of_rest() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut breaker = CircuitBreaker::default();
        assert_eq!(
            [breaker.record_failure(at(0)), breaker.record_failure(at(1)), breaker.record_failure(at(62))],
            [false, false, false]
        );
        assert!(!breaker.is_open(at(62)));
        assert_eq!([breaker.record_failure(at(63)), breaker.record_failure(at(64))], [false, true]);
        assert_eq!([breaker.is_open(at(65)), breaker.is_open(at(123)), breaker.is_open(at(124))], [true, true, false]);
        breaker.record_success();
        assert!(!breaker.record_failure(at(125)));
    }
}
