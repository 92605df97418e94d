//! What is kept: the [`Store`] trait, its records and verdicts, transcripts as the model sees them, and the memory store.
//!
//! This crate refuses to know the loop, models and SQLite. A store is the only thing that survives a restart, so
//! everything above it can be rebuilt from what [`Store::load`], [`Store::run`], [`Store::recover`] and [`Store::outbox`]
//! return.
#![warn(missing_docs)]

pub mod branch;
pub mod ledger;
pub mod memory;
pub mod outbox;
pub mod record;
pub mod recovery;
pub mod repair;
pub mod spend;
pub mod timeline;

use std::{path::PathBuf, sync::Arc};

use async_trait::async_trait;
use homard_proto::{CallId, RunId, SessionId, SessionKey, message::ToolResult, session, transcript};

pub use memory::MemoryStore;
pub use outbox::{Delivery, DeliveryRow, DeliveryState, Post, Target};
pub use record::{
    AbortReason, Accept, Authority, Ended, Failure, FailureKind, Hold, Input, OnRestart, Options, Origin, Outcome,
    PromptMode, Rec, RunOverrides, RunRow, RunState, Sender, Start, ToolClass, Verdict,
};
pub use timeline::{Step, Steps, What};

/// Why a store did not do it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Another process owns the state directory.
    #[error("{0}")]
    Locked(String),
    /// The disk did not take it: full, broken or forbidden. Nothing of the batch counts as stored.
    #[error("{0}")]
    Disk(String),
    /// What is on disk cannot be read.
    #[error("{0}")]
    Corrupt(String),
}

/// Where everything that must survive goes.
///
/// A batch is one commit: when [`commit`](Self::commit) returns `Ok`, all of it is on disk. Records of one batch are
/// applied in order; each gets a verdict. When an [`Accept`] is refused, the other records of that run in the same
/// batch are not applied and get [`Verdict::Skipped`].
#[async_trait]
pub trait Store: Send + Sync {
    /// Stores a batch, whole or not at all.
    async fn commit(&self, fence: &Fence, batch: Vec<Rec>) -> Result<Vec<Verdict>, Error>;

    /// The session that `key` points at, with its transcript; `None` when there is none yet.
    async fn load(&self, key: &SessionKey) -> Result<Option<Session>, Error>;

    /// The lines of this session's transcript, also when `key` points at a newer one by now or the session was deleted;
    /// `None` when there are none. Lines that came after a deletion stand for the id, not those that were put aside.
    async fn transcript(&self, key: &SessionKey, session: &SessionId) -> Result<Option<Vec<transcript::Entry>>, Error>;

    /// The lines of a transcript that a session can continue: those that [`load`](Self::load) gives once a record has
    /// this id. Not those that were put aside with a deleted session.
    async fn live_transcript(&self, key: &SessionKey, session: &SessionId) -> Result<Vec<transcript::Entry>, Error>;

    /// Where a session's transcript is, for those who read files; `None` where there are none.
    fn transcript_path(&self, key: &SessionKey, session: &SessionId) -> Option<PathBuf> {
        let _: (&SessionKey, &SessionId) = (key, session);
        None
    }

    /// What is known of a run.
    async fn run(&self, run: &RunId) -> Result<Option<RunRow>, Error>;

    /// A session's record, without its transcript.
    async fn record(&self, key: &SessionKey) -> Result<Option<Arc<session::Record>>, Error>;

    /// The sessions' records, in no particular order, without their transcripts.
    async fn list(&self) -> Result<Vec<(SessionKey, Arc<session::Record>)>, Error>;

    /// The key whose session has this id, if any.
    async fn find(&self, session: &SessionId) -> Result<Option<SessionKey>, Error>;

    /// The runs that a restart found unfinished, in the order in which they were accepted.
    async fn recover(&self) -> Result<Vec<Unfinished>, Error>;

    /// The deliveries that have not arrived, as far as is known, in the order in which they were queued.
    /// [`outbox::due`] says which may go out. What was being sent when a process ended is
    /// [`DeliveryState::Unknown`] for the next one, or queued again if the channel is idempotent.
    async fn outbox(&self) -> Result<Vec<DeliveryRow>, Error>;

    /// The runs that are remembered, the newest first.
    async fn runs(&self, look: &Look) -> Result<Vec<RunRow>, Error>;

    /// The run to which an event of a channel led, or that says what a delivery says: by the name that the channel, the
    /// delivery or the message that came of it has.
    async fn run_named(&self, name: &str) -> Result<Option<RunId>, Error>;

    /// What a run has queued to be said on channels, in order, whatever became of it.
    async fn posted(&self, run: &RunId) -> Result<Vec<DeliveryRow>, Error>;

    /// What models took, in no particular order. One thing may be told in several sums.
    async fn spent(&self, period: &spend::Period) -> Result<Vec<spend::Spent>, Error>;
}

/// Which runs are looked for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Look {
    /// Those of one session.
    pub key: Option<SessionKey>,
    /// Those that were accepted before this one.
    pub before: Option<RunId>,
    /// So many at most.
    pub limit: usize,
}

/// The right to write. Opaque to everybody but the store that gave it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Fence(pub u64);

/// A session as it is on disk.
#[derive(Debug, Clone, PartialEq)]
pub struct Session {
    /// Its record.
    pub record: session::Record,
    /// Its transcript without the header, in file order.
    pub entries: Vec<transcript::Entry>,
}

/// A run that a restart found unfinished, and all that is known of how far it came.
#[derive(Debug, Clone, PartialEq)]
pub struct Unfinished {
    /// What is known of it.
    pub row: RunRow,
    /// What its sender asked for.
    pub accept: Accept,
    /// Every time it started, oldest first.
    pub attempts: Vec<Attempt>,
    /// Whether somebody wanted it stopped.
    pub aborted: Option<AbortReason>,
    /// The lines of its transcript after its own message, oldest first.
    pub entries: Vec<transcript::Entry>,
    /// Its tools with effects that were about to start, and all that answered.
    pub tools: Vec<ToolRow>,
    /// The runs that end with it.
    pub guests: Vec<RunRow>,
    /// What it has queued to be said on channels, in order, whatever became of it.
    pub posted: Vec<DeliveryRow>,
}

/// One start of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attempt {
    /// Milliseconds since the epoch.
    pub started_at: u64,
    /// How the process ended in which it started.
    pub process: ProcessEnd,
}

/// How a process that had the store ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessEnd {
    /// It has not.
    Running,
    /// It closed the store.
    Stopped,
    /// It was killed, crashed, or lost power.
    Crashed,
}

/// What is known of a tool call of an unfinished run.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolRow {
    /// The call.
    pub call: CallId,
    /// Whether it may be repeated.
    pub class: ToolClass,
    /// What it answered, if it did.
    pub result: Option<ToolResult>,
}
