//! Group commit: one writer for all sessions commits all waiting records together.
//!
//! Under load many runs share one sync; a single run waits for no other. Records keep the order in which they were
//! sent.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use homard_store::{Error, Fence, Rec, Store, Verdict};
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::JoinHandle,
};

use crate::{hub::Admission, tape::Tape, task};

/// Maximum number of records in one commit.
const MAX_BATCH: usize = 512;

/// Handle of the writer.
#[derive(Debug, Clone)]
pub(crate) struct CommitWriter {
    // Unbounded: a run sends a few records per step and waits at its barriers, so the queue is bounded by the runs.
    queue: mpsc::UnboundedSender<WriteRequest>,
    /// Number of queued writes that are neither committed nor rejected yet.
    open: Arc<AtomicUsize>,
    /// True if the last batch was not stored.
    failed: Arc<AtomicBool>,
}

#[derive(Debug)]
struct WriteRequest {
    records: Vec<Rec>,
    after_commit: AfterCommit,
}

/// What happens once the records are committed or rejected.
#[derive(Debug, Default)]
pub(crate) struct AfterCommit {
    /// Reports the admission of a message to its sender and its tape; the first record is its accept.
    admit: Option<(watch::Sender<Admission>, Arc<Tape>)>,
    /// Publishes this number of staged events of this tape.
    publish: Option<(Arc<Tape>, usize)>,
    /// True if the records end the run: they are stored even if earlier ones of it were not.
    is_end: bool,
    /// Receives the result.
    reply: Option<oneshot::Sender<Result<Vec<Verdict>, Error>>>,
}

impl AfterCommit {
    /// Reports the admission of a message to its sender.
    pub(crate) fn admit(admission: watch::Sender<Admission>, tape: &Arc<Tape>) -> Self {
        Self { admit: Some((admission, tape.clone())), ..Self::default() }
    }

    /// Publishes staged events.
    pub(crate) fn publish(tape: &Arc<Tape>, event_count: usize) -> Self {
        Self { publish: Some((tape.clone(), event_count)), ..Self::default() }
    }

    /// Publishes staged events, including the end of the run.
    pub(crate) fn end(tape: &Arc<Tape>, event_count: usize) -> Self {
        Self { is_end: true, ..Self::publish(tape, event_count) }
    }

    /// True if an earlier commit of the run failed: its later records would leave a gap in the transcript.
    fn is_after_failure(&self) -> bool {
        !self.is_end && self.publish.as_ref().is_some_and(|(tape, _)| tape.broken().is_some())
    }

    /// Also publishes staged events.
    pub(crate) fn and_publish(self, tape: &Arc<Tape>, event_count: usize) -> Self {
        Self { publish: Some((tape.clone(), event_count)), ..self }
    }
}

impl CommitWriter {
    /// Starts the writer; it ends when the last handle is dropped.
    pub(crate) fn start(store: Arc<dyn Store>, fence: Fence) -> (Self, JoinHandle<()>) {
        let (queue, requests) = mpsc::unbounded_channel();
        let (open, failed) = (Arc::default(), Arc::default());
        let writer = Self { queue, open: Arc::clone(&open), failed: Arc::clone(&failed) };
        (writer, task::spawn("writer", write((store, fence), requests, (open, failed))))
    }

    /// True if the last batch was not stored: a disk failure, or a full disk.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Queues records. If the writer is gone, the senders in `after_commit` are dropped.
    pub(crate) fn send(&self, records: Vec<Rec>, after_commit: AfterCommit) {
        self.open.fetch_add(1, Ordering::AcqRel);
        self.queue.send(WriteRequest { records, after_commit }).ok();
    }

    /// Waits until everything sent before is committed or rejected.
    pub(crate) async fn barrier(&self) -> Result<(), Error> {
        if self.open.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        self.commit(Vec::new()).await
    }

    /// Queues records and waits until they are on disk.
    pub(crate) async fn commit(&self, records: Vec<Rec>) -> Result<(), Error> {
        self.commit_with_verdicts(records).await.map(drop)
    }

