//! What is at work, and whether it gets on: told apart by when something last happened. Nothing acts on it; a lane needs
//! no watchdog to be free.

use std::time::Duration;

use homard_proto::{RunId, SessionKey};

use crate::tape::{State, Tape};

/// Without news for so long, a run is worth a look.
const LONG: Duration = Duration::from_secs(2 * 60);
/// Without news for so long, it hangs for all that anybody can tell.
const STALLED: Duration = Duration::from_secs(6 * 60);

/// A run that has not ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Work {
    /// The run.
    pub run: RunId,
    /// Its session.
    pub key: SessionKey,
    /// Milliseconds since the epoch.
    pub accepted_at: u64,
    /// How long nothing has happened.
    pub quiet: Duration,
    /// How it gets on.
    pub pace: Pace,
}

/// How a run gets on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// It waits for its turn.
    Queued,
    /// It is at work.
    Running,
    /// It is at work, and nothing has happened for two minutes.
    LongRunning,
    /// It is at work, and nothing has happened for six minutes.
    Stalled,
    /// It has not ended, and nobody is at work on it: its end could not be stored. A restart takes it up.
    Stuck,
}

impl Pace {
    /// How it is called.
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

impl Work {
    /// What a tape says of its run; `None` when that has ended or never was.
    pub(super) fn of(tape: &Tape, now: u64) -> Option<Self> {
        let quiet = Duration::from_millis(now.saturating_sub(tape.last_at()));
        let pace = match tape.state() {
            State::Ended(_) | State::Refused => return None,
            State::Broken(_) => Pace::Stuck,
            State::Queued => Pace::Queued,
            State::Running if quiet >= STALLED => Pace::Stalled,
            State::Running if quiet >= LONG => Pace::LongRunning,
            State::Running => Pace::Running,
        };
        let (run, key) = (tape.run().clone(), tape.key().clone());
        Some(Self { run, key, accepted_at: tape.accepted_at(), quiet, pace })
    }
}
