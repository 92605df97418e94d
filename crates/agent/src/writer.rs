//! Group commit: one writer for all sessions commits all waiting records together.
//!
//! Under load many runs share one sync; a single run waits for no other. Records keep the order in which they were
//! sent.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use homard_runtime::task;
use homard_store::{Error, Fence, Rec, StoreWriter, Verdict};
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinHandle,
};

use crate::tape::{Commit, StagedEvents};

/// Once a commit has this many records, no further write joins it.
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

/// Records to commit, and what happens afterwards.
#[derive(Debug)]
pub(crate) struct WriteRequest {
    records: Vec<Rec>,
    after_commit: AfterCommit,
}

/// What happens once the records are committed or rejected.
#[derive(Debug)]
enum AfterCommit {
    Nothing,
    /// Publishes the staged events of a run.
    Settle(StagedEvents),
    /// Returns the result. The caller may have gone; it is then dropped.
    Reply(oneshot::Sender<Result<Vec<Verdict>, Error>>),
}

impl From<Commit> for WriteRequest {
    fn from(commit: Commit) -> Self {
        let (records, staged) = commit.into_parts();
        Self { records, after_commit: AfterCommit::Settle(staged) }
    }
}

impl From<Vec<Rec>> for WriteRequest {
    fn from(records: Vec<Rec>) -> Self {
        Self { records, after_commit: AfterCommit::Nothing }
    }
}

impl WriteRequest {
    /// Creates a request whose future waits for the store's verdict on each record.
    pub(crate) fn with_verdicts(
        records: Vec<Rec>,
    ) -> (Self, impl Future<Output = Result<Vec<Verdict>, Error>> + use<>) {
        let (reply, verdicts) = oneshot::channel();
        let stopped = || Error::Disk("the task that writes to the journal has stopped".to_owned());
        let verdicts = async move { verdicts.await.unwrap_or_else(|_| Err(stopped())) };
        (Self { records, after_commit: AfterCommit::Reply(reply) }, verdicts)
    }

    fn is_after_failure(&self) -> bool {
        matches!(&self.after_commit, AfterCommit::Settle(staged) if staged.is_after_failure())
    }
}

impl CommitWriter {
    /// Starts the writer; it ends when the last handle is dropped.
    pub(crate) fn start(store: Arc<dyn StoreWriter>, fence: Fence) -> (Self, JoinHandle<()>) {
        let (queue, requests) = mpsc::unbounded_channel();
        let (open, failed) = (Arc::default(), Arc::default());
        let writer = Self { queue, open: Arc::clone(&open), failed: Arc::clone(&failed) };
        (writer, task::spawn("writer", write(store, fence, requests, open, failed)))
    }

    /// True if the last batch was not stored: a disk failure, or a full disk.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Queues records. If the writer is gone, the request is dropped.
    pub(crate) fn send(&self, request: impl Into<WriteRequest>) {
        self.open.fetch_add(1, Ordering::AcqRel);
        self.queue.send(request.into()).ok();
    }

    /// Waits until everything sent before is committed or rejected. An error may be that of an earlier write; `Ok` does
    /// not say that earlier writes were stored, which their tapes know.
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
        let (request, verdicts) = WriteRequest::with_verdicts(records);
        self.send(request);
        verdicts
    }
}

async fn write(
    store: Arc<dyn StoreWriter>,
    fence: Fence,
    mut requests: mpsc::UnboundedReceiver<WriteRequest>,
    open: Arc<AtomicUsize>,
    failed: Arc<AtomicBool>,
) {
    while let Some(first) = requests.recv().await {
        let mut writes = vec![first];
        let mut count = writes[0].records.len();
        while count < MAX_BATCH {
            let Ok(next) = requests.try_recv() else { break };
            count += next.records.len();
            writes.push(next);
        }
        writes.iter_mut().filter(|write| write.is_after_failure()).for_each(|write| write.records.clear());
        let sizes: Vec<_> = writes.iter().map(|write| write.records.len()).collect();
        let records: Vec<_> = writes.iter_mut().flat_map(|write| std::mem::take(&mut write.records)).collect();
        let stored = if records.is_empty() { Ok(Vec::new()) } else { store.commit(&fence, records).await };
        if let Err(error) = &stored {
            tracing::error!(%error, "failed to commit records to the journal");
        }
        if sizes.iter().any(|size| *size > 0) {
            let is_full = |verdict: &Verdict| matches!(verdict, Verdict::Full(_));
            failed.store(stored.as_ref().map_or(true, |verdicts| verdicts.iter().any(is_full)), Ordering::Release);
        }
        let mut verdicts = stored.map(Vec::into_iter);
        for (write, size) in writes.into_iter().zip(sizes) {
            let write_verdicts =
                verdicts.as_mut().map(|verdicts| verdicts.take(size).collect()).map_err(|error| error.clone());
            match write.after_commit {
                AfterCommit::Nothing => {}
                AfterCommit::Settle(staged) => staged.settle(&write_verdicts),
                AfterCommit::Reply(reply) => drop(reply.send(write_verdicts)),
            }
            open.fetch_sub(1, Ordering::AcqRel);
        }
    }
}
