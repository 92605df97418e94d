//! Failures of one hook or plugin: log rate limiting and detection of frequent failures. Pure.

use std::{collections::VecDeque, time::Duration};

use tokio::time::Instant;

/// Minimum interval between two logged failures; those in between are counted only.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Number of failures within [`LOG_INTERVAL`] that is reported as an outage.
const FREQUENT: usize = 5;

/// Maximum number of failures remembered.
const MAX_KEPT: usize = 1000;

/// Maximum length of the last error in characters.
const MAX_ERROR_CHARS: usize = 300;

/// Recent failures of one hook or plugin.
#[derive(Debug, Clone, Default)]
pub struct FailureLog {
    recent: VecDeque<Instant>,
    logged_at: Option<Instant>,
    suppressed: usize,
    last: String,
}

/// Failures that are frequent enough to report to an operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrequentFailures {
    /// Name of the hook or plugin.
    pub name: String,
    /// Number of failures within the last minute.
    pub count: usize,
    /// The last error.
    pub last: String,
}

impl std::fmt::Display for FrequentFailures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { count, last, .. } = self;
        write!(f, "failed {count} times within the last minute; last error: {last}")
    }
}

impl FailureLog {
    /// Records a failure. `Some` if it is to be logged, with the number of failures suppressed since the last logged
    /// one.
    pub fn record(&mut self, now: Instant, error: &str) -> Option<usize> {
        self.forget_old(now);
        if self.recent.len() == MAX_KEPT {
            self.recent.pop_front();
        }
        self.recent.push_back(now);
        let one_line = error.split_whitespace().collect::<Vec<_>>().join(" ");
        self.last = one_line.chars().take(MAX_ERROR_CHARS).collect();
        if self.logged_at.is_some_and(|at| now.duration_since(at) < LOG_INTERVAL) {
            self.suppressed += 1;
            return None;
        }
        self.logged_at = Some(now);
        Some(std::mem::take(&mut self.suppressed))
    }

    /// Returns the failures within the last minute, if they are frequent.
    pub fn frequent(&mut self, name: &str, now: Instant) -> Option<FrequentFailures> {
        self.forget_old(now);
        let count = self.recent.len();
        (count >= FREQUENT).then(|| FrequentFailures { name: name.to_owned(), count, last: self.last.clone() })
    }

    fn forget_old(&mut self, now: Instant) {
        self.recent.retain(|at| now.duration_since(*at) < LOG_INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_failure_is_logged_and_then_one_count_per_minute() {
        let start = Instant::now();
        let mut log = FailureLog::default();
        let lines: Vec<(u64, usize)> = (0..360)
            .filter_map(|half_second| {
                let count = log.record(start + Duration::from_millis(half_second * 500), "boom")?;
                Some((half_second / 2, count))
            })
            .collect();
        assert_eq!(lines, [(0, 0), (60, 119), (120, 119)]);
    }

    #[test]
    fn many_failures_are_reported_until_they_are_a_minute_old() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut log = FailureLog::default();
        for second in 0..4 {
            log.record(at(second), "boom\n  at x");
        }
        assert_eq!(log.frequent("noisy", at(4)), None);
        log.record(at(4), "boom\n  at x");
        let report = log.frequent("noisy", at(5)).unwrap();
        assert_eq!(report.to_string(), "failed 5 times within the last minute; last error: boom at x");
        assert_eq!(log.frequent("noisy", at(60)), None);
    }
}
