//! What is written down of a command that runs: what has to be looked at in its workspace when it is over.

use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::SystemTime,
};

use serde::{Deserialize, Serialize};

use crate::home_view::is_private;

use super::{
    aside::{Aside, Spot},
    layers::{Layer, Layers},
    repository,
};

/// Names below a workspace, and what each was: a link to somewhere, or nothing.
pub(super) type Names = BTreeMap<PathBuf, Option<PathBuf>>;

/// What our own tools wrote below a workspace while commands ran, or removed.
pub(super) type Own = BTreeMap<PathBuf, Option<String>>;

/// Which file it is: device, number, and birth, because numbers are used again.
type Identity = (u64, u64, Option<SystemTime>);

/// What is written down.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) workspace: PathBuf,
    pub(super) names: Names,
    /// What a mount protects. It does so no longer when the file is replaced from outside.
    #[serde(default)]
    held: BTreeMap<PathBuf, Identity>,
    #[serde(default)]
    pub(super) own: Own,
    /// Git directories below the top of the workspace that were there before; `None` if
    /// that is not known.
    #[serde(default)]
    repositories: Option<Vec<PathBuf>>,
    /// Which files these git directories were. Another one by the same name is new: a directory above it can be renamed.
    #[serde(default)]
    git_identities: BTreeMap<PathBuf, Identity>,
    /// The home directory and the hidden names that were in it, if it is a part of the workspace.
    #[serde(default)]
    private: Option<(PathBuf, Vec<PathBuf>)>,
    /// Where it is written down.
    #[serde(skip)]
    pub(super) file: Option<PathBuf>,
}

impl Record {
    /// Looks up what is there now. `own` is what is there by right, though other commands run.
    pub(super) fn new(workspace: PathBuf, layers: &Layers, own: Own) -> Self {
        let readable = layers.of(Layer::Readable).filter_map(|path| {
            let name = path.strip_prefix(&workspace).ok().filter(|name| *name != Path::new(""))?;
            Some((name.to_owned(), identity(&path.symlink_metadata().ok()?)))
        });
        let held = readable.collect();
        let (repositories, private) = (layers.repositories.clone(), layers.private.clone());
        let git_identity = |git: &PathBuf| {
            let found = workspace.join(git).symlink_metadata().ok()?;
            Some((git.clone(), identity(&found)))
        };
        let git_identities = repositories.iter().flatten().filter_map(git_identity).collect();
        Self { workspace, names: layers.names.clone(), held, own, repositories, git_identities, private, file: None }
    }

    /// Writes it down in a folder, under a name of its own.
    pub(super) fn write_into(&mut self, folder: &Path) -> io::Result<()> {
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
        Err(io::Error::other("there are too many records of commands"))
    }

    /// Whether something at a path would be looked at.
    pub(super) fn concerns(&self, path: &Path) -> bool {
        self.held.contains_key(path) || path.ancestors().any(|above| self.names.contains_key(above))
    }

    /// Notes what our own tools did.
    pub(super) fn allow(&mut self, path: &Path, text: Option<&str>) {
        self.own.insert(path.to_owned(), text.map(ToOwned::to_owned));
        let written = self.file.as_ref().map(|file| {
            // Beside it and then over it: half a record would be taken for none.
            let new = file.with_extension("new");
            fs::write(&new, serde_json::to_vec(self)?)?;
            fs::rename(new, file)
        });
        if let Some(Err(error)) = written {
            tracing::warn!(path = %path.display(), %error, "that a tool of ours wrote this is not written down");
        }
    }

    /// Takes aside what is there and should not. Says what was done, and whether that was all.
    pub(super) fn look(&self, quarantine: &Path) -> (Vec<String>, bool) {
        let mut aside = Aside::new(quarantine);
        if !self.names.is_empty() {
            repository::sweep(&self.workspace);
        }
        let (mut notes, mut doubts) = (Vec::new(), Vec::new());
        let restored = self.names.iter().map(|(name, was)| (name, self.restore(name, was.as_deref(), &mut aside)));
        for (name, result) in restored.collect::<Vec<_>>() {
            notes.extend(result.err().map(|error| self.lament(name, &error)));
        }
        match self.look_at_repositories(&mut aside) {
            Ok(doubt) => doubts.extend(doubt),
            Err(error) => notes.push(self.lament(Path::new("."), &error)),
        }
        if let Err(error) = self.look_at_home(&mut aside) {
            notes.push(self.lament(Path::new("."), &error));
        }
        for (name, was) in &self.held {
            match self.compare(name, was, &mut aside) {
                Ok(doubt) => doubts.extend(doubt),
                Err(error) => notes.push(self.lament(name, &error)),
            }
        }
        let is_done = notes.is_empty();
        notes.extend(aside.note());
        notes.extend(doubts);
        (notes, is_done)
    }