    /// Queues records at once; the future waits for the store's verdict on each.
    pub(crate) fn commit_with_verdicts(
        &self,
        records: Vec<Rec>,
    ) -> impl Future<Output = Result<Vec<Verdict>, Error>> + use<> {
        let (reply, verdicts) = oneshot::channel();
        self.send(records, AfterCommit { reply: Some(reply), ..AfterCommit::default() });
        async { verdicts.await.unwrap_or_else(|_| Err(Error::Disk("the writer has stopped".to_owned()))) }
    }
}

async fn write(
    (store, fence): (Arc<dyn Store>, Fence),
    mut requests: mpsc::UnboundedReceiver<WriteRequest>,
    (open, failed): (Arc<AtomicUsize>, Arc<AtomicBool>),
) {
    while let Some(first) = requests.recv().await {
        let mut writes = vec![first];
        let mut count = writes[0].records.len();
        while count < MAX_BATCH {
            let Ok(next) = requests.try_recv() else { break };
            count += next.records.len();
            writes.push(next);
        }
        writes.iter_mut().filter(|write| write.after_commit.is_after_failure()).for_each(|write| write.records.clear());
        let sizes: Vec<_> = writes.iter().map(|write| write.records.len()).collect();
        let records: Vec<_> = writes.iter_mut().flat_map(|write| std::mem::take(&mut write.records)).collect();
        let stored = if records.is_empty() { Ok(Vec::new()) } else { store.commit(&fence, records).await };
        if let Err(error) = &stored {
            tracing::error!(%error, "failed to commit records to the store");
        }
        if sizes.iter().any(|size| *size > 0) {
            let is_full = |verdict: &Verdict| matches!(verdict, Verdict::Full(_));
            failed.store(stored.as_ref().map_or(true, |verdicts| verdicts.iter().any(is_full)), Ordering::Release);
        }
        let mut verdicts = stored.map(Vec::into_iter);
        for (write, size) in writes.into_iter().zip(sizes) {
            let write_verdicts =
                verdicts.as_mut().map(|verdicts| verdicts.take(size).collect()).map_err(|error| error.clone());
            settle(write.after_commit, write_verdicts);
            open.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

fn settle(after_commit: AfterCommit, verdicts: Result<Vec<Verdict>, Error>) {
    let is_accepted = matches!(&verdicts, Ok(verdicts) if verdicts.first() == Some(&Verdict::Stored));
    match (&after_commit.admit, after_commit.publish) {
        // The message was not accepted, so there is no run.
        (Some((_, tape)), _) if !is_accepted => tape.mark_rejected(),
        (_, None) => {}
        (_, Some((tape, event_count))) => match &verdicts {
            Ok(verdicts) if verdicts.iter().all(|verdict| *verdict == Verdict::Stored) => tape.publish(event_count),
            Ok(_) => tape.mark_broken("the store rejected the run's records"),
            Err(error) => tape.mark_broken(&error.to_string()),
        },
    }
    if let Some((admit, _)) = after_commit.admit {
        admit.send_replace(admission(&verdicts));
    }
    if let Some(reply) = after_commit.reply {
        // The caller may have gone; the result is then dropped.
        reply.send(verdicts).ok();
    }
}

/// Returns the admission of a message from the store's verdict on its first record.
pub(crate) fn admission(verdicts: &Result<Vec<Verdict>, Error>) -> Admission {
    match verdicts.as_ref().map(|verdicts| verdicts.first()) {
        Ok(Some(Verdict::Stored)) => Admission::Accepted,
        Ok(Some(Verdict::Duplicate(row))) => Admission::Duplicate(row.clone()),
        Ok(Some(Verdict::Conflict)) => Admission::Conflict,
        Ok(Some(Verdict::Full(why))) => Admission::Failed(Error::Disk(why.clone())),
        Ok(Some(Verdict::Skipped | Verdict::Archived(_)) | None) => {
            Admission::Failed(Error::Disk("the store rejected the message".to_owned()))
        }
        Err(error) => Admission::Failed(error.clone()),
    }
}
