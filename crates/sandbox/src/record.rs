//! Record of a running command: what has to be checked in its workspace when it has ended.

use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::SystemTime,
};

use serde::{Deserialize, Serialize};

use crate::{
    TrustedContent,
    home_view::is_private,
    layers::{Layer, Layers},
    originals::{Originals, Restoration},
    protected::is_protected_below,
    quarantine::{EntryHandle, FILE_MODE, QuarantineBatch},
    repository,
    sweep::SweepState,
};

/// Maximum size of files that are compared, in bytes.
const MAX_COMPARED_BYTES: u64 = 1 << 20;

/// Git directory of the repository at the top level.
pub(crate) const GIT: &str = ".git";

/// Names in a workspace and what each was before the command: a symlink with its target, or missing.
pub(crate) type Names = BTreeMap<PathBuf, Option<PathBuf>>;

/// Files in a workspace that Homard's own tools wrote (with their text) or removed while commands ran.
pub(crate) type ToolWrites = BTreeMap<PathBuf, Option<String>>;

/// Identity of a file: device, inode and creation time, because inode numbers are reused.
type Identity = (u64, u64, Option<SystemTime>);

/// Record of a running command, stored until its workspace has been checked.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) workspace: PathBuf,
    pub(crate) names: Names,
    /// Files protected by a mount. The protection is lost if the file is replaced from outside.
    #[serde(default)]
    held: BTreeMap<PathBuf, Identity>,
    /// Copies of these files, if nothing prevents the command from changing them: changes are reverted.
    #[serde(default)]
    pub(crate) originals: Originals,
    #[serde(default)]
    pub(crate) own: ToolWrites,
    /// Git directories below the top level of the workspace that existed before; `None` if unknown.
    #[serde(default)]
    pub(crate) repositories: Option<Vec<PathBuf>>,
    /// Files and directories with a protected name below the top level of the workspace that existed before; `None` if
    /// unknown.
    #[serde(default)]
    protected: Option<Vec<PathBuf>>,
    /// Identities of these git directories, and of the parent directories of these protected files. A different
    /// directory of the same name counts as new, because a directory above it can be renamed.
    #[serde(default)]
    identities: BTreeMap<PathBuf, Identity>,
    /// The home directory and the hidden names that existed in it, if it is a part of the workspace.
    #[serde(default)]
    private: Option<(PathBuf, Vec<PathBuf>)>,
    /// Path of the stored record.
    #[serde(skip)]
    pub(crate) file: Option<PathBuf>,
    /// State of the sweeps while the command runs.
    #[serde(skip)]
    pub(crate) sweep_state: SweepState,
}

impl Record {
    /// Records the current state. `tool_writes` are files that Homard's tools wrote while
    /// other commands ran.
    pub(crate) fn new(workspace: PathBuf, layers: &Layers, tool_writes: ToolWrites) -> Self {
        let readable = layers.of(Layer::Readable).filter_map(|path| {
            let name = path.strip_prefix(&workspace).ok().filter(|name| *name != Path::new(""))?;
            Some((name.to_owned(), identity(&path.symlink_metadata().ok()?)))
        });
        let held = readable.collect();
        let nested = layers.nested.clone();
        let (repositories, protected) = nested.map(|nested| (nested.repositories, nested.protected)).unzip();
        let parents = protected.iter().flatten().filter_map(|name| name.parent());
        let directories = repositories.iter().flatten().map(PathBuf::as_path).chain(parents);
        let identify = |name: &Path| {
            let found = workspace.join(name).symlink_metadata().ok()?;
            Some((name.to_owned(), identity(&found)))
        };
        let identities = directories.filter_map(identify).collect();
        let (names, private) = (layers.names.clone(), layers.private.clone());
        Self {
            workspace,
            names,
            held,
            originals: Originals::default(),
            own: tool_writes,
            repositories,
            protected,
            identities,
            private,
            file: None,
            sweep_state: SweepState::default(),
        }
    }

    /// Copies the protected files, for a command that could change them. Those in `known` are not read again. Blocks.
    pub(crate) fn copy_originals(&mut self, known: &Originals) {
        self.originals = Originals::read(&self.workspace, self.held.keys().map(PathBuf::as_path), known);
    }

