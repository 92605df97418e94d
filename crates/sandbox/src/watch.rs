//! Watches for protected names that did not exist when a command started and must not exist when it has ended.
//!
//! Existing protected files are protected by mounts. A mount needs an existing path, and nothing is added to the
//! workspace for that: files that a command creates under such a name are quarantined when it ends. What has to be
//! checked is recorded before a command starts, so that [`tidy`] can do it after a crash.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use homard_stdx::sync::{Mutex, MutexGuard};

use crate::{
    layers::Layers,
    originals::Originals,
    policy::{AccessMode, SandboxPolicy, steers},
    quarantine::private,
    record::{Names, Record, ToolWrites},
    repository,
};

/// Directory of the records in the state directory.
const RECORDS: &str = "sandbox";

/// Quarantine directory in the state directory.
const QUARANTINE: &str = "quarantine";

/// What can be trusted of a path in a workspace while commands run there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TrustedContent {
    /// The file as it is.
    File,
    /// Another file of the workspace, by its path there: the symlink to it may have been replaced.
    Target(PathBuf),
    /// Only this text: the file may have been changed since it was written.
    Text(String),
    /// Nothing: a running command may have created it.
    Nothing,
}

/// A function that says what can be trusted of a path.
pub type TrustedContents<'a> = dyn Fn(&Path) -> TrustedContent + 'a;

/// The commands that are currently watched. Shared by all users of a workspace: files that one command created are not
/// legitimate when the next starts, and files of Homard's own tools are.
#[derive(Debug, Clone, Default)]
pub struct Watches(Arc<Mutex<WatchedCommands>>);

/// How existing protected files are protected from a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protection {
    /// Mounts: they cannot be changed.
    Mounts,
    /// Copies: changes are reverted.
    Copies,
}

#[derive(Debug, Default)]
struct WatchedCommands {
    /// Number of commands so far.
    count: u64,
    records: BTreeMap<u64, Record>,
}

/// Watch of one command. Checks the workspace when dropped, unless that has been done.
#[derive(Debug)]
pub(crate) struct Watch {
    watches: Watches,
    number: u64,
    state_dir: Option<PathBuf>,
}

impl Watches {
    /// Resolves the layers for a command, and watches the workspace until it has ended. Blocks.
    pub(crate) fn begin(
        &self,
        policy: &SandboxPolicy,
        workspace_path: &Path,
        protection: Protection,
    ) -> io::Result<(Layers, Watch)> {
        let workspace = workspace_path.canonicalize()?;
        // Before the paths to hide are resolved, so that this directory exists.
        let state_dir = policy.state_dir.clone().filter(|_| policy.mode != AccessMode::ReadOnly);
        state_dir.iter().try_for_each(|state_dir| private(&state_dir.join(RECORDS)))?;
        let mut live = self.lock();
        let same_workspace = live.records.values().filter(|watched| watched.workspace == workspace);
        let known_names: Names = same_workspace.clone().flat_map(|watched| watched.names.clone()).collect();
        let tool_writes: ToolWrites = same_workspace.clone().flat_map(|watched| watched.own.clone()).collect();
        let mut originals = Originals::default();
        same_workspace.for_each(|watched| originals.extend(watched.originals.clone()));
        if policy.mode != AccessMode::ReadOnly {
            repository::sweep(&workspace);
        }
        let layers = Layers::new(policy, workspace_path, &known_names)?;
        let mut record = Record::new(workspace, &layers, tool_writes);
        if protection == Protection::Copies && policy.mode != AccessMode::ReadOnly {
            record.copy_originals(&originals);
        }
        if let Some(state_dir) = &state_dir {
            record.write_into(&state_dir.join(RECORDS))?;
        }
        live.count += 1;
        let number = live.count;
        live.records.insert(number, record);
        drop(live);
        Ok((layers, Watch { watches: self.clone(), number, state_dir }))
    }

