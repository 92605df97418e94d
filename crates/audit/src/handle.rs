//! Handle of the audit log: accepts records without blocking; one thread writes.

use std::{
    fmt, io,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
        mpsc::{self, Receiver, SyncSender},
    },
    thread,
};

use crate::{
    anchor::Anchor,
    files::LogPaths,
    record::{AuditKind, AuditRecord},
    writer::{AuditWriter, WriteResult},
};

/// Maximum number of queued records. Further ones are lost; their number is written to the log.
const MAX_QUEUED: usize = 4096;
/// Maximum number of records written together.
const BATCH: usize = 256;

/// Handle of an audit log. Clones share it; a default handle discards everything.
///
/// A record that cannot be written is logged and counted, and affects nothing else.
#[derive(Clone, Default)]
pub struct Audit(Option<Arc<AuditLog>>);

struct AuditLog {
    location: LogPaths,
    now_ms: Box<dyn Fn() -> u64 + Send + Sync>,
    anchor: Option<Arc<dyn Anchor>>,
    counts: Arc<Totals>,
    /// Started with the first record, so that a process without any has no thread and no folder. `None` if the thread
    /// could not be started.
    writer: OnceLock<Option<SyncSender<WriterJob>>>,
}

#[derive(Debug, Default)]
struct Totals {
    written: AtomicU64,
    lost: AtomicU64,
    /// Number of records by kind, in the order of [`AuditKind::ALL`].
    noted: [AtomicU64; AuditKind::ALL.len()],
}

/// Number of written and lost records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Rows that were written to disk.
    pub written: u64,
    /// Records that were not written, because the queue was full or writing failed.
    pub lost: u64,
}

enum WriterJob {
    Note(u64, AuditRecord),
    /// Compares the end of the log with the anchor, and stores it again, because other processes may have written.
    CatchUp(u64),
    /// Acknowledges the problems of the log.
    Acknowledge {
        at: u64,
        reason: String,
        actor: String,
        done: SyncSender<io::Result<()>>,
    },
    /// Answered when all jobs before it were written or have failed.
    Flush(SyncSender<()>),
}

impl Audit {
    /// Opens a log. The process that owns the state directory passes an anchor, which stores the end of the log.
    pub fn open(
        location: LogPaths,
        now_ms: impl Fn() -> u64 + Send + Sync + 'static,
        anchor: Option<Arc<dyn Anchor>>,
    ) -> Self {
        Self(Some(Arc::new(AuditLog {
            location,
            now_ms: Box::new(now_ms),
            anchor,
            counts: Arc::default(),
            writer: OnceLock::new(),
        })))
    }

