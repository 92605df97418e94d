//! Copies that are there whole or not at all, for the owner's eyes only.

use std::{
    fs::{self, DirBuilder, File},
    io::{self, IsTerminal, Write},
    os::unix::fs::{DirBuilderExt, PermissionsExt as _},
    path::{Path, PathBuf},
};

use tempfile::NamedTempFile;

/// One file to be written.
#[derive(Debug)]
pub(super) struct Copy {
    pub(super) to: PathBuf,
    pub(super) what: What,
    /// Where what is there now is kept, if it is.
    pub(super) aside: Option<PathBuf>,
}

/// What a file will hold.
#[derive(Debug)]
pub(super) enum What {
    /// What this file holds.
    Of(PathBuf),
    /// This text.
    Text(String),
}

impl Copy {
    /// Writes it, and returns when it is on disk.
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

/// A temporary file is made for its owner only, and so is what it becomes.
fn place(folder: &Path, to: &Path, from: &mut impl io::Read) -> io::Result<()> {
    let mut file = NamedTempFile::new_in(folder)?;
    io::copy(from, &mut file)?;
    file.as_file().sync_all()?;
    file.persist(to).map_err(|error| error.error)?;
    File::open(folder)?.sync_all()
}

/// Whether a file may be executed by its owner: then its copy may, too.
fn is_program(file: &Path) -> bool {
    fs::metadata(file).is_ok_and(|found| found.permissions().mode() & 0o100 != 0)
}

/// Whether two files hold the same.
pub(super) fn is_same(from: &Path, to: &Path) -> io::Result<bool> {
    Ok(fs::metadata(from)?.len() == fs::metadata(to)?.len() && fs::read(from)? == fs::read(to)?)
}

/// How far the copying is, on a terminal.
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
            // There is nowhere to complain if that fails.
            write!(io::stderr().lock(), "\rcopied {} of {} files\x1b[K", self.done, self.all).ok();
        }
    }

    pub(super) fn end(&self) {
        if self.is_shown {
            write!(io::stderr().lock(), "\r\x1b[K").ok();
        }
    }
}
