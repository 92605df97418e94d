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
    fact::{Fact, What},
    files::Location,
    pen::{Added, Pen},
};

/// Maximum number of queued facts; further ones are lost, and that is recorded.
const WAITING: usize = 4096;
/// Maximum number of facts written together.
const BATCH: usize = 256;

/// Handle of an audit log. Clones share it; a default handle discards everything.
///
/// A fact that cannot be written is logged and counted, and affects nothing else.
#[derive(Clone, Default)]
pub struct Audit(Option<Arc<Book>>);

struct Book {
    location: Location,
    now_ms: Box<dyn Fn() -> u64 + Send + Sync>,
    anchor: Option<Arc<dyn Anchor>>,
    counts: Arc<Totals>,
    /// Started with the first fact, so that a process without any has no thread and no folder. `None` if the thread
    /// could not be started.
    writer: OnceLock<Option<SyncSender<Job>>>,
}

#[derive(Debug, Default)]
struct Totals {
    written: AtomicU64,
    lost: AtomicU64,
    /// Number of facts by kind, in the order of [`What::ALL`].
    noted: [AtomicU64; What::ALL.len()],
}

/// Number of written and lost facts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Rows on disk.
    pub written: u64,
    /// Facts that were lost.
    pub lost: u64,
}

enum Job {
    Note(u64, Fact),
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
        location: Location,
        now_ms: impl Fn() -> u64 + Send + Sync + 'static,
        anchor: Option<Arc<dyn Anchor>>,
    ) -> Self {
        Self(Some(Arc::new(Book {
            location,
            now_ms: Box::new(now_ms),
            anchor,
            counts: Arc::default(),
            writer: OnceLock::new(),
        })))
    }

    /// Records a fact. Never waits for the disk.
    pub fn note(&self, fact: Fact) {
        let Some(book) = &self.0 else { return };
        book.counts.noted[fact.what() as usize].fetch_add(1, Ordering::Relaxed);
        let note = Job::Note((book.now_ms)(), fact);
        let is_taken = book.writer().is_some_and(|writer| writer.try_send(note).is_ok());
        if !is_taken {
            // The writer reports it in the log and in the file as soon as possible.
            book.counts.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Compares the end of the log with its anchor, records a break, and stores the end, even if another process has
    /// written since. Does nothing without an anchor.
    pub fn catch_up(&self) {
        let Some(book) = self.0.as_ref().filter(|book| book.anchor.is_some()) else { return };
        if let Some(writer) = book.writer() {
            // If the queue is full, the end is stored with the last queued fact.
            writer.try_send(Job::CatchUp((book.now_ms)())).ok();
        }
    }

    /// Appends a row that acknowledges all current problems of the log. Blocks until it is on disk.
    pub fn acknowledge(&self, reason: &str, who: &str) -> io::Result<()> {
        let gone = || io::Error::other("the audit log is not written by this process");
        let book = self.0.as_ref().ok_or_else(gone)?;
        let (done, wait) = mpsc::sync_channel(1);
        let (reason, who) = (reason.to_owned(), who.to_owned());
        let job = Job::Acknowledge { at: (book.now_ms)(), reason, who, done };
        book.writer().and_then(|writer| writer.send(job).ok()).ok_or_else(gone)?;
        wait.recv().unwrap_or_else(|_closed| Err(gone()))
    }

    /// Waits until all queued facts are on disk, or were given up.
    pub fn flush(&self) {
        let Some(writer) = self.0.as_ref().and_then(|book| book.writer.get()?.as_ref()) else { return };
        let (done, wait) = mpsc::sync_channel(1);
        if writer.send(Job::Flush(done)).is_ok() {
            // Without a writer there is nothing to wait for.
            wait.recv().ok();
        }
    }

    /// Returns the number of facts by kind, without those that never happened.
    pub fn noted(&self) -> Vec<(What, u64)> {
        let Some(book) = &self.0 else { return Vec::new() };
        let counts = book.counts.noted.iter().map(|count| count.load(Ordering::Relaxed));
        What::ALL.into_iter().zip(counts).filter(|(_, count)| *count > 0).collect()
    }

    /// Returns the number of written and lost facts.
    pub fn counts(&self) -> Counts {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let counts = self.0.as_ref().map(|book| &book.counts);
        counts
            .map_or_else(Counts::default, |totals| Counts { written: read(&totals.written), lost: read(&totals.lost) })
    }
}

impl Book {
    fn writer(&self) -> Option<&SyncSender<Job>> {
        let begin = || {
            let (tell, told) = mpsc::sync_channel(WAITING);
            let writer = Writer {
                pen: Pen::new(self.location.clone(), self.anchor.clone()),
                location: self.location.clone(),
                counts: self.counts.clone(),
                told_lost: 0,
                is_failing: false,
            };
            let begun = thread::Builder::new().name("audit".to_owned()).spawn(move || writer.work(&told));
            match begun {
                Ok(_) => Some(tell),
                Err(error) => {
                    tracing::error!(%error, "nothing can be audited: there is no thread for it");
                    None
                }
            }
        };
        self.writer.get_or_init(begin).as_ref()
    }
}

struct Writer {
    pen: Pen,
    location: Location,
    counts: Arc<Totals>,
    /// Number of lost facts already recorded in the file.
    told_lost: u64,
    is_failing: bool,
}

impl Writer {
    /// Writes until all senders are gone.
    fn work(mut self, told: &Receiver<Job>) {
        while let Ok(first) = told.recv() {
            let (mut facts, mut waiting, mut behind) = (Vec::new(), Vec::new(), None);
            let more = std::iter::from_fn(|| told.try_recv().ok());
            for job in std::iter::once(first).chain(more).take(BATCH) {
                match job {
                    Job::Note(at, fact) => facts.push((at, fact)),
                    Job::CatchUp(at) => behind = Some(at),
                    Job::Acknowledge { at, reason, who, done } => {
                        self.write(std::mem::take(&mut facts));
                        let added = self.pen.acknowledge(&reason, &who, at);
                        // The caller may be gone.
                        done.send(self.heed(added).map(|_| ())).ok();
                    }
                    Job::Flush(done) => waiting.push(done),
                }
            }
            if facts.is_empty()
                && let Some(at) = behind
            {
                let added = self.pen.catch_up(at);
                if let Err(error) = self.heed(added) {
                    self.tell(&error);
                }
            }
            self.write(facts);
            for done in waiting {
                // The caller may be gone.
                done.send(()).ok();
            }
        }
    }

    fn write(&mut self, mut facts: Vec<(u64, Fact)>) {
        let Some((now, _)) = facts.last() else { return };
        let now = *now;
        let lost = self.counts.lost.load(Ordering::Relaxed);
        let news = facts.len() as u64;
        if lost > self.told_lost {
            facts.insert(0, (now, Fact::new(What::RowsLost).ended("lost").count("rows", lost - self.told_lost)));
        }
        let added = self.pen.write(&facts, now);
        match self.heed(added) {
            Ok(_) => {
                (self.told_lost, self.is_failing) = (lost, false);
                self.counts.written.fetch_add(facts.len() as u64, Ordering::Relaxed);
            }
            Err(error) => {
                self.counts.lost.fetch_add(news, Ordering::Relaxed);
                self.tell(&error);
            }
        }
    }

    /// Logs a break that was found.
    fn heed(&self, added: io::Result<Added>) -> io::Result<Added> {
        let added = added?;
        if let Some(broken) = &added.broken {
            self.counts.noted[What::Broken as usize].fetch_add(1, Ordering::Relaxed);
            let folder = self.location.folder.display();
            tracing::error!("the audit log in {folder} was changed: {}; see: homard audit verify", broken.what());
        }
        Ok(added)
    }

    /// Logs once that writing fails.
    fn tell(&mut self, error: &io::Error) {
        if !std::mem::replace(&mut self.is_failing, true) {
            let folder = self.location.folder.display();
            tracing::error!(
                "the audit log in {folder} cannot be written: {error}; what happens is not audited until it can"
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
        verify::{Evidence, Report},
        verify_folder,
    };

    fn check(state: &Path, anchor: &MemoryAnchor) -> Report {
        let location = Location::in_state(state);
        let (kept, key) = (anchor.load().unwrap(), crate::Key::load(&location.key).unwrap());
        let evidence = Evidence { key, kept: kept.head, ledger: kept.ledger, checkpoints: Vec::new() };
        verify_folder(&location.folder, &evidence).unwrap()
    }

    #[test]
    fn what_is_noted_is_on_disk_after_a_flush_and_its_end_is_kept() {
        let state = tempfile::tempdir().unwrap();
        let anchor = Arc::new(MemoryAnchor::default());
        let audit = Audit::open(Location::in_state(state.path()), || 7, Some(anchor.clone()));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let audit = audit.clone();
                thread::spawn(move || (0..100).for_each(|n| audit.note(Fact::new(What::Egress).count("n", n))))
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        audit.flush();
        let report = check(state.path(), &anchor);
        assert_eq!((report.rows, report.problems, Some(report.head)), (401, vec![], anchor.load().unwrap().head));
        assert_eq!(audit.counts(), Counts { written: 400, lost: 0 });
        assert_eq!(audit.noted(), [(What::Egress, 400)]);
    }

    #[test]
    fn h3_a_break_is_counted_and_stays_until_it_is_acknowledged() {
        let state = tempfile::tempdir().unwrap();
        let anchor = Arc::new(MemoryAnchor::default());
        let location = Location::in_state(state.path());
        let audit = Audit::open(location.clone(), || 7, Some(anchor.clone()));
        (0..3).for_each(|_| audit.note(Fact::new(What::Egress)));
        audit.flush();
        fs::remove_dir_all(&location.folder).unwrap();
        let audit = Audit::open(location, || 8, Some(anchor.clone()));
        audit.catch_up();
        audit.flush();
        assert_eq!(audit.noted(), [(What::Broken, 1)]);
        audit.note(Fact::new(What::Egress));
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
        let location = Location::in_state(state.path());
        let audit = Audit::open(location.clone(), || 0, Some(Arc::new(MemoryAnchor::default())));
        audit.catch_up();
        audit.flush();
        assert!(!location.folder.exists() && !location.key.exists());
        let none = Audit::default();
        none.note(Fact::new(What::Egress));
        none.flush();
        assert_eq!(none.counts(), Counts::default());
    }

    #[test]
    fn what_cannot_be_written_is_counted_and_told_as_soon_as_it_can() {
        let state = tempfile::tempdir().unwrap();
        let location = Location::in_state(state.path());
        let place = location.folder.clone();
        // A file in place of the folder: nothing can be written, not even by root.
        fs::write(&place, "in the way").unwrap();
        let audit = Audit::open(location, || 0, None);
        (0..3).for_each(|_| audit.note(Fact::new(What::Egress)));
        audit.flush();
        assert_eq!(audit.counts(), Counts { written: 0, lost: 3 });
        fs::remove_file(&place).unwrap();
        audit.note(Fact::new(What::ConfigWritten));
        audit.flush();
        let told: Vec<_> = rows(&place).unwrap().into_iter().map(|row| row.said["what"].clone()).collect();
        assert_eq!(told, ["audit.lost", "config.written"]);
        assert_eq!(rows(&place).unwrap()[0].said["more"]["rows"], 3);
        assert_eq!(audit.counts(), Counts { written: 2, lost: 3 });
    }
}
