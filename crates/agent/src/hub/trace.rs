//! Timelines of runs (`homard trace`).

use homard_proto::RunId;
use homard_store::{
    DeliveryRow, Error as StoreError, Look, RunRow, RunState, Steps, Store,
    spend::{Period, Spent},
};

use super::Hub;
use crate::course::{self, Span};

/// A run with its timeline and deliveries.
#[derive(Debug, Clone, PartialEq)]
pub struct Life {
    /// The stored run.
    pub row: RunRow,
    /// Timeline up to now or to the run's end. For an absorbed message: the host run's timeline since the message
    /// arrived.
    pub steps: Steps,
    /// End of the timeline, in milliseconds since the epoch.
    pub until: u64,
    /// Outgoing messages of the run and their delivery states.
    pub posted: Vec<DeliveryRow>,
}

impl Life {
    /// Finds a run by run id or by external id: an inbound channel event, a delivery, or the platform's message id;
    /// `last` is the newest run. `None` if it is unknown. The store has no timeline of a run that has not ended.
    pub async fn read(store: &dyn Store, name: &str) -> Result<Option<Self>, StoreError> {
        let Some(row) = find(store, name).await? else { return Ok(None) };
        let posted = store.posted(row.host.as_ref().unwrap_or(&row.run)).await?;
        let (steps, until) = match &row.state {
            RunState::Ended(ended) => (ended.steps.clone(), ended.ended_at),
            RunState::Accepted | RunState::Running | RunState::Absorbed(_) | RunState::Held => {
                (Steps::default(), row.accepted_at)
            }
        };
        Ok(Some(Self { row, steps, until, posted }.seen()))
    }

    /// Cuts the timeline of an absorbed message to the time since it arrived.
    fn seen(self) -> Self {
        let steps = if self.row.host.is_some() { self.steps.since(self.row.accepted_at) } else { self.steps };
        Self { steps, ..self }
    }
}

async fn find(store: &dyn Store, name: &str) -> Result<Option<RunRow>, StoreError> {
    if name == "last" {
        return Ok(store.runs(&Look { limit: 1, ..Look::default() }).await?.pop());
    }
    if let Ok(run) = RunId::parse(name)
        && let Some(row) = store.run(&run).await?
    {
        return Ok(Some(row));
    }
    match store.run_named(name).await? {
        Some(run) => store.run(&run).await,
        None => Ok(None),
    }
}

impl Hub {
    /// Like [`Life::read`], with the timeline so far of a live run.
    pub async fn life(&self, name: &str) -> Result<Option<Life>, StoreError> {
        let Some(life) = Life::read(&*self.0.store, name).await? else { return Ok(None) };
        if matches!(life.row.state, RunState::Ended(_)) {
            return Ok(Some(life));
        }
        let (steps, until) = self.so_far(&life.row);
        Ok(Some(Life { steps, until, ..life }.seen()))
    }

    /// Returns the timeline so far of a run that has not ended.
    fn so_far(&self, row: &RunRow) -> (Steps, u64) {
        let until = self.0.ambient.now_ms();
        let tape = self.0.lock().runs.get(row.host.as_ref().unwrap_or(&row.run)).map(|run| run.tape.clone());
        let Some(tape) = tape else { return (Steps::default(), until) };
        let facts = tape.facts();
        let began = facts.iter().find(|fact| matches!(fact.kind, crate::RunEvent::Started { .. })).map(|fact| fact.at);
        // Starts of the run in earlier processes.
        let begun = row.started_at.into_iter().chain(row.taken_up.iter().copied());
        let begun: Vec<_> = begun.filter(|before| began.is_none_or(|began| *before < began)).collect();
        (
            course::of(
                &facts,
                Span { accepted_at: tape.accepted_at(), begun: &begun, held: row.hold, stored_at: None, until },
            ),
            until,
        )
    }

    /// Returns stored runs, newest first.
    pub async fn runs(&self, look: &Look) -> Result<Vec<RunRow>, StoreError> {
        self.0.store.runs(look).await
    }

    /// Returns token usage and cost in a period. Several sums may have the same key.
    pub async fn spent(&self, period: &Period) -> Result<Vec<Spent>, StoreError> {
        self.0.store.spent(period).await
    }
}
