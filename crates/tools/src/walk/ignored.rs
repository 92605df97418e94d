//! What a project says is not worth looking at: `.gitignore`, `.ignore` and the exclusions of a repository.
//!
//! A file is read only where it is a regular one of the workspace; there are no rules from anywhere else.

use std::{
    fmt,
    io::Read,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::Arc,
};

use ignore::{
    Match,
    gitignore::{Gitignore, GitignoreBuilder},
};

use super::open_regular;
use crate::beneath::lookup_without_links;

/// How many bytes of a file with rules are read.
const MOST: u64 = 1024 * 1024;

/// The rules that hold in a directory: its own, then those of the directories above.
#[derive(Clone, Default)]
pub(super) struct Rules(Option<Arc<Level>>);

struct Level {
    /// The directory, from the workspace.
    directory: PathBuf,
    rules: Gitignore,
    above: Rules,
}

impl Rules {
    /// The rules in a directory below.
    pub(super) fn below(&self, path: &Path, directory: &OwnedFd) -> Self {
        let mut builder = GitignoreBuilder::new("");
        let repository = lookup_without_links(directory, Path::new(".git"));
        if let Some(info) = repository.as_ref().ok().and_then(|git| lookup_without_links(git, Path::new("info")).ok()) {
            add(&mut builder, &info, c"exclude");
        }
        // The last rule that fits wins.
        add(&mut builder, directory, c".gitignore");
        add(&mut builder, directory, c".ignore");
        // A repository of its own does not care what surrounds it.
        let above = if repository.is_ok() { Self::default() } else { self.clone() };
        match builder.build() {
            Ok(rules) if !rules.is_empty() => Self(Some(Arc::new(Level { directory: path.to_owned(), rules, above }))),
            Ok(_) | Err(_) => above,
        }
    }

    /// Whether something in this directory is to be left out. `path` starts at `inside`, which starts at the workspace.
    pub(super) fn leave_out(&self, inside: &Path, path: &Path, is_directory: bool) -> bool {
        let mut rules = self;
        let path = if rules.0.is_some() { inside.join(path) } else { PathBuf::new() };
        while let Some(level) = &rules.0 {
            // Anything else would be a directory that the walk has left.
            let path = path.strip_prefix(&level.directory).unwrap_or(&path);
            match level.rules.matched(path, is_directory) {
                Match::Ignore(_) => return true,
                Match::Whitelist(_) => return false,
                Match::None => rules = &level.above,
            }
        }
        false
    }
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|level| &level.directory)).finish()
    }
}

fn add(builder: &mut GitignoreBuilder, directory: &OwnedFd, name: &std::ffi::CStr) {
    let Ok(file) = open_regular(directory, name) else { return };
    let mut bytes = Vec::new();
    // Rules that cannot be read leave nothing out; what they would have is only less convenient to see.
    if file.take(MOST).read_to_end(&mut bytes).is_err() {
        return;
    }
    for line in String::from_utf8_lossy(&bytes).lines() {
        // A line that is no rule is none, as git has it.
        builder.add_line(None, line).ok();
    }
}
