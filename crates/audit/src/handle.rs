//! What rooms hold: it takes a fact at once, and one thread writes.

use std::{
    fmt, io,
    path::{Path, PathBuf},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
        mpsc::{self, Receiver, SyncSender},
    },
    thread,
};

use crate::{
    chain::Head,
    fact::{Fact, What},
    pen::Pen,
};

/// How many facts wait for the disk at most; one more is lost, and that is told.
const WAITING: usize = 4096;
/// How many are written together.
const BATCH: usize = 256;

/// Where facts are told. Clones are the same book; one that was not opened keeps nothing.
///
/// A fact that cannot be written is told in the log and counted, and hurts nothing else.
#[derive(Clone, Default)]
pub struct Audit(Option<Arc<Book>>);

struct Book {
    folder: PathBuf,
    now_ms: Box<dyn Fn() -> u64 + Send + Sync>,
    keep: Arc<dyn Fn(Head) + Send + Sync>,
    counts: Arc<Totals>,
    /// Begun with the first fact, so that a process without any has no thread and no folder. `None` if there is no thread.
    writer: OnceLock<Option<SyncSender<Job>>>,
}

#[derive(Debug, Default)]
struct Totals {
    written: AtomicU64,
    lost: AtomicU64,
    /// How often each thing happened, in the order of [`What::ALL`].
    noted: [AtomicU64; What::ALL.len()],
}

/// How many facts became rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Rows that are on disk.
    pub written: u64,
    /// Facts that are not.
    pub lost: u64,
}

enum Job {
    Note(u64, Fact),
    /// Others may have written: where the chain ends is kept again.
    CatchUp,
    /// Everything before it is on disk, or was given up, when this is answered.
    Flush(SyncSender<()>),
}

impl Audit {
    /// A book in this folder. `keep` is told where the chain ends each time that rows are safe.
    pub fn open(
        folder: &Path,
        now_ms: impl Fn() -> u64 + Send + Sync + 'static,
        keep: impl Fn(Head) + Send + Sync + 'static,
    ) -> Self {
        Self(Some(Arc::new(Book {
            folder: folder.to_owned(),
            now_ms: Box::new(now_ms),
            keep: Arc::new(keep),
            counts: Arc::default(),
            writer: OnceLock::new(),
        })))
    }

