//! Live runs and their progress, by the time of their last event. For display only: lanes need no watchdog.

use std::time::Duration;

use homard_proto::{RunId, SessionKey};

use crate::tape::{Tape, TapeState};

/// Time without events after which a run is long-running.
const LONG_RUNNING_AFTER: Duration = Duration::from_secs(2 * 60);
/// Time without events after which a run is considered stalled.
const STALLED_AFTER: Duration = Duration::from_secs(6 * 60);

/// A run that has not ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveRunStatus {
    /// Id of the run.
    pub run: RunId,
    /// Key of its session.
    pub key: SessionKey,
    /// When it was accepted, in milliseconds since the epoch.
    pub accepted_at: u64,
    /// Time since the last event.
    pub idle: Duration,
    /// Progress.
    pub progress: RunProgress,
}

/// Progress of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunProgress {
    /// Queued.
    Queued,
    /// Active.
    Running,
    /// Active, without events for two minutes.
    LongRunning,
    /// Active, without events for six minutes.
    Stalled,
    /// Not ended and without a task: its end could not be stored. A restart recovers it.
    Stuck,
}

impl RunProgress {
    /// Returns the serialized name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::LongRunning => "long-running",
            Self::Stalled => "stalled",
            Self::Stuck => "stuck",
        }
    }
}

impl LiveRunStatus {
    /// Builds the view of a tape's run; `None` if the run has ended or was rejected.
    pub(super) fn of(tape: &Tape, now: u64) -> Option<Self> {
        let idle = Duration::from_millis(now.saturating_sub(tape.last_at()));
        let progress = match tape.state() {
            TapeState::Ended(_) | TapeState::Rejected => return None,
            TapeState::Broken(_) => RunProgress::Stuck,
            TapeState::Queued => RunProgress::Queued,
            TapeState::Running if idle >= STALLED_AFTER => RunProgress::Stalled,
            TapeState::Running if idle >= LONG_RUNNING_AFTER => RunProgress::LongRunning,
            TapeState::Running => RunProgress::Running,
        };
        let (run, key) = (tape.run().clone(), tape.key().clone());
        Some(Self { run, key, accepted_at: tape.accepted_at(), idle, progress })
    }
}
