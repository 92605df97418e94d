//! Persistence interface: the [`StoreReader`] and [`StoreWriter`] traits, their records and verdicts, transcripts as the model sees them, and the
//! memory store.
//!
//! This crate does not depend on the agent loop, models or SQLite. A store is the only thing that survives a restart;
//! everything above it is rebuilt from [`StoreReader::load`], [`StoreReader::run`], [`StoreReader::recover`] and [`StoreReader::outbox`].
#![warn(missing_docs)]

pub mod branch;
pub mod ledger;
pub mod memory;
pub mod outbox;
pub mod record;
pub mod recovery;
pub mod repair;
pub mod run_filter;
pub mod timeline;
pub mod usage;

use std::{path::PathBuf, sync::Arc};

use async_trait::async_trait;
use homard_proto::{CallId, RunId, SessionId, SessionKey, message::ToolResult, session, transcript};

pub use memory::MemoryStore;
pub use outbox::{Delivery, DeliveryRow, DeliveryState, DeliveryTarget, ReplyDelivery};
pub use record::{
    AbortReason, Accept, Authority, EndRecord, Failure, FailureKind, Hold, Input, OnRestart, Options, Origin, Outcome,
    PromptMode, Rec, RunOverrides, RunRow, RunState, Sender, Start, ToolClass, Verdict,
};
pub use run_filter::RunFilter;
pub use timeline::{RunTimeline, SpanKind, TimelineSpan};

/// Errors of a store.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Another process owns the state directory.
    #[error("{0}")]
    Locked(String),
    /// The disk refused the write: full, broken or not permitted. Nothing of the batch counts as stored.
    #[error("{0}")]
    Disk(String),
    /// Data on disk cannot be parsed.
    #[error("{0}")]
    Corrupt(String),
}

/// Durable storage of runs, sessions and deliveries: what the process that owns it opens, and hands on in halves.
pub trait Store: StoreReader + StoreWriter {}

impl<S: StoreReader + StoreWriter> Store for S {}

/// The writing half of a store.
///
/// A batch is one commit: when [`commit`](Self::commit) returns `Ok`, all of it is on disk. Records of one batch are
/// applied in order; each gets a verdict. If an [`Accept`] is refused, the other records of that run in the same batch
/// are not applied and get [`Verdict::Skipped`].
#[async_trait]
pub trait StoreWriter: Send + Sync {
    /// Commits a batch atomically.
    async fn commit(&self, fence: &Fence, batch: Vec<Rec>) -> Result<Vec<Verdict>, Error>;
}

/// The reading half of a store: who holds it cannot change anything.
#[async_trait]
pub trait StoreReader: Send + Sync {
    /// Returns the session that `key` refers to, with its transcript; `None` if there is none yet.
    async fn load(&self, key: &SessionKey) -> Result<Option<Session>, Error>;

    /// Returns the entries of this session's transcript, even if `key` refers to a newer session by now or the session
    /// was deleted; `None` if there are none. Entries written after a deletion take precedence over the archived ones.
    async fn transcript(&self, key: &SessionKey, session: &SessionId) -> Result<Option<Vec<transcript::Entry>>, Error>;

    /// Returns the entries that a session with this id would continue: those that [`load`](Self::load) returns once a
    /// record has this id. Excludes the archived entries of a deleted session.
    async fn live_transcript(&self, key: &SessionKey, session: &SessionId) -> Result<Vec<transcript::Entry>, Error>;

    /// Returns the path of a session's transcript; `None` for stores without files.
    fn transcript_path(&self, key: &SessionKey, session: &SessionId) -> Option<PathBuf> {
        let _: (&SessionKey, &SessionId) = (key, session);
        None
    }

    /// Returns the stored row of a run.
    async fn run(&self, run: &RunId) -> Result<Option<RunRow>, Error>;

    /// Returns a session's record, without its transcript.
    async fn record(&self, key: &SessionKey) -> Result<Option<Arc<session::Record>>, Error>;

