//! Circuit breaker of a plugin, and the backoff of its restarts. Pure.

use std::{collections::VecDeque, time::Duration};

use tokio::time::Instant;

/// Number of failures within [`FAILURE_WINDOW`] that opens the breaker.
const MAX_FAILURES: usize = 3;
/// Period over which failures are counted.
const FAILURE_WINDOW: Duration = Duration::from_secs(60);
/// Time the breaker stays open.
const OPEN_DURATION: Duration = Duration::from_secs(60);

/// State of a plugin's circuit breaker.
#[derive(Debug, Default)]
pub(crate) struct PluginBreaker {
    failures: VecDeque<Instant>,
    open_until: Option<Instant>,
    /// Last instance of its process whose end was counted.
    last_counted_start: u64,
}

impl PluginBreaker {
    /// Time until the breaker closes, if it is open.
    pub(crate) fn open_for(&self, now: Instant) -> Option<Duration> {
        self.open_until.and_then(|until| until.checked_duration_since(now)).filter(|remaining| !remaining.is_zero())
    }

    /// Records a failure; returns true if it opens the breaker.
    pub(crate) fn record_failure(&mut self, now: Instant) -> bool {
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

    /// Records that the process ended during a call. The end of a process counts once, however many calls were pending:
    /// otherwise one crash under load would count as three failures.
    pub(crate) fn record_exit(&mut self, start: u64, now: Instant) -> bool {
        let is_counted = std::mem::replace(&mut self.last_counted_start, start) == start;
        !is_counted && self.record_failure(now)
    }

    /// Records a success.
    pub(crate) fn record_success(&mut self) {
        self.failures.clear();
    }
}

/// Backoff between restarts: increases each time, until the process has been up for a while.
#[derive(Debug, Clone)]
pub(crate) struct RestartBackoff {
    min: Duration,
    max: Duration,
    next: Duration,
}

impl RestartBackoff {
    pub(crate) fn new(min: Duration, max: Duration) -> Self {
        Self { min, max, next: min }
    }

    /// Returns the delay after a process was up for this long.
    pub(crate) fn after(&mut self, uptime: Duration) -> Duration {
        if uptime > self.max {
            self.next = self.min;
        }
        let wait = self.next;
        self.next = (wait * 2).min(self.max);
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_failures_within_a_minute_give_a_minute_of_rest() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut breaker = PluginBreaker::default();
        assert_eq!([0, 1, 62].map(|second| breaker.record_failure(at(second))), [false, false, false]);
        assert_eq!([63, 64].map(|second| breaker.record_failure(at(second))), [false, true]);
        assert_eq!(breaker.open_for(at(100)), Some(Duration::from_secs(24)));
        assert_eq!(breaker.open_for(at(124)), None);
        breaker.record_success();
        assert_eq!([125, 126, 127].map(|second| breaker.record_failure(at(second))), [false, false, true]);
    }

    #[test]
    fn the_exit_of_a_process_counts_once_regardless_of_open_calls() {
        let (mut breaker, now) = (PluginBreaker::default(), Instant::now());
        assert_eq!([1, 1, 1, 2, 2].map(|start| breaker.record_exit(start, now)), [false; 5]);
        assert!(breaker.record_exit(3, now));
    }

    #[test]
    fn the_backoff_doubles_up_to_its_maximum_and_is_reset_after_a_long_uptime() {
        let seconds = Duration::from_secs;
        let mut backoff = RestartBackoff::new(seconds(1), seconds(60));
        let delays: Vec<u64> = (0..8).map(|_| backoff.after(seconds(5)).as_secs()).collect();
        assert_eq!(delays, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(backoff.after(seconds(61)), seconds(1));
    }
}
