//! A disk that keeps what was synced, and a random part of the rest.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use super::DiskEvent;
use homard_stdx::SeededRng;

/// Unit that a disk writes atomically.
const SECTOR: u64 = 512;

/// A file or directory, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DiskNode {
    File(usize),
    Folder(usize),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FileOp {
    /// Writes bytes at an offset.
    Write(u64, Vec<u8>),
    /// Truncates the file.
    Truncate(u64),
}

impl FileOp {
    /// Returns the length of the file after the operation.
    fn length(&self, before: u64) -> u64 {
        match self {
            Self::Write(at, bytes) => before.max(at + bytes.len() as u64),
            Self::Truncate(length) => *length,
        }
    }
}

/// The directory tree as the process sees it.
#[derive(Debug, Clone)]
pub(super) struct DirectoryTree {
    folders: Vec<BTreeMap<String, DiskNode>>,
    lengths: Vec<u64>,
}

impl Default for DirectoryTree {
    fn default() -> Self {
        Self { folders: vec![BTreeMap::new()], lengths: Vec::new() }
    }
}

impl DirectoryTree {
    pub(super) fn find(&self, path: &Path) -> Option<DiskNode> {
        path.iter().try_fold(DiskNode::Folder(0), |node, name| match node {
            DiskNode::Folder(folder) => self.folders.get(folder)?.get(name.to_str()?).copied(),
            DiskNode::File(_) => None,
        })
    }

    pub(super) fn new_file(&mut self) -> DiskNode {
        self.lengths.push(0);
        DiskNode::File(self.lengths.len() - 1)
    }

    pub(super) fn new_folder(&mut self) -> DiskNode {
        self.folders.push(BTreeMap::new());
        DiskNode::Folder(self.folders.len() - 1)
    }

    pub(super) fn length(&self, file: usize) -> u64 {
        self.lengths.get(file).copied().unwrap_or_default()
    }

    /// Applies an event to the names and file lengths; contents are not part of the tree.
    pub(super) fn apply_event(&mut self, event: &DiskEvent) {
        match event {
            DiskEvent::File(file, op) => {
                if let Some(length) = self.lengths.get_mut(*file) {
                    *length = op.length(*length);
                }
            }
            DiskEvent::Names(folder, changes) => {
                if let Some(names) = self.folders.get_mut(*folder) {
                    change(names, changes);
                }
            }
            DiskEvent::Synced { .. } | DiskEvent::FrameSent(_) => {}
        }
    }
}

/// Changes of names; `None` removes one.
pub(super) type NameChanges = Vec<(String, Option<DiskNode>)>;

fn change(names: &mut BTreeMap<String, DiskNode>, changes: &[(String, Option<DiskNode>)]) {
    for (name, node) in changes {
        match node {
            Some(node) => names.insert(name.clone(), *node),
            None => names.remove(name),
        };
    }
}

/// A synced state, and the changes since, each with the number of its event.
#[derive(Debug)]
struct SyncedState<T, C> {
    synced: T,
    since: Vec<(usize, C)>,
}

impl<T: Default, C> Default for SyncedState<T, C> {
    fn default() -> Self {
        Self { synced: T::default(), since: Vec::new() }
    }
}

impl<T, C> SyncedState<T, C> {
    /// Removes and returns the changes before an event, in order.
    fn before(&mut self, start: usize) -> Vec<C> {
        let (earlier, later) = self.since.drain(..).partition(|(at, _)| *at < start);
        self.since = later;
        let earlier: Vec<(usize, C)> = earlier;
        earlier.into_iter().map(|(_, what)| what).collect()
    }
}

/// The disk.
#[derive(Debug, Default)]
pub(super) struct SimulatedDisk {
    files: Vec<SyncedState<Vec<u8>, FileOp>>,
    folders: Vec<SyncedState<BTreeMap<String, DiskNode>, NameChanges>>,
}

/// Files by path, and directories.
type DiskContents = (BTreeMap<PathBuf, Vec<u8>>, Vec<PathBuf>);

/// Returns the element with this number, which may be new.
fn at<T: Default>(elements: &mut Vec<T>, number: usize) -> &mut T {
    if elements.len() <= number {
        elements.resize_with(number + 1, T::default);
    }
    &mut elements[number]
}

impl SimulatedDisk {
    pub(super) fn apply_event(&mut self, number: usize, event: &DiskEvent) {
        match event {
            DiskEvent::File(file, op) => at(&mut self.files, *file).since.push((number, op.clone())),
            DiskEvent::Names(folder, changes) => at(&mut self.folders, *folder).since.push((number, changes.clone())),
            DiskEvent::Synced { node: DiskNode::File(file), start } => {
                let file = at(&mut self.files, *file);
                for op in file.before(*start) {
                    apply(&mut file.synced, &op);
                }
            }
            DiskEvent::Synced { node: DiskNode::Folder(folder), start } => {
                let folder = at(&mut self.folders, *folder);
                for changes in folder.before(*start) {
                    change(&mut folder.synced, &changes);
                }
            }
            DiskEvent::FrameSent(_) => {}
        }
    }

    /// Returns the files with all changes applied.
    pub(super) fn everything(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        self.contents_after(&mut UnsyncedPolicy::KeepAll).0
    }

