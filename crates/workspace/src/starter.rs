//! Creates a workspace: the folder and its starter files.
//!
//! There is no `git init`: version control of this folder is up to its owner. An unexpected repository would be a
//! surprise in a folder that is part of another one, and nothing would commit to it.

use std::{
    fs::{self, DirBuilder, OpenOptions},
    io::{self, ErrorKind, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use crate::bootstrap::BOOTSTRAP_GUIDE;

/// Initial content of the files that every workspace has.
const FILES: [(&str, &str); 6] = [
    ("AGENTS.md", include_str!("../starter/AGENTS.md")),
    ("SOUL.md", include_str!("../starter/SOUL.md")),
    ("TOOLS.md", include_str!("../starter/TOOLS.md")),
    ("IDENTITY.md", include_str!("../starter/IDENTITY.md")),
    ("USER.md", include_str!("../starter/USER.md")),
    // Only a heading, which requests nothing: a heartbeat with such a file makes no model request.
    ("HEARTBEAT.md", include_str!("../starter/HEARTBEAT.md")),
];

/// What a new workspace gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Starter {
    /// The starter files that do not exist yet.
    Files,
    /// Only the folder.
    FolderOnly,
}

/// Result of creating a workspace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CreatedWorkspace {
    /// Files that were written.
    pub written: Vec<&'static str>,
    /// Files that could not be written. The agent works without them.
    pub problems: Vec<StarterProblem>,
}

/// A starter file that could not be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StarterProblem {
    /// Path of the file.
    pub path: PathBuf,
    /// What is wrong, in plain words.
    pub message: String,
}

/// Why a workspace could not be created.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The path is relative: it would depend on the current directory, and could be in an unrelated project.
    #[error("workspace {path:?} must be an absolute path, such as /home/me/workspace")]
    Relative {
        /// The path as given.
        path: PathBuf,
    },
    /// Something else exists in its place, or in the place of a parent folder.
    #[error(
        "workspace {path} cannot be created: {} is a file or a broken link, not a directory; rename it, or set \
         another workspace in the config",
        obstacle.display(), path = path.display()
    )]
    Blocked {
        /// Path of the workspace.
        path: PathBuf,
        /// What is in the way.
        obstacle: PathBuf,
    },
    /// The operating system refused.
    #[error(
        "workspace {path} cannot be created in {}: {source}; create the directory yourself, or set another workspace in \
         the config",
        parent.display(), path = path.display()
    )]
    Refused {
        /// Path of the workspace.
        path: PathBuf,
        /// The nearest ancestor that exists.
        parent: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
}

/// Creates a workspace, or completes it. Existing files are never changed, so it can be called before every run.
pub fn create(dir: &Path, starter: Starter) -> Result<CreatedWorkspace, Error> {
    if !dir.is_absolute() {
        return Err(Error::Relative { path: dir.to_owned() });
    }
    // Private to its owner, like an agent's memory.
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(|source| explain(dir, source))?;
    match starter {
        Starter::Files => Ok(complete(dir)),
        Starter::FolderOnly => Ok(CreatedWorkspace::default()),
    }
}

/// Finds out why a workspace folder could not be created: something else is in its place, or the system refused.
fn explain(dir: &Path, source: io::Error) -> Error {
    let existing = dir.ancestors().find(|ancestor| ancestor.symlink_metadata().is_ok()).unwrap_or(dir).to_owned();
    let path = dir.to_owned();
    match existing.is_dir() {
        true => Error::Refused { path, parent: existing, source },
        false => Error::Blocked { path, obstacle: existing },
    }
}

/// Writes the missing starter files.
fn complete(dir: &Path) -> CreatedWorkspace {
    let is_absent = |name| dir.join(name).symlink_metadata().is_err_and(|error| error.kind() == ErrorKind::NotFound);
    let is_new = FILES.iter().all(|(name, _)| is_absent(name));
    // Only a new workspace gets the guide. It is written first: if the process is killed midway, either the guide
    // exists or the next call still finds a new workspace.
    let guide = is_new.then_some((BOOTSTRAP_GUIDE, include_str!("../starter/BOOTSTRAP.md")));
    let mut created = CreatedWorkspace::default();
    for (name, text) in guide.into_iter().chain(FILES) {
        let path = dir.join(name);
        match write(&path, text) {
            Ok(()) => created.written.push(name),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => {
                created.problems.push(StarterProblem { path, message: format!("cannot be written: {error}") })
            }
        }
    }
    created
}

/// Creates a file. Fails if the path exists, even as a dangling symlink. If writing fails, the file is removed, because
/// an existing file would not be completed later.
fn write(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes()).or_else(|error| fs::remove_file(path).and(Err(error)))
}
