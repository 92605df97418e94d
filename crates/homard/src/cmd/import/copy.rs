//! Atomic file copies, readable by the owner only.

use std::{
    fs::{self, DirBuilder, File},
    io::{self, IsTerminal, Write},
    os::unix::fs::{DirBuilderExt, PermissionsExt as _},
    path::{Path, PathBuf},
};

use tempfile::NamedTempFile;

/// A file to write.
#[derive(Debug)]
pub(super) struct Copy {
    pub(super) to: PathBuf,
    pub(super) what: What,
    /// Path of the backup of the existing file, if one is kept.
    pub(super) aside: Option<PathBuf>,
}

/// The content of a file.
#[derive(Debug)]
pub(super) enum What {
    /// The content of this file.
    Of(PathBuf),
    /// This text.
    Text(String),
}

impl Copy {
    /// Writes the file; it is on disk when this returns.
    pub(super) fn carry_out(&self) -> io::Result<()> {
        let folder = self.to.parent().unwrap_or(Path::new("."));
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        if let Some(aside) = &self.aside {
            place(folder, aside, &mut File::open(&self.to)?)?;
        }
        match &self.what {
            What::Of(from) => {
                place(folder, &self.to, &mut File::open(from)?)?;
                match is_program(from) {
                    true => fs::set_permissions(&self.to, fs::Permissions::from_mode(0o700)),
                    false => Ok(()),
                }
            }
            What::Text(text) => place(folder, &self.to, &mut text.as_bytes()),
        }
    }
}

/// Writes a file through a temporary one, which is readable by its owner only, and so is the result.
fn place(folder: &Path, to: &Path, from: &mut impl io::Read) -> io::Result<()> {
    let mut file = NamedTempFile::new_in(folder)?;
    io::copy(from, &mut file)?;
    file.as_file().sync_all()?;
    file.persist(to).map_err(|error| error.error)?;
    File::open(folder)?.sync_all()
}

/// Returns true if a file is executable by its owner: then its copy is, too.
fn is_program(file: &Path) -> bool {
    fs::metadata(file).is_ok_and(|found| found.permissions().mode() & 0o100 != 0)
}

/// Returns true if two files have the same content.
pub(super) fn is_same(from: &Path, to: &Path) -> io::Result<bool> {
    Ok(fs::metadata(from)?.len() == fs::metadata(to)?.len() && fs::read(from)? == fs::read(to)?)
}

/// Progress of copying, on a terminal.
#[derive(Debug)]
pub(super) struct Progress {
    done: usize,
    all: usize,
    is_shown: bool,
}

impl Progress {
    pub(super) fn new(all: usize) -> Self {
        Self { done: 0, all, is_shown: io::stderr().is_terminal() }
    }

    pub(super) fn step(&mut self) {
        self.done += 1;
        if self.is_shown {
            // A failure cannot be reported and is ignored.
            write!(io::stderr().lock(), "\rcopied {} of {} files\x1b[K", self.done, self.all).ok();
        }
    }

    pub(super) fn end(&self) {
        if self.is_shown {
            write!(io::stderr().lock(), "\r\x1b[K").ok();
        }
    }
}