    /// Takes aside what git would run of repositories that were not there before, at any depth.
    fn look_at_repositories(&self, aside: &mut Aside<'_>) -> io::Result<Option<String>> {
        if self.names.is_empty() {
            // The command could change nothing.
            return Ok(None);
        }
        let (Some(before), Some(now)) = (&self.repositories, repository::nested(&self.workspace)) else {
            return Ok(Some(format!(
                "[{} could not be searched for repositories that a command made: look at new ones before you use git there]",
                self.workspace.display()
            )));
        };
        for git in now {
            let is_known = before.contains(&git) && !self.is_another(&git)?;
            if is_known || repository::is_worktree(&self.workspace, &git)? {
                continue;
            }
            for name in repository::unwanted(&self.workspace, &git)? {
                self.take(&name, aside)?;
            }
        }
        Ok(None)
    }

    /// Whether a git directory is not the one that had this name before the command.
    fn is_another(&self, git: &Path) -> io::Result<bool> {
        let Some(was) = self.git_identities.get(git) else { return Ok(false) };
        Ok(identity(&self.workspace.join(git).symlink_metadata()?) != *was)
    }

    /// Takes aside what was made in the home directory by a name that programs use for their own files.
    fn look_at_home(&self, aside: &mut Aside<'_>) -> io::Result<()> {
        let Some((home, before)) = &self.private else { return Ok(()) };
        for entry in fs::read_dir(self.workspace.join(home))? {
            let name = entry?.file_name();
            if is_private(&name) && !before.contains(&home.join(&name)) {
                self.take(&home.join(&name), aside)?;
            }
        }
        Ok(())
    }

    fn lament(&self, name: &Path, error: &io::Error) -> String {
        tracing::error!(name = %name.display(), %error, "what a command made could not be taken aside");
        format!(
            "[{} may have been made by a command, and could not be taken aside: {error}. Look at it before you use it]",
            self.workspace.join(name).display()
        )
    }

    /// What was missing is missing again, but for what is our own; a link is what it was.
    fn restore(&self, name: &Path, was: Option<&Path>, aside: &mut Aside<'_>) -> io::Result<()> {
        let Some(target) = was else {
            if name != Path::new(".git") {
                return self.take(name, aside);
            }
            let unwanted = repository::unwanted(&self.workspace, name)?;
            return unwanted.iter().try_for_each(|name| self.take(name, aside));
        };
        let Some(spot) = Spot::find(&self.workspace, name)? else { return Ok(()) };
        if fs::read_link(spot.path()).is_ok_and(|now| now == target) {
            return Ok(());
        }
        aside.take(&self.workspace, name)?;
        tracing::warn!(name = %name.display(), "a command replaced a link, which is put back");
        spot.link(target)
    }

    /// What was protected is what it was, or our own. If somebody else replaced it, nobody knows what the command did
    /// to it afterwards, and only people can tell.
    fn compare(&self, name: &Path, was: &Identity, aside: &mut Aside<'_>) -> io::Result<Option<String>> {
        let Some(spot) = Spot::find(&self.workspace, name)? else { return Ok(None) };
        let Some(found) = spot.look()? else { return Ok(None) };
        if identity(&found) == *was {
            return Ok(None);
        }
        if self.own.contains_key(name) {
            return self.take(name, aside).map(|()| None);
        }
        Ok(Some(format!(
            "[{} was replaced while a command ran, which could change it from then on: look at it before you use it]",
            self.workspace.join(name).display()
        )))
    }

    /// Takes away what is there, but for files that are as we wrote them. Those that are not are put back.
    fn take(&self, name: &Path, aside: &mut Aside<'_>) -> io::Result<()> {
        let has_own = self.own.iter().any(|(path, text)| text.is_some() && path.starts_with(name));
        if !has_own {
            return aside.take(&self.workspace, name);
        }
        let Some(spot) = Spot::find(&self.workspace, name)? else { return Ok(()) };
        let Some(found) = spot.look()? else { return Ok(()) };
        match self.own.get(name) {
            Some(Some(text)) if spot.holds(&found, text)? => Ok(()),
            Some(Some(text)) => {
                aside.take(&self.workspace, name)?;
                spot.write(text)
            }
            Some(None) | None if found.is_dir() => {
                let names: Vec<_> = spot.names()?.into_iter().map(|below| name.join(below)).collect();
                names.iter().try_for_each(|name| self.take(name, aside))
            }
            Some(None) | None => aside.take(&self.workspace, name),
        }
    }
}

fn identity(found: &fs::Metadata) -> Identity {
    (found.dev(), found.ino(), found.created().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_of_an_earlier_version_takes_no_repository_aside() {
        let folder = tempfile::tempdir().unwrap();
        let git = folder.path().join("sub/.git");
        fs::create_dir_all(&git).unwrap();
        fs::write(git.join("HEAD"), "ref: refs/heads/main").unwrap();
        fs::write(git.join("config"), "[core]\n\tpager = less\n").unwrap();
        let text = serde_json::json!({"workspace": folder.path(), "names": {"AGENTS.md": null}, "held": {}, "own": {}});
        let record: Record = serde_json::from_value(text).unwrap();
        let (notes, is_done) = record.look(&folder.path().join("quarantine"));
        assert!(is_done && notes.len() == 1 && notes[0].contains("could not be searched"), "{notes:?}");
        assert!(git.join("config").exists());
    }
}
