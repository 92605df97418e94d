//! A copy of the working tree to which bugs can be applied.

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
pub(super) struct PatchedTree {
    /// A pristine second copy, because the working tree itself may change meanwhile.
    origin: PathBuf,
    root: PathBuf,
    target: PathBuf,
    /// Temporary folder for what failing checks leave behind.
    temporary: PathBuf,
    names: Vec<PathBuf>,
}

impl PatchedTree {
    /// Creates the copies, or updates existing ones.
    pub(super) fn new() -> Result<Self> {
        let (working, folder) = (shell::root(), shell::target()?.join("mutants"));
        let names = shell::files(&working)?;
        let [origin, root, target, temporary] = ["origin", "tree", "target", "scraps"].map(|name| folder.join(name));
        copy_all(&working, &origin, &names)?;
        let tree = Self { origin, root, target, temporary, names };
        tree.restore()?;
        Ok(tree)
    }

    /// Reverts all bugs and removes what they left behind.
    pub(super) fn restore(&self) -> Result<()> {
        if self.temporary.exists() {
            fs::remove_dir_all(&self.temporary)?;
        }
        fs::create_dir_all(&self.temporary)?;
        copy_all(&self.origin, &self.root, &self.names)
    }

    /// Applies a patch.
    pub(super) fn apply(&self, patch: &Path) -> Result<()> {
        // Within a repository, git silently ignores files that are not below the current folder.
        let parent = self.root.parent().unwrap_or(&self.root);
        let mut git = Command::new("git");
        git.arg("apply").arg(patch).current_dir(&self.root).env("GIT_CEILING_DIRECTORIES", parent);
        shell::run(&mut git).context("the patch no longer applies; recreate it")
    }

    /// Returns a command that runs in the tree.
    pub(super) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.root).env("CARGO_TARGET_DIR", &self.target).env("TMPDIR", &self.temporary);
        command
    }

    /// Returns the binary built in the tree.
    pub(super) fn binary(&self) -> PathBuf {
        self.target.join("debug").join("homard")
    }
}

/// Makes a tree equal to another. Equal files are not touched, so that cargo need not rebuild them.
fn copy_all(from: &Path, to: &Path, names: &[PathBuf]) -> Result<()> {
    for name in names {
        copy(&from.join(name), &to.join(name)).with_context(|| format!("cannot copy {}", name.display()))?;
    }
    remove_others(to, Path::new(""), &names.iter().map(PathBuf::as_path).collect())
}

/// Copies a file or a symlink, unless it already exists and is equal.
fn copy(from: &Path, to: &Path) -> Result<()> {
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder)?;
    }
    if let Ok(target) = fs::read_link(from) {
        if fs::read_link(to).is_ok_and(|existing| existing == target) {
            return Ok(());
        }
        return Ok(std::os::unix::fs::symlink(target, to)?);
    }
    let bytes = fs::read(from)?;
    if fs::read(to).is_ok_and(|existing| existing == bytes) {
        return Ok(());
    }
    Ok(fs::write(to, bytes)?)
}

/// Removes files that do not belong to the tree.
fn remove_others(root: &Path, subfolder: &Path, names: &HashSet<&Path>) -> Result<()> {
    for item in fs::read_dir(root.join(subfolder))? {
        let item = item?;
        let name = subfolder.join(item.file_name());
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
    fn equal_files_are_not_rewritten_and_others_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir(path("tree")).unwrap();
        fs::write(path("a"), "one").unwrap();
        std::os::unix::fs::symlink("a", path("l")).unwrap();
        copy(&path("a"), &path("tree/b/a")).unwrap();
        copy(&path("l"), &path("tree/l")).unwrap();
        let before = fs::metadata(path("tree/b/a")).unwrap().modified().unwrap();
        copy(&path("a"), &path("tree/b/a")).unwrap();
        copy(&path("l"), &path("tree/l")).unwrap();
        assert_eq!(fs::metadata(path("tree/b/a")).unwrap().modified().unwrap(), before);
        assert_eq!(fs::read_link(path("tree/l")).unwrap(), Path::new("a"));
        let kept = HashSet::from([Path::new("l")]);
        remove_others(&path("tree"), Path::new(""), &kept).unwrap();
        assert_eq!((path("tree/b/a").exists(), path("tree/l").is_symlink()), (false, true));
        assert!(path("a").exists());
    }
}
