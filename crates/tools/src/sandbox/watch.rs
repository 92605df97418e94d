//! What was not there when a command began, and must not be there when it is over: names that steer agents and git.
//!
//! What is there is protected by a mount. A mount needs something to lie on, and nothing is put into the workspace for
//! that: what a command makes by such a name is taken aside at its end instead. What has to be looked at is written
//! down before a command starts, so that [`tidy`] can do it when we were killed.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use serde::{Deserialize, Serialize};

use super::{
    aside::{Aside, Spot, private},
    layers::Layers,
    policy::{Mode, SandboxPolicy},
    repository,
};

/// Where it is written down what is watched, in the state directory.
const RECORDS: &str = "sandbox";

/// Where things are kept that were taken aside, in the state directory.
const QUARANTINE: &str = "quarantine";

/// Names below a workspace, and what each was: a link to somewhere, or nothing.
pub(super) type Names = BTreeMap<PathBuf, Option<PathBuf>>;

/// What is watched at the moment. Shared by all that use a workspace: what one command has made is not there by right
/// when the next begins.
#[derive(Debug, Clone, Default)]
pub(crate) struct Watches(Arc<Mutex<Vec<Arc<Record>>>>);

/// What one command is watched for. Looks when dropped, if nobody has asked before.
#[derive(Debug)]
pub(crate) struct Watch {
    watches: Watches,
    record: Arc<Record>,
    state_dir: Option<PathBuf>,
    /// Where it is written down.
    file: Option<PathBuf>,
    is_over: bool,
}

/// What is written down.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    workspace: PathBuf,
    names: Names,
}