    /// Runs `write`, in which one of Homard's tools writes or removes files of a workspace: `files` are their paths and
    /// new texts. Blocks.
    pub fn own<T, E>(
        &self,
        workdir: &Path,
        files: &[(PathBuf, Option<&str>)],
        write: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let Ok(workspace) = workdir.canonicalize() else { return write() };
        let mut live = self.lock();
        let is_watched = |path: &Path| steers(path) || live.records.values().any(|watched| watched.concerns(path));
        if !files.iter().any(|(path, _)| is_watched(path)) {
            drop(live);
            return write();
        }
        // No command starts or ends in the meantime: it would find a file that is not recorded yet.
        let result = write()?;
        for record in live.records.values_mut().filter(|watched| watched.workspace == workspace) {
            for (path, text) in files {
                if record.concerns(path) {
                    record.allow(path, *text);
                }
            }
        }
        drop(live);
        Ok(result)
    }

    /// Like [`Self::own`], for one file whose path is known when it is written.
    pub fn own_one(&self, workdir: &Path, write: &mut dyn FnMut() -> Option<(PathBuf, String)>) {
        let mut live = self.lock();
        let Some((path, text)) = write() else { return };
        let (Ok(workspace), Ok(name)) = (workdir.canonicalize(), path.strip_prefix(workdir)) else { return };
        for record in
            live.records.values_mut().filter(|watched| watched.workspace == workspace && watched.concerns(name))
        {
            record.allow(name, Some(&text));
        }
    }

    /// Calls `load` once with a function that says what of a path can be trusted: a running command may have created
    /// or changed the file. No command starts or ends until it returns. Blocks.
    pub fn hold(&self, load: &mut dyn FnMut(&TrustedContents<'_>)) {
        let live = self.lock();
        load(&|path| live.rule(path));
    }

    fn lock(&self) -> MutexGuard<'_, WatchedCommands> {
        self.0.lock()
    }
}

impl WatchedCommands {
    /// Returns what may be loaded from a path, given all running commands.
    fn rule(&self, path: &Path) -> TrustedContent {
        if self.records.is_empty() {
            return TrustedContent::File;
        }
        // By its own name, whatever a symlink of this name points to; parent directories may be missing.
        let found = path.ancestors().skip(1).find_map(|above| {
            let rest = path.strip_prefix(above).ok()?;
            Some(above.canonicalize().ok()?.join(rest))
        });
        let Some(real) = found else { return TrustedContent::Nothing };
        let below = |record: &'_ Record| real.strip_prefix(&record.workspace).map(Path::to_owned);
        let rules = self.records.values().filter_map(|record| Some(record.rule(&below(record).ok()?)));
        // The strictest rule applies.
        rules.fold(TrustedContent::File, |strictest, rule| match (&strictest, &rule) {
            (TrustedContent::Nothing, _) | (_, TrustedContent::File) => strictest,
            (TrustedContent::File | TrustedContent::Target(_) | TrustedContent::Text(_), _) => rule,
        })
    }
}

impl Watch {
    /// Checks the workspace when the command has ended, and returns notes. Blocks.
    pub(crate) fn end(self) -> Vec<String> {
        self.check()
    }

    /// Returns the sweeper for the time while the command runs.
    pub(crate) fn sweeper(&self) -> Sweeper {
        Sweeper { watches: self.watches.clone(), number: self.number, quarantine: self.quarantine() }
    }

    fn quarantine(&self) -> PathBuf {
        match &self.state_dir {
            Some(state_dir) => state_dir.join(QUARANTINE),
            None => PathBuf::from(format!("/tmp/homard-{QUARANTINE}-{}", std::process::id())),
        }
    }

    fn check(&self) -> Vec<String> {
        let mut live = self.watches.lock();
        let Some(record) = live.records.remove(&self.number) else { return Vec::new() };
        let quarantine = self.quarantine();
        let (notes, is_done) = record.check(&quarantine);
        drop(live);
        if is_done {
            record.file.iter().for_each(|file| forget(file));
        }
        notes
    }
}

/// Checks the workspace while a command runs.
#[derive(Debug, Clone)]
pub struct Sweeper {
    watches: Watches,
    number: u64,
    quarantine: PathBuf,
}

