//! Circuit breaker of a plugin, and the backoff of its restarts. Pure.

use std::time::Duration;

use homard_stdx::CircuitBreaker;
use tokio::time::Instant;

/// State of a plugin's circuit breaker.
#[derive(Debug, Default)]
pub(crate) struct PluginBreaker {
    pub(crate) circuit: CircuitBreaker,
    /// Last instance of its process whose end was counted.
    last_counted_start: u64,
}

impl PluginBreaker {
    /// Records that the process ended during a call. The end of a process counts once, however many calls were pending:
    /// otherwise one crash under load would count as three failures.
    pub(crate) fn record_exit(&mut self, start: u64, now: Instant) -> bool {
        let is_counted = std::mem::replace(&mut self.last_counted_start, start) == start;
        !is_counted && self.circuit.record_failure(now)
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