    /// Queues a record. Never waits for the disk.
    pub fn note(&self, record: AuditRecord) {
        let Some(log) = &self.0 else { return };
        log.counts.noted[record.kind() as usize].fetch_add(1, Ordering::Relaxed);
        let note = WriterJob::Note((log.now_ms)(), record);
        let is_queued = log.writer().is_some_and(|writer| writer.try_send(note).is_ok());
        if !is_queued {
            // The writer adds a `RowsLost` row with the number of lost records before the next records.
            log.counts.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Compares the end of the log with its anchor, records a break if rows were removed or replaced, and stores the
    /// end, even if another process has written since. Does not wait. Does nothing without an anchor.
    pub fn catch_up(&self) {
        let Some(log) = self.0.as_ref().filter(|log| log.anchor.is_some()) else { return };
        if let Some(writer) = log.writer() {
            // If the queue is full, the end is stored with the last queued record.
            writer.try_send(WriterJob::CatchUp((log.now_ms)())).ok();
        }
    }

    /// Appends a row that acknowledges all current problems of the log. Blocks until it is on disk.
    pub fn acknowledge(&self, reason: &str, actor: &str) -> io::Result<()> {
        let no_writer = || io::Error::other("auditing is not active in this process");
        let log = self.0.as_ref().ok_or_else(no_writer)?;
        let (done, reply) = mpsc::sync_channel(1);
        let (reason, actor) = (reason.to_owned(), actor.to_owned());
        let job = WriterJob::Acknowledge { at: (log.now_ms)(), reason, actor, done };
        log.writer().and_then(|writer| writer.send(job).ok()).ok_or_else(no_writer)?;
        reply.recv().unwrap_or_else(|_closed| Err(no_writer()))
    }

    /// Waits until all queued records were written or have failed.
    pub fn flush(&self) {
        let Some(writer) = self.0.as_ref().and_then(|log| log.writer.get()?.as_ref()) else { return };
        let (done, flushed) = mpsc::sync_channel(1);
        if writer.send(WriterJob::Flush(done)).is_ok() {
            // Without a writer there is nothing to wait for.
            flushed.recv().ok();
        }
    }

    /// Returns the number of records by kind, without kinds that have none.
    pub fn noted(&self) -> Vec<(AuditKind, u64)> {
        let Some(log) = &self.0 else { return Vec::new() };
        let counts = log.counts.noted.iter().map(|count| count.load(Ordering::Relaxed));
        AuditKind::ALL.into_iter().zip(counts).filter(|(_, count)| *count > 0).collect()
    }

    /// Returns the number of written and lost records.
    pub fn counts(&self) -> Counts {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let counts = self.0.as_ref().map(|log| &log.counts);
        counts
            .map_or_else(Counts::default, |totals| Counts { written: load(&totals.written), lost: load(&totals.lost) })
    }
}

impl AuditLog {
    fn writer(&self) -> Option<&SyncSender<WriterJob>> {
        let start = || {
            let (sender, receiver) = mpsc::sync_channel(MAX_QUEUED);
            let writer = WriterThread {
                writer: AuditWriter::new(self.location.clone(), self.anchor.clone()),
                location: self.location.clone(),
                counts: self.counts.clone(),
                recorded_lost: 0,
                is_failing: false,
            };
            let spawned = thread::Builder::new().name("audit".to_owned()).spawn(move || writer.work(&receiver));
            match spawned {
                Ok(_) => Some(sender),
                Err(error) => {
                    tracing::error!(%error, "failed to start the audit thread; nothing is audited");
                    None
                }
            }
        };
        self.writer.get_or_init(start).as_ref()
    }
}

struct WriterThread {
    writer: AuditWriter,
    location: LogPaths,
    counts: Arc<Totals>,
    /// Number of lost records already recorded in the file.
    recorded_lost: u64,
    /// True after a failure, until a write succeeds: only the first failure is logged.
    is_failing: bool,
}

impl WriterThread {
    /// Writes until all senders are gone.
    fn work(mut self, jobs: &Receiver<WriterJob>) {
        while let Ok(first) = jobs.recv() {
            let (mut records, mut flushes, mut catch_up_at) = (Vec::new(), Vec::new(), None);
            let more = std::iter::from_fn(|| jobs.try_recv().ok());
            for job in std::iter::once(first).chain(more).take(BATCH) {
                match job {
                    WriterJob::Note(at, record) => records.push((at, record)),
                    WriterJob::CatchUp(at) => catch_up_at = Some(at),
                    WriterJob::Acknowledge { at, reason, actor, done } => {
                        self.write(std::mem::take(&mut records));
                        let result = self.writer.acknowledge(&reason, &actor, at);
                        // The caller may be gone.
                        done.send(self.report_break(result).map(|_| ())).ok();
                    }
                    WriterJob::Flush(done) => flushes.push(done),
                }
            }
            if records.is_empty()
                && let Some(at) = catch_up_at
            {
                let result = self.writer.catch_up(at);
                if let Err(error) = self.report_break(result) {
                    self.report_failure(&error);
                }
            }
            self.write(records);
            for done in flushes {
                // The caller may be gone.
                done.send(()).ok();
            }
        }
    }

    /// Writes records as rows, after a row with the number of records lost since the last write, if any.
    fn write(&mut self, mut records: Vec<(u64, AuditRecord)>) {
        let Some((now, _)) = records.last() else { return };
        let now = *now;
        let lost = self.counts.lost.load(Ordering::Relaxed);
        let new_count = records.len() as u64;
        if lost > self.recorded_lost {
            records.insert(
                0,
                (now, AuditRecord::new(AuditKind::RowsLost).outcome("lost").count("rows", lost - self.recorded_lost)),
            );
        }
        let result = self.writer.write(&records, now);
        match self.report_break(result) {
            Ok(_) => {
                (self.recorded_lost, self.is_failing) = (lost, false);
                self.counts.written.fetch_add(records.len() as u64, Ordering::Relaxed);
            }
            Err(error) => {
                self.counts.lost.fetch_add(new_count, Ordering::Relaxed);
                self.report_failure(&error);
            }
        }
    }

    /// Logs and counts a break of the hash chain, if the writer found one. Returns the result unchanged.
    fn report_break(&self, result: io::Result<WriteResult>) -> io::Result<WriteResult> {
        let result = result?;
        if let Some(broken) = &result.broken {
            self.counts.noted[AuditKind::ChainBroken as usize].fetch_add(1, Ordering::Relaxed);
            let folder = self.location.folder.display();
            tracing::error!(
                "the audit log in {folder} was changed: {}; see: homard audit verify",
                broken.description()
            );
        }
        Ok(result)
    }

    /// Logs once that writing fails.
    fn report_failure(&mut self, error: &io::Error) {
        if !std::mem::replace(&mut self.is_failing, true) {
            let folder = self.location.folder.display();
            tracing::error!(
                "cannot write the audit log in {folder}: {error}; actions are not audited until this is resolved"
            );
        }
    }
}

impl fmt::Debug for Audit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Audit").field(&self.0.as_ref().map(|log| &log.location.folder)).finish()
    }
}