impl Sweeper {
    /// Quarantines unwanted files that the command has created so far. Blocks.
    pub fn sweep(&self) -> Sweep {
        let mut live = self.watches.lock();
        let Some(record) = live.records.get_mut(&self.number) else { return Sweep::default() };
        if record.names.is_empty() {
            // The command cannot change anything.
            return Sweep::default();
        }
        let recreated = record.sweep_settings(&self.quarantine);
        let (workspace, is_searched) = (record.workspace.clone(), record.repositories.is_some());
        drop(live);
        // Without the lock: the scan takes longest, and tools and prompts wait for the lock.
        let found = is_searched.then(|| repository::nested(&workspace)).flatten();
        let mut live = self.watches.lock();
        let commands = live.records.len();
        let Some(record) = live.records.get_mut(&self.number) else { return Sweep::default() };
        let recreated = recreated.or(record.sweep(&self.quarantine, found));
        Sweep { recreated: recreated.map(|name| workspace.join(name)), commands }
    }
}

/// Result of a sweep.
#[derive(Debug, Default)]
pub struct Sweep {
    /// A file that the command created or changed again after it was quarantined or restored.
    pub recreated: Option<PathBuf>,
    /// Number of watched commands, each of which is swept.
    pub commands: usize,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.check();
    }
}

/// Quarantines unwanted files of commands whose end was missed because Homard was killed, and returns notes.
/// Call it after taking the lock of the state directory, before any command. Blocks.
pub fn tidy(state_dir: &Path) -> Vec<String> {
    let mut notes = Vec::new();
    for entry in fs::read_dir(state_dir.join(RECORDS)).into_iter().flatten().flatten() {
        let text = fs::read(entry.path()).unwrap_or_default();
        // An incomplete record belongs to a command that never started.
        let is_done = match serde_json::from_slice::<Record>(&text) {
            // A workspace that no longer exists contains nothing.
            Ok(record) if record.workspace.is_dir() => {
                let (record_notes, is_done) = record.check(&state_dir.join(QUARANTINE));
                notes.extend(record_notes);
                is_done
            }
            Ok(_) | Err(_) => true,
        };
        if is_done {
            forget(&entry.path());
        }
    }
    notes
}