    /// Stores the record in a directory under a unique name.
    pub(crate) fn write_into(&mut self, folder: &Path) -> io::Result<()> {
        for number in 0_u32.. {
            let path = folder.join(format!("{}-{number}.json", std::process::id()));
            match fs::File::create_new(&path) {
                Ok(mut file) => {
                    self.file = Some(path);
                    return io::Write::write_all(&mut file, &serde_json::to_vec(self)?);
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::other("too many command records"))
    }

    /// Returns true if a path is subject to the check.
    pub(crate) fn concerns(&self, path: &Path) -> bool {
        self.held.contains_key(path)
            || path.ancestors().any(|above| self.names.contains_key(above))
            || self.originals.covers(path)
            || path.iter().any(is_protected_below)
    }

    /// Records a file that one of Homard's tools wrote or removed.
    pub(crate) fn allow(&mut self, path: &Path, text: Option<&str>) {
        self.own.insert(path.to_owned(), text.map(ToOwned::to_owned));
        let result = self.file.as_ref().map(|file| {
            // Written to a new file and renamed, because an incomplete record would be ignored.
            let new = file.with_extension("new");
            fs::write(&new, serde_json::to_vec(self)?)?;
            fs::rename(new, file)
        });
        if let Some(Err(error)) = result {
            tracing::warn!(path = %path.display(), %error, "failed to record a file that a tool wrote");
        }
    }

    /// Quarantines unwanted files and restores protected ones. Returns notes, and whether everything succeeded.
    pub(crate) fn check(&self, quarantine: &Path) -> (Vec<String>, bool) {
        let mut batch = QuarantineBatch::new(quarantine);
        if !self.names.is_empty() {
            repository::sweep(&self.workspace);
        }
        let (mut notes, mut warnings) = (Vec::new(), Vec::new());
        let restored =
            self.names.iter().map(|(name, before)| (name, self.restore(name, before.as_deref(), &mut batch)));
        for (name, result) in restored.collect::<Vec<_>>() {
            notes.extend(result.err().map(|error| self.failure_note(name, &error)));
        }
        warnings.extend(self.check_repositories(&mut batch, &mut notes));
        if let Err(error) = self.check_home(&mut batch, &mut notes) {
            notes.push(self.failure_note(Path::new("."), &error));
        }
        let mut changed = Vec::new();
        notes.extend(self.put_back(|_| true, &mut batch, &mut changed));
        for (name, before) in self.held.iter().filter(|(name, _)| !self.originals.covers(name)) {
            match self.compare(name, before, &mut batch) {
                Ok(warning) => warnings.extend(warning),
                Err(error) => notes.push(self.failure_note(name, &error)),
            }
        }
        let is_done = notes.is_empty();
        notes.extend(self.sweep_state.notes.iter().cloned());
        notes.extend(batch.note());
        notes.extend(put_back_note(&changed));
        notes.extend(warnings);
        (notes, is_done)
    }

    /// Restores the copied protected files that are `wanted`. Adds those that had changed, and returns a sentence for
    /// each that could not be restored.
    pub(crate) fn put_back(
        &self,
        wanted: impl Fn(&Path) -> bool,
        batch: &mut QuarantineBatch<'_>,
        changed: &mut Vec<PathBuf>,
    ) -> Vec<String> {
        let mut failed = Vec::new();
        let git = Path::new(GIT);
        // A symlink to another repository could have replaced the original one.
        let had_repository = self.originals.roots().any(|name| name.parent() == Some(git));
        let is_directory = |name: &Path| self.workspace.join(name).symlink_metadata().is_ok_and(|found| found.is_dir());
        if had_repository && !is_directory(git) {
            failed
                .extend(batch.quarantine_entry(&self.workspace, git).err().map(|error| self.failure_note(git, &error)));
        }
        let mut restoration = Restoration { workspace: &self.workspace, tool_writes: &self.own, batch, changed };
        for name in self.originals.roots().filter(|name| wanted(name)) {
            let result = self.originals.put_back(name, &mut restoration);
            failed.extend(result.err().map(|error| self.failure_note(name, &error)));
        }
        failed
    }

    /// Quarantines what git would execute in new repositories, at any depth.
    fn check_repositories(&self, batch: &mut QuarantineBatch<'_>, notes: &mut Vec<String>) -> Option<String> {
        if self.names.is_empty() {
            // The command could not change anything.
            return None;
        }
        let Some(before) = &self.repositories else {
            return Some(format!(
                "[{} could not be searched for repositories that a command created: check new repositories before you \
                 use git there]",
                self.workspace.display()
            ));
        };
        // Without a limit: a command could create enough files to hide a repository from a limited search.
        let now = repository::nested_in_all(&self.workspace);
        // A failure does not prevent the others from being quarantined.
        let failed =
            |(name, result): (PathBuf, io::Result<()>)| result.err().map(|error| self.failure_note(&name, &error));
        let protected = now.protected.into_iter().map(|name| {
            let result = self.judge_protected(&name, batch);
            (name, result)
        });
        notes.extend(protected.filter_map(failed));
        let repositories = now.repositories.into_iter().map(|git| {
            let result = self.judge_repository(&git, before, batch);
            (git, result)
        });
        notes.extend(repositories.filter_map(failed));
        None
    }

    /// Quarantines a file or directory with a protected name if it is new.
    fn judge_protected(&self, name: &Path, batch: &mut QuarantineBatch<'_>) -> io::Result<()> {
        if self.is_new_protected(name)? { self.take(name, batch) } else { Ok(()) }
    }

    /// Returns true if a file or directory with a protected name did not exist before, and is not a copy of one that
    /// did.
    pub(crate) fn is_new_protected(&self, name: &Path) -> io::Result<bool> {
        let Some(before) = &self.protected else { return Ok(false) };
        let is_elsewhere = name.parent().map_or(Ok(false), |parent| self.was_replaced(parent))?;
        let was_there = before.iter().any(|path| path == name) && !is_elsewhere;
        Ok(!was_there && !self.is_copy(name)?)
    }

    /// Returns true if a command created a git directory: it is not in `before` or was replaced since, and it is not a
    /// worktree of the repository at the top level.
    pub(crate) fn is_new_repository(&self, git: &Path, before: &[PathBuf]) -> io::Result<bool> {
        let is_known = before.iter().any(|path| path == git) && !self.was_replaced(git)?;
        Ok(!is_known && !repository::is_worktree(&self.workspace, git)?)
    }

    /// Quarantines what git would execute in a repository, if the repository is new.
    fn judge_repository(&self, git: &Path, before: &[PathBuf], batch: &mut QuarantineBatch<'_>) -> io::Result<()> {
        if !self.is_new_repository(git, before)? {
            return Ok(());
        }
        for name in repository::unwanted(&self.workspace, git)? {
            self.take(&name, batch)?;
        }
        Ok(())
    }

    /// Returns true if this name had a different directory before the command. False if it had none.
    fn was_replaced(&self, name: &Path) -> io::Result<bool> {
        let Some(before) = self.identities.get(name) else { return Ok(false) };
        Ok(identity(&self.workspace.join(name).symlink_metadata()?) != *before)
    }

    /// Returns true if a new file or directory equals a protected one of the same name: git creates such copies for a
    /// new worktree. Also true if it is that file itself, in a directory that was moved.
    fn is_copy(&self, name: &Path) -> io::Result<bool> {
        let Some(handle) = EntryHandle::find(&self.workspace, name)? else { return Ok(false) };
        let Some(found) = handle.metadata()? else { return Ok(false) };
        let namesakes = self.held.iter().filter(|(held, _)| held.file_name() == name.file_name());
        for (held, identity_before) in namesakes {
            if let Some(is_copy) = self.originals.is_copy(held, handle.path()) {
                if is_copy? {
                    return Ok(true);
                }
                continue;
            }
            if identity(&found) == *identity_before {
                return Ok(true);
            }
            let Some(original) = EntryHandle::find(&self.workspace, held)? else { continue };
            // A file that replaced the original may be the command's, too.
            let is_original = original.metadata()?.is_some_and(|now| identity(&now) == *identity_before);
            if is_original && is_same(original.path(), handle.path())? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns what may be loaded into a prompt from a path in the workspace while the command runs: the state from
    /// before the command, so that its changes have no effect until they are judged.
    pub(crate) fn rule(&self, path: &Path) -> TrustedContent {
        let is_new_below = || {
            let existed = |above: &Path| {
                self.protected.as_ref().is_some_and(|before| before.iter().any(|existing| existing == above))
            };
            let is_protected = |above: &&Path| {
                above.components().count() > 1 && above.file_name().is_some_and(is_protected_below) && !existed(above)
            };
            path.ancestors().any(|above| is_protected(&above))
        };
        let recorded_name =
            path.ancestors().find_map(|above| self.names.get(above).map(|link_target| (above, link_target)));
        match (recorded_name, self.own.get(path)) {
            (Some((link, Some(target))), _) => {
                let real = link.parent().map(|folder| self.workspace.join(folder).join(target));
                let real = real.and_then(|real| real.canonicalize().ok());
                let below = real.and_then(|real| real.strip_prefix(&self.workspace).map(Path::to_owned).ok());
                match (below, path.strip_prefix(link)) {
                    (Some(below), Ok(rest)) if rest.as_os_str().is_empty() => TrustedContent::Target(below),
                    (Some(below), Ok(rest)) => TrustedContent::Target(below.join(rest)),
                    (None, _) | (_, Err(_)) => TrustedContent::Nothing,
                }
            }
            (_, Some(Some(text))) => TrustedContent::Text(text.clone()),
            (Some((_, None)), _) => TrustedContent::Nothing,
            (None, Some(None)) if self.originals.covers(path) => TrustedContent::Nothing,
            (None, _) if self.originals.covers(path) => self.originals.rule(&self.workspace, path),
            (None, _) if is_new_below() => TrustedContent::Nothing,
            (None, _) => TrustedContent::File,
        }
    }

    /// Quarantines new files in the home directory with a name that programs use for their own files.
    fn check_home(&self, batch: &mut QuarantineBatch<'_>, notes: &mut Vec<String>) -> io::Result<()> {
        for name in self.new_private_names()? {
            if let Err(error) = self.take(&name, batch) {
                notes.push(self.failure_note(&name, &error));
            }
        }
        Ok(())
    }

    /// Returns the new names in the home directory that programs use for their own files.
    pub(crate) fn new_private_names(&self) -> io::Result<Vec<PathBuf>> {
        let Some((home, before)) = &self.private else { return Ok(Vec::new()) };
        let entries = fs::read_dir(self.workspace.join(home))?;
        let names = entries.map(|entry| Ok(home.join(entry?.file_name()))).collect::<io::Result<Vec<_>>>()?;
        let is_new = |name: &PathBuf| name.file_name().is_some_and(is_private) && !before.contains(name);
        Ok(names.into_iter().filter(is_new).collect())
    }

    fn failure_note(&self, name: &Path, error: &io::Error) -> String {
        tracing::error!(name = %name.display(), %error, "failed to quarantine a file that a command created");
        format!(
            "[{} may have been created by a command, and could not be quarantined: {error}. Check it before you use \
             it]",
            self.workspace.join(name).display()
        )
    }

    /// Quarantines a name that was missing, except files of Homard's tools; restores a symlink.
    fn restore(&self, name: &Path, link_target: Option<&Path>, batch: &mut QuarantineBatch<'_>) -> io::Result<()> {
        let Some(target) = link_target else {
            if name != Path::new(GIT) {
                return self.take(name, batch);
            }
            let unwanted = repository::unwanted(&self.workspace, name)?;
            return unwanted.iter().try_for_each(|name| self.take(name, batch));
        };
        let Some(handle) = EntryHandle::find(&self.workspace, name)? else { return Ok(()) };
        if fs::read_link(handle.path()).is_ok_and(|now| now == target) {
            return Ok(());
        }
        batch.quarantine_entry(&self.workspace, name)?;
        tracing::warn!(name = %name.display(), "a command replaced a symbolic link; restoring it");
        handle.link(target)
    }

    /// Checks that a file protected by a mount is still the same one, or one of Homard's tools. If it was replaced
    /// otherwise, the command may have changed the new file, and a note asks the user to check it.
    fn compare(&self, name: &Path, before: &Identity, batch: &mut QuarantineBatch<'_>) -> io::Result<Option<String>> {
        let Some(handle) = EntryHandle::find(&self.workspace, name)? else { return Ok(None) };
        let Some(found) = handle.metadata()? else { return Ok(None) };
        if identity(&found) == *before {
            return Ok(None);
        }
        if self.own.contains_key(name) {
            return self.take(name, batch).map(|()| None);
        }
        Ok(Some(format!(
            "[{} was replaced while a command ran, and the command could change the new file: check it before you use \
             it]",
            self.workspace.join(name).display()
        )))
    }

    /// Quarantines what exists at a name, except files that are as Homard's tools wrote them. Changed ones are
    /// restored.
    pub(crate) fn take(&self, name: &Path, batch: &mut QuarantineBatch<'_>) -> io::Result<()> {
        let has_own = self.own.iter().any(|(path, text)| text.is_some() && path.starts_with(name));
        if !has_own {
            return batch.quarantine_entry(&self.workspace, name);
        }
        let Some(handle) = EntryHandle::find(&self.workspace, name)? else { return Ok(()) };
        let Some(found) = handle.metadata()? else { return Ok(()) };
        match self.own.get(name) {
            Some(Some(text)) if handle.holds(&found, text)? => Ok(()),
            Some(Some(text)) => {
                batch.quarantine_entry(&self.workspace, name)?;
                handle.write(text.as_bytes(), FILE_MODE)
            }
            Some(None) | None if found.is_dir() => {
                let names: Vec<_> = handle.names()?.into_iter().map(|below| name.join(below)).collect();
                names.iter().try_for_each(|name| self.take(name, batch))
            }
            Some(None) | None => batch.quarantine_entry(&self.workspace, name),
        }
    }
}

/// Returns the note for the model about protected files that the sandbox restored; `None` if there are none.
pub(crate) fn put_back_note(changed: &[PathBuf]) -> Option<String> {
    let names: Vec<_> = changed.iter().map(|name| name.display().to_string()).collect();
    (!names.is_empty()).then(|| {
        format!(
            "[The sandbox restored protected files that were changed while a command ran: {}. Only the user may \
             change them (see: homard docs security)]",
            names.join(", ")
        )
    })
}

/// Returns true if two files are equal, or if all files in the directory `actual` equal those in `expected`. Symlinks
/// and long files count as different.
fn is_same(expected: &Path, actual: &Path) -> io::Result<bool> {
    let (expected_metadata, actual_metadata) = (expected.symlink_metadata()?, actual.symlink_metadata()?);
    if expected_metadata.is_file() && actual_metadata.is_file() {
        // A file with another hard link could be changed through it.
        let is_plain = actual_metadata.nlink() == 1
            && expected_metadata.len() == actual_metadata.len()
            && actual_metadata.len() <= MAX_COMPARED_BYTES;
        return Ok(is_plain && fs::read(expected)? == fs::read(actual)?);
    }
    if !expected_metadata.is_dir() || !actual_metadata.is_dir() {
        return Ok(false);
    }
    for entry in fs::read_dir(actual)? {
        let name = entry?.file_name();
        if expected.join(&name).symlink_metadata().is_err() || !is_same(&expected.join(&name), &actual.join(&name))? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn identity(found: &fs::Metadata) -> Identity {
    (found.dev(), found.ino(), found.created().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_of_an_earlier_version_quarantines_no_repository() {
        let folder = tempfile::tempdir().unwrap();
        let git = folder.path().join("sub/.git");
        fs::create_dir_all(&git).unwrap();
        fs::write(git.join("HEAD"), "ref: refs/heads/main").unwrap();
        fs::write(git.join("config"), "[core]\n\tpager = less\n").unwrap();
        let text = serde_json::json!({"workspace": folder.path(), "names": {"AGENTS.md": null}, "held": {}, "own": {}});
        let record: Record = serde_json::from_value(text).unwrap();
        let (notes, is_done) = record.check(&folder.path().join("quarantine"));
        assert!(is_done && notes.len() == 1 && notes[0].contains("could not be searched"), "{notes:?}");
        assert!(git.join("config").exists());
    }
}
