//! What one batch adds to files, with the way back: all of it stays, or none.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{self, ErrorKind, Write},
    path::{Path, PathBuf},
};

use homard_store::Error;
use tracing::error;

use crate::disk;

/// A file to which lines are added.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) path: PathBuf,
    pub(crate) file: File,
    /// How long it was before this batch.
    pub(crate) length: u64,
    /// Whether this batch made it.
    created: bool,
}

impl Target {
    /// Opens a file for appending; makes it if it is not there. Its folder must be.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let mut options = disk::private();
        options.read(true).append(true);
        let (file, created) = match options.open(path) {
            Err(reason) if reason.kind() == ErrorKind::NotFound => (options.create_new(true).open(path), true),
            opened => (opened, false),
        };
        let wanted = |file: File| Ok((file.metadata()?.len(), file));
        let (length, file) = file.and_then(wanted).map_err(disk::failed("append to", path))?;
        Ok(Self { path: path.to_owned(), file, length, created })
    }

    fn undo(&self) -> io::Result<()> {
        self.file.set_len(self.length)?;
        if self.created {
            return fs::remove_file(&self.path);
        }
        self.file.sync_data()
    }
}

/// The files that one batch has added to.
#[derive(Debug, Default)]
pub(crate) struct Appends(Vec<Target>);

impl Appends {
    /// Adds whole lines to a file in one write.
    pub(crate) fn add(&mut self, target: Target, lines: &[u8]) -> Result<(), Error> {
        let written = (&target.file).write(lines).and_then(|written| {
            let all = written == lines.len();
            all.then_some(()).ok_or_else(|| io::Error::new(ErrorKind::StorageFull, "the disk took only a part of it"))
        });
        let outcome = written.map_err(disk::failed("append to", &target.path));
        self.0.push(target);
        outcome
    }

    /// Makes all of it durable.
    pub(crate) fn sync(&self) -> Result<(), Error> {
        for target in &self.0 {
            target.file.sync_data().map_err(disk::failed("sync", &target.path))?;
        }
        let grown = self.0.iter().filter(|target| target.created);
        let folders: BTreeSet<_> = grown.filter_map(|target| target.path.parent()).collect();
        folders.into_iter().try_for_each(disk::sync_folder)
    }

    /// Takes all of it back.
    pub(crate) fn undo(&self) {
        for target in &self.0 {
            if let Err(reason) = target.undo() {
                let path = target.path.display();
                error!(%path, length = target.length, %reason, "lines of a failed write are left in a file");
            }
        }
    }
}
