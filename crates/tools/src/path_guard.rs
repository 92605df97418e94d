//! Resolves paths given by a model so that they cannot leave the agent's working directory.
//!
//! The kernel enforces the confinement, with `openat2` on a directory handle: `..`, absolute symlinks and symlinks that
//! are swapped during the lookup cannot lead outside. Symlinks that stay inside are followed.

use std::{
    ffi::OsStr,
    fs::File,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Component, Path, PathBuf},
};

use rustix::{
    fs::{CWD, Dir, FileType, Mode, OFlags, ResolveFlags, fstat, mkdirat, openat, openat2, readlinkat},
    io::Errno,
};

use crate::{
    Error,
    error::{MachineError, PathError, RefusedError},
    sandbox::{ChangeKind, PathRules},
    similarity::nearest,
};

/// Maximum number of attempts of a lookup that the kernel answers with `EAGAIN`, because of a concurrent rename.
const MAX_LOOKUPS: usize = 32;

/// Maximum number of directory entries compared to suggest a similar name.
const MAX_SUGGESTION_NAMES: usize = 2000;

/// A directory that confines all paths resolved through it.
#[derive(Debug)]
pub(crate) struct PathGuard {
    root: OwnedFd,
    path: PathBuf,
    rules: PathRules,
    /// Real paths of protected files that may be changed.
    permitted: Vec<PathBuf>,
}

impl PathGuard {
    /// Opens the directory itself, which is trusted. `rules` apply to everything below it.
    pub(crate) fn open(workdir: &Path, rules: PathRules) -> Result<Self, Error> {
        let path = workdir.to_owned();
        match openat(CWD, workdir, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()) {
            Ok(root) => Ok(Self { root, path, rules, permitted: Vec::new() }),
            Err(errno) => {
                Err(Error::Machine(MachineError::Io { path: path.display().to_string(), source: errno.into() }))
            }
        }
    }

    /// Opens a regular file for reading.
    pub(crate) fn file(&self, path: &str) -> Result<File, Error> {
        // Without NONBLOCK, opening a FIFO would wait for its writer.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let explain = |errno| self.map_errno(path, errno);
        let file = lookup(&self.root, self.relative(path)?, flags).map_err(|errno| self.suggest(path, errno))?;
        self.check_visible(path, &file)?;
        match FileType::from_raw_mode(fstat(&file).map_err(explain)?.st_mode) {
            FileType::RegularFile => Ok(File::from(file)),
            FileType::Directory => Err(Error::Path(PathError::Directory { path: path.to_owned() })),
            FileType::Symlink
            | FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => Err(Error::Path(PathError::Special { path: path.to_owned() })),
        }
    }

