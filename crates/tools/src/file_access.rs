//! State shared by the file tools: path rules, approvals, file locks, and watches of running commands.

mod approval;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use homard_agent::tool::ToolCx;
use similar::TextDiff;
use tokio_util::sync::CancellationToken;

pub(crate) use self::approval::is_change;
use crate::{
    Error,
    error::{MachineError, PathError, RefusedError},
    file_locks::FileLocks,
    path_guard::PathGuard,
    sandbox::{ChangeKind, InStateDirectory, PathRules, SandboxPolicy, Watches},
    text::{TextFile, to_lf},
};

/// Time limit for minimizing a diff; after that it is correct, but possibly larger than necessary.
const DIFF_TIMEOUT: Duration = Duration::from_secs(1);

/// File access of tools, under the same policy as commands. Clones share state.
#[derive(Debug, Clone, Default)]
pub struct FileAccess {
    policy: Arc<SandboxPolicy>,
    /// True if changes to protected files need approval.
    requires_approval: bool,
    pub(crate) locks: FileLocks,
    pub(crate) watches: Watches,
}

/// A call of a tool that changes files.
#[derive(Debug)]
pub(crate) struct FileCall {
    pub(crate) workdir: PathBuf,
    pub(crate) cancel: CancellationToken,
    pub(crate) consent: Consent,
}

/// Owner's consent to a change of protected files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Consent {
    /// The owner has to approve it.
    Ask,
    /// The run was not started by the owner: the change is refused.
    Never,
    /// The owner approved the change that this text describes.
    Given(String),
}

/// A change that needs approval.
#[derive(Debug)]
pub(crate) struct ProposedChange {
    /// The protected files, formatted for people.
    pub(crate) paths: String,
    /// The whole change: the tool and the diff of every file.
    pub(crate) text: String,
}

/// Change of one file: its path as the call names it, and its new content; `None` removes it.
pub(crate) type FileChange<'a> = (&'a str, Option<&'a str>);

impl FileAccess {
    /// Creates access with a policy.
    pub fn new(policy: &SandboxPolicy) -> Self {
        Self { policy: Arc::new(policy.clone()), ..Self::default() }
    }

    /// Creates access that shares the watches of running commands. `requires_approval` enables approvals for
    /// protected files.
    pub(crate) fn with_watches(policy: &SandboxPolicy, watches: &Watches, requires_approval: bool) -> Self {
        Self { watches: watches.clone(), requires_approval, ..Self::new(policy) }
    }

    /// Opens the working directory of a run. Blocks.
    pub(crate) fn open(&self, workdir: &Path) -> Result<PathGuard, Error> {
        let failed = |source| Error::Machine(MachineError::Io { path: workdir.display().to_string(), source });
        let real = workdir.canonicalize().map_err(failed)?;
        if self.policy.refuses(&real) {
            return Err(Error::Refused(InStateDirectory { path: workdir.to_owned() }.into()));
        }
        PathGuard::open(workdir, PathRules::of(&self.policy, &real, self.requires_approval))
    }

    /// Opens the directory in which a path is read, and returns the path to open in it. The directory is the working
    /// directory of the run, or a readable one outside of it (a skills folder, or the agent's workspace from a
    /// sandbox). Blocks.
    pub(crate) fn open_for_reading(&self, cx: &ToolCx, path: &str) -> Result<(PathGuard, String), Error> {
        let workdir = &cx.workdir;
        let in_home = path.strip_prefix("~/").zip(self.policy.home.as_ref());
        let full = in_home.map_or_else(|| PathBuf::from(path), |(rest, home)| home.join(rest));
        let is_outside = full.is_absolute() && !full.starts_with(workdir);
        let mut readable = self.policy.skills.iter().map(PathBuf::as_path).chain(cx.readable());
        let found = readable.find(|folder| is_outside && full.starts_with(folder));
        match (found.and_then(|folder| Some((folder, folder.canonicalize().ok()?))), full.to_str()) {
            (Some((folder, real)), Some(full)) => {
                Ok((PathGuard::open(folder, PathRules::of(&self.policy, &real, false))?, full.to_owned()))
            }
            (Some(_) | None, _) => Ok((self.open(workdir)?, path.to_owned())),
        }
    }

    /// Checks that a change may be made now, and permits it in `guard`. Blocks.
    pub(crate) fn permit(
        &self,
        guard: &mut PathGuard,
        tool: &str,
        changes: &[FileChange<'_>],
        call: &FileCall,
    ) -> Result<(), Error> {
        let mut protected = Vec::new();
        for (path, text) in changes {
            let kind = if text.is_some() { ChangeKind::Write } else { ChangeKind::Remove };
            if guard.permit(path, kind)? {
                protected.push(*path);
            }
        }
        if protected.is_empty() {
            return Ok(());
        }
        let paths = protected.join(", ");
        let describe = || format_change(guard, tool, changes, call);
        match &call.consent {
            Consent::Never => Err(Error::Refused(RefusedError::Protected {
                path: paths,
                why: "only the owner's runs may request it".to_owned(),
            })),
            Consent::Ask => Err(Error::NeedsApproval(Box::new(ProposedChange { paths, text: describe()? }))),
            Consent::Given(text) if *text == describe()? => Ok(()),
            Consent::Given(_) => Err(Error::Refused(RefusedError::Protected {
                path: paths,
                why: "the change is not the one that was approved".to_owned(),
            })),
        }
    }
}

/// Formats a change as a diff for people.
fn format_change(guard: &PathGuard, tool: &str, changes: &[FileChange<'_>], call: &FileCall) -> Result<String, Error> {
    let mut text = tool.to_owned();
    for (path, after) in changes {
        let before = match TextFile::load(guard, path, &call.cancel) {
            Ok(before) => before.content,
            Err(Error::Path(PathError::Missing { .. }) | Error::Path(PathError::MissingWithSuggestion { .. })) => {
                String::new()
            }
            Err(Error::Path(PathError::NotText { .. }) | Error::Path(PathError::TooLarge { .. })) => {
                "(no text)\n".to_owned()
            }
            Err(error) => return Err(error),
        };
        let (before, after) = (to_lf(&before), to_lf(after.unwrap_or_default()));
        let diff = TextDiff::configure().timeout(DIFF_TIMEOUT).diff_lines(&before, &after);
        text.push_str(&format!("\n{}", diff.unified_diff().header(path, path)));
    }
    Ok(text)
}
