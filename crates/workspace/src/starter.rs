//! How a workspace begins: the folder, and files for the agent and its person to go on from.
//!
//! There is no `git init`: whether this folder has a history, and where that goes, is for its owner to say. A
//! repository that appears by itself surprises in a folder that is part of another one, and nobody would commit to it.

use std::{
    fs::{self, DirBuilder, OpenOptions},
    io::{self, ErrorKind, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use crate::bootstrap::GUIDE;

/// The files that every workspace has, as they begin.
const FILES: [(&str, &str); 6] = [
    ("AGENTS.md", include_str!("../starter/AGENTS.md")),
    ("SOUL.md", include_str!("../starter/SOUL.md")),
    ("TOOLS.md", include_str!("../starter/TOOLS.md")),
    ("IDENTITY.md", include_str!("../starter/IDENTITY.md")),
    ("USER.md", include_str!("../starter/USER.md")),
    // Only a heading, which asks for nothing: a heartbeat with such a file calls no model.
    ("HEARTBEAT.md", include_str!("../starter/HEARTBEAT.md")),
];

/// What a new workspace gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Starter {
    /// The starter files that it does not have.
    Files,
    /// Nothing but the folder.
    Nothing,
}

/// What was made of a workspace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Made {
    /// The files that were written.
    pub written: Vec<&'static str>,
    /// The files that could not be written. The agent can do without them.
    pub problems: Vec<Problem>,
}

/// A starter file that could not be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Where it would be.
    pub path: PathBuf,
    /// What is wrong, in plain words.
    pub what: String,
}

/// Why there is no workspace.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It would depend on where the command was started, and could be a folder of somebody's project.
    #[error("workspace {path:?} must be a full path, such as /home/me/workspace")]
    Relative {
        /// The path as it was given.
        path: PathBuf,
    },
    /// Something else is in its place, or in the place of a folder above it.
    #[error(
        "workspace {path} cannot be made: {} is a file or a broken link, not a folder; move it away, or set another \
         workspace in the config",
        obstacle.display(), path = path.display()
    )]
    Blocked {
        /// The workspace.
        path: PathBuf,
        /// What is in the way.
        obstacle: PathBuf,
    },
    /// The system does not let us.
    #[error(
        "workspace {path} cannot be made in {}: {source}; make the folder yourself, or set another workspace in the \
         config",
        parent.display(), path = path.display()
    )]
    Refused {
        /// The workspace.
        path: PathBuf,
        /// The nearest folder that exists.
        parent: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// Makes a workspace, or completes it. What exists is never changed, so it is fine to do this before every run.
pub fn make(dir: &Path, starter: Starter) -> Result<Made, Error> {
    if !dir.is_absolute() {
        return Err(Error::Relative { path: dir.to_owned() });
    }
    // For its owner only: an agent's memory is private.
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(|source| explain(dir, source))?;
    match starter {
        Starter::Files => Ok(complete(dir)),
        Starter::Nothing => Ok(Made::default()),
    }
}

fn explain(dir: &Path, source: io::Error) -> Error {
    let there = dir.ancestors().find(|at| at.symlink_metadata().is_ok()).unwrap_or(dir).to_owned();
    let path = dir.to_owned();
    match there.is_dir() {
        true => Error::Refused { path, parent: there, source },
        false => Error::Blocked { path, obstacle: there },
    }
}

fn complete(dir: &Path) -> Made {
    let is_absent = |name| dir.join(name).symlink_metadata().is_err_and(|reason| reason.kind() == ErrorKind::NotFound);
    let is_new = FILES.iter().all(|(name, _)| is_absent(name));
    // The guide goes first: if we are stopped half way, the next time still finds a new workspace or has the guide.
    let guide = is_new.then_some((GUIDE, include_str!("../starter/BOOTSTRAP.md")));
    let mut made = Made::default();
    for (name, text) in guide.into_iter().chain(FILES) {
        let path = dir.join(name);
        match write(&path, text) {
            Ok(()) => made.written.push(name),
            Err(reason) if reason.kind() == ErrorKind::AlreadyExists => {}
            Err(reason) => made.problems.push(Problem { path, what: format!("it cannot be written: {reason}") }),
        }
    }
    made
}

/// Writes a file that is not there, not even as a link to nothing. All of it or none: what is there is never completed.
fn write(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes()).or_else(|reason| fs::remove_file(path).and(Err(reason)))
}
