//! What the file tools share: which paths they open, whose turn it is, and which commands watch what they write.

use std::{path::Path, sync::Arc};

use crate::{
    Error,
    beneath::Beneath,
    path_rules::PathRules,
    sandbox::{SandboxPolicy, Watches},
    turns::Turns,
};

/// Access of tools to files, by the same policy as commands have. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct FileAccess {
    policy: Arc<SandboxPolicy>,
    pub(crate) turns: Turns,
    pub(crate) watches: Watches,
}

impl FileAccess {
    /// Access by a policy.
    pub fn new(policy: &SandboxPolicy) -> Self {
        Self { policy: Arc::new(policy.clone()), ..Self::default() }
    }

    /// The same, for tools that work beside commands which are watched.
    pub(crate) fn beside(policy: &SandboxPolicy, watches: &Watches) -> Self {
        Self { watches: watches.clone(), ..Self::new(policy) }
    }

    /// Opens the directory that a run works in. Blocks.
    pub(crate) fn open(&self, workdir: &Path) -> Result<Beneath, Error> {
        let failed = |source| Error::Io { path: workdir.display().to_string(), source };
        let real = workdir.canonicalize().map_err(failed)?;
        if self.policy.refuses(&real) {
            return Err(Error::InStateDirectory { path: workdir.to_owned() });
        }
        Beneath::open(workdir, PathRules::of(&self.policy, &real))
    }
}