impl Watches {
    /// Looks up what is laid over the root directory for a command, and watches the rest until it is over. Blocks.
    pub(super) fn begin(&self, policy: &SandboxPolicy, workspace: &Path) -> io::Result<(Layers, Watch)> {
        let workspace = workspace.canonicalize()?;
        // Before anybody looks what there is to hide.
        let state_dir = policy.state_dir.clone().filter(|_| policy.mode != Mode::ReadOnly);
        state_dir.iter().try_for_each(|state_dir| private(&state_dir.join(RECORDS)))?;
        let mut live = self.lock();
        let same = live.iter().filter(|one| one.workspace == workspace);
        let known: Names = same.flat_map(|one| one.names.clone()).collect();
        let layers = Layers::new(policy, &workspace, &known)?;
        let record = Arc::new(Record { workspace, names: layers.names.clone() });
        let file = match &state_dir {
            Some(state_dir) if !record.names.is_empty() => Some(record.write(&state_dir.join(RECORDS))?),
            Some(_) | None => None,
        };
        live.push(record.clone());
        drop(live);
        Ok((layers, Watch { watches: self.clone(), record, state_dir, file, is_over: false }))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Record>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watch {
    /// Looks, when the command is over, and says what was done. Blocks.
    pub(crate) fn end(mut self) -> Vec<String> {
        self.look()
    }

    fn look(&mut self) -> Vec<String> {
        self.is_over = true;
        let mut live = self.watches.lock();
        live.retain(|one| !Arc::ptr_eq(one, &self.record));
        let (notes, is_done) = self.record.look(self.state_dir.as_deref());
        drop(live);
        if is_done {
            self.file.iter().for_each(|file| forget(file));
        }
        notes
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if !self.is_over {
            self.look();
        }
    }
}

impl Record {
    fn write(&self, folder: &Path) -> io::Result<PathBuf> {
        let text = serde_json::to_vec(self).map_err(io::Error::other)?;
        for number in 0_u32.. {
            let path = folder.join(format!("{}-{number}.json", std::process::id()));
            match fs::File::create_new(&path) {
                Ok(mut file) => {
                    io::Write::write_all(&mut file, &text)?;
                    return Ok(path);
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::other("there are too many records of commands"))
    }

    /// Takes aside what is there and was not. Says what was done, and whether that was all.
    fn look(&self, state_dir: Option<&Path>) -> (Vec<String>, bool) {
        let quarantine = match state_dir {
            Some(state_dir) => state_dir.join(QUARANTINE),
            None => PathBuf::from(format!("/tmp/homard-{QUARANTINE}-{}", std::process::id())),
        };
        let mut aside = Aside::new(&quarantine);
        let mut notes = Vec::new();
        for (name, was) in &self.names {
            if let Err(error) = self.restore(name, was.as_deref(), &mut aside) {
                tracing::error!(name = %name.display(), %error, "what a command made could not be taken aside");
                notes.push(format!(
                    "[{} may have been made by a command, and could not be taken aside: {error}. Look at it before you \
                     use it]",
                    self.workspace.join(name).display()
                ));
            }
        }
        let is_done = notes.is_empty();
        notes.extend(aside.note());
        (notes, is_done)
    }

    fn restore(&self, name: &Path, was: Option<&Path>, aside: &mut Aside<'_>) -> io::Result<()> {
        let Some(target) = was else {
            if name != Path::new(".git") {
                return aside.take(&self.workspace, name);
            }
            let unwanted = repository::unwanted(&self.workspace)?;
            return unwanted.iter().try_for_each(|name| aside.take(&self.workspace, name));
        };
        let Some(spot) = Spot::find(&self.workspace, name)? else { return Ok(()) };
        if fs::read_link(spot.path()).is_ok_and(|now| now == target) {
            return Ok(());
        }
        aside.take(&self.workspace, name)?;
        tracing::warn!(name = %name.display(), "a command replaced a link, which is put back");
        spot.link(target)
    }
}

/// Takes aside what commands made that nobody could watch to their end, because Homard was killed, and says so.
/// Call it when the state directory is taken, before any command. Blocks.
pub fn tidy(state_dir: &Path) -> Vec<String> {
    let mut notes = Vec::new();
    for entry in fs::read_dir(state_dir.join(RECORDS)).into_iter().flatten().flatten() {
        let text = fs::read(entry.path()).unwrap_or_default();
        // One that was not written to its end is of a command that never started.
        let is_done = match serde_json::from_slice::<Record>(&text) {
            // What is gone holds nothing.
            Ok(record) if record.workspace.is_dir() => {
                let (said, is_done) = record.look(Some(state_dir));
                notes.extend(said);
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
        tracing::warn!(file = %file.display(), %error, "the record of a command stays");
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A workspace and a state directory.
    fn place() -> (tempfile::TempDir, SandboxPolicy, PathBuf) {
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
    fn nothing_is_put_into_the_workspace_and_no_record_stays() {
        let (_folder, policy, work) = place();
        let records = policy.state_dir.clone().unwrap().join(RECORDS);
        let (_, watch) = Watches::default().begin(&policy, &work).unwrap();
        assert_eq!((count(&work), count(&records)), (0, 1));
        fs::write(work.join("a.txt"), "").unwrap();
        assert_eq!(watch.end(), Vec::<String>::new());
        assert_eq!((count(&work), count(&records)), (1, 0));
    }

    #[test]
    fn what_was_made_before_we_were_killed_is_taken_aside_at_the_next_start() {
        let (_folder, policy, work) = place();
        let state = policy.state_dir.clone().unwrap();
        let (_, watch) = Watches::default().begin(&policy, &work).unwrap();
        std::mem::forget(watch);
        fs::write(work.join("AGENTS.md"), "evil").unwrap();
        fs::write(work.join("a.txt"), "").unwrap();
        let kept = state.join("quarantine/1");
        let said = format!(
            "[The sandbox took aside what was made while a command ran: AGENTS.md. Files that steer agents and git are \
             the user's to make (see docs/security.md). Kept in {}]",
            kept.display()
        );
        assert_eq!(tidy(&state), [said]);
        assert_eq!(fs::read_to_string(kept.join("AGENTS.md")).unwrap(), "evil");
        assert_eq!((count(&work), count(&state.join(RECORDS))), (1, 0));
        assert_eq!(tidy(&state), Vec::<String>::new());
    }

    #[test]
    fn what_one_command_made_is_not_there_by_right_for_the_next() {
        let (_folder, policy, work) = place();
        let watches = Watches::default();
        let (_, first) = watches.begin(&policy, &work).unwrap();
        fs::write(work.join("SOUL.md"), "evil").unwrap();
        let (_, second) = watches.begin(&policy, &work).unwrap();
        assert_eq!(first.end().len(), 1);
        fs::write(work.join("SOUL.md"), "evil").unwrap();
        assert_eq!(second.end().len(), 1);
        assert_eq!(count(&work), 0);
    }

    #[test]
    fn a_link_that_was_replaced_is_put_back() {
        let (_folder, policy, work) = place();
        let path = work.join("AGENTS.md");
        symlink("notes/AGENTS.md", &path).unwrap();
        let (_, watch) = Watches::default().begin(&policy, &work).unwrap();
        fs::remove_file(&path).unwrap();
        fs::write(&path, "evil").unwrap();
        assert_eq!(watch.end().len(), 1);
        assert_eq!(fs::read_link(&path).unwrap(), Path::new("notes/AGENTS.md"));
    }

    #[test]
    fn a_record_that_was_not_written_to_its_end_is_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let records = folder.path().join(RECORDS);
        fs::create_dir(&records).unwrap();
        fs::write(records.join("1-0.json"), "{\"workspace\": \"/").unwrap();
        assert_eq!(tidy(folder.path()), Vec::<String>::new());
        assert_eq!(count(&records), 0);
    }
}
