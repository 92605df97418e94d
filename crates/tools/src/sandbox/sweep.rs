//! What a command that still runs has made and should not: taken aside before the command is over.
//!
//! [`Record::look`] judges everything when the command is over. Until then, git that is run by the user would obey what
//! the command planted, so the workspace is searched again and again. Nothing here can make that time zero.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use crate::protected::GIT_CONTROL;

use super::{
    aside::Aside,
    record::{GIT, Record, put_back_note},
    repository::{self, Nested},
};

/// How many sweeps of one command may take something aside.
const MOST_SWEPT: usize = 10;

/// What was found while a command was running.
#[derive(Debug, Default)]
pub(super) struct Swept {
    /// What was there that should not be, and may be unfinished: it is taken aside if the next sweep finds it again.
    pending: BTreeSet<PathBuf>,
    /// New repositories. Their settings are looked at first: a command can notice that directories are listed.
    repositories: BTreeSet<PathBuf>,
    /// Settings and hooks of repositories that were taken aside.
    taken: BTreeSet<PathBuf>,
    /// A sentence for each sweep that took something aside.
    pub(super) notes: Vec<String>,
}

impl Record {
    /// Takes aside settings and hooks of the new repositories that are known of a command that still runs. Returns one that
    /// was taken aside before, if it is there again. Blocks.
    pub(super) fn sweep_settings(&mut self, quarantine: &Path) -> Option<PathBuf> {
        let mut swept = std::mem::take(&mut self.swept);
        let mut aside = Aside::new(quarantine);
        let mut again = self.take_settings(&mut swept, &mut aside, &mut Vec::new());
        let mut changed = Vec::new();
        // A setting that names no program is put back when the command has ended.
        let failed = self.put_back(|name| !self.is_plain_setting(name), &mut aside, &mut changed);
        for name in self.originals.roots().filter(|name| is_setting(name)) {
            if changed.iter().any(|changed| changed.starts_with(name)) && !swept.taken.insert(name.to_owned()) {
                again = again.or(Some(name.to_owned()));
            }
        }
        let failed: Vec<_> = failed.into_iter().filter(|note| !swept.notes.contains(note)).collect();
        swept.notes.extend(failed.into_iter().chain(aside.note()).chain(put_back_note(&changed)));
        if swept.notes.len() >= MOST_SWEPT {
            again = again.or(changed.pop());
        }
        self.swept = swept;
        again
    }

    /// Takes aside what a command that still runs has made and should not, given what a search found. Returns something
    /// that came back too often. Blocks.
    ///
    /// What git runs programs by is taken aside at once, everything else when it is found for the second time: it may be
    /// half written. What cannot be taken aside is left to [`Record::look`].
    pub(super) fn sweep(&mut self, quarantine: &Path, found: Option<Nested>) -> Option<PathBuf> {
        let mut swept = std::mem::take(&mut self.swept);
        let mut aside = Aside::new(quarantine);
        let before = self.repositories.clone().unwrap_or_default();
        let found = found.unwrap_or_default();
        swept.repositories.extend(found.repositories);
        swept.repositories.retain(|git| self.is_new_repository(git, &before).unwrap_or(false));
        if self.names.get(Path::new(GIT)).is_some_and(Option::is_none) {
            swept.repositories.insert(GIT.into());
        }
        let mut unfinished = Vec::new();
        let missing = self.names.iter().filter(|(name, was)| was.is_none() && *name != Path::new(GIT));
        let protected = found.protected.into_iter().filter(|name| self.is_new_protected(name).unwrap_or(false));
        let new =
            missing.map(|(name, _)| name.clone()).chain(protected).chain(self.new_private_names().unwrap_or_default());
        let new = new.filter(|name| self.is_there(name));
        let (settings, rest): (Vec<_>, Vec<_>) = new.partition(|name| is_setting(name));
        unfinished.extend(rest);
        let mut again = self.take_settings(&mut swept, &mut aside, &mut unfinished);
        for name in settings {
            again = again.or(self.take_setting(name, &mut swept, &mut aside));
        }
        let (twice, first): (Vec<_>, Vec<_>) = unfinished.into_iter().partition(|name| swept.pending.contains(name));
        swept.pending = first.into_iter().collect();
        for name in twice {
            if let Err(error) = self.take(&name, &mut aside) {
                tracing::warn!(name = %name.display(), %error, "what a running command made is not taken aside yet");
            }
        }
        swept.notes.extend(aside.note());
        if swept.notes.len() >= MOST_SWEPT {
            again = again.or(aside.taken.pop());
        }
        self.swept = swept;
        again
    }

    /// Takes aside what git would run of new repositories. What may be half written is added to `unfinished`.
    fn take_settings(
        &self,
        swept: &mut Swept,
        aside: &mut Aside<'_>,
        unfinished: &mut Vec<PathBuf>,
    ) -> Option<PathBuf> {
        let mut again = None;
        for git in swept.repositories.clone() {
            for name in repository::unwanted(&self.workspace, &git).unwrap_or_default() {
                // Without a `HEAD` it is no repository yet.
                let is_begun = name == git && self.workspace.join(&git).is_dir();
                if is_begun || !self.is_there(&name) {
                    continue;
                }
                if name == git || name.file_name().is_some_and(|name| name == repository::MODULES) {
                    unfinished.push(name);
                } else {
                    again = again.or(self.take_setting(name, swept, aside));
                }
            }
        }
        again
    }

    /// Takes a setting or a hook aside, and returns it if that was done before.
    fn take_setting(&self, name: PathBuf, swept: &mut Swept, aside: &mut Aside<'_>) -> Option<PathBuf> {
        if let Err(error) = self.take(&name, aside) {
            tracing::warn!(name = %name.display(), %error, "what a running command made is not taken aside yet");
            return None;
        }
        if swept.taken.insert(name.clone()) { None } else { Some(name) }
    }

    /// Whether a name is the config of a git directory, which names no program as it is now.
    fn is_plain_setting(&self, name: &Path) -> bool {
        name.file_name().is_some_and(|name| name == "config")
            && repository::text_of(&self.workspace, name)
                .is_ok_and(|text| text.is_some_and(|text| repository::is_plain(&text)))
    }

    fn is_there(&self, name: &Path) -> bool {
        self.workspace.join(name).symlink_metadata().is_ok()
    }
}

/// Whether a name is one of those by which a git directory runs programs.
fn is_setting(name: &Path) -> bool {
    let is_below = name.parent().is_some_and(|parent| !parent.as_os_str().is_empty());
    is_below && GIT_CONTROL.iter().any(|control| name.file_name().is_some_and(|name| name == *control))
}
