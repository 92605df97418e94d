//! A copy of the working tree in which bugs may be put.

use std::{
    collections::HashSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};

use crate::shell;

/// A copy of the working tree, with a target folder of its own.
#[derive(Debug)]
pub(super) struct Tree {
    /// Another copy, because somebody may go on working in the tree itself.
    origin: PathBuf,
    root: PathBuf,
    target: PathBuf,
    /// For what the checks leave behind when they fail.
    scraps: PathBuf,
    names: Vec<PathBuf>,
}

impl Tree {
    /// Makes the copies, or brings those of an earlier time up to date.
    pub(super) fn new() -> Result<Self> {
        let (working, folder) = (shell::root(), shell::target()?.join("mutants"));
        let names = shell::files(&working)?;
        let [origin, root, target, scraps] = ["origin", "tree", "target", "scraps"].map(|name| folder.join(name));
        copy_all(&working, &origin, &names)?;
        let tree = Self { origin, root, target, scraps, names };
        tree.restore()?;
        Ok(tree)
    }

    /// Takes all bugs out again, and what they left behind.
    pub(super) fn restore(&self) -> Result<()> {
        if self.scraps.exists() {
            fs::remove_dir_all(&self.scraps)?;
        }
        fs::create_dir_all(&self.scraps)?;
        copy_all(&self.origin, &self.root, &self.names)
    }

    /// Puts a patch in.
    pub(super) fn apply(&self, patch: &Path) -> Result<()> {
        // In a repository git passes by, without a word, what is not below the folder that it is called in.
        let above = self.root.parent().unwrap_or(&self.root);
        let mut git = Command::new("git");
        git.arg("apply").arg(patch).current_dir(&self.root).env("GIT_CEILING_DIRECTORIES", above);
        shell::run(&mut git).context("the patch does not fit the tree any more; make it anew")
    }

    /// A command that works in the tree.
    pub(super) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.root).env("CARGO_TARGET_DIR", &self.target).env("TMPDIR", &self.scraps);
        command
    }

    /// The binary that a build in the tree makes.
    pub(super) fn binary(&self) -> PathBuf {
        self.target.join("debug").join("homard")
    }
}

/// Makes a tree equal to another. What is equal is not touched, so that cargo need not build it again.
fn copy_all(from: &Path, to: &Path, names: &[PathBuf]) -> Result<()> {
    for name in names {
        copy(&from.join(name), &to.join(name)).with_context(|| format!("cannot copy {}", name.display()))?;
    }
    remove_others(to, Path::new(""), &names.iter().map(PathBuf::as_path).collect())
}

/// Copies a file or a link, unless it is there and equal.
fn copy(from: &Path, to: &Path) -> Result<()> {
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder)?;
    }
    if let Ok(target) = fs::read_link(from) {
        if fs::read_link(to).is_ok_and(|there| there == target) {
            return Ok(());
        }
        return Ok(std::os::unix::fs::symlink(target, to)?);
    }
    let bytes = fs::read(from)?;
    if fs::read(to).is_ok_and(|there| there == bytes) {
        return Ok(());
    }
    Ok(fs::write(to, bytes)?)
}

/// Removes what does not belong to the tree.
fn remove_others(root: &Path, below: &Path, names: &HashSet<&Path>) -> Result<()> {
    for item in fs::read_dir(root.join(below))? {
        let item = item?;
        let name = below.join(item.file_name());
        if item.file_type()?.is_dir() {
            remove_others(root, &name, names)?;
        } else if !names.contains(name.as_path()) {
            fs::remove_file(root.join(&name))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_equal_is_not_written_again_and_strangers_go() {
        let folder = tempfile::tempdir().unwrap();
        let place = |name: &str| folder.path().join(name);
        fs::create_dir(place("tree")).unwrap();
        fs::write(place("a"), "one").unwrap();
        std::os::unix::fs::symlink("a", place("l")).unwrap();
        copy(&place("a"), &place("tree/b/a")).unwrap();
        copy(&place("l"), &place("tree/l")).unwrap();
        let before = fs::metadata(place("tree/b/a")).unwrap().modified().unwrap();
        copy(&place("a"), &place("tree/b/a")).unwrap();
        copy(&place("l"), &place("tree/l")).unwrap();
        assert_eq!(fs::metadata(place("tree/b/a")).unwrap().modified().unwrap(), before);
        assert_eq!(fs::read_link(place("tree/l")).unwrap(), Path::new("a"));
        let kept = HashSet::from([Path::new("l")]);
        remove_others(&place("tree"), Path::new(""), &kept).unwrap();
        assert_eq!((place("tree/b/a").exists(), place("tree/l").is_symlink()), (false, true));
        assert!(place("a").exists());
    }
}