fn forget(file: &Path) {
    if let Err(error) = fs::remove_file(file) {
        tracing::warn!(file = %file.display(), %error, "failed to remove a command record");
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A workspace and a state directory.
    fn directories() -> (tempfile::TempDir, SandboxPolicy, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        fs::create_dir(root.join("work")).unwrap();
        let policy = SandboxPolicy { state_dir: Some(root.join("state")), ..SandboxPolicy::default() };
        (folder, policy, root.join("work"))
    }

    fn count(path: &Path) -> usize {
        fs::read_dir(path).unwrap().count()
    }

    #[test]
    fn a_watch_adds_nothing_to_the_workspace_and_leaves_no_record() {
        let (_folder, policy, workspace) = directories();
        let records = policy.state_dir.clone().unwrap().join(RECORDS);
        let (_, watch) = Watches::default().begin(&policy, &workspace, Protection::Mounts).unwrap();
        assert_eq!((count(&workspace), count(&records)), (0, 1));
        fs::write(workspace.join("a.txt"), "").unwrap();
        assert_eq!(watch.end(), Vec::<String>::new());
        assert_eq!((count(&workspace), count(&records)), (1, 0));
    }

    #[test]
    fn files_created_before_a_crash_are_quarantined_at_the_next_start() {
        let (_folder, policy, workspace) = directories();
        let state = policy.state_dir.clone().unwrap();
        let (_, watch) = Watches::default().begin(&policy, &workspace, Protection::Mounts).unwrap();
        std::mem::forget(watch);
        fs::write(workspace.join("AGENTS.md"), "evil").unwrap();
        fs::write(workspace.join("a.txt"), "").unwrap();
        let quarantined = state.join("quarantine/1");
        let note = format!(
            "[The sandbox quarantined files that were created while a command ran: AGENTS.md. Only the user may \
             create files that instruct agents or configure git (see: homard docs security). Kept in {}]",
            quarantined.display()
        );
        assert_eq!(tidy(&state), [note]);
        assert_eq!(fs::read_to_string(quarantined.join("AGENTS.md")).unwrap(), "evil");
        assert_eq!((count(&workspace), count(&state.join(RECORDS))), (1, 0));
        assert_eq!(tidy(&state), Vec::<String>::new());
    }

    #[test]
    fn files_of_one_command_are_not_legitimate_for_the_next() {
        let (_folder, policy, workspace) = directories();
        let watches = Watches::default();
        let (_, first) = watches.begin(&policy, &workspace, Protection::Mounts).unwrap();
        fs::write(workspace.join("SOUL.md"), "evil").unwrap();
        let (_, second) = watches.begin(&policy, &workspace, Protection::Mounts).unwrap();
        assert_eq!(first.end().len(), 1);
        fs::write(workspace.join("SOUL.md"), "evil").unwrap();
        assert_eq!(second.end().len(), 1);
        assert_eq!(count(&workspace), 0);
    }

    #[test]
    fn a_replaced_symlink_is_restored() {
        let (_folder, policy, workspace) = directories();
        let path = workspace.join("AGENTS.md");
        symlink("notes/AGENTS.md", &path).unwrap();
        let (_, watch) = Watches::default().begin(&policy, &workspace, Protection::Mounts).unwrap();
        fs::remove_file(&path).unwrap();
        fs::write(&path, "evil").unwrap();
        assert_eq!(watch.end().len(), 1);
        assert_eq!(fs::read_link(&path).unwrap(), Path::new("notes/AGENTS.md"));
    }

    #[test]
    fn files_changed_before_a_crash_are_restored_at_the_next_start() {
        let (_folder, policy, workspace) = directories();
        let state = policy.state_dir.clone().unwrap();
        fs::create_dir_all(workspace.join(".git/hooks")).unwrap();
        for (name, text) in [(".git/HEAD", "ref: refs/heads/main"), (".git/config", "[core]\n"), ("AGENTS.md", "good")]
        {
            fs::write(workspace.join(name), text).unwrap();
        }
        fs::write(workspace.join(".git/hooks/pre-commit"), [0xff, 0]).unwrap();
        let (_, watch) = Watches::default().begin(&policy, &workspace, Protection::Copies).unwrap();
        std::mem::forget(watch);
        fs::write(workspace.join(".git/config"), "[core]\n\tfsmonitor = ./evil\n").unwrap();
        fs::write(workspace.join(".git/hooks/post-commit"), "evil").unwrap();
        fs::remove_file(workspace.join(".git/hooks/pre-commit")).unwrap();
        fs::remove_file(workspace.join("AGENTS.md")).unwrap();
        let notes = tidy(&state);
        let put_back =
            "changed while a command ran: .git/config, .git/hooks/post-commit, .git/hooks/pre-commit, AGENTS.md.";
        assert!(notes.len() == 2 && notes[1].contains(put_back), "{notes:?}");
        let read = |name: &str| fs::read(workspace.join(name)).ok();
        assert_eq!(read(".git/config").unwrap(), b"[core]\n");
        assert_eq!(read(".git/hooks/pre-commit").unwrap(), [0xff, 0]);
        assert_eq!((read(".git/hooks/post-commit"), read("AGENTS.md").unwrap()), (None, b"good".to_vec()));
        assert_eq!(fs::read(state.join("quarantine/1/.git/hooks/post-commit")).unwrap(), b"evil");
    }

    #[test]
    fn an_incomplete_record_is_discarded() {
        let folder = tempfile::tempdir().unwrap();
        let records = folder.path().join(RECORDS);
        fs::create_dir(&records).unwrap();
        fs::write(records.join("1-0.json"), "{\"workspace\": \"/").unwrap();
        assert_eq!(tidy(folder.path()), Vec::<String>::new());
        assert_eq!(count(&records), 0);
    }
}
