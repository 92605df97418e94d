//! What stands in for files that must not be made: as long as it is there, something can be mounted on it.
//!
//! A mount needs a place, and the place is in the real workspace. So an empty directory is put there while commands
//! run, which most programs and git overlook, and is taken away when the last of them is over.

use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::fs::{DirBuilderExt, symlink},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Names that no empty directory has, besides those with an ending.
const ODD: [&str; 3] = [".envrc", ".git", ".gitmodules"];

/// Something that stands in.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Wanted {
    pub(super) path: PathBuf,
    /// The text of a file; a directory has none.
    text: Option<&'static str>,
}

/// What stands in at the moment, and for how many commands. Shared by all that use a workspace: to take away a
/// directory that another command has mounted something on would undo that mount.
#[derive(Debug, Clone, Default)]
pub(crate) struct StandIns(Arc<Mutex<BTreeMap<Wanted, usize>>>);

/// One command's share in what stands in.
#[derive(Debug)]
pub(crate) struct Held {
    stand_ins: StandIns,
    held: Vec<Wanted>,
}

/// A link that has to be the same when a command is over.
#[derive(Debug)]
pub(crate) struct LostLink {
    path: PathBuf,
    target: PathBuf,
}

impl Wanted {
    pub(super) fn directory(path: PathBuf) -> Self {
        Self { path, text: None }
    }

    pub(super) fn file(path: PathBuf, text: &'static str) -> Self {
        Self { path, text: Some(text) }
    }

    fn make(&self) -> io::Result<()> {
        if self.is_left_over() {
            return Ok(());
        }
        match self.text {
            Some(text) => {
                let mut file = fs::File::create_new(&self.path)?;
                io::Write::write_all(&mut file, text.as_bytes())
            }
            None => fs::create_dir(&self.path),
        }
    }

    /// Whether it is there because we ended without removing it: nobody else makes an empty directory of that name.
    pub(super) fn is_left_over(&self) -> bool {
        let name = self.path.file_name().unwrap_or_default();
        let is_odd = self.path.extension().is_some() || ODD.iter().any(|odd| name == *odd);
        match self.text {
            Some(text) => fs::read_to_string(&self.path).is_ok_and(|found| found == text),
            // Not through a link.
            None if is_odd && self.path.symlink_metadata().is_ok_and(|found| found.is_dir()) => {
                fs::read_dir(&self.path).is_ok_and(|mut entries| entries.next().is_none())
            }
            None => false,
        }
    }

    /// Only what is as it was made: nobody else's work is removed.
    pub(super) fn remove(&self) {
        let removed = match self.text {
            Some(text) if fs::read_to_string(&self.path).is_ok_and(|found| found == text) => {
                fs::remove_file(&self.path)
            }
            Some(_) => Ok(()),
            None => fs::remove_dir(&self.path),
        };
        if let Err(error) = removed {
            tracing::warn!(path = %self.path.display(), %error, "a stand-in stays");
        }
    }
}

impl StandIns {
    /// Puts there what is not, and remembers that it is needed.
    pub(super) fn hold(&self, wanted: &[Wanted]) -> io::Result<Held> {
        let mut all = self.lock();
        let mut held = Held { stand_ins: self.clone(), held: Vec::new() };
        for one in wanted {
            let count = all.get(one).copied().unwrap_or(0);
            match if count > 0 { Ok(()) } else { one.make() } {
                Ok(()) => {
                    all.insert(one.clone(), count + 1);
                    held.held.push(one.clone());
                }
                // Somebody made it just now; what is mounted on it protects it too.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    drop(all);
                    return Err(error);
                }
            }
        }
        Ok(held)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Wanted, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut all = self.stand_ins.lock();
        for one in self.held.drain(..) {
            match all.get_mut(&one) {
                Some(count) if *count > 1 => *count -= 1,
                Some(_) | None => {
                    all.remove(&one);
                    one.remove();
                }
            }
        }
    }
}

impl LostLink {
    pub(super) fn remember(path: &Path) -> Option<Self> {
        Some(Self { path: path.to_owned(), target: fs::read_link(path).ok()? })
    }
}

impl Drop for LostLink {
    fn drop(&mut self) {
        if fs::read_link(&self.path).is_ok_and(|target| target == self.target) {
            return;
        }
        let is_folder = self.path.symlink_metadata().is_ok_and(|found| found.is_dir());
        // Whatever is there instead was not to be made.
        let removed = if is_folder { fs::remove_dir_all(&self.path) } else { fs::remove_file(&self.path) };
        let is_gone = removed.or_else(|error| if self.path.exists() { Err(error) } else { Ok(()) });
        match is_gone.and_then(|()| symlink(&self.target, &self.path)) {
            Ok(()) => tracing::warn!(path = %self.path.display(), "a command replaced a link, which was put back"),
            Err(error) => tracing::error!(path = %self.path.display(), %error, "a replaced link was not put back"),
        }
    }
}

/// Makes a directory that only this user can open.
pub(super) fn temporary() -> io::Result<PathBuf> {
    for number in 0.. {
        let path = PathBuf::from(format!("/tmp/homard-exec-{}-{number}", std::process::id()));
        match fs::DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => return path.canonicalize(),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < 10_000 => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other("there are too many temporary directories"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stand_in_stays_until_the_last_command_is_over() {
        let folder = tempfile::tempdir().unwrap();
        let wanted =
            [Wanted::directory(folder.path().join("hooks")), Wanted::file(folder.path().join("commondir"), ".\n")];
        let stand_ins = StandIns::default();
        let count = || fs::read_dir(folder.path()).unwrap().count();
        let first = stand_ins.hold(&wanted).unwrap();
        let second = stand_ins.hold(&wanted).unwrap();
        drop(first);
        assert_eq!(count(), 2);
        drop(second);
        assert_eq!(count(), 0);
    }

    #[test]
    fn what_stayed_when_we_were_killed_is_used_again_and_removed() {
        let folder = tempfile::tempdir().unwrap();
        let wanted = ["MEMORY.md", ".git"].map(|name| Wanted::directory(folder.path().join(name)));
        std::mem::forget(StandIns::default().hold(&wanted).unwrap());
        assert!(wanted.iter().all(Wanted::is_left_over));
        drop(StandIns::default().hold(&wanted).unwrap());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_somebody_else_made_is_not_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hooks");
        fs::create_dir(&path).unwrap();
        drop(StandIns::default().hold(&[Wanted::directory(path.clone())]).unwrap());
        assert!(path.exists());
    }

    #[test]
    fn a_link_that_was_replaced_is_put_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("AGENTS.md");
        symlink("notes/AGENTS.md", &path).unwrap();
        let link = LostLink::remember(&path).unwrap();
        fs::remove_file(&path).unwrap();
        fs::write(&path, "evil").unwrap();
        drop(link);
        assert_eq!(fs::read_link(&path).unwrap(), Path::new("notes/AGENTS.md"));
    }
}
