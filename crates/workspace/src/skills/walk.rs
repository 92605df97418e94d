//! Walks a root for files that may be skills.

use std::{
    collections::{BTreeSet, VecDeque},
    fs, io,
    path::{Path, PathBuf},
};

use crate::skills::discover::{DiscoveryLimits, SkillProblem, unreadable, warning};

/// A file that may be a skill.
#[derive(Debug)]
pub(crate) struct SkillCandidate {
    pub(crate) file: PathBuf,
    /// The file with symlinks resolved; this path is opened.
    pub(crate) real: PathBuf,
    pub(crate) kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `SKILL.md` of a folder.
    Folder,
    /// A file `<root>/<name>.md`.
    Note,
}

/// Breadth-first walk of one root, so that a limit cuts off the deepest folders.
#[derive(Debug)]
pub(crate) struct RootWalk<'a> {
    root: &'a Path,
    /// The root with symlinks resolved: anything outside it does not belong to it.
    real_root: PathBuf,
    limits: &'a DiscoveryLimits,
    /// Real paths of visited folders, to detect symlink cycles.
    seen: BTreeSet<PathBuf>,
    waiting: VecDeque<QueuedFolder>,
    pub(crate) found: Vec<SkillCandidate>,
    pub(crate) problems: Vec<SkillProblem>,
}

#[derive(Debug)]
struct QueuedFolder {
    path: PathBuf,
    real: PathBuf,
    depth: usize,
}

impl<'a> RootWalk<'a> {
    pub(crate) fn through(root: &'a Path, limits: &'a DiscoveryLimits) -> Self {
        let mut walk = Self {
            root,
            real_root: PathBuf::new(),
            limits,
            seen: BTreeSet::new(),
            waiting: VecDeque::new(),
            found: Vec::new(),
            problems: Vec::new(),
        };
        match fs::canonicalize(root) {
            Ok(real) if real.is_dir() => {
                walk.real_root.clone_from(&real);
                walk.enter(root.to_owned(), real, 0);
            }
            Ok(_) => walk.problems.push(warning(root, "is not a directory, so no skills are read from it")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => walk.problems.push(warning(root, unreadable(error))),
        }
        while let Some(folder) = walk.waiting.pop_front() {
            walk.scan_folder(&folder);
        }
        if walk.found.len() > limits.candidates {
            walk.found.truncate(limits.candidates);
            let message = format!("holds more than {} skills; the rest is not read", limits.candidates);
            walk.problems.push(warning(root, message));
        }
        if walk.seen.len() > limits.folders {
            let message =
                format!("contains more than {} directories; the others are not searched for skills", limits.folders);
            walk.problems.push(warning(root, message));
        }
        walk.found.sort_by(|a, b| a.file.cmp(&b.file));
        walk
    }

    fn enter(&mut self, path: PathBuf, real: PathBuf, depth: usize) {
        // One more than the limit is stored, to detect that there are more.
        let is_within_limits = depth <= self.limits.depth && self.seen.len() <= self.limits.folders;
        if is_within_limits && self.seen.insert(real.clone()) && self.seen.len() <= self.limits.folders {
            self.waiting.push_back(QueuedFolder { path, real, depth });
        }
    }

    fn scan_folder(&mut self, folder: &QueuedFolder) {
        if self.found.len() > self.limits.candidates {
            return;
        }
        let file = folder.path.join("SKILL.md");
        if file.symlink_metadata().is_ok() {
            // Everything below belongs to this skill.
            let real = self.resolve_inside(&file, folder.real.join("SKILL.md"));
            self.found.extend(real.map(|real| SkillCandidate { file, real, kind: Kind::Folder }));
            return;
        }
        let entries = fs::read_dir(&folder.path).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        let mut entries = match entries {
            Ok(entries) => entries,
            Err(error) => return self.problems.push(warning(&folder.path, unreadable(error))),
        };
        // A folder takes precedence over a symlink to it.
        let is_link = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_symlink());
        entries.sort_by_cached_key(|entry| (is_link(entry), entry.file_name()));
        for entry in entries {
            let name = entry.file_name();
            if name.as_encoded_bytes().starts_with(b".") || name == "node_modules" {
                continue;
            }
            let path = entry.path();
            let is_note = folder.depth == 0 && path.extension().is_some_and(|end| end == "md");
            // A dangling symlink may have been a skill; one to a plain file never was.
            if !is_note && fs::metadata(&path).is_ok_and(|meta| !meta.is_dir()) {
                continue;
            }
            let Some(real) = self.resolve_inside(&path, folder.real.join(&name)) else { continue };
            if real.is_dir() {
                self.enter(path, real, folder.depth + 1);
            } else if is_note {
                self.found.push(SkillCandidate { file: path, real, kind: Kind::Note });
            }
        }
    }

    /// Returns the real path of something in the root, unless it is a dangling symlink or leads outside.
    fn resolve_inside(&mut self, path: &Path, unresolved: PathBuf) -> Option<PathBuf> {
        if !path.is_symlink() {
            return Some(unresolved);
        }
        match fs::canonicalize(path) {
            Ok(real) if real.starts_with(&self.real_root) => Some(real),
            Ok(_) => {
                let message = format!(
                    "is a symbolic link that leads out of {}, so it is not followed; add its target to \
                     skills.load.extraDirs",
                    self.root.display()
                );
                self.problems.push(warning(path, message));
                None
            }
            Err(error) => {
                let message = if error.kind() == io::ErrorKind::NotFound {
                    "is a broken symbolic link".to_owned()
                } else {
                    format!("is a symbolic link that cannot be followed: {}", error.kind())
                };
                self.problems.push(warning(path, message));
                None
            }
        }
    }
}
