//! Failures of one hook or plugin: which of them are logged, and whether there are many. Pure.

use std::{collections::VecDeque, time::Duration};

use tokio::time::Instant;

/// After a failure was logged, the next ones are only counted for this long.
const PERIOD: Duration = Duration::from_secs(60);

/// This many failures within the period are reported as an outage.
const MANY: usize = 5;

/// How many failures are remembered, at most.
const KEPT: usize = 1000;

/// How many characters of the last error are kept.
const LONGEST: usize = 300;

/// The failures of one hook or plugin.
#[derive(Debug, Clone, Default)]
pub struct FailureLog {
    recent: VecDeque<Instant>,
    logged_at: Option<Instant>,
    suppressed: usize,
    last: String,
}

/// Failures that are so many that an operator should see them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrequentFailures {
    /// What fails: a hook or a plugin.
    pub name: String,
    /// How often it failed within the last minute.
    pub count: usize,
    /// The last error.
    pub last: String,
}

impl std::fmt::Display for FrequentFailures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { count, last, .. } = self;
        write!(f, "it failed {count} times within the last minute; the last error: {last}")
    }
}

impl FailureLog {
    /// Notes a failure. `Some` if it is to be logged: with the number of those that were not since the last line.
    pub fn note(&mut self, now: Instant, error: &str) -> Option<usize> {
        self.forget_old(now);
        if self.recent.len() == KEPT {
            self.recent.pop_front();
        }
        self.recent.push_back(now);
        let words = error.split_whitespace().collect::<Vec<_>>().join(" ");
        self.last = words.chars().take(LONGEST).collect();
        if self.logged_at.is_some_and(|at| now.duration_since(at) < PERIOD) {
            self.suppressed += 1;
            return None;
        }
        self.logged_at = Some(now);
        Some(std::mem::take(&mut self.suppressed))
    }

    /// The failures within the last minute, if there are many.
    pub fn frequent(&mut self, name: &str, now: Instant) -> Option<FrequentFailures> {
        self.forget_old(now);
        let count = self.recent.len();
        (count >= MANY).then(|| FrequentFailures { name: name.to_owned(), count, last: self.last.clone() })
    }

    fn forget_old(&mut self, now: Instant) {
        self.recent.retain(|at| now.duration_since(*at) < PERIOD);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_failure_is_logged_and_then_a_count_a_minute() {
        let begin = Instant::now();
        let mut log = FailureLog::default();
        let lines: Vec<(u64, usize)> = (0..360)
            .filter_map(|half| {
                let count = log.note(begin + Duration::from_millis(half * 500), "boom")?;
                Some((half / 2, count))
            })
            .collect();
        assert_eq!(lines, [(0, 0), (60, 119), (120, 119)]);
    }

    #[test]
    fn many_failures_are_reported_until_they_are_a_minute_old() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let mut log = FailureLog::default();
        for second in 0..4 {
            log.note(at(second), "boom\n  at x");
        }
        assert_eq!(log.frequent("noisy", at(4)), None);
        log.note(at(4), "boom\n  at x");
        let told = log.frequent("noisy", at(5)).unwrap();
        assert_eq!(told.to_string(), "it failed 5 times within the last minute; the last error: boom at x");
        assert_eq!(log.frequent("noisy", at(60)), None);
    }
}
