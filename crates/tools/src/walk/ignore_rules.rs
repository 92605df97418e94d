//! Ignore rules: `.gitignore`, `.ignore` and the `info/exclude` file of a repository.
//!
//! Rules are only read from regular files in the workspace; there are no global rules.

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
use crate::path_guard::lookup_without_links;

/// Maximum number of bytes read of a file with rules.
const MAX_RULE_BYTES: u64 = 1024 * 1024;

/// Rules that apply in a directory: its own, then those of the directories above.
#[derive(Clone, Default)]
pub(super) struct IgnoreRules(Option<Arc<IgnoreLevel>>);

struct IgnoreLevel {
    /// The directory, relative to the workspace.
    directory: PathBuf,
    rules: Gitignore,
    above: IgnoreRules,
}

impl IgnoreRules {
    /// Returns the rules for a subdirectory.
    pub(super) fn below(&self, path: &Path, directory: &OwnedFd) -> Self {
        let mut builder = GitignoreBuilder::new("");
        let repository = lookup_without_links(directory, Path::new(".git"));
        if let Some(info) = repository.as_ref().ok().and_then(|git| lookup_without_links(git, Path::new("info")).ok()) {
            add(&mut builder, &info, c"exclude");
        }
        // The last matching rule wins.
        add(&mut builder, directory, c".gitignore");
        add(&mut builder, directory, c".ignore");
        // Rules from outside do not apply in a nested repository.
        let above = if repository.is_ok() { Self::default() } else { self.clone() };
        match builder.build() {
            Ok(rules) if !rules.is_empty() => {
                Self(Some(Arc::new(IgnoreLevel { directory: path.to_owned(), rules, above })))
            }
            Ok(_) | Err(_) => above,
        }
    }

    /// True if an entry of this directory is ignored. `path` is relative to `inside`, which is relative to the
    /// workspace.
    pub(super) fn is_ignored(&self, inside: &Path, path: &Path, is_directory: bool) -> bool {
        let mut rules = self;
        let path = if rules.0.is_some() { inside.join(path) } else { PathBuf::new() };
        while let Some(level) = &rules.0 {
            // The prefix always matches: the levels are those of the current directory and its ancestors.
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

impl fmt::Debug for IgnoreRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|level| &level.directory)).finish()
    }
}

fn add(builder: &mut GitignoreBuilder, directory: &OwnedFd, name: &std::ffi::CStr) {
    let Ok(file) = open_regular(directory, name) else { return };
    let mut bytes = Vec::new();
    // Unreadable rules ignore nothing; the result is only less convenient.
    if file.take(MAX_RULE_BYTES).read_to_end(&mut bytes).is_err() {
        return;
    }
    for line in String::from_utf8_lossy(&bytes).lines() {
        // Invalid lines are skipped, as in git.
        builder.add_line(None, line).ok();
    }
}
