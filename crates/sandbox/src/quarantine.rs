//! Quarantine: moves files that a command was not allowed to create out of the workspace and keeps them for inspection.
//!
//! The command may have tried to prevent this, so symlinks are not followed and missing permissions are restored.

use std::{
    ffi::OsString,
    fs::{self, DirBuilder, OpenOptions, Permissions},
    io::{self, Read as _},
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink},
    },
    path::{Path, PathBuf},
};

use rustix::fs::{CWD, Mode, OFlags, fchmod, fstat, openat};

/// Permissions that an owner needs to use a directory.
const USABLE: u32 = 0o700;

/// Mode of a file that a file tool wrote.
pub(crate) const FILE_MODE: u32 = 0o644;

/// Name prefix in the workspace of what is being moved to another disk. The file keeps that name if the move fails.
const PARKED: &str = ".homard-aside-";

/// Maximum number of such names in a directory.
const MAX_PARKED_NAMES: u32 = 1000;

/// Maximum number of bytes of a file that are copied to another disk.
const MAX_COPIED_BYTES: u64 = 16 << 20;

/// A name in a directory that is held open, so that no symlink can redirect it.
#[derive(Debug)]
pub(crate) struct EntryHandle {
    folder: OwnedFd,
    path: PathBuf,
}

/// A quarantine directory for files that are moved together, created when the first one is.
#[derive(Debug)]
pub(crate) struct QuarantineBatch<'a> {
    quarantine: &'a Path,
    folder: Option<PathBuf>,
    /// All directories that were created.
    folders: Vec<PathBuf>,
    /// Paths in the workspace of the files that were moved.
    pub(crate) quarantined: Vec<PathBuf>,
}