    /// Returns the files after a power failure.
    pub(super) fn cut(&self, rng: &mut SeededRng) -> DiskContents {
        // Disks differ: one writes almost everything at once, another almost nothing.
        let newest = *rng.pick(&[0, 10, 50, 90, 100]);
        self.contents_after(&mut UnsyncedPolicy::Random { rng, newest })
    }

    fn contents_after(&self, policy: &mut UnsyncedPolicy<'_>) -> DiskContents {
        let (mut files, mut folders) = (BTreeMap::new(), Vec::new());
        let mut pending = vec![(PathBuf::new(), 0)];
        while let Some((path, number)) = pending.pop() {
            let Some(folder) = self.folders.get(number) else { continue };
            let count = policy.draw(0, folder.since.len());
            let mut names = folder.synced.clone();
            folder.since[..count].iter().for_each(|(_, changes)| change(&mut names, changes));
            for (name, node) in names {
                let path = path.join(name);
                match node {
                    DiskNode::File(file) => {
                        let content = self.files.get(file).map_or_else(Vec::new, |file| content(file, policy));
                        files.insert(path, content);
                    }
                    DiskNode::Folder(folder) => {
                        folders.push(path.clone());
                        pending.push((path, folder));
                    }
                }
            }
        }
        folders.sort();
        (files, folders)
    }
}

/// Which unsynced changes are on the disk.
enum UnsyncedPolicy<'a> {
    /// All of them, as without a power failure.
    KeepAll,
    /// For each file length, sector and directory, a random prefix of its changes; with a probability of `newest`
    /// percent, all of them.
    Random { rng: &'a mut SeededRng, newest: u64 },
}

impl UnsyncedPolicy<'_> {
    /// Returns the number of changes that are on the disk, within these bounds.
    fn draw(&mut self, min: usize, max: usize) -> usize {
        match self {
            Self::KeepAll => max,
            Self::Random { rng, newest } => {
                if rng.percent(*newest) {
                    return max;
                }
                min + rng.below((max - min) as u64 + 1) as usize
            }
        }
    }
}

/// Applies an operation to a file's content.
fn apply(bytes: &mut Vec<u8>, op: &FileOp) {
    bytes.resize(op.length(bytes.len() as u64) as usize, 0);
    if let FileOp::Write(at, new) = op {
        bytes[*at as usize..][..new.len()].copy_from_slice(new);
    }
}

/// Returns the content of a file: it has one of its lengths, and each sector the result of one of its writes.
fn content(file: &SyncedState<Vec<u8>, FileOp>, policy: &mut UnsyncedPolicy<'_>) -> Vec<u8> {
    let mut lengths = vec![file.synced.len() as u64];
    for (_, op) in &file.since {
        lengths.push(op.length(lengths.last().copied().unwrap_or_default()));
    }
    let length_index = policy.draw(0, file.since.len());
    let mut bytes = file.synced.clone();
    bytes.resize(lengths[length_index] as usize, 0);
    for (sector, changes) in changed_sectors(file, &lengths) {
        let begin = (sector * SECTOR) as usize;
        if begin >= bytes.len() {
            continue;
        }
        // A truncation that is on the disk removed earlier bytes; one that is not hides later writes.
        let is_truncation = |at: &usize| matches!(file.since[*at].1, FileOp::Truncate(_));
        let min = changes.iter().rposition(|at| is_truncation(at) && *at < length_index).map_or(0, |last| last + 1);
        let max = changes.iter().position(|at| is_truncation(at) && *at >= length_index).unwrap_or(changes.len());
        let count = policy.draw(min, max);
        let end = bytes.len().min(begin + SECTOR as usize);
        let written = sector_after(&file.synced, sector, changes[..count].iter().map(|at| &file.since[*at].1));
        bytes[begin..end].copy_from_slice(&written[..end - begin]);
    }
    bytes
}

/// Returns the sectors changed since the last sync, each with the indices of its changes.
fn changed_sectors(file: &SyncedState<Vec<u8>, FileOp>, lengths: &[u64]) -> BTreeMap<u64, Vec<usize>> {
    let longest = lengths.iter().copied().max().unwrap_or_default();
    let mut sectors: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for (at, (_, op)) in file.since.iter().enumerate() {
        let (begin, end) = match op {
            FileOp::Write(begin, bytes) => (*begin, begin + bytes.len() as u64),
            FileOp::Truncate(length) => (*length, longest),
        };
        for sector in begin / SECTOR..end.div_ceil(SECTOR) {
            sectors.entry(sector).or_default().push(at);
        }
    }
    sectors
}

/// Returns the content of a sector after these changes to the synced file. Bytes outside the file are zero.
fn sector_after<'a>(synced: &[u8], sector: u64, changes: impl Iterator<Item = &'a FileOp>) -> [u8; SECTOR as usize] {
    let (begin, mut bytes) = (sector * SECTOR, [0; SECTOR as usize]);
    let before = synced.get(begin as usize..).unwrap_or_default();
    let length = before.len().min(bytes.len());
    bytes[..length].copy_from_slice(&before[..length]);
    for op in changes {
        match op {
            FileOp::Write(at, new) => {
                let (from, to) = ((*at).max(begin), (at + new.len() as u64).min(begin + SECTOR));
                if from < to {
                    bytes[(from - begin) as usize..(to - begin) as usize]
                        .copy_from_slice(&new[(from - at) as usize..(to - at) as usize]);
                }
            }
            FileOp::Truncate(length) => bytes[length.saturating_sub(begin).min(SECTOR) as usize..].fill(0),
        }
    }
    bytes
}
