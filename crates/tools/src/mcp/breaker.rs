//! Circuit breaker for a server that fails.

use std::time::Duration;

use tokio::time::Instant;

/// Cooldown after the second consecutive failure; each further failure doubles it.
const FIRST_COOLDOWN: Duration = Duration::from_secs(1);

/// Maximum cooldown.
const MAX_COOLDOWN: Duration = Duration::from_secs(5 * 60);

/// Counts consecutive failures.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ServerBreaker {
    failures: u32,
    cooldown_until: Option<Instant>,
}

impl ServerBreaker {
    /// Records a failure: the server did not start, exited, or did not answer. After the first failure there is no
    /// cooldown.
    pub(super) fn record_failure(&mut self, now: Instant) {
        self.failures = self.failures.saturating_add(1);
        let doublings = self.failures.checked_sub(2);
        let pause =
            doublings.map(|exponent| FIRST_COOLDOWN.saturating_mul(2_u32.saturating_pow(exponent)).min(MAX_COOLDOWN));
        self.cooldown_until = pause.map(|pause| now + pause);
    }

    /// Records a success and resets the breaker.
    pub(super) fn record_success(&mut self) {
        *self = Self::default();
    }

    /// Returns the end of the cooldown, if there is one.
    pub(super) fn cooldown_until(&self, now: Instant) -> Option<Instant> {
        self.cooldown_until.filter(|until| *until > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consecutive_failures_double_the_cooldown() {
        let now = Instant::now();
        let mut breaker = ServerBreaker::default();
        let pauses: Vec<u64> = (0..12)
            .map(|_| {
                breaker.record_failure(now);
                breaker.cooldown_until(now).map_or(0, |until| (until - now).as_secs())
            })
            .collect();
        assert_eq!(pauses, [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
        assert_eq!(breaker.cooldown_until(now + MAX_COOLDOWN), None);
        breaker.record_success();
        assert_eq!(breaker, ServerBreaker::default());
    }
}
