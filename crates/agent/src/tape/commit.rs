//! Commit: records that are stored together, and the events of a run that become visible once they are on disk.
//!
//! Only this module stages and publishes events of a tape. An event is staged together with its record, so it cannot
//! become visible without it.

use std::sync::Arc;

use homard_store::{Error, Rec, Verdict};
use tokio::sync::watch;

use super::Tape;
use crate::{
    event::{RunEvent, StoredEvent},
    hub::Admission,
};

/// Records of one run to be stored together. A staged event hides all later ones of its tape until the writer has
/// committed it.
#[derive(Debug)]
#[must_use = "its events stay invisible until the writer gets it"]
pub(crate) struct Commit {
    records: Vec<Rec>,
    staged: StagedEvents,
}

/// What happens to the run once the records are committed or rejected.
#[derive(Debug)]
pub(crate) struct StagedEvents {
    tape: Arc<Tape>,
    /// Number of staged events to publish.
    count: usize,
    /// Receives the admission of the run's message; the first record is then its accept record.
    admission: Option<watch::Sender<Admission>>,
    /// True if the records end the run: they are stored even if earlier ones of it were not.
    is_end: bool,
}

impl Commit {
    /// A commit without records yet. If it fails, the run is broken off.
    pub(crate) fn new(tape: &Arc<Tape>) -> Self {
        let staged = StagedEvents { tape: tape.clone(), count: 0, admission: None, is_end: false };
        Self { records: Vec::new(), staged }
    }

    /// A commit that accepts the run's message and decides its admission.
    pub(super) fn accepting(tape: &Arc<Tape>, accept: Vec<Rec>, admission: watch::Sender<Admission>) -> Self {
        let mut commit = Self::new(tape);
        commit.records = accept;
        commit.staged.admission = Some(admission);
        commit
    }

    /// Adds a record without an event.
    pub(crate) fn record(&mut self, record: Rec) {
        self.records.push(record);
    }

    /// Adds records without events.
    pub(crate) fn records(&mut self, records: impl IntoIterator<Item = Rec>) {
        self.records.extend(records);
    }

    /// Stages an event, and adds its record. An event that needs no record may have one.
    pub(crate) fn stored_event(&mut self, at: u64, event: impl Into<RunEvent>, record: Rec) {
        let event = event.into();
        self.staged.is_end |= matches!(event, RunEvent::Stored(StoredEvent::Ended(_)));
        self.staged.tape.stage(at, event);
        self.staged.count += 1;
        self.records.push(record);
    }

    /// Splits the commit for the writer.
    pub(crate) fn into_parts(self) -> (Vec<Rec>, StagedEvents) {
        (self.records, self.staged)
    }
}

impl StagedEvents {
    /// True if an earlier commit of the run failed: its later records would leave a gap in the transcript.
    pub(crate) fn is_after_failure(&self) -> bool {
        !self.is_end && self.admission.is_none() && self.tape.broken().is_some()
    }

    /// Publishes the events if all records were stored; otherwise breaks the run off.
    pub(crate) fn settle(self, verdicts: &Result<Vec<Verdict>, Error>) {
        let is_accepted = matches!(verdicts, Ok(verdicts) if verdicts.first() == Some(&Verdict::Stored));
        match verdicts {
            // The message was not accepted, so there is no run.
            _ if self.admission.is_some() && !is_accepted => self.tape.mark_rejected(),
            // The message is accepted, and its run has not started: a rejected change of the session does not end it.
            _ if self.admission.is_some() && self.count == 0 => {}
            Ok(verdicts) if verdicts.iter().all(|verdict| *verdict == Verdict::Stored) => {
                if self.is_end {
                    self.tape.mark_end_stored();
                }
                self.tape.publish(self.count);
            }
            Ok(_) => self.tape.mark_broken("the journal rejected the run's records"),
            Err(error) => self.tape.mark_broken(&error.to_string()),
        }
        if let Some(admission) = self.admission {
            admission.send_replace(Admission::of(verdicts));
        }
    }
}

impl Admission {
    /// Returns the admission of a message from the store's verdict on its accept record, which is the first one.
    pub(super) fn of(verdicts: &Result<Vec<Verdict>, Error>) -> Self {
        match verdicts.as_ref().map(|verdicts| verdicts.first()) {
            Ok(Some(Verdict::Stored)) => Self::Accepted,
            Ok(Some(Verdict::Duplicate(row))) => Self::Duplicate(row.clone()),
            Ok(Some(Verdict::Conflict)) => Self::Conflict,
            Ok(Some(Verdict::Full(why))) => Self::Failed(Error::Disk(why.clone())),
            Ok(Some(Verdict::Skipped | Verdict::Archived(_)) | None) => {
                Self::Failed(Error::Disk("the journal rejected the message".to_owned()))
            }
            Err(error) => Self::Failed(error.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use async_trait::async_trait;
    use homard_proto::{AgentId, RunId, message::Usage};
    use homard_store::{Fence, StoreWriter};
    use tokio::sync::mpsc;

    use super::*;
    use crate::{event::RunEnd, hub::shared::interrupted, writer::CommitWriter};

    /// A store that is full until it is set otherwise.
    #[derive(Debug, Default)]
    struct FullDisk {
        has_space: AtomicBool,
    }

    #[async_trait]
    impl StoreWriter for FullDisk {
        async fn commit(&self, _: &Fence, batch: Vec<Rec>) -> Result<Vec<Verdict>, Error> {
            match self.has_space.load(Ordering::Acquire) {
                true => Ok(vec![Verdict::Stored; batch.len()]),
                false => Err(Error::Disk("no space left on device".to_owned())),
            }
        }
    }

    fn end_of(tape: &Arc<Tape>) -> Commit {
        let stored = interrupted(0, 1);
        let end = RunEnd {
            outcome: stored.outcome.clone(),
            replies: Vec::new(),
            complete_reply: None,
            heartbeat: None,
            entries: Vec::new(),
            calls: Vec::new(),
            model: stored.model.clone(),
            usage: Usage::default(),
            last_usage: Usage::default(),
            truncated_input: None,
            is_summarized: false,
            session: None,
            started_at: None,
            ended_at: 1,
        };
        let mut commit = Commit::new(tape);
        let terminal = Rec::Terminal { run: tape.run().clone(), ended: Box::new(stored) };
        commit.stored_event(1, StoredEvent::Ended(Arc::new(end)), terminal);
        commit
    }

    #[tokio::test]
    async fn a_tape_knows_whether_its_end_was_stored_also_when_a_later_barrier_succeeds() {
        let (store, feed) = (Arc::new(FullDisk::default()), mpsc::unbounded_channel().0);
        let (writer, _task) = CommitWriter::start(store.clone(), Fence::default());
        let tapes = ["lost", "stored"]
            .map(|run| Tape::new(RunId::parse(run).unwrap(), AgentId::main().main_session(), 0, feed.clone()));
        writer.send(end_of(&tapes[0]));
        // It is in the batch that failed.
        assert!(writer.barrier().await.is_err());
        store.has_space.store(true, Ordering::Release);
        writer.send(end_of(&tapes[1]));
        assert_eq!(writer.barrier().await, Ok(()));
        assert_eq!(tapes.each_ref().map(|tape| tape.is_end_stored()), [false, true]);
        assert!(tapes[0].broken().is_some());
    }
}
