//! The life of a run or a message, for whoever wants to know what became of it.

use homard_proto::RunId;
use homard_store::{
    DeliveryRow, Error as StoreError, Look, RunRow, RunState, Steps, Store,
    spend::{Period, Spent},
};

use super::Hub;
use crate::course::{self, Span};

/// The life of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Life {
    /// What is known of it.
    pub row: RunRow,
    /// What happened, up to now or to its end. For a message that went into another run: what that did since it came.
    pub steps: Steps,
    /// Up to when that is told; milliseconds since the epoch.
    pub until: u64,
    /// What it says on channels, and what became of that.
    pub posted: Vec<DeliveryRow>,
}

impl Life {
    /// What a store knows of a run: by its id, by the name of the event of a channel that led to it, or by that of
    /// something that it said there; `last` is the newest. `None` when nobody remembers it. Of a run that has not ended, a
    /// store does not know the steps.
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

    /// A message that went into another run has to do with what that did since it came.
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
    /// The life of a run, also of one at work.
    pub async fn life(&self, name: &str) -> Result<Option<Life>, StoreError> {
        let Some(life) = Life::read(&*self.0.store, name).await? else { return Ok(None) };
        if matches!(life.row.state, RunState::Ended(_)) {
            return Ok(Some(life));
        }
        let (steps, until) = self.so_far(&life.row);
        Ok(Some(Life { steps, until, ..life }.seen()))
    }

    /// What happened in a run that has not ended.
    fn so_far(&self, row: &RunRow) -> (Steps, u64) {
        let until = self.0.ambient.now_ms();
        let tape = self.0.lock().runs.get(row.host.as_ref().unwrap_or(&row.run)).map(|run| run.tape.clone());
        let Some(tape) = tape else { return (Steps::default(), until) };
        let facts = tape.facts();
        let began = facts.iter().find(|fact| matches!(fact.kind, crate::RunEvent::Started { .. })).map(|fact| fact.at);
        // One that began before this process did.
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

    /// The runs that are remembered, the newest first.
    pub async fn runs(&self, look: &Look) -> Result<Vec<RunRow>, StoreError> {
        self.0.store.runs(look).await
    }

    /// What models took. One thing may be told in several sums.
    pub async fn spent(&self, period: &Period) -> Result<Vec<Spent>, StoreError> {
        self.0.store.spent(period).await
    }
}
