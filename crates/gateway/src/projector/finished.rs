//! Event logs of recently finished runs, for clients that were disconnected at the end.

use std::collections::VecDeque;

use homard_proto::{RunId, event::ChatEvent};

use super::log::RunEventLog;

/// Maximum number of runs kept, and maximum bytes of their logs.
const MAX_RUNS: usize = 256;
const MAX_TOTAL_BYTES: usize = 8 << 20;
/// Maximum bytes for one run, so that it cannot evict all others.
const MAX_RUN_BYTES: usize = MAX_TOTAL_BYTES / 2;

/// Finished runs, oldest first.
#[derive(Debug, Default)]
pub(super) struct FinishedRuns {
    runs: VecDeque<FinishedRun>,
    bytes: usize,
}

/// A finished run.
#[derive(Debug)]
pub(super) struct FinishedRun {
    pub(super) run: RunId,
    /// Its published events.
    pub(super) log: RunEventLog,
    /// Sequence number of its last event.
    pub(super) seq: u64,
    /// Its final `chat` event.
    pub(super) last: ChatEvent,
    size: usize,
}

impl FinishedRun {
    pub(super) fn new(run: RunId, log: RunEventLog, seq: u64, last: ChatEvent) -> Self {
        let size = log.size();
        Self { run, log, seq, last, size }
    }
}

impl FinishedRuns {
    /// Keeps a run and evicts the oldest ones if a limit is exceeded. A run that is too large by itself is not kept;
    /// the store still has it.
    pub(super) fn add(&mut self, run: FinishedRun) {
        if run.size > MAX_RUN_BYTES {
            return;
        }
        self.bytes += run.size;
        self.runs.push_back(run);
        while self.runs.len() > MAX_RUNS || self.bytes > MAX_TOTAL_BYTES {
            let Some(oldest) = self.runs.pop_front() else { return };
            self.bytes -= oldest.size;
        }
    }

    /// Finds a run that is kept.
    pub(super) fn find(&self, run: &RunId) -> Option<&FinishedRun> {
        self.runs.iter().rev().find(|finished| finished.run == *run)
    }
}

#[cfg(test)]
mod tests {
    use homard_proto::{
        Extra,
        event::{AgentEvent, ChatState, Stream},
    };
    use serde_json::json;

    use super::*;

    fn finished_run(run: usize, size: usize) -> FinishedRun {
        let run_id = run.to_string();
        let last = ChatEvent {
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
        let mut log = RunEventLog::default();
        log.append(AgentEvent {
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
        FinishedRun::new(RunId::parse(&run_id).unwrap(), log, 1, last)
    }

    fn remembered(finished_runs: &FinishedRuns, runs: usize) -> Vec<usize> {
        (0..runs).filter(|run| finished_runs.find(&RunId::parse(&run.to_string()).unwrap()).is_some()).collect()
    }

    #[test]
    fn the_oldest_runs_are_dropped_beyond_the_count_and_size_limits() {
        let mut finished_runs = FinishedRuns::default();
        (0..MAX_RUNS + 2).for_each(|run| finished_runs.add(finished_run(run, 1)));
        assert_eq!(remembered(&finished_runs, MAX_RUNS + 2), (2..MAX_RUNS + 2).collect::<Vec<_>>());
        let mut finished_runs = FinishedRuns::default();
        (0..5).for_each(|run| finished_runs.add(finished_run(run, MAX_TOTAL_BYTES / 3)));
        assert_eq!(remembered(&finished_runs, 5), [3, 4]);
    }

    #[test]
    fn a_large_run_does_not_evict_all_others() {
        let mut finished_runs = FinishedRuns::default();
        (0..4).for_each(|run| finished_runs.add(finished_run(run, MAX_TOTAL_BYTES / 5)));
        let bytes = finished_runs.bytes;
        finished_runs.add(finished_run(4, MAX_RUN_BYTES));
        assert_eq!((remembered(&finished_runs, 5), finished_runs.bytes), (vec![0, 1, 2, 3], bytes));
        finished_runs.add(finished_run(5, MAX_RUN_BYTES - 1000));
        assert_eq!(remembered(&finished_runs, 6), [2, 3, 5]);
    }
}
