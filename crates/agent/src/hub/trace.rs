//! Timelines of runs (`homard trace`).

use homard_events::{
    timeline::{self, TimelineRange},
    trace::RunTrace,
};
use homard_store::{
    Error as StoreError, RunQuery, RunRow, RunState, RunTimeline,
    usage::{UsageQuery, UsageSum},
};

use super::HubRuns;

impl HubRuns<'_> {
    /// Like [`RunTrace::read`], with the timeline so far of a live run.
    pub async fn trace(self, name: &str) -> Result<Option<RunTrace>, StoreError> {
        let Some(trace) = RunTrace::read(&*self.hub.0.store, name).await? else { return Ok(None) };
        if matches!(trace.row.state, RunState::Ended(_)) {
            return Ok(Some(trace));
        }
        let (steps, until) = self.live_timeline(&trace.row);
        Ok(Some(RunTrace { steps, until, ..trace }.seen()))
    }

    /// Returns the timeline so far of a run that has not ended.
    fn live_timeline(self, row: &RunRow) -> (RunTimeline, u64) {
        let until = self.hub.0.ambient.now_ms();
        let tape = self.hub.0.lock().runs.get(row.host.as_ref().unwrap_or(&row.run)).map(|run| run.tape.clone());
        let Some(tape) = tape else { return (RunTimeline::default(), until) };
        let events = tape.events();
        let started_at = events
            .iter()
            .find(|event| matches!(event.kind, crate::RunEvent::Stored(crate::StoredEvent::Started { .. })))
            .map(|event| event.at);
        // Starts of the run in earlier processes.
        let earlier_starts = row.started_at.into_iter().chain(row.resumed_at.iter().copied());
        let earlier_starts: Vec<_> =
            earlier_starts.filter(|start| started_at.is_none_or(|started_at| *start < started_at)).collect();
        (
            timeline::build_timeline(
                &events,
                TimelineRange {
                    accepted_at: tape.accepted_at(),
                    earlier_starts: &earlier_starts,
                    held: row.hold,
                    stored_at: None,
                    until,
                },
            ),
            until,
        )
    }

    /// Returns stored runs, newest first.
    pub async fn list(self, query: &RunQuery) -> Result<Vec<RunRow>, StoreError> {
        self.hub.0.store.runs(query).await
    }

    /// Returns token usage and cost in a period. Several sums may have the same key.
    pub async fn usage(self, period: &UsageQuery) -> Result<Vec<UsageSum>, StoreError> {
        self.hub.0.store.usage(period).await
    }
}
