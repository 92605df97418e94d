//! Atomic file copies, readable by the owner only.

use std::{
    fs::{self, DirBuilder, File},
    io::{self, IsTerminal, Write},
    os::unix::fs::{DirBuilderExt, PermissionsExt as _},
    path::{Path, PathBuf},
};

use tempfile::NamedTempFile;

use crate::render;

/// A file to write.
#[derive(Debug)]
pub(super) struct PlannedCopy {
    pub(super) to: PathBuf,
    pub(super) what: CopyContent,
    /// Path of the backup of the existing file, if one is kept.
    pub(super) backup: Option<PathBuf>,
}

/// The content of a file.
#[derive(Debug)]
pub(super) enum CopyContent {
    /// The content of this file.
    Of(PathBuf),
    /// This text.
    Text(String),
}

impl PlannedCopy {
    /// Writes the file; it is on disk when this returns.
    pub(super) fn write(&self) -> io::Result<()> {
        let folder = self.to.parent().unwrap_or(Path::new("."));
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        if let Some(backup) = &self.backup {
            write_atomic(folder, backup, &mut File::open(&self.to)?)?;
        }
        match &self.what {
            CopyContent::Of(from) => {
                write_atomic(folder, &self.to, &mut File::open(from)?)?;
                match is_program(from) {
                    true => fs::set_permissions(&self.to, fs::Permissions::from_mode(0o700)),
                    false => Ok(()),
                }
            }
            CopyContent::Text(text) => write_atomic(folder, &self.to, &mut text.as_bytes()),
        }
    }
}

/// Writes a file through a temporary one, which is readable by its owner only, and so is the result.
fn write_atomic(folder: &Path, to: &Path, from: &mut impl io::Read) -> io::Result<()> {
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
pub(super) struct CopyProgress {
    done: usize,
    all: usize,
    is_shown: bool,
}

impl CopyProgress {
    pub(super) fn new(all: usize) -> Self {
        Self { done: 0, all, is_shown: io::stderr().is_terminal() }
    }

    pub(super) fn step(&mut self) {
        self.done += 1;
        if self.is_shown {
            // A failure cannot be reported and is ignored.
            write!(io::stderr().lock(), "\rcopied {} of {}\x1b[K", self.done, render::count(self.all, "file")).ok();
        }
    }

    pub(super) fn end(&self) {
        if self.is_shown {
            write!(io::stderr().lock(), "\r\x1b[K").ok();
        }
    }
}
