//! Circuit breaker: pauses what keeps failing. Pure.

use std::{collections::VecDeque, time::Duration};

use tokio::time::Instant;

/// Number of failures within [`FAILURE_WINDOW`] that opens the breaker.
const MAX_FAILURES: usize = 3;
/// Period over which failures are counted.
const FAILURE_WINDOW: Duration = Duration::from_secs(60);
/// Time the breaker stays open.
const OPEN_DURATION: Duration = Duration::from_secs(60);

/// State of a circuit breaker: three failures within a minute open it for a minute.
#[derive(Debug, Default)]
pub struct CircuitBreaker {
    failures: VecDeque<Instant>,
    open_until: Option<Instant>,
}

impl CircuitBreaker {
    /// Time until the breaker closes, if it is open.
    pub fn open_for(&self, now: Instant) -> Option<Duration> {
        self.open_until.and_then(|until| until.checked_duration_since(now)).filter(|remaining| !remaining.is_zero())
    }

    /// Records a failure; returns true if it opens the breaker.
    pub fn record_failure(&mut self, now: Instant) -> bool {
        self.failures.retain(|at| now.duration_since(*at) < FAILURE_WINDOW);
        self.failures.push_back(now);
        let is_enough = self.failures.len() >= MAX_FAILURES && self.open_for(now).is_none();
        if is_enough {
            // One is kept, so that two more failures open the breaker again.
            self.failures.drain(..MAX_FAILURES - 1);
            self.open_until = Some(now + OPEN_DURATION);
        }
        is_enough
    }

    /// Records a success.
    pub fn record_success(&mut self) {
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
        assert_eq!([0, 1, 62].map(|second| breaker.record_failure(at(second))), [false, false, false]);
        assert_eq!(breaker.open_for(at(62)), None);
        assert_eq!([63, 64].map(|second| breaker.record_failure(at(second))), [false, true]);
        assert_eq!(breaker.open_for(at(100)), Some(Duration::from_secs(24)));
        assert_eq!(breaker.open_for(at(124)), None);
        breaker.record_success();
        assert_eq!([125, 126, 127].map(|second| breaker.record_failure(at(second))), [false, false, true]);
    }
}
