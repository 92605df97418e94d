//! Moves unwanted files of a running command to the quarantine before the command ends.
//!
//! [`Record::check`] checks everything when the command has ended. Until then, git run by the user would execute what
//! the command planted, so the workspace is scanned repeatedly. That shortens the time window, but cannot close it.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use crate::{
    protected::GIT_CONTROL,
    quarantine::QuarantineBatch,
    record::{GIT, Record, put_back_note},
    repository::{self, NestedProtection},
};

/// Number of notes of one command at which a further quarantined or restored file is reported as created again.
const MAX_SWEEP_NOTES: usize = 10;

/// State of the sweeps of one running command.
#[derive(Debug, Default)]
pub(crate) struct SweepState {
    /// Unwanted files that may be half written: quarantined if the next sweep finds them again.
    pending: BTreeSet<PathBuf>,
    /// New git directories. Their settings are checked before the scan, because a command can notice that directories
    /// are listed.
    repositories: BTreeSet<PathBuf>,
    /// Settings and hooks of git directories that were quarantined or restored.
    handled: BTreeSet<PathBuf>,
    /// Notes about quarantined and restored files, and about failures.
    pub(crate) notes: Vec<String>,
}

impl Record {
    /// Quarantines settings and hooks in the known new git directories of a running command, and restores changed
    /// originals. Returns a file that the command created or changed again after it was quarantined or restored, or any
    /// restored file after [`MAX_SWEEP_NOTES`] notes. Blocks.
    pub(crate) fn sweep_settings(&mut self, quarantine: &Path) -> Option<PathBuf> {
        let mut sweep = std::mem::take(&mut self.sweep_state);
        let mut batch = QuarantineBatch::new(quarantine);
        let mut recreated = self.take_settings(&mut sweep, &mut batch, &mut Vec::new());
        let mut changed = Vec::new();
        // A config that names no program is restored when the command has ended.
        let failed = self.put_back(|name| !self.is_plain_setting(name), &mut batch, &mut changed);
        for name in self.originals.roots().filter(|name| is_setting(name)) {
            if changed.iter().any(|changed| changed.starts_with(name)) && !sweep.handled.insert(name.to_owned()) {
                recreated = recreated.or(Some(name.to_owned()));
            }
        }
        let failed: Vec<_> = failed.into_iter().filter(|note| !sweep.notes.contains(note)).collect();
        sweep.notes.extend(failed.into_iter().chain(batch.note()).chain(put_back_note(&changed)));
        if sweep.notes.len() >= MAX_SWEEP_NOTES {
            recreated = recreated.or(changed.pop());
        }
        self.sweep_state = sweep;
        recreated
    }

    /// Quarantines unwanted files of a running command, given the result of a scan. Returns a file that the command
    /// created again after it was quarantined, or any quarantined file after [`MAX_SWEEP_NOTES`] notes. Blocks.
    ///
    /// Settings and hooks by which git runs programs are quarantined at once, everything else when it is found for the
    /// second time, because it may be half written. Failures are left to [`Record::check`].
    pub(crate) fn sweep(&mut self, quarantine: &Path, found: Option<NestedProtection>) -> Option<PathBuf> {
        let mut sweep = std::mem::take(&mut self.sweep_state);
        let mut batch = QuarantineBatch::new(quarantine);
        let before = self.repositories.clone().unwrap_or_default();
        let found = found.unwrap_or_default();
        sweep.repositories.extend(found.repositories);
        sweep.repositories.retain(|git| self.is_new_repository(git, &before).unwrap_or(false));
        if self.names.get(Path::new(GIT)).is_some_and(Option::is_none) {
            sweep.repositories.insert(GIT.into());
        }
        let mut unfinished = Vec::new();
        let missing = self.names.iter().filter(|(name, link_target)| link_target.is_none() && *name != Path::new(GIT));
        let protected = found.protected.into_iter().filter(|name| self.is_new_protected(name).unwrap_or(false));
        let new =
            missing.map(|(name, _)| name.clone()).chain(protected).chain(self.new_private_names().unwrap_or_default());
        let new = new.filter(|name| self.is_there(name));
        let (settings, others): (Vec<_>, Vec<_>) = new.partition(|name| is_setting(name));
        unfinished.extend(others);
        let mut recreated = self.take_settings(&mut sweep, &mut batch, &mut unfinished);
        for name in settings {
            recreated = recreated.or(self.take_setting(name, &mut sweep, &mut batch));
        }
        let (twice, first): (Vec<_>, Vec<_>) = unfinished.into_iter().partition(|name| sweep.pending.contains(name));
        sweep.pending = first.into_iter().collect();
        for name in twice {
            if let Err(error) = self.take(&name, &mut batch) {
                tracing::warn!(name = %name.display(), %error, "failed to quarantine a file of a running command; retrying when the command has ended");
            }
        }
        sweep.notes.extend(batch.note());
        if sweep.notes.len() >= MAX_SWEEP_NOTES {
            recreated = recreated.or(batch.quarantined.pop());
        }
        self.sweep_state = sweep;
        recreated
    }

    /// Quarantines what git would execute in new git directories. What may be half written is added to `unfinished`.
    /// Returns a file that the command created again.
    fn take_settings(
        &self,
        sweep: &mut SweepState,
        batch: &mut QuarantineBatch<'_>,
        unfinished: &mut Vec<PathBuf>,
    ) -> Option<PathBuf> {
        let mut recreated = None;
        for git in sweep.repositories.clone() {
            for name in repository::unwanted(&self.workspace, &git).unwrap_or_default() {
                // Without a `HEAD` it is not a repository yet.
                let is_incomplete = name == git && self.workspace.join(&git).is_dir();
                if is_incomplete || !self.is_there(&name) {
                    continue;
                }
                if name == git || name.file_name().is_some_and(|name| name == repository::MODULES) {
                    unfinished.push(name);
                } else {
                    recreated = recreated.or(self.take_setting(name, sweep, batch));
                }
            }
        }
        recreated
    }

    /// Quarantines a setting or a hook; returns it if that has happened before.
    fn take_setting(&self, name: PathBuf, sweep: &mut SweepState, batch: &mut QuarantineBatch<'_>) -> Option<PathBuf> {
        if let Err(error) = self.take(&name, batch) {
            tracing::warn!(name = %name.display(), %error, "failed to quarantine a file of a running command; retrying when the command has ended");
            return None;
        }
        if sweep.handled.insert(name.clone()) { None } else { Some(name) }
    }

    /// Returns true if the name is the config of a git directory that currently names no program.
    fn is_plain_setting(&self, name: &Path) -> bool {
        name.file_name().is_some_and(|name| name == "config")
            && repository::text_of(&self.workspace, name)
                .is_ok_and(|text| text.is_some_and(|text| repository::is_plain(&text)))
    }

    fn is_there(&self, name: &Path) -> bool {
        self.workspace.join(name).symlink_metadata().is_ok()
    }
}

/// Returns true if git runs programs through a file or directory of this name.
fn is_setting(name: &Path) -> bool {
    let is_below = name.parent().is_some_and(|parent| !parent.as_os_str().is_empty());
    is_below && GIT_CONTROL.iter().any(|control| name.file_name().is_some_and(|name| name == *control))
}
