//! Timelines of runs (`homard trace`).

use homard_proto::RunId;
use homard_store::{
    DeliveryRow, Error as StoreError, RunQuery, RunRow, RunState, RunTimeline, StoreReader,
    usage::{UsageQuery, UsageSum},
};

use super::Hub;
use crate::timeline::{self, TimelineRange};

/// A run with its timeline and deliveries.
#[derive(Debug, Clone, PartialEq)]
pub struct RunTrace {
    /// The stored run.
    pub row: RunRow,
    /// Timeline up to now or to the run's end. For an absorbed message: the host run's timeline since the message
    /// arrived.
    pub steps: RunTimeline,
    /// End of the timeline, in milliseconds since the epoch.
    pub until: u64,
    /// Outgoing messages of the run and their delivery states.
    pub deliveries: Vec<DeliveryRow>,
}

impl RunTrace {
    /// Finds a run by run id or by external id: an inbound channel event, a delivery, or the platform's message id;
    /// `last` is the newest run. `None` if it is unknown. The store has no timeline of a run that has not ended.
    pub async fn read(store: &dyn StoreReader, name: &str) -> Result<Option<Self>, StoreError> {
        let Some(row) = find(store, name).await? else { return Ok(None) };
        let deliveries = store.deliveries_of(row.host.as_ref().unwrap_or(&row.run)).await?;
        let (steps, until) = match &row.state {
            RunState::Ended(ended) => (ended.steps.clone(), ended.ended_at),
            RunState::Accepted | RunState::Running | RunState::Absorbed(_) | RunState::Held => {
                (RunTimeline::default(), row.accepted_at)
            }
        };
        Ok(Some(Self { row, steps, until, deliveries }.seen()))
    }

    /// Cuts the timeline of an absorbed message to the time since it arrived.
    fn seen(self) -> Self {
        let steps = if self.row.host.is_some() { self.steps.since(self.row.accepted_at) } else { self.steps };
        Self { steps, ..self }
    }
}

async fn find(store: &dyn StoreReader, name: &str) -> Result<Option<RunRow>, StoreError> {
    if name == "last" {
        return Ok(store.runs(&RunQuery { limit: 1, ..RunQuery::default() }).await?.pop());
    }
    if let Ok(run) = RunId::parse(name)
        && let Some(row) = store.run(&run).await?
    {
        return Ok(Some(row));
    }
    match store.find_run(name).await? {
        Some(run) => store.run(&run).await,
        None => Ok(None),
    }
}

impl Hub {
    /// Like [`RunTrace::read`], with the timeline so far of a live run.
    pub async fn trace(&self, name: &str) -> Result<Option<RunTrace>, StoreError> {
        let Some(trace) = RunTrace::read(&*self.0.store, name).await? else { return Ok(None) };
        if matches!(trace.row.state, RunState::Ended(_)) {
            return Ok(Some(trace));
        }
        let (steps, until) = self.live_timeline(&trace.row);
        Ok(Some(RunTrace { steps, until, ..trace }.seen()))
    }

    /// Returns the timeline so far of a run that has not ended.
    fn live_timeline(&self, row: &RunRow) -> (RunTimeline, u64) {
        let until = self.0.ambient.now_ms();
        let tape = self.0.lock().runs.get(row.host.as_ref().unwrap_or(&row.run)).map(|run| run.tape.clone());
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
    pub async fn runs(&self, query: &RunQuery) -> Result<Vec<RunRow>, StoreError> {
        self.0.store.runs(query).await
    }

    /// Returns token usage and cost in a period. Several sums may have the same key.
    pub async fn usage(&self, period: &UsageQuery) -> Result<Vec<UsageSum>, StoreError> {
        self.0.store.usage(period).await
    }
}
