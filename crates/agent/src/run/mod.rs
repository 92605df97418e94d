//! One run: ask the model, run its tools, ask again, until it has nothing left to ask for.

mod tools;
mod turn;

use std::sync::Arc;

use homard_proto::message::Message;
use homard_store::{Error as StoreError, Rec};
use tokio_util::sync::CancellationToken;

use crate::{event::RunEvent, hub::Shared, profile::Profile, tape::Tape, writer::Then};

/// Why a run cannot go on. What a tool does wrong is never one of these: the model reads it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RunError {
    /// The model failed.
    #[error(transparent)]
    Model(#[from] homard_model::Error),
    /// Something could not be stored.
    #[error("the run could not be stored: {0}")]
    Store(#[from] StoreError),
    /// The run was told to stop, and did.
    #[error("the run was stopped")]
    Stopped,
    /// The run was told to stop, did not, and was dropped.
    #[error("the run was stopped by force")]
    Dropped,
    /// An earlier commit of this session failed.
    #[error("the session could not be read back after an earlier failure; send the message again")]
    SessionGone,
    /// A bug. The lane goes on.
    #[error("internal error: {0}")]
    Panicked(String),
}

impl From<tokio::task::JoinError> for RunError {
    fn from(error: tokio::task::JoinError) -> Self {
        if error.is_cancelled() { Self::Dropped } else { Self::Panicked(panic_text(error)) }
    }
}

/// What a panicked task said last.
pub(crate) fn panic_text(error: tokio::task::JoinError) -> String {
    let said = error.try_into_panic().ok().and_then(|panic| match panic.downcast::<String>() {
        Ok(text) => Some(*text),
        Err(panic) => panic.downcast_ref::<&str>().map(|text| (*text).to_owned()),
    });
    said.unwrap_or_else(|| "a task panicked".to_owned())
}

/// What a run works with. Only the run can put events on its tape: tools and hooks never see this.
#[derive(Debug)]
pub(crate) struct RunScope {
    pub(crate) hub: Arc<Shared>,
    pub(crate) profile: Arc<Profile>,
    pub(crate) tape: Arc<Tape>,
    pub(crate) cancel: CancellationToken,
    pub(crate) system: Arc<str>,
    pub(crate) history: Vec<Arc<Message>>,
    /// How many assistant messages there were in this run.
    pub(crate) said: u32,
}

impl RunScope {
    /// A passing event: shown, not stored.
    fn pass(&mut self, event: RunEvent) {
        self.tape.pass(self.hub.ambient.now_ms(), event);
    }

    /// A fact: stored, then shown.
    fn record(&mut self, event: RunEvent, records: Vec<Rec>) {
        self.tape.hold(self.hub.ambient.now_ms(), event);
        self.hub.writer.send(records, Then::Publish(self.tape.clone(), 1));
    }

    /// Waits until every fact so far is on disk. Nothing with an effect happens before.
    async fn barrier(&self) -> Result<(), RunError> {
        on_disk(&self.hub, &self.tape).await
    }
}

/// Waits until every fact so far is on disk.
async fn on_disk(hub: &Shared, tape: &Tape) -> Result<(), RunError> {
    hub.writer.barrier().await?;
    match tape.broken() {
        Some(why) => Err(StoreError::Disk(why).into()),
        None => Ok(()),
    }
}

/// The run, from its input to its last word. The lane ends it, whatever this returns.
pub(crate) async fn drive(mut scope: RunScope) -> Result<(), RunError> {
    loop {
        let said = turn::ask(&mut scope).await?;
        if said.tool_calls().next().is_none() {
            return Ok(());
        }
        tools::answer(&mut scope, &said).await?;
    }
}
