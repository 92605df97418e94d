//! Searches a tree with several threads; results keep the order of the walk.

use std::{collections::BTreeMap, path::PathBuf, thread};

use homard_stdx::sync::Mutex;
use rustix::fs::FileType;
use tokio_util::sync::CancellationToken;

use super::{
    FileFilter, GrepSearch,
    format::GrepOutput,
    hits::{FileMatches, FileSearcher},
};
use crate::{
    find::display_path,
    walk::{TreeWalk, WalkEntry},
};

/// Number of files that a thread takes at once: large enough to make locking cheap, small enough to balance the load.
const BATCH: usize = 32;

/// Maximum number of threads.
const MAX_THREADS: usize = 8;

/// A parallel search of one tree.
pub(super) struct ParallelSearch<'a> {
    search: &'a GrepSearch,
    filter: &'a FileFilter,
    cancel: &'a CancellationToken,
    walk: Mutex<(usize, TreeWalk)>,
}

/// Restores the order of results: batches finish in any order and are reported in the order of the walk.
struct OrderedOutput<'a, 'b> {
    path: &'a str,
    answer: &'a mut GrepOutput<'b>,
    next: usize,
    pending: BTreeMap<usize, Vec<(PathBuf, FileMatches)>>,
}

impl<'a> ParallelSearch<'a> {
    pub(super) fn new(
        search: &'a GrepSearch,
        walk: TreeWalk,
        filter: &'a FileFilter,
        cancel: &'a CancellationToken,
    ) -> Self {
        Self { search, filter, cancel, walk: Mutex::new((0, walk)) }
    }

    /// Searches until the tree is exhausted, the result is full or the run is cancelled. `path` is where the walk
    /// started.
    pub(super) fn search(self, path: &str, answer: &mut GrepOutput<'_>) {
        let sorter = Mutex::new(OrderedOutput { path, answer, next: 0, pending: BTreeMap::new() });
        let threads = thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
        thread::scope(|scope| {
            for _ in 1..threads {
                scope.spawn(|| self.work(&sorter));
            }
            self.work(&sorter);
        });
        sorter.lock().answer.unreadable += self.walk.lock().1.unreadable;
    }

    fn work(&self, sorter: &Mutex<OrderedOutput<'_, '_>>) {
        let mut searcher = FileSearcher::new(self.search, self.cancel);
        while !sorter.lock().answer.is_full() {
            let Some((number, files)) = self.batch() else { return };
            let mut found = Vec::new();
            for file in files {
                let hits = match file.open() {
                    Ok(opened) => searcher.search_file(opened),
                    Err(_) => FileMatches { is_unreadable: true, ..FileMatches::default() },
                };
                if hits.count > 0 || hits.is_unreadable {
                    found.push((file.path, hits));
                }
            }
            sorter.lock().add(number, found);
        }
    }

    fn batch(&self) -> Option<(usize, Vec<WalkEntry>)> {
        let mut walk = self.walk.lock();
        let (number, walk) = &mut *walk;
        let is_wanted = |entry: &WalkEntry| entry.kind == FileType::RegularFile && self.filter.allows(&entry.path);
        let files: Vec<WalkEntry> = walk.filter(is_wanted).take(BATCH).collect();
        *number += 1;
        (!files.is_empty()).then_some((*number - 1, files))
    }
}

impl OrderedOutput<'_, '_> {
    fn add(&mut self, number: usize, found: Vec<(PathBuf, FileMatches)>) {
        self.pending.insert(number, found);
        while let Some(found) = self.pending.remove(&self.next) {
            self.next += 1;
            for (path, hits) in found {
                if !self.answer.is_full() {
                    self.answer.add(&display_path(self.path, &path), &hits);
                }
            }
        }
    }
}
