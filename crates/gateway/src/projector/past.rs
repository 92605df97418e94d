//! Event logs of recently finished runs, for clients that were disconnected at the end.

use std::collections::VecDeque;

use homard_proto::{RunId, event::Chat};

use super::log::Log;

/// Maximum number of runs kept, and maximum bytes of their logs.
const RUNS: usize = 256;
const BYTES: usize = 8 << 20;
/// Maximum bytes for one run, so that it cannot evict all others.
const SHARE: usize = BYTES / 2;

/// Finished runs, oldest first.
#[derive(Debug, Default)]
pub(super) struct Past {
    runs: VecDeque<Over>,
    bytes: usize,
}

/// A finished run.
#[derive(Debug)]
pub(super) struct Over {
    pub(super) run: RunId,
    /// Its published events.
    pub(super) log: Log,
    /// Sequence number of its last event.
    pub(super) seq: u64,
    /// Its final `chat` event.
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
    /// Keeps a run and evicts the oldest ones if a limit is exceeded. A run that is too large by itself is not kept;
    /// the store still has it.
    pub(super) fn keep(&mut self, over: Over) {
        if over.size > SHARE {
            return;
        }
        self.bytes += over.size;
        self.runs.push_back(over);
        while self.runs.len() > RUNS || self.bytes > BYTES {
            let Some(oldest) = self.runs.pop_front() else { return };
            self.bytes -= oldest.size;
        }
    }

    /// Finds a run that is kept.
    pub(super) fn find(&self, run: &RunId) -> Option<&Over> {
        self.runs.iter().rev().find(|over| over.run == *run)
    }
}

#[cfg(test)]
mod tests {
    use homard_proto::{
        Extra,
        event::{Agent, ChatState, Stream},
    };
    use serde_json::json;

    use super::*;

    fn over(run: usize, size: usize) -> Over {
        let run_id = run.to_string();
        let last = Chat {
            run_id: run_id.clone(),
            session_key: String::new(),
            agent_id: None,
            seq: 1,
            state: ChatState::Final,
            delta_text: None,
            replace: None,
            message: None,
            stop_reason: None,
            error_message: None,
            extra: Extra::new(),
        };
        let mut log = Log::default();
        log.note(Agent {
            run_id: run_id.clone(),
            stream: Stream::Lifecycle,
            data: json!("x".repeat(size)),
            session_key: None,
            session_id: None,
            agent_id: None,
            seq: Some(1),
            ts: 0,
            extra: Extra::new(),
        });
        Over::new(RunId::parse(&run_id).unwrap(), log, 1, last)
    }

    fn known(past: &Past, runs: usize) -> Vec<usize> {
        (0..runs).filter(|run| past.find(&RunId::parse(&run.to_string()).unwrap()).is_some()).collect()
    }

    #[test]
    fn the_oldest_runs_are_forgotten_when_there_are_too_many_or_too_large_ones() {
        let mut past = Past::default();
        (0..RUNS + 2).for_each(|run| past.keep(over(run, 1)));
        assert_eq!(known(&past, RUNS + 2), (2..RUNS + 2).collect::<Vec<_>>());
        let mut past = Past::default();
        (0..5).for_each(|run| past.keep(over(run, BYTES / 3)));
        assert_eq!(known(&past, 5), [3, 4]);
    }

    #[test]
    fn a_large_run_does_not_push_out_all_others() {
        let mut past = Past::default();
        (0..4).for_each(|run| past.keep(over(run, BYTES / 5)));
        let bytes = past.bytes;
        past.keep(over(4, SHARE));
        assert_eq!((known(&past, 5), past.bytes), (vec![0, 1, 2, 3], bytes));
        past.keep(over(5, SHARE - 1000));
        assert_eq!(known(&past, 6), [2, 3, 5]);
    }
}
