//! Where things go that a command made and was not to make: out of the workspace, and kept for whoever wants to look.
//!
//! Whoever made them may have tried to hinder this, so links are not followed and missing rights are put back.

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

/// How an owner can use a directory.
const USABLE: u32 = 0o700;

/// The mode of a file that a file tool wrote.
pub(super) const FILE_MODE: u32 = 0o644;

/// What something is called, in its workspace, that is on its way to another disk. It stays if it does not get there.
const PARKED: &str = ".homard-aside-";

/// How many of those there may be in a directory.
const PLACES: u32 = 1000;

/// How much of a file is carried over to another disk.
const CARRIED: u64 = 16 << 20;

/// A name in a directory that is held open, so that no link can lead elsewhere.
#[derive(Debug)]
pub(super) struct Spot {
    folder: OwnedFd,
    path: PathBuf,
}

/// A directory of its own for what is taken aside together, made when there is something.
#[derive(Debug)]
pub(super) struct Aside<'a> {
    quarantine: &'a Path,
    folder: Option<PathBuf>,
    /// All directories that were made.
    folders: Vec<PathBuf>,
    /// What was taken, as the workspace called it.
    pub(super) taken: Vec<PathBuf>,
}

impl Spot {
    /// Finds a name below a directory. There is none if a directory on the way is missing, or a link.
    pub(super) fn find(root: &Path, name: &Path) -> io::Result<Option<Self>> {
        let Some(last) = name.file_name() else { return Ok(None) };
        let mut folder = open(root)?;
        for part in name.parent().into_iter().flat_map(Path::components) {
            let next = within(&folder, part.as_ref());
            match insist(&folder, || next.symlink_metadata()) {
                Ok(found) if found.is_dir() => folder = open(&next)?,
                Ok(_) => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        let path = within(&folder, last.as_ref());
        Ok(Some(Self { folder, path }))
    }

    /// What is there; a link is not followed.
    pub(super) fn look(&self) -> io::Result<Option<fs::Metadata>> {
        match insist(&self.folder, || self.path.symlink_metadata()) {
            Ok(found) => Ok(Some(found)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Where it can be reached as long as this is held.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Puts a link there.
    pub(super) fn link(&self, target: &Path) -> io::Result<()> {
        insist(&self.folder, || symlink(target, &self.path))
    }

    /// Whether what was found there is a file with this text, and no other name leads to it: what has one can be
    /// changed by that name later.
    pub(super) fn holds(&self, found: &fs::Metadata, text: &str) -> io::Result<bool> {
        if !found.is_file() || found.nlink() != 1 || found.len() != text.len() as u64 {
            return Ok(false);
        }
        Ok(self.read(text.len())?.as_deref() == Some(text.as_bytes()))
    }

    /// What the file that is there holds, unless that is more than so many bytes.
    pub(super) fn read(&self, most: usize) -> io::Result<Option<Vec<u8>>> {
        let mut bytes = Vec::new();
        let file = insist(&self.folder, || opened(&self.path))?;
        file.take(most as u64 + 1).read_to_end(&mut bytes)?;
        Ok((bytes.len() <= most).then_some(bytes))
    }

    /// Creates a file there.
    pub(super) fn write(&self, content: &[u8], mode: u32) -> io::Result<()> {
        insist(&self.folder, || {
            let mut file = OpenOptions::new().write(true).create_new(true).open(&self.path)?;
            io::Write::write_all(&mut file, content)?;
            file.set_permissions(Permissions::from_mode(mode))
        })
    }

    /// Creates a directory there.
    pub(super) fn create_dir(&self, mode: u32) -> io::Result<()> {
        insist(&self.folder, || DirBuilder::new().mode(mode).create(&self.path))
    }

    /// Gives it another name, which steers nobody.
    fn park(&self) -> io::Result<PathBuf> {
        let names = (0..PLACES).map(|number| within(&self.folder, Path::new(&format!("{PARKED}{number}"))));
        let free = names.into_iter().find(|path| path.symlink_metadata().is_err());
        let path = free.ok_or_else(|| io::Error::other(format!("there are too many {PARKED}*")))?;
        fs::rename(&self.path, &path)?;
        Ok(path)
    }

    /// What is in the directory that is there.
    pub(super) fn names(&self) -> io::Result<Vec<OsString>> {
        let folder = open(&self.path)?;
        fs::read_dir(within(&folder, Path::new("")))?.map(|entry| Ok(entry?.file_name())).collect()
    }
}

impl<'a> Aside<'a> {
    pub(super) fn new(quarantine: &'a Path) -> Self {
        Self { quarantine, folder: None, folders: Vec::new(), taken: Vec::new() }
    }

    /// Takes away what is in a workspace by that name, if anything is.
    pub(super) fn take(&mut self, workspace: &Path, name: &Path) -> io::Result<()> {
        let Some(spot) = Spot::find(workspace, name)? else { return Ok(()) };
        let Some(found) = spot.look()? else { return Ok(()) };
        if self.folder.as_ref().is_some_and(|folder| folder.join(name).symlink_metadata().is_ok()) {
            // Something below it was taken aside before.
            self.folder = None;
        }
        let to = self.folder()?.join(name);
        private(to.parent().unwrap_or(self.quarantine))?;
        if found.is_dir() {
            // To move a directory is to change it.
            fs::set_permissions(&spot.path, usable(&found))?;
        }
        self.taken.push(name.to_owned());
        tracing::warn!(name = %name.display(), kept = %to.display(), "what a command made is taken aside");
        match insist(&spot.folder, || fs::rename(&spot.path, &to)) {
            Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {
                // Out of the way at once: it may be too much, or too deep, to be carried over.
                let parked = insist(&spot.folder, || spot.park())?;
                copy(&parked, &to)?;
                if found.is_dir() { fs::remove_dir_all(&parked) } else { fs::remove_file(&parked) }
            }
            moved => moved,
        }
    }

    /// A sentence for whoever started the command.
    pub(super) fn note(&self) -> Option<String> {
        let names: Vec<_> = self.taken.iter().map(|name| name.display().to_string()).collect();
        let folders: Vec<_> = self.folders.iter().map(|folder| folder.display().to_string()).collect();
        if names.is_empty() || folders.is_empty() {
            return None;
        }
        Some(format!(
            "[The sandbox took aside what was made while a command ran: {}. Files that steer agents and git are the \
             user's to make (see docs/security.md). Kept in {}]",
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

/// Makes a directory that only this user can open, unless it is there.
pub(super) fn private(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(USABLE).create(path)
}

fn within(folder: &OwnedFd, name: &Path) -> PathBuf {
    Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(name)
}

/// Lists a directory, also one that a command made so that it cannot be listed: git enters it all the same.
pub(super) fn list(path: &Path) -> io::Result<fs::ReadDir> {
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

/// Does something in a directory, with more rights there if those it has are not enough.
fn insist<T>(folder: &OwnedFd, work: impl Fn() -> io::Result<T>) -> io::Result<T> {
    match work() {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let mode = fstat(folder)?.st_mode | USABLE;
            fchmod(folder, Mode::from_raw_mode(mode))?;
            work()
        }
        done => done,
    }
}

fn usable(found: &fs::Metadata) -> Permissions {
    Permissions::from_mode(found.permissions().mode() | USABLE)
}

/// Reads a short text file. A link is followed; a pipe is not waited for.
pub(super) fn read_file(path: &Path, most: usize) -> io::Result<String> {
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let found = file.metadata()?;
    if !found.is_file() || found.len() > most as u64 {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    let mut text = String::new();
    file.take(most as u64).read_to_string(&mut text)?;
    Ok(text)
}

/// Opens a file, which may be a pipe or a link by now.
fn opened(path: &Path) -> io::Result<fs::File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)
}

/// Copies files, directories and links to another disk. Pipes and devices hold nothing that could be kept.
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
        let mut from = opened(from)?.take(CARRIED);
        io::copy(&mut from, &mut OpenOptions::new().write(true).create_new(true).mode(0o600).open(to)?)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_aside_is_kept_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let (work, kept) = (folder.path().join("work"), folder.path().join("state/quarantine"));
        fs::create_dir_all(work.join("skills/evil")).unwrap();
        fs::write(work.join("skills/evil/SKILL.md"), "evil").unwrap();
        fs::set_permissions(work.join("skills"), Permissions::from_mode(0o500)).unwrap();
        let mut aside = Aside::new(&kept);
        aside.take(&work, Path::new("skills")).unwrap();
        aside.take(&work, Path::new("AGENTS.md")).unwrap();
        assert_eq!(aside.taken, [Path::new("skills")]);
        assert_eq!(fs::read_to_string(kept.join("1/skills/evil/SKILL.md")).unwrap(), "evil");
        assert_eq!(fs::read_dir(&work).unwrap().count(), 0);
    }

    #[test]
    fn nothing_is_taken_through_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let (work, kept) = (folder.path().join("work"), folder.path().join("quarantine"));
        fs::create_dir_all(folder.path().join("elsewhere/hooks")).unwrap();
        fs::create_dir(&work).unwrap();
        symlink("../elsewhere", work.join(".git")).unwrap();
        let mut aside = Aside::new(&kept);
        aside.take(&work, Path::new(".git/hooks")).unwrap();
        assert_eq!(aside.note(), None);
        assert!(folder.path().join("elsewhere/hooks").exists() && !kept.exists());
        aside.take(&work, Path::new(".git")).unwrap();
        assert_eq!(fs::read_link(kept.join("1/.git")).unwrap(), Path::new("../elsewhere"));
    }

    #[test]
    fn a_copy_to_another_disk_has_all_but_pipes() {
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
    fn what_cannot_be_carried_to_another_disk_is_out_of_the_way_all_the_same() {
        let here = tempfile::tempdir().unwrap();
        let there = tempfile::TempDir::new_in("/dev/shm").unwrap();
        let work = here.path();
        let skills = work.join("skills");
        fs::create_dir(&skills).unwrap();
        fs::write(skills.join("SKILL.md"), "evil").unwrap();
        fs::File::create(work.join("SOUL.md")).unwrap().set_len(1 << 40).unwrap();
        let mut folder = open(&skills).unwrap();
        for _ in 0..30 {
            rustix::fs::mkdirat(&folder, "d".repeat(200), Mode::RWXU).unwrap();
            folder = openat(&folder, "d".repeat(200), OFlags::DIRECTORY, Mode::empty()).unwrap();
        }
        let mut aside = Aside::new(there.path());
        aside.take(work, Path::new("SOUL.md")).unwrap();
        assert!(aside.take(work, Path::new("skills")).is_err());
        assert_eq!(aside.taken, [Path::new("SOUL.md"), Path::new("skills")]);
        assert_eq!(fs::metadata(there.path().join("1/SOUL.md")).unwrap().len(), CARRIED);
        let names: Vec<_> = fs::read_dir(work).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, [".homard-aside-0"]);
    }
}