    /// Opens a directory for listing or as a working directory.
    pub(crate) fn directory(&self, path: &str) -> Result<OwnedFd, Error> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let directory = lookup(&self.root, self.relative(path)?, flags).map_err(|errno| self.suggest(path, errno))?;
        self.check_visible(path, &directory)?;
        Ok(directory)
    }

    /// Returns the rules for paths below the directory.
    pub(crate) fn rules(&self) -> &PathRules {
        &self.rules
    }

    fn check_visible(&self, path: &str, opened: &OwnedFd) -> Result<(), Error> {
        if self.rules.is_empty() {
            return Ok(());
        }
        match self.rules.hides(&real_path(opened).map_err(|errno| self.map_errno(path, errno))?) {
            true => Err(Error::Refused(RefusedError::Hidden { path: path.to_owned() })),
            false => Ok(()),
        }
    }

    /// Checks that an entry of a directory may be created, replaced or removed.
    fn check_writable(&self, path: &str, directory: &OwnedFd, name: &OsStr) -> Result<(), Error> {
        if self.rules.is_empty() {
            return Ok(());
        }
        let target = real_path(directory).map_err(|errno| self.map_errno(path, errno))?.join(name);
        if self.rules.is_read_only(&target) {
            return Err(Error::Refused(RefusedError::StartFile { path: path.to_owned() }));
        }
        match self.rules.hides(&target) {
            true => Err(Error::Refused(RefusedError::Hidden { path: path.to_owned() })),
            false => Ok(()),
        }
    }

    /// Opens the parent directory of `path`, creating missing directories, and returns it with the file name.
    pub(crate) fn parent<'a>(&self, path: &'a str) -> Result<(OwnedFd, &'a OsStr), Error> {
        if !self.rules.is_empty() {
            // Checks before any directory is created.
            self.existing_parent(path)?;
        }
        let (parent, name) = self.split(path)?;
        let parent = self.create_directory(path, parent)?;
        self.check_writable(path, &parent, name)?;
        if !self.rules.is_empty() {
            // Checks the directory that is open now: the path may have resolved to another one when the change was
            // permitted.
            let target = real_path(&parent).map_err(|errno| self.map_errno(path, errno))?.join(name);
            if self.rules.needs_approval(&target, ChangeKind::Write) && !self.permitted.contains(&target) {
                return Err(Error::Refused(RefusedError::Protected {
                    path: path.to_owned(),
                    why: "approval was not requested for this path".to_owned(),
                }));
            }
        }
        Ok((parent, name))
    }

    /// Like [`Self::parent`], but creates nothing; `None` if a directory would have to be created.
    pub(crate) fn existing_parent<'a>(&self, path: &'a str) -> Result<Option<(OwnedFd, &'a OsStr)>, Error> {
        let (parent, name) = self.split(path)?;
        for above in parent.ancestors() {
            match lookup(&self.root, above, OFlags::PATH | OFlags::DIRECTORY) {
                Ok(directory) if above == parent => {
                    self.check_writable(path, &directory, name)?;
                    return Ok(Some((directory, name)));
                }
                Ok(directory) => {
                    let missing = parent.strip_prefix(above).unwrap_or(parent);
                    self.check_writable(path, &directory, missing.join(name).as_os_str())?;
                    return Ok(None);
                }
                // `..` after a missing component cannot be created.
                Err(Errno::NOENT) if above.file_name().is_some() => {}
                Err(errno) => return Err(self.map_errno(path, errno)),
            }
        }
        Ok(None)
    }

    /// Marks a file as permitted to be changed and returns whether the change needs approval, which the caller must
    /// obtain.
    pub(crate) fn permit(&mut self, path: &str, kind: ChangeKind) -> Result<bool, Error> {
        if self.rules.is_empty() {
            return Ok(false);
        }
        let (parent, name) = self.split(path)?;
        for above in parent.ancestors() {
            match lookup(&self.root, above, OFlags::PATH | OFlags::DIRECTORY) {
                Ok(directory) => {
                    let missing = parent.strip_prefix(above).unwrap_or(parent).join(name);
                    self.check_writable(path, &directory, missing.as_os_str())?;
                    let target = real_path(&directory).map_err(|errno| self.map_errno(path, errno))?.join(missing);
                    let needs_approval = self.rules.needs_approval(&target, kind);
                    self.permitted.push(target);
                    return Ok(needs_approval);
                }
                Err(Errno::NOENT) if above.file_name().is_some() => {}
                Err(errno) => return Err(self.map_errno(path, errno)),
            }
        }
        Err(self.map_errno(path, Errno::NOENT))
    }

    fn split<'a>(&self, path: &'a str) -> Result<(&'a Path, &'a OsStr), Error> {
        let inside = self.relative(path)?;
        match (inside.parent(), inside.file_name(), path.ends_with('/')) {
            (Some(parent), Some(name), false) => Ok((parent, name)),
            _ => Err(Error::Path(PathError::Directory { path: path.to_owned() })),
        }
    }

    /// Opens a directory, creating missing components, for the file at `path`.
    fn create_directory(&self, path: &str, directory: &Path) -> Result<OwnedFd, Error> {
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let explain = |errno| self.map_errno(path, errno);
        match lookup(&self.root, directory, flags) {
            Err(Errno::NOENT) => {}
            found => return found.map_err(explain),
        }
        let (Some(parent), Some(name)) = (directory.parent(), directory.file_name()) else {
            return Err(explain(Errno::NOENT));
        };
        let parent = self.create_directory(path, parent)?;
        self.check_writable(path, &parent, name)?;
        match mkdirat(&parent, name, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => lookup(&parent, Path::new(name), flags).map_err(explain),
            Err(errno) => Err(explain(errno)),
        }
    }

    /// Returns the normalized path relative to the root; the root itself if the path contains `..`.
    pub(crate) fn normalize(&self, path: &str) -> Result<PathBuf, Error> {
        let parts = self.relative(path)?.components().filter(|part| *part != Component::CurDir);
        let clean: PathBuf = parts.collect();
        Ok(if clean.components().any(|part| part == Component::ParentDir) { PathBuf::new() } else { clean })
    }

    /// Returns the path relative to the root. This is purely lexical; `lookup` enforces confinement.
    fn relative<'a>(&self, path: &'a str) -> Result<&'a Path, Error> {
        let given = Path::new(path);
        if given.is_relative() {
            return Ok(given);
        }
        given.strip_prefix(&self.path).or(Err(self.map_errno(path, Errno::XDEV)))
    }

    /// Maps an error for a file that should exist; for a missing one, suggests a similar existing name.
    fn suggest(&self, path: &str, errno: Errno) -> Error {
        let suggestion = if errno == Errno::NOENT { self.similar_name(path) } else { None };
        match suggestion {
            Some(suggestion) => {
                Error::Path(PathError::MissingWithSuggestion { path: path.to_owned(), near: suggestion })
            }
            None => self.map_errno(path, errno),
        }
    }

    fn similar_name(&self, path: &str) -> Option<String> {
        let (parent, name) = self.split(path).ok()?;
        let directory = lookup(&self.root, parent, OFlags::RDONLY | OFlags::DIRECTORY).ok()?;
        self.check_visible(path, &directory).ok()?;
        let names = Dir::read_from(&directory).ok()?.take(MAX_SUGGESTION_NAMES).filter_map(|entry| {
            let name = entry.ok()?.file_name().to_str().ok()?.to_owned();
            (name != "." && name != ".." && !name.contains(char::is_control)).then_some(name)
        });
        // Sorted, because directory order is arbitrary.
        let mut names: Vec<String> = names.collect();
        names.sort();
        Some(parent.join(nearest(name.to_str()?, names.into_iter())?).display().to_string())
    }

    /// Maps a kernel error for `path`.
    pub(crate) fn map_errno(&self, path: &str, errno: Errno) -> Error {
        let path = path.to_owned();
        match errno {
            Errno::XDEV => Error::Refused(RefusedError::Outside { path, root: self.path.clone() }),
            Errno::NOENT => Error::Path(PathError::Missing { path }),
            Errno::NOTDIR => Error::Path(PathError::NotDirectory { path }),
            Errno::ISDIR => Error::Path(PathError::Directory { path }),
            // Errors of opening a socket or a device without a driver.
            Errno::NXIO | Errno::NODEV => Error::Path(PathError::Special { path }),
            Errno::NOSYS => Error::Machine(MachineError::NoOpenat2),
            other => Error::Machine(MachineError::Io { path, source: other.into() }),
        }
    }
}

