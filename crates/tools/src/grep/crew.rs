//! Searches a tree with several threads; results keep the order of the walk.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
};

use rustix::fs::FileType;
use tokio_util::sync::CancellationToken;

use super::{
    Filter, Search,
    answer::Answer,
    hits::{Hits, Hunter},
};
use crate::{
    find::shown,
    walk::{Entry, Walk},
};

/// Number of files that a thread takes at once: large enough to make locking cheap, small enough to balance the load.
const BATCH: usize = 32;

/// Maximum number of threads.
const MAX_THREADS: usize = 8;

/// A parallel search of one tree.
pub(super) struct Crew<'a> {
    search: &'a Search,
    filter: &'a Filter,
    cancel: &'a CancellationToken,
    walk: Mutex<(usize, Walk)>,
}

/// Restores the order of results: batches finish in any order and are reported in the order of the walk.
struct Sorter<'a, 'b> {
    path: &'a str,
    answer: &'a mut Answer<'b>,
    next: usize,
    waiting: BTreeMap<usize, Vec<(PathBuf, Hits)>>,
}

impl<'a> Crew<'a> {
    pub(super) fn new(search: &'a Search, walk: Walk, filter: &'a Filter, cancel: &'a CancellationToken) -> Self {
        Self { search, filter, cancel, walk: Mutex::new((0, walk)) }
    }

    /// Searches until the tree is exhausted, the result is full or the run is cancelled. `path` is where the walk
    /// started.
    pub(super) fn search(self, path: &str, answer: &mut Answer<'_>) {
        let sorter = Mutex::new(Sorter { path, answer, next: 0, waiting: BTreeMap::new() });
        let threads = thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
        thread::scope(|scope| {
            for _ in 1..threads {
                scope.spawn(|| self.work(&sorter));
            }
            self.work(&sorter);
        });
        lock(&sorter).answer.unreadable += lock(&self.walk).1.unreadable;
    }

    fn work(&self, sorter: &Mutex<Sorter<'_, '_>>) {
        let mut hunter = Hunter::new(self.search, self.cancel);
        while !lock(sorter).answer.is_full() {
            let Some((number, files)) = self.batch() else { return };
            let mut found = Vec::new();
            for file in files {
                let hits = match file.open() {
                    Ok(opened) => hunter.hunt(opened),
                    Err(_) => Hits { is_unreadable: true, ..Hits::default() },
                };
                if hits.count > 0 || hits.is_unreadable {
                    found.push((file.path, hits));
                }
            }
            lock(sorter).add(number, found);
        }
    }

    fn batch(&self) -> Option<(usize, Vec<Entry>)> {
        let mut walk = lock(&self.walk);
        let (number, walk) = &mut *walk;
        let is_wanted = |entry: &Entry| entry.kind == FileType::RegularFile && self.filter.lets(&entry.path);
        let files: Vec<Entry> = walk.filter(is_wanted).take(BATCH).collect();
        *number += 1;
        (!files.is_empty()).then_some((*number - 1, files))
    }
}

impl Sorter<'_, '_> {
    fn add(&mut self, number: usize, found: Vec<(PathBuf, Hits)>) {
        self.waiting.insert(number, found);
        while let Some(found) = self.waiting.remove(&self.next) {
            self.next += 1;
            for (path, hits) in found {
                if !self.answer.is_full() {
                    self.answer.add(&shown(self.path, &path), &hits);
                }
            }
        }
    }
}

/// Locks a mutex, ignoring poisoning: a panic while a lock is held ends the search anyway.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
