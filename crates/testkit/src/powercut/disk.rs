//! A disk that keeps what was synced, and a random part of the rest.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use super::Event;
use crate::chance::Dice;

/// Unit that a disk writes atomically.
const SECTOR: u64 = 512;

/// A file or directory, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Node {
    File(usize),
    Folder(usize),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FileOp {
    /// Writes bytes at an offset.
    Write(u64, Vec<u8>),
    /// Truncates the file.
    Cut(u64),
}

impl FileOp {
    /// Returns the length of the file after the operation.
    fn length(&self, before: u64) -> u64 {
        match self {
            Self::Write(at, bytes) => before.max(at + bytes.len() as u64),
            Self::Cut(length) => *length,
        }
    }
}

/// The directory tree as the process sees it.
#[derive(Debug, Clone)]
pub(super) struct Tree {
    folders: Vec<BTreeMap<String, Node>>,
    lengths: Vec<u64>,
}

impl Default for Tree {
    fn default() -> Self {
        Self { folders: vec![BTreeMap::new()], lengths: Vec::new() }
    }
}

impl Tree {
    pub(super) fn find(&self, path: &Path) -> Option<Node> {
        path.iter().try_fold(Node::Folder(0), |node, name| match node {
            Node::Folder(folder) => self.folders.get(folder)?.get(name.to_str()?).copied(),
            Node::File(_) => None,
        })
    }

    pub(super) fn new_file(&mut self) -> Node {
        self.lengths.push(0);
        Node::File(self.lengths.len() - 1)
    }

    pub(super) fn new_folder(&mut self) -> Node {
        self.folders.push(BTreeMap::new());
        Node::Folder(self.folders.len() - 1)
    }

    pub(super) fn length(&self, file: usize) -> u64 {
        self.lengths.get(file).copied().unwrap_or_default()
    }

    pub(super) fn take(&mut self, event: &Event) {
        match event {
            Event::File(file, op) => {
                if let Some(length) = self.lengths.get_mut(*file) {
                    *length = op.length(*length);
                }
            }
            Event::Names(folder, changes) => {
                if let Some(names) = self.folders.get_mut(*folder) {
                    change(names, changes);
                }
            }
            Event::Synced { .. } | Event::Told(_) => {}
        }
    }
}

/// Changes of names; `None` removes one.
pub(super) type Names = Vec<(String, Option<Node>)>;

fn change(names: &mut BTreeMap<String, Node>, changes: &[(String, Option<Node>)]) {
    for (name, node) in changes {
        match node {
            Some(node) => names.insert(name.clone(), *node),
            None => names.remove(name),
        };
    }
}

/// A synced state, and the changes since, each with the number of its event.
#[derive(Debug)]
struct Synced<T, C> {
    safe: T,
    since: Vec<(usize, C)>,
}

impl<T: Default, C> Default for Synced<T, C> {
    fn default() -> Self {
        Self { safe: T::default(), since: Vec::new() }
    }
}

impl<T, C> Synced<T, C> {
    /// Removes and returns the changes before an event, in order.
    fn before(&mut self, begun: usize) -> Vec<C> {
        let (done, left) = self.since.drain(..).partition(|(at, _)| *at < begun);
        self.since = left;
        let done: Vec<(usize, C)> = done;
        done.into_iter().map(|(_, what)| what).collect()
    }
}

/// The disk.
#[derive(Debug, Default)]
pub(super) struct Disk {
    files: Vec<Synced<Vec<u8>, FileOp>>,
    folders: Vec<Synced<BTreeMap<String, Node>, Names>>,
}

/// Files by path, and directories.
type Found = (BTreeMap<PathBuf, Vec<u8>>, Vec<PathBuf>);

/// Returns the element with this number, which may be new.
fn at<T: Default>(things: &mut Vec<T>, number: usize) -> &mut T {
    if things.len() <= number {
        things.resize_with(number + 1, T::default);
    }
    &mut things[number]
}

impl Disk {
    pub(super) fn take(&mut self, number: usize, event: &Event) {
        match event {
            Event::File(file, op) => at(&mut self.files, *file).since.push((number, op.clone())),
            Event::Names(folder, changes) => at(&mut self.folders, *folder).since.push((number, changes.clone())),
            Event::Synced { node: Node::File(file), begun } => {
                let file = at(&mut self.files, *file);
                for op in file.before(*begun) {
                    apply(&mut file.safe, &op);
                }
            }
            Event::Synced { node: Node::Folder(folder), begun } => {
                let folder = at(&mut self.folders, *folder);
                for changes in folder.before(*begun) {
                    change(&mut folder.safe, &changes);
                }
            }
            Event::Told(_) => {}
        }
    }

