//! Stored runs as they are shown: with their timelines and deliveries (`homard trace`), and those that are held.

use homard_proto::{RunId, SessionKey, message::Message};
use homard_store::{
    DeliveryRow, Error as StoreError, RunQuery, RunRow, RunState, RunTimeline, StoreReader, UnfinishedRun,
    recovery::MAX_HOLD_MS,
};

/// Maximum characters of a held run's message that are shown.
const MAX_EXCERPT_CHARS: usize = 120;

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
    pub fn seen(self) -> Self {
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

/// A held run, as shown to the owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldRun {
    /// Id of the run.
    pub run: RunId,
    /// Key of its session.
    pub key: SessionKey,
    /// Excerpt of its message.
    pub message: String,
    /// When it was accepted, in milliseconds since the epoch.
    pub accepted_at: u64,
    /// When it was held, in milliseconds since the epoch.
    pub held_at: u64,
    /// When it ends by itself, in milliseconds since the epoch.
    pub expires_at: u64,
    /// How often it was started.
    pub attempts: usize,
}

impl HeldRun {
    /// Builds the view of an unfinished run; `None` if it is not held.
    pub fn of(unfinished: &UnfinishedRun) -> Option<Self> {
        let held_at = unfinished.row.hold.filter(|_| unfinished.row.state == RunState::Held)?.held_at;
        let Message::User(user) = &unfinished.accept.message else { return None };
        let text = user.content.text();
        let mut message: String = text.chars().take(MAX_EXCERPT_CHARS).collect();
        if message.len() < text.len() {
            message.push('…');
        }
        Some(Self {
            run: unfinished.row.run.clone(),
            key: unfinished.row.key.clone(),
            message,
            accepted_at: unfinished.row.accepted_at,
            held_at,
            expires_at: held_at.saturating_add(MAX_HOLD_MS),
            attempts: unfinished.attempts.len(),
        })
    }
}