    /// Takes a fact. Never waits for the disk.
    pub fn note(&self, fact: Fact) {
        let Some(book) = &self.0 else { return };
        book.counts.noted[fact.what() as usize].fetch_add(1, Ordering::Relaxed);
        let note = Job::Note((book.now_ms)(), fact);
        let is_taken = book.writer().is_some_and(|writer| writer.try_send(note).is_ok());
        if !is_taken {
            // The writer says so in the log and in the file as soon as it gets to it.
            book.counts.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Keeps where the chain ends, also if another process has written since.
    pub fn catch_up(&self) {
        let Some(book) = self.0.as_ref().filter(|book| book.folder.exists()) else { return };
        if let Some(writer) = book.writer() {
            // If so many wait, it is kept with the last of them.
            writer.try_send(Job::CatchUp).ok();
        }
    }

    /// Waits until everything that was taken is on disk, or was given up.
    pub fn flush(&self) {
        let Some(writer) = self.0.as_ref().and_then(|book| book.writer.get()?.as_ref()) else { return };
        let (done, wait) = mpsc::sync_channel(1);
        if writer.send(Job::Flush(done)).is_ok() {
            // Without a writer there is nothing to wait for.
            wait.recv().ok();
        }
    }

    /// How often each thing happened that did.
    pub fn noted(&self) -> Vec<(What, u64)> {
        let Some(book) = &self.0 else { return Vec::new() };
        let counts = book.counts.noted.iter().map(|count| count.load(Ordering::Relaxed));
        What::ALL.into_iter().zip(counts).filter(|(_, count)| *count > 0).collect()
    }

    /// How many facts became rows.
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
                pen: Pen::new(self.folder.clone()),
                folder: self.folder.clone(),
                keep: self.keep.clone(),
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
    folder: PathBuf,
    keep: Arc<dyn Fn(Head) + Send + Sync>,
    counts: Arc<Totals>,
    /// How many lost ones are told in the file.
    told_lost: u64,
    is_failing: bool,
}

impl Writer {
    /// Writes until nobody is left who could tell anything.
    fn work(mut self, told: &Receiver<Job>) {
        while let Ok(first) = told.recv() {
            let (mut facts, mut waiting, mut is_behind) = (Vec::new(), Vec::new(), false);
            let more = std::iter::from_fn(|| told.try_recv().ok());
            for job in std::iter::once(first).chain(more).take(BATCH) {
                match job {
                    Job::Note(at, fact) => facts.push((at, fact)),
                    Job::CatchUp => is_behind = true,
                    Job::Flush(done) => waiting.push(done),
                }
            }
            if !facts.is_empty() {
                self.write(facts);
            } else if is_behind && let Ok(Some(head)) = self.pen.end() {
                (self.keep)(head);
            }
            for done in waiting {
                // Who asked may be gone.
                done.send(()).ok();
            }
        }
    }

    fn write(&mut self, mut facts: Vec<(u64, Fact)>) {
        let lost = self.counts.lost.load(Ordering::Relaxed);
        let news = facts.len() as u64;
        if lost > self.told_lost {
            let now = facts.first().map_or(0, |(at, _)| *at);
            facts.insert(0, (now, Fact::new(What::RowsLost).ended("lost").count("rows", lost - self.told_lost)));
        }
        match self.pen.write(&facts) {
            Ok(head) => {
                (self.told_lost, self.is_failing) = (lost, false);
                self.counts.written.fetch_add(facts.len() as u64, Ordering::Relaxed);
                (self.keep)(head);
            }
            Err(error) => {
                self.counts.lost.fetch_add(news, Ordering::Relaxed);
                self.tell(&error);
            }
        }
    }

    /// Says once that it does not work.
    fn tell(&mut self, error: &io::Error) {
        if !std::mem::replace(&mut self.is_failing, true) {
            let folder = self.folder.display();
            tracing::error!(
                "the audit log in {folder} cannot be written: {error}; what happens is not audited until it can"
            );
        }
    }
}

impl fmt::Debug for Audit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Audit").field(&self.0.as_ref().map(|book| &book.folder)).finish()
    }
}

/// Two are equal if they are the same book.
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
    use std::{fs, sync::Mutex};

    use super::*;
    use crate::{rows, verify_folder};

    #[test]
    fn what_is_noted_is_on_disk_after_a_flush_and_its_end_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let kept = Arc::new(Mutex::new(Head::default()));
        let keeper = kept.clone();
        let audit = Audit::open(folder.path(), || 7, move |head| *keeper.lock().unwrap() = head);
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let audit = audit.clone();
                thread::spawn(move || (0..100).for_each(|n| audit.note(Fact::new(What::Egress).count("n", n))))
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        audit.flush();
        let report = verify_folder(folder.path(), Some(*kept.lock().unwrap())).unwrap();
        assert_eq!((report.rows, report.problems, report.head), (400, vec![], *kept.lock().unwrap()));
        assert_eq!(audit.counts(), Counts { written: 400, lost: 0 });
        assert_eq!(audit.noted(), [(What::Egress, 400)]);
    }

    #[test]
    fn nothing_is_made_before_the_first_fact_and_nothing_by_a_book_that_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("audit");
        let audit = Audit::open(&place, || 0, |_| {});
        audit.flush();
        assert!(!place.exists());
        let none = Audit::default();
        none.note(Fact::new(What::Egress));
        none.flush();
        assert_eq!(none.counts(), Counts::default());
    }

    #[test]
    fn what_cannot_be_written_is_counted_and_told_as_soon_as_it_can() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("audit");
        // A file where the folder belongs: nothing can be written, by root neither.
        fs::write(&place, "in the way").unwrap();
        let audit = Audit::open(&place, || 0, |_| {});
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
