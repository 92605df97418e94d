//! Files that a running command may have created are not loaded into prompts.

use homard_workspace::{LoadGate, LoadRule, LoadRules};

use crate::sandbox::{TrustedContent, Watches};

/// The gate of the workspaces in which commands run.
#[derive(Debug)]
pub(crate) struct CommandLoadGate(pub(crate) Watches);

impl LoadGate for CommandLoadGate {
    fn hold(&self, load: &mut dyn FnMut(&LoadRules<'_>)) {
        self.0.hold(&mut |trusted| {
            load(&|path| match trusted(path) {
                TrustedContent::File => LoadRule::File,
                TrustedContent::Target(path) => LoadRule::Target(path),
                TrustedContent::Text(text) => LoadRule::Text(text),
                TrustedContent::Nothing => LoadRule::Nothing,
            });
        });
    }
}
