//! Remarks about a turn from which nothing has come for a while, so that a long wait is not mistaken for a hang.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::render;

/// Time without an event before the first remark. The pause doubles with every remark.
const FIRST: Duration = Duration::from_secs(15);

/// When the next remark is due.
#[derive(Debug)]
pub(super) struct WaitNotes {
    started_at: Instant,
    silent_since: Instant,
    pause: Duration,
    /// Time limit of the turn; zero for none.
    limit: Duration,
}

impl WaitNotes {
    /// Starts the clock of a turn with this time limit.
    pub(super) fn new(limit: Duration) -> Self {
        let now = Instant::now();
        Self { started_at: now, silent_since: now, pause: FIRST, limit }
    }

    /// Something came from the turn.
    pub(super) fn heard(&mut self) {
        (self.silent_since, self.pause) = (Instant::now(), FIRST);
    }

    /// Waits until a remark is due, and returns it. Cancel safe.
    pub(super) async fn next(&mut self) -> String {
        sleep_until(self.silent_since + self.pause).await;
        self.pause *= 2;
        let duration = |since: Instant| render::duration(Duration::from_secs(since.elapsed().as_secs()));
        let silent = duration(self.silent_since);
        let limit = match self.limit {
            Duration::ZERO => "has no time limit".to_owned(),
            limit => format!("ends after {} at the latest, see --timeout", render::duration(limit)),
        };
        format!("(nothing for {silent}; the run has taken {} and {limit})", duration(self.started_at))
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn remarks_become_rarer_until_something_comes() {
        let mut notes = WaitNotes::new(Duration::from_secs(600));
        let expected = "(nothing for 15s; the run has taken 15s and ends after 10m at the latest, see --timeout)";
        assert_eq!(notes.next().await, expected);
        let expected = "(nothing for 30s; the run has taken 30s and ends after 10m at the latest, see --timeout)";
        assert_eq!(notes.next().await, expected);
        advance(Duration::from_secs(5)).await;
        notes.heard();
        let expected = "(nothing for 15s; the run has taken 50s and ends after 10m at the latest, see --timeout)";
        assert_eq!(notes.next().await, expected);
        let mut unlimited = WaitNotes::new(Duration::ZERO);
        assert_eq!(unlimited.next().await, "(nothing for 15s; the run has taken 15s and has no time limit)");
    }
}