    /// Returns the files with all changes applied.
    pub(super) fn everything(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        self.found(&mut Fate::Kept).0
    }

    /// Returns the files after a power failure.
    pub(super) fn cut(&self, dice: &mut Dice) -> Found {
        // Disks differ: one writes almost everything at once, another almost nothing.
        let newest = *dice.pick(&[0, 10, 50, 90, 100]);
        self.found(&mut Fate::Drawn { dice, newest })
    }

    fn found(&self, fate: &mut Fate<'_>) -> Found {
        let (mut files, mut folders) = (BTreeMap::new(), Vec::new());
        let mut unseen = vec![(PathBuf::new(), 0)];
        while let Some((path, number)) = unseen.pop() {
            let Some(folder) = self.folders.get(number) else { continue };
            let kept = fate.draw(0, folder.since.len());
            let mut names = folder.safe.clone();
            folder.since[..kept].iter().for_each(|(_, changes)| change(&mut names, changes));
            for (name, node) in names {
                let path = path.join(name);
                match node {
                    Node::File(file) => {
                        let content = self.files.get(file).map_or_else(Vec::new, |file| content(file, fate));
                        files.insert(path, content);
                    }
                    Node::Folder(folder) => {
                        folders.push(path.clone());
                        unseen.push((path, folder));
                    }
                }
            }
        }
        folders.sort();
        (files, folders)
    }
}

/// How much of the unsynced changes is on the disk.
enum Fate<'a> {
    /// All.
    Kept,
    /// A random part; with a probability of `newest` percent, the newest state.
    Drawn { dice: &'a mut Dice, newest: u64 },
}

impl Fate<'_> {
    /// Returns the number of changes that are on the disk, within these bounds.
    fn draw(&mut self, least: usize, most: usize) -> usize {
        match self {
            Self::Kept => most,
            Self::Drawn { dice, newest } => {
                if dice.percent(*newest) {
                    return most;
                }
                least + dice.below((most - least) as u64 + 1) as usize
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
fn content(file: &Synced<Vec<u8>, FileOp>, fate: &mut Fate<'_>) -> Vec<u8> {
    let mut lengths = vec![file.safe.len() as u64];
    for (_, op) in &file.since {
        lengths.push(op.length(lengths.last().copied().unwrap_or_default()));
    }
    let grown = fate.draw(0, file.since.len());
    let mut bytes = file.safe.clone();
    bytes.resize(lengths[grown] as usize, 0);
    for (sector, touched) in touched(file, &lengths) {
        let begin = (sector * SECTOR) as usize;
        if begin >= bytes.len() {
            continue;
        }
        // A truncation that is on the disk removed earlier bytes; one that is not hides later writes.
        let is_cut = |at: &usize| matches!(file.since[*at].1, FileOp::Cut(_));
        let least = touched.iter().rposition(|at| is_cut(at) && *at < grown).map_or(0, |last| last + 1);
        let most = touched.iter().position(|at| is_cut(at) && *at >= grown).unwrap_or(touched.len());
        let kept = fate.draw(least, most);
        let end = bytes.len().min(begin + SECTOR as usize);
        let written = written(&file.safe, sector, touched[..kept].iter().map(|at| &file.since[*at].1));
        bytes[begin..end].copy_from_slice(&written[..end - begin]);
    }
    bytes
}

/// Returns the sectors changed since the last sync, each with the indices of its changes.
fn touched(file: &Synced<Vec<u8>, FileOp>, lengths: &[u64]) -> BTreeMap<u64, Vec<usize>> {
    let longest = lengths.iter().copied().max().unwrap_or_default();
    let mut sectors: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for (at, (_, op)) in file.since.iter().enumerate() {
        let (begin, end) = match op {
            FileOp::Write(begin, bytes) => (*begin, begin + bytes.len() as u64),
            FileOp::Cut(length) => (*length, longest),
        };
        for sector in begin / SECTOR..end.div_ceil(SECTOR) {
            sectors.entry(sector).or_default().push(at);
        }
    }
    sectors
}

/// Returns a sector after these changes.
fn written<'a>(safe: &[u8], sector: u64, changes: impl Iterator<Item = &'a FileOp>) -> [u8; SECTOR as usize] {
    let (begin, mut bytes) = (sector * SECTOR, [0; SECTOR as usize]);
    let before = safe.get(begin as usize..).unwrap_or_default();
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
            FileOp::Cut(length) => bytes[length.saturating_sub(begin).min(SECTOR) as usize..].fill(0),
        }
    }
    bytes
}
