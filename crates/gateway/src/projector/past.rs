//! Runs that are over: for a while it is known what was told of them, for clients that were away at the end.

use std::collections::VecDeque;

use homard_proto::{RunId, event::Chat};

use super::log::Log;

/// How many runs are remembered at most, and how many bytes of them.
const RUNS: usize = 256;
const BYTES: usize = 8 << 20;

/// Runs that are over, oldest first.
#[derive(Debug, Default)]
pub(super) struct Past {
    runs: VecDeque<Over>,
    bytes: usize,
}

/// A run that is over.
#[derive(Debug)]
pub(super) struct Over {
    pub(super) run: RunId,
    /// What was told of it.
    pub(super) log: Log,
    /// The number of its last step.
    pub(super) seq: u64,
    /// The last that its conversation heard.
    pub(super) last: Chat,
    size: usize,
}

impl Over {
    pub(super) fn new(run: RunId, log: Log, seq: u64, last: Chat) -> Self {
        let size = log.size();
        Self { run, log, seq, last, size }
    }
}

impl Past {
    /// Remembers a run, and forgets the oldest if there is too much.
    pub(super) fn keep(&mut self, over: Over) {
        self.bytes += over.size;
        self.runs.push_back(over);
        while self.runs.len() > RUNS || self.bytes > BYTES {
            let Some(oldest) = self.runs.pop_front() else { return };
            self.bytes -= oldest.size;
        }
    }

    /// A run that is remembered.
    pub(super) fn find(&self, run: &RunId) -> Option<&Over> {
        self.runs.iter().rev().find(|over| over.run == *run)
    }
}