    /// Returns all session records, unordered, without their transcripts.
    async fn list(&self) -> Result<Vec<(SessionKey, Arc<session::Record>)>, Error>;

    /// Returns the key that refers to this session, if any.
    async fn find(&self, session: &SessionId) -> Result<Option<SessionKey>, Error>;

    /// Returns the unfinished runs that a restart found, in the order of acceptance.
    async fn recover(&self) -> Result<Vec<UnfinishedRun>, Error>;

    /// Returns deliveries not known to have arrived, in queue order. [`outbox::due`] selects those that may be sent
    /// now. A delivery that was being sent when a process ended is [`DeliveryState::Unknown`] for the next one, or
    /// queued again if the channel is idempotent.
    async fn outbox(&self) -> Result<Vec<DeliveryRow>, Error>;

    /// Returns a delivery in any state; `None` if its id is unknown, or was forgotten a day after its end.
    async fn delivery(&self, id: &str) -> Result<Option<DeliveryRow>, Error>;

    /// Returns stored runs, newest first.
    async fn runs(&self, query: &RunQuery) -> Result<Vec<RunRow>, Error>;

    /// Finds a run by external id: an inbound channel event, a delivery, or the platform's message id of a delivery.
    async fn find_run(&self, name: &str) -> Result<Option<RunId>, Error>;

    /// Returns the deliveries that a run queued, in order, in any state.
    async fn deliveries_of(&self, run: &RunId) -> Result<Vec<DeliveryRow>, Error>;

    /// Returns token usage, unordered. Several sums may have the same subject and have to be added.
    async fn usage(&self, period: &usage::UsageQuery) -> Result<Vec<usage::UsageSum>, Error>;
}

/// Query for runs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RunQuery {
    /// Only runs of this session.
    pub key: Option<SessionKey>,
    /// Only runs that meet these conditions.
    pub filter: RunFilter,
    /// Only runs accepted before this one.
    pub before: Option<RunId>,
    /// Maximum number of runs.
    pub limit: usize,
}

/// Fencing token that authorizes writes. Opaque to everything but the store that issued it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Fence(pub u64);

/// A stored session.
#[derive(Debug, Clone, PartialEq)]
pub struct Session {
    /// Session record.
    pub record: session::Record,
    /// Transcript without the header, in file order.
    pub entries: Vec<transcript::Entry>,
}

/// An unfinished run that a restart found, with everything known about its progress.
#[derive(Debug, Clone, PartialEq)]
pub struct UnfinishedRun {
    /// State of the run as stored.
    pub row: RunRow,
    /// Request of the sender.
    pub accept: Accept,
    /// Starts of the run, oldest first.
    pub attempts: Vec<Attempt>,
    /// Reason of a requested abort, if any.
    pub aborted: Option<AbortReason>,
    /// Transcript entries after the run's own message, oldest first.
    pub entries: Vec<transcript::Entry>,
    /// Tool calls with side effects that were about to start, and all calls with a result.
    pub tools: Vec<ToolRow>,
    /// Runs absorbed by this one.
    pub absorbed: Vec<RunRow>,
    /// Deliveries that it queued, in order, in any state.
    pub deliveries: Vec<DeliveryRow>,
}

/// One start of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attempt {
    /// Start time in milliseconds since the epoch.
    pub started_at: u64,
    /// How the process ended that started it.
    pub process: ProcessEnd,
}

/// How a process that had the store open ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessEnd {
    /// It is still running.
    Running,
    /// It closed the store.
    Stopped,
    /// It was killed, crashed, or lost power.
    Crashed,
}

/// State of a tool call of an unfinished run.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolRow {
    /// Call id.
    pub call: CallId,
    /// Whether the call may be repeated.
    pub class: ToolClass,
    /// Its result, if known.
    pub result: Option<ToolResult>,
}