/// Handles are equal if they share the same log.
impl PartialEq for Audit {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;
    use crate::{
        anchor::memory::MemoryAnchor,
        rows,
        verify::{Evidence, VerifyReport},
        verify_folder,
    };

    fn check(state: &Path, anchor: &MemoryAnchor) -> VerifyReport {
        let location = LogPaths::in_state(state);
        let (anchored, key) = (anchor.load().unwrap(), crate::Key::load(&location.key).unwrap());
        let evidence = Evidence { key, stored_head: anchored.head, ledger: anchored.ledger, checkpoints: Vec::new() };
        verify_folder(&location.folder, &evidence).unwrap()
    }

    #[test]
    fn flushed_records_are_on_disk_and_anchored() {
        let state = tempfile::tempdir().unwrap();
        let anchor = Arc::new(MemoryAnchor::default());
        let audit = Audit::open(LogPaths::in_state(state.path()), || 7, Some(anchor.clone()));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let audit = audit.clone();
                thread::spawn(move || {
                    (0..100).for_each(|n| audit.note(AuditRecord::new(AuditKind::Egress).count("n", n)))
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        audit.flush();
        let report = check(state.path(), &anchor);
        assert_eq!((report.rows, report.problems, Some(report.head)), (401, vec![], anchor.load().unwrap().head));
        assert_eq!(audit.counts(), Counts { written: 400, lost: 0 });
        assert_eq!(audit.noted(), [(AuditKind::Egress, 400)]);
    }

    #[test]
    fn a_break_is_counted_and_stays_until_it_is_acknowledged() {
        let state = tempfile::tempdir().unwrap();
        let anchor = Arc::new(MemoryAnchor::default());
        let location = LogPaths::in_state(state.path());
        let audit = Audit::open(location.clone(), || 7, Some(anchor.clone()));
        (0..3).for_each(|_| audit.note(AuditRecord::new(AuditKind::Egress)));
        audit.flush();
        fs::remove_dir_all(&location.folder).unwrap();
        let audit = Audit::open(location, || 8, Some(anchor.clone()));
        audit.catch_up();
        audit.flush();
        assert_eq!(audit.noted(), [(AuditKind::ChainBroken, 1)]);
        audit.note(AuditRecord::new(AuditKind::Egress));
        audit.flush();
        assert_eq!(check(state.path(), &anchor).problems.len(), 2, "in the file and in the journal");
        audit.acknowledge("restored by me", "owner").unwrap();
        let report = check(state.path(), &anchor);
        assert_eq!((report.problems, report.acknowledged.len()), (vec![], 1));
        assert_eq!(report.acknowledged[0].reason, "restored by me");
        assert!(Audit::default().acknowledge("there is no log", "owner").is_err());
    }

    #[test]
    fn no_files_are_created_before_the_first_record() {
        let state = tempfile::tempdir().unwrap();
        let location = LogPaths::in_state(state.path());
        let audit = Audit::open(location.clone(), || 0, Some(Arc::new(MemoryAnchor::default())));
        audit.catch_up();
        audit.flush();
        assert!(!location.folder.exists() && !location.key.exists());
        let none = Audit::default();
        none.note(AuditRecord::new(AuditKind::Egress));
        none.flush();
        assert_eq!(none.counts(), Counts::default());
    }

    #[test]
    fn lost_records_are_counted_and_logged_later() {
        let state = tempfile::tempdir().unwrap();
        let location = LogPaths::in_state(state.path());
        let folder = location.folder.clone();
        // A file in place of the folder: nothing can be written, not even by root.
        fs::write(&folder, "in the way").unwrap();
        let audit = Audit::open(location, || 0, None);
        (0..3).for_each(|_| audit.note(AuditRecord::new(AuditKind::Egress)));
        audit.flush();
        assert_eq!(audit.counts(), Counts { written: 0, lost: 3 });
        fs::remove_file(&folder).unwrap();
        audit.note(AuditRecord::new(AuditKind::ConfigWritten));
        audit.flush();
        let kinds: Vec<_> = rows(&folder).unwrap().into_iter().map(|row| row.content["what"].clone()).collect();
        assert_eq!(kinds, ["audit.lost", "config.written"]);
        assert_eq!(rows(&folder).unwrap()[0].content["more"]["rows"], 3);
        assert_eq!(audit.counts(), Counts { written: 2, lost: 3 });
    }
}