impl EntryHandle {
    /// Finds a name below a directory. Returns `None` if a directory on the way is missing or a symlink.
    pub(crate) fn find(root: &Path, name: &Path) -> io::Result<Option<Self>> {
        let Some(last) = name.file_name() else { return Ok(None) };
        let mut folder = open(root)?;
        for part in name.parent().into_iter().flat_map(Path::components) {
            let next = within(&folder, part.as_ref());
            match with_permissions(&folder, || next.symlink_metadata()) {
                Ok(found) if found.is_dir() => folder = open(&next)?,
                Ok(_) => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        let path = within(&folder, last.as_ref());
        Ok(Some(Self { folder, path }))
    }

    /// Returns the metadata of what exists there, without following a symlink.
    pub(crate) fn metadata(&self) -> io::Result<Option<fs::Metadata>> {
        match with_permissions(&self.folder, || self.path.symlink_metadata()) {
            Ok(found) => Ok(Some(found)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns a path that is valid as long as this value exists.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Creates a symlink there.
    pub(crate) fn link(&self, target: &Path) -> io::Result<()> {
        with_permissions(&self.folder, || symlink(target, &self.path))
    }

    /// Returns true if the file there has this text and only one hard link: through another one it could be changed
    /// later.
    pub(crate) fn holds(&self, found: &fs::Metadata, text: &str) -> io::Result<bool> {
        if !found.is_file() || found.nlink() != 1 || found.len() != text.len() as u64 {
            return Ok(false);
        }
        Ok(self.read(text.len())?.as_deref() == Some(text.as_bytes()))
    }

    /// Returns the content of the file there, unless it is longer than `max` bytes.
    pub(crate) fn read(&self, max: usize) -> io::Result<Option<Vec<u8>>> {
        let mut bytes = Vec::new();
        let file = with_permissions(&self.folder, || opened(&self.path))?;
        file.take(max as u64 + 1).read_to_end(&mut bytes)?;
        Ok((bytes.len() <= max).then_some(bytes))
    }

    /// Creates a file there.
    pub(crate) fn write(&self, content: &[u8], mode: u32) -> io::Result<()> {
        with_permissions(&self.folder, || {
            let mut file = OpenOptions::new().write(true).create_new(true).open(&self.path)?;
            io::Write::write_all(&mut file, content)?;
            file.set_permissions(Permissions::from_mode(mode))
        })
    }

    /// Creates a directory there.
    pub(crate) fn create_dir(&self, mode: u32) -> io::Result<()> {
        with_permissions(&self.folder, || DirBuilder::new().mode(mode).create(&self.path))
    }

    /// Renames it to a name without an effect.
    fn park(&self) -> io::Result<PathBuf> {
        let names = (0..MAX_PARKED_NAMES).map(|number| within(&self.folder, Path::new(&format!("{PARKED}{number}"))));
        let free = names.into_iter().find(|path| path.symlink_metadata().is_err());
        let path = free.ok_or_else(|| io::Error::other(format!("there are too many {PARKED}*")))?;
        fs::rename(&self.path, &path)?;
        Ok(path)
    }

    /// Returns the names in the directory that this handle refers to.
    pub(crate) fn names(&self) -> io::Result<Vec<OsString>> {
        let folder = open(&self.path)?;
        fs::read_dir(within(&folder, Path::new("")))?.map(|entry| Ok(entry?.file_name())).collect()
    }
}

impl<'a> QuarantineBatch<'a> {
    pub(crate) fn new(quarantine: &'a Path) -> Self {
        Self { quarantine, folder: None, folders: Vec::new(), quarantined: Vec::new() }
    }

    /// Moves what exists at a name in a workspace to the quarantine, if anything does.
    pub(crate) fn quarantine_entry(&mut self, workspace: &Path, name: &Path) -> io::Result<()> {
        let Some(handle) = EntryHandle::find(workspace, name)? else { return Ok(()) };
        let Some(found) = handle.metadata()? else { return Ok(()) };
        if self.folder.as_ref().is_some_and(|folder| folder.join(name).symlink_metadata().is_ok()) {
            // Something below it was moved before.
            self.folder = None;
        }
        let target = self.folder()?.join(name);
        private(target.parent().unwrap_or(self.quarantine))?;
        if found.is_dir() {
            // Moving a directory requires write permission for it.
            fs::set_permissions(&handle.path, usable(&found))?;
        }
        self.quarantined.push(name.to_owned());
        tracing::warn!(name = %name.display(), kept = %target.display(), "quarantining a file that a command created");
        match with_permissions(&handle.folder, || fs::rename(&handle.path, &target)) {
            Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {
                // Renamed first, because it may be too large or too deep to be copied.
                let parked = with_permissions(&handle.folder, || handle.park())?;
                copy(&parked, &target)?;
                if found.is_dir() { fs::remove_dir_all(&parked) } else { fs::remove_file(&parked) }
            }
            moved => moved,
        }
    }

    /// Returns a note for the run that started the command.
    pub(crate) fn note(&self) -> Option<String> {
        let names: Vec<_> = self.quarantined.iter().map(|name| name.display().to_string()).collect();
        let folders: Vec<_> = self.folders.iter().map(|folder| folder.display().to_string()).collect();
        if names.is_empty() || folders.is_empty() {
            return None;
        }
        Some(format!(
            "[The sandbox quarantined files that were created while a command ran: {}. Only the user may create files \
             that instruct agents or configure git (see: homard docs security). Kept in {}]",
            names.join(", "),
            folders.join(" and ")
        ))
    }

    fn folder(&mut self) -> io::Result<PathBuf> {
        if let Some(folder) = &self.folder {
            return Ok(folder.clone());
        }
        private(self.quarantine)?;
        let mut number = fs::read_dir(self.quarantine)?.count();
        let folder = loop {
            number += 1;
            let folder = self.quarantine.join(number.to_string());
            match DirBuilder::new().mode(USABLE).create(&folder) {
                Ok(()) => break folder,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        };
        self.folders.push(folder.clone());
        Ok(self.folder.insert(folder).clone())
    }
}

/// Creates a directory that only this user can open, unless it exists.
pub(crate) fn private(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(USABLE).create(path)
}

fn within(folder: &OwnedFd, name: &Path) -> PathBuf {
    Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(name)
}

/// Lists a directory, even if a command removed its read permission: git can use such a directory nevertheless.
pub(crate) fn list(path: &Path) -> io::Result<fs::ReadDir> {
    match fs::read_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            open(path)?;
            fs::read_dir(path)
        }
        listed => listed,
    }
}

fn open(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let try_it = || openat(CWD, path, flags, Mode::empty()).map_err(io::Error::from);
    match try_it() {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            fs::set_permissions(path, usable(&path.symlink_metadata()?))?;
            try_it()
        }
        opened => opened,
    }
}

/// Performs an operation in a directory; on a permission error, adds permissions and tries again.
fn with_permissions<T>(folder: &OwnedFd, operation: impl Fn() -> io::Result<T>) -> io::Result<T> {
    match operation() {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let mode = fstat(folder)?.st_mode | USABLE;
            fchmod(folder, Mode::from_raw_mode(mode))?;
            operation()
        }
        result => result,
    }
}

fn usable(found: &fs::Metadata) -> Permissions {
    Permissions::from_mode(found.permissions().mode() | USABLE)
}

/// Reads a short text file. Follows symlinks, and does not block on a pipe.
pub(crate) fn read_file(path: &Path, max: usize) -> io::Result<String> {
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let found = file.metadata()?;
    if !found.is_file() || found.len() > max as u64 {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    let mut text = String::new();
    file.take(max as u64).read_to_string(&mut text)?;
    Ok(text)
}

/// Opens a file that may have been replaced by a pipe or a symlink.
fn opened(path: &Path) -> io::Result<fs::File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)
}

/// Copies files, directories and symlinks to another disk. Pipes and devices are omitted, because they have no content.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let found = from.symlink_metadata()?;
    if found.is_symlink() {
        return symlink(fs::read_link(from)?, to);
    }
    if found.is_dir() {
        fs::set_permissions(from, usable(&found))?;
        private(to)?;
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            copy(&entry.path(), &to.join(entry.file_name()))?;
        }
    } else if found.is_file() {
        if found.permissions().mode() & 0o400 == 0 {
            fs::set_permissions(from, usable(&found))?;
        }
        let mut from = opened(from)?.take(MAX_COPIED_BYTES);
        io::copy(&mut from, &mut OpenOptions::new().write(true).create_new(true).mode(0o600).open(to)?)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quarantined_files_are_kept_unchanged() {
        let folder = tempfile::tempdir().unwrap();
        let (workspace, quarantine) = (folder.path().join("work"), folder.path().join("state/quarantine"));
        fs::create_dir_all(workspace.join("skills/evil")).unwrap();
        fs::write(workspace.join("skills/evil/SKILL.md"), "evil").unwrap();
        fs::set_permissions(workspace.join("skills"), Permissions::from_mode(0o500)).unwrap();
        let mut batch = QuarantineBatch::new(&quarantine);
        batch.quarantine_entry(&workspace, Path::new("skills")).unwrap();
        batch.quarantine_entry(&workspace, Path::new("AGENTS.md")).unwrap();
        assert_eq!(batch.quarantined, [Path::new("skills")]);
        assert_eq!(fs::read_to_string(quarantine.join("1/skills/evil/SKILL.md")).unwrap(), "evil");
        assert_eq!(fs::read_dir(&workspace).unwrap().count(), 0);
    }

    #[test]
    fn nothing_is_quarantined_through_a_symlink() {
        let folder = tempfile::tempdir().unwrap();
        let (workspace, quarantine) = (folder.path().join("work"), folder.path().join("quarantine"));
        fs::create_dir_all(folder.path().join("elsewhere/hooks")).unwrap();
        fs::create_dir(&workspace).unwrap();
        symlink("../elsewhere", workspace.join(".git")).unwrap();
        let mut batch = QuarantineBatch::new(&quarantine);
        batch.quarantine_entry(&workspace, Path::new(".git/hooks")).unwrap();
        assert_eq!(batch.note(), None);
        assert!(folder.path().join("elsewhere/hooks").exists() && !quarantine.exists());
        batch.quarantine_entry(&workspace, Path::new(".git")).unwrap();
        assert_eq!(fs::read_link(quarantine.join("1/.git")).unwrap(), Path::new("../elsewhere"));
    }

    #[test]
    fn a_copy_to_another_disk_omits_only_pipes() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        fs::create_dir_all(from.join("deep")).unwrap();
        fs::write(from.join("deep/file"), "text").unwrap();
        fs::set_permissions(from.join("deep/file"), Permissions::from_mode(0o000)).unwrap();
        symlink("/etc/passwd", from.join("link")).unwrap();
        rustix::fs::mknodat(CWD, from.join("pipe"), rustix::fs::FileType::Fifo, Mode::RWXU, 0).unwrap();
        copy(&from, &to).unwrap();
        assert_eq!(fs::read_to_string(to.join("deep/file")).unwrap(), "text");
        assert_eq!(fs::read_link(to.join("link")).unwrap(), Path::new("/etc/passwd"));
        assert!(!to.join("pipe").exists());
    }

    #[test]
    fn files_that_cannot_be_copied_are_renamed_nevertheless() {
        let here = tempfile::tempdir().unwrap();
        let other_disk = tempfile::TempDir::new_in("/dev/shm").unwrap();
        let workspace = here.path();
        let skills = workspace.join("skills");
        fs::create_dir(&skills).unwrap();
        fs::write(skills.join("SKILL.md"), "evil").unwrap();
        fs::File::create(workspace.join("SOUL.md")).unwrap().set_len(1 << 40).unwrap();
        let mut folder = open(&skills).unwrap();
        for _ in 0..30 {
            rustix::fs::mkdirat(&folder, "d".repeat(200), Mode::RWXU).unwrap();
            folder = openat(&folder, "d".repeat(200), OFlags::DIRECTORY, Mode::empty()).unwrap();
        }
        let mut batch = QuarantineBatch::new(other_disk.path());
        batch.quarantine_entry(workspace, Path::new("SOUL.md")).unwrap();
        assert!(batch.quarantine_entry(workspace, Path::new("skills")).is_err());
        assert_eq!(batch.quarantined, [Path::new("SOUL.md"), Path::new("skills")]);
        assert_eq!(fs::metadata(other_disk.path().join("1/SOUL.md")).unwrap().len(), MAX_COPIED_BYTES);
        let names: Vec<_> = fs::read_dir(workspace).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, [".homard-aside-0"]);
    }
}
