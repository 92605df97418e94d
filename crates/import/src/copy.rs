//! Atomic file copies, readable by the owner only.

use std::{
    fs::{self, DirBuilder, File},
    io,
    os::unix::fs::{DirBuilderExt, PermissionsExt as _},
    path::{Path, PathBuf},
};

use tempfile::NamedTempFile;

/// A file to write.
#[derive(Debug)]
pub(super) struct PlannedCopy {
    pub to: PathBuf,
    pub what: CopyContent,
    /// Path of the backup of the existing file, if one is kept.
    pub backup: Option<PathBuf>,
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
    pub(crate) fn write(&self) -> io::Result<()> {
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
pub(crate) fn is_same(from: &Path, to: &Path) -> io::Result<bool> {
    Ok(fs::metadata(from)?.len() == fs::metadata(to)?.len() && fs::read(from)? == fs::read(to)?)
}
