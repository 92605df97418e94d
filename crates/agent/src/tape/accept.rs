//! Acceptance: the path of a message from its accept record to the answer that its sender gets.
//!
//! The accept record is built once, sent once and decided once, whichever commit contains it: a commit of its own, that
//! of the run's start, or that of a command's reply.

use std::sync::Arc;

use homard_store::Rec;
use tokio::sync::watch;

use super::{Tape, commit::Commit};
use crate::{hub::Admission, writer::CommitWriter};

/// Handle with which the lane stores the acceptance of one message and reports the result to its sender.
#[derive(Debug)]
pub(crate) struct Acceptance {
    state: AcceptState,
    admission: watch::Sender<Admission>,
}

#[derive(Debug)]
enum AcceptState {
    /// There are no records yet.
    Received,
    /// The records are only here. The accept record is the first of them.
    Built(Vec<Rec>),
    /// The writer has the records; their commit decides the admission.
    Sent,
    /// The records are on disk, and the lane decides the admission.
    Stored,
}

impl Acceptance {
    /// The acceptance of a new message.
    pub(crate) fn new(admission: watch::Sender<Admission>) -> Self {
        Self { state: AcceptState::Received, admission }
    }

    /// The acceptance of a message that an earlier process stored.
    pub(crate) fn recovered(self) -> Self {
        Self { state: AcceptState::Stored, ..self }
    }

    /// Sets the records that accept the message.
    pub(crate) fn build(&mut self, accept: Rec, patch: Option<Rec>) {
        self.state = AcceptState::Built([accept].into_iter().chain(patch).collect());
    }

    /// True if only this process knows the message.
    pub(crate) fn is_unsent(&self) -> bool {
        matches!(self.state, AcceptState::Received | AcceptState::Built(_))
    }

    /// True if the message is known to be rejected.
    pub(crate) fn is_rejected(&self) -> bool {
        !matches!(*self.admission.borrow(), Admission::Accepted | Admission::Pending)
    }

    /// True if the message is known to be accepted.
    pub(crate) fn is_accepted(&self) -> bool {
        matches!(*self.admission.borrow(), Admission::Accepted)
    }

    /// Starts a commit of the run, which also accepts the message unless its records were sent before.
    pub(crate) fn begin(&mut self, tape: &Arc<Tape>) -> Commit {
        match self.take_records() {
            Some(records) => {
                self.state = AcceptState::Sent;
                Commit::accepting(tape, records, self.admission.clone())
            }
            None => Commit::new(tape),
        }
    }

    /// Sends the records in a commit of their own, if they were not sent before.
    pub(crate) fn send(&mut self, tape: &Arc<Tape>, writer: &CommitWriter) {
        if self.is_unsent() {
            writer.send(self.begin(tape));
        }
    }

    /// Stores the records, if they were not sent before, and waits for the result. The caller then decides the
    /// admission: an `Err` contains the rejection.
    pub(crate) async fn store(&mut self, writer: &CommitWriter) -> Result<(), Admission> {
        let Some(records) = self.take_records() else { return Ok(()) };
        let admission = Admission::of(&writer.commit_with_verdicts(records).await);
        if !matches!(admission, Admission::Accepted) {
            return Err(admission);
        }
        self.state = AcceptState::Stored;
        Ok(())
    }

    /// Returns the sender of the admission if the message is on disk and the lane has to decide.
    pub(crate) fn undecided(&self) -> Option<watch::Sender<Admission>> {
        matches!(self.state, AcceptState::Stored).then(|| self.admission.clone())
    }

    /// Decides the admission of a message whose records the writer does not have.
    pub(crate) fn decide(&self, admission: Admission) {
        self.admission.send_replace(admission);
    }

    /// Waits for the decision. Returns true if the message was accepted.
    pub(crate) async fn is_admitted(&self) -> bool {
        let mut admission = self.admission.subscribe();
        let decided = admission.wait_for(|admission| !matches!(admission, Admission::Pending)).await;
        matches!(decided.as_deref(), Ok(Admission::Accepted))
    }

    fn take_records(&mut self) -> Option<Vec<Rec>> {
        match &mut self.state {
            AcceptState::Built(records) => Some(std::mem::take(records)),
            AcceptState::Received | AcceptState::Sent | AcceptState::Stored => None,
        }
    }
}