/// Returns the real path of an open file or directory, as the kernel knows it.
pub(crate) fn real_path(opened: &OwnedFd) -> Result<PathBuf, Errno> {
    let link = readlinkat(CWD, format!("/proc/self/fd/{}", opened.as_raw_fd()), Vec::new())?.into_bytes();
    // Suffix that the kernel appends if the file was removed while open.
    let path = link.strip_suffix(b" (deleted)").unwrap_or(&link);
    Ok(PathBuf::from(OsStr::from_bytes(path)))
}

fn lookup(root: impl AsFd, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    retry_lookup(|| openat2(root.as_fd(), path, flags | OFlags::CLOEXEC, Mode::empty(), resolve))
}

/// Opens a directory below another one without following symlinks.
pub(crate) fn lookup_without_links(directory: impl AsFd, path: &Path) -> Result<OwnedFd, Errno> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    retry_lookup(|| openat2(directory.as_fd(), path, flags, Mode::empty(), resolve))
}

/// Retries while the kernel reports a concurrent rename.
fn retry_lookup(lookup: impl Fn() -> Result<OwnedFd, Errno>) -> Result<OwnedFd, Errno> {
    let is_unsure = |found: &Result<OwnedFd, Errno>| matches!(found, Err(Errno::AGAIN | Errno::INTR));
    (1..MAX_LOOKUPS).map(|_| lookup()).find(|found| !is_unsure(found)).unwrap_or_else(&lookup)
}
