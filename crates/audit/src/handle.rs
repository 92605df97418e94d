//! Handle of the audit log: accepts facts without blocking; one thread writes.

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

/// Maximum number of queued facts; further ones are lost, and that is recorded.
const MAX_QUEUED: usize = 4096;
/// Maximum number of facts written together.
const BATCH: usize = 256;

/// Handle of an audit log. Clones share it; a default handle discards everything.
///
/// A fact that cannot be written is logged and counted, and affects nothing else.
#[derive(Clone, Default)]
pub struct Audit(Option<Arc<AuditLog>>);

struct AuditLog {
    location: LogPaths,
    now_ms: Box<dyn Fn() -> u64 + Send + Sync>,
    anchor: Option<Arc<dyn Anchor>>,
    counts: Arc<Totals>,
    /// Started with the first fact, so that a process without any has no thread and no folder. `None` if the thread
    /// could not be started.
    writer: OnceLock<Option<SyncSender<WriterJob>>>,
}

#[derive(Debug, Default)]
struct Totals {
    written: AtomicU64,
    lost: AtomicU64,
    /// Number of facts by kind, in the order of [`AuditKind::ALL`].
    noted: [AtomicU64; AuditKind::ALL.len()],
}

/// Number of written and lost facts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Rows on disk.
    pub written: u64,
    /// Facts that were lost.
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
        who: String,
        done: SyncSender<io::Result<()>>,
    },
    /// Answered when everything before it is on disk, or was given up.
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

    /// Records a fact. Never waits for the disk.
    pub fn note(&self, fact: AuditRecord) {
        let Some(book) = &self.0 else { return };
        book.counts.noted[fact.kind() as usize].fetch_add(1, Ordering::Relaxed);
        let note = WriterJob::Note((book.now_ms)(), fact);
        let is_taken = book.writer().is_some_and(|writer| writer.try_send(note).is_ok());
        if !is_taken {
            // The writer adds a `RowsLost` row with the number of lost facts before the next facts.
            book.counts.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Compares the end of the log with its anchor, records a break if rows were removed or replaced, and stores the
    /// end, even if another process has written since. Does not wait. Does nothing without an anchor.
    pub fn catch_up(&self) {
        let Some(book) = self.0.as_ref().filter(|book| book.anchor.is_some()) else { return };
        if let Some(writer) = book.writer() {
            // If the queue is full, the end is stored with the last queued fact.
            writer.try_send(WriterJob::CatchUp((book.now_ms)())).ok();
        }
    }

    /// Appends a row that acknowledges all current problems of the log. Blocks until it is on disk.
    pub fn acknowledge(&self, reason: &str, who: &str) -> io::Result<()> {
        let gone = || io::Error::other("the audit log is not written by this process");
        let book = self.0.as_ref().ok_or_else(gone)?;
        let (done, wait) = mpsc::sync_channel(1);
        let (reason, who) = (reason.to_owned(), who.to_owned());
        let job = WriterJob::Acknowledge { at: (book.now_ms)(), reason, who, done };
        book.writer().and_then(|writer| writer.send(job).ok()).ok_or_else(gone)?;
        wait.recv().unwrap_or_else(|_closed| Err(gone()))
    }

    /// Waits until all queued facts are on disk, or were given up.
    pub fn flush(&self) {
        let Some(writer) = self.0.as_ref().and_then(|book| book.writer.get()?.as_ref()) else { return };
        let (done, wait) = mpsc::sync_channel(1);
        if writer.send(WriterJob::Flush(done)).is_ok() {
            // Without a writer there is nothing to wait for.
            wait.recv().ok();
        }
    }

    /// Returns the number of facts by kind, without those that never happened.
    pub fn noted(&self) -> Vec<(AuditKind, u64)> {
        let Some(book) = &self.0 else { return Vec::new() };
        let counts = book.counts.noted.iter().map(|count| count.load(Ordering::Relaxed));
        AuditKind::ALL.into_iter().zip(counts).filter(|(_, count)| *count > 0).collect()
    }

    /// Returns the number of written and lost facts.
    pub fn counts(&self) -> Counts {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let counts = self.0.as_ref().map(|book| &book.counts);
        counts
            .map_or_else(Counts::default, |totals| Counts { written: read(&totals.written), lost: read(&totals.lost) })
    }
}

impl AuditLog {
    fn writer(&self) -> Option<&SyncSender<WriterJob>> {
        let begin = || {
            let (tell, told) = mpsc::sync_channel(MAX_QUEUED);
            let writer = WriterThread {
                writer: AuditWriter::new(self.location.clone(), self.anchor.clone()),
                location: self.location.clone(),
                counts: self.counts.clone(),
                recorded_lost: 0,
                is_failing: false,
            };
            let begun = thread::Builder::new().name("audit".to_owned()).spawn(move || writer.work(&told));
            match begun {
                Ok(_) => Some(tell),
                Err(error) => {
                    tracing::error!(%error, "failed to start the audit thread; nothing is audited");
                    None
                }
            }
        };
        self.writer.get_or_init(begin).as_ref()
    }
}

struct WriterThread {
    writer: AuditWriter,
    location: LogPaths,
    counts: Arc<Totals>,
    /// Number of lost facts already recorded in the file.
    recorded_lost: u64,
    is_failing: bool,
}

impl WriterThread {
    /// Writes until all senders are gone.
    fn work(mut self, told: &Receiver<WriterJob>) {
        while let Ok(first) = told.recv() {
            let (mut facts, mut waiting, mut behind) = (Vec::new(), Vec::new(), None);
            let more = std::iter::from_fn(|| told.try_recv().ok());
            for job in std::iter::once(first).chain(more).take(BATCH) {
                match job {
                    WriterJob::Note(at, fact) => facts.push((at, fact)),
                    WriterJob::CatchUp(at) => behind = Some(at),
                    WriterJob::Acknowledge { at, reason, who, done } => {
                        self.write(std::mem::take(&mut facts));
                        let added = self.writer.acknowledge(&reason, &who, at);
                        // The caller may be gone.
                        done.send(self.report_break(added).map(|_| ())).ok();
                    }
                    WriterJob::Flush(done) => waiting.push(done),
                }
            }
            if facts.is_empty()
                && let Some(at) = behind
            {
                let added = self.writer.catch_up(at);
                if let Err(error) = self.report_break(added) {
                    self.report_failure(&error);
                }
            }
            self.write(facts);
            for done in waiting {
                // The caller may be gone.
                done.send(()).ok();
            }
        }
    }

    fn write(&mut self, mut facts: Vec<(u64, AuditRecord)>) {
        let Some((now, _)) = facts.last() else { return };
        let now = *now;
        let lost = self.counts.lost.load(Ordering::Relaxed);
        let news = facts.len() as u64;
        if lost > self.recorded_lost {
            facts.insert(
                0,
                (now, AuditRecord::new(AuditKind::RowsLost).outcome("lost").count("rows", lost - self.recorded_lost)),
            );
        }
        let added = self.writer.write(&facts, now);
        match self.report_break(added) {
            Ok(_) => {
                (self.recorded_lost, self.is_failing) = (lost, false);
                self.counts.written.fetch_add(facts.len() as u64, Ordering::Relaxed);
            }
            Err(error) => {
                self.counts.lost.fetch_add(news, Ordering::Relaxed);
                self.report_failure(&error);
            }
        }
    }

    /// Logs a break that was found.
    fn report_break(&self, added: io::Result<WriteResult>) -> io::Result<WriteResult> {
        let added = added?;
        if let Some(broken) = &added.broken {
            self.counts.noted[AuditKind::ChainBroken as usize].fetch_add(1, Ordering::Relaxed);
            let folder = self.location.folder.display();
            tracing::error!(
                "the audit log in {folder} was changed: {}; see: homard audit verify",
                broken.description()
            );
        }
        Ok(added)
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
        f.debug_tuple("Audit").field(&self.0.as_ref().map(|book| &book.location.folder)).finish()
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
        let (kept, key) = (anchor.load().unwrap(), crate::Key::load(&location.key).unwrap());
        let evidence = Evidence { key, kept: kept.head, ledger: kept.ledger, checkpoints: Vec::new() };
        verify_folder(&location.folder, &evidence).unwrap()
    }

    #[test]
    fn what_is_noted_is_on_disk_after_a_flush_and_its_end_is_kept() {
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
    fn h3_a_break_is_counted_and_stays_until_it_is_acknowledged() {
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
    fn nothing_is_made_before_the_first_fact_and_nothing_by_a_book_that_is_none() {
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
    fn what_cannot_be_written_is_counted_and_told_as_soon_as_it_can() {
        let state = tempfile::tempdir().unwrap();
        let location = LogPaths::in_state(state.path());
        let place = location.folder.clone();
        // A file in place of the folder: nothing can be written, not even by root.
        fs::write(&place, "in the way").unwrap();
        let audit = Audit::open(location, || 0, None);
        (0..3).for_each(|_| audit.note(AuditRecord::new(AuditKind::Egress)));
        audit.flush();
        assert_eq!(audit.counts(), Counts { written: 0, lost: 3 });
        fs::remove_file(&place).unwrap();
        audit.note(AuditRecord::new(AuditKind::ConfigWritten));
        audit.flush();
        let told: Vec<_> = rows(&place).unwrap().into_iter().map(|row| row.content["what"].clone()).collect();
        assert_eq!(told, ["audit.lost", "config.written"]);
        assert_eq!(rows(&place).unwrap()[0].content["more"]["rows"], 3);
        assert_eq!(audit.counts(), Counts { written: 2, lost: 3 });
    }
}
