//! Bundled internal hooks.

mod boot_md;
mod bootstrap_extra_files;
mod command_logger;
mod session_memory;
mod transcript;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use futures_util::future::BoxFuture;
use homard_hooks::{InternalEvent, Listener};
use homard_workspace::skills::SkillRequirements;
use serde_json::Value;

use super::{
    Settings,
    decide::HookEntry,
    hook_md::{HookHandler, HookSource, InternalHook},
};

use boot_md::BootMd;
use bootstrap_extra_files::ExtraFiles;
use command_logger::CommandLogger;
use session_memory::SessionMemory;

/// An asynchronous function from a text to an answer or an error.
pub type TextFunction = Arc<dyn Fn(String) -> BoxFuture<'static, Result<String, String>> + Send + Sync>;

/// Lets a hook write a workspace file: calls the function, which returns path and text, and records that the file was
/// not written by a command.
pub type WriteFile = Arc<dyn Fn(&Path, &mut dyn FnMut() -> Option<(PathBuf, String)>) + Send + Sync>;

/// Services that the gateway provides to bundled hooks. Missing ones are not used.
#[derive(Clone, Default)]
pub struct BundledServices {
    /// Asks a model for a short topic of a text.
    pub slug: Option<TextFunction>,
    /// Starts a run of the default agent. Should return when the run is accepted, not when it ends; the reply is not
    /// delivered.
    pub run: Option<TextFunction>,
    /// Lets a hook write a file while commands run. If not set, hooks write directly.
    pub write: Option<WriteFile>,
}

impl std::fmt::Debug for BundledServices {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (slug, run) = (self.slug.is_some(), self.run.is_some());
        f.debug_struct("BundledServices").field("slug", &slug).field("run", &run).finish_non_exhaustive()
    }
}

/// A bundled hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BundledHook {
    /// Runs the instructions in `BOOT.md` when the gateway starts.
    BootMd,
    /// Adds further workspace files to prompts.
    BootstrapExtraFiles,
    /// Logs commands.
    CommandLogger,
    /// Saves the end of a session when a new one begins.
    SessionMemory,
}

impl BundledHook {
    /// All bundled hooks.
    pub const ALL: [Self; 4] = [Self::BootMd, Self::BootstrapExtraFiles, Self::CommandLogger, Self::SessionMemory];

    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::BootMd => "boot-md",
            Self::BootstrapExtraFiles => "bootstrap-extra-files",
            Self::CommandLogger => "command-logger",
            Self::SessionMemory => "session-memory",
        }
    }

    /// Events it subscribes to.
    fn events(self) -> Vec<String> {
        let events: &[&str] = match self {
            Self::BootMd => &["gateway:startup"],
            Self::BootstrapExtraFiles => &["agent:bootstrap"],
            Self::CommandLogger => &["command"],
            Self::SessionMemory => &["command:new", "command:reset", "session:auto-reset"],
        };
        events.iter().map(|&event| event.to_owned()).collect()
    }

    /// Returns its description in the form of a `HOOK.md`.
    pub fn hook(self) -> InternalHook {
        let (description, emoji) = match self {
            Self::BootMd => ("Runs the instructions in BOOT.md when the gateway starts", "🚀"),
            Self::BootstrapExtraFiles => ("Adds further workspace files to every system prompt", "📎"),
            Self::CommandLogger => ("Writes every command to logs/commands.log in the state directory", "📝"),
            Self::SessionMemory => ("Saves the end of a conversation to memory/ when a new one begins", "💾"),
        };
        let needs_workspace = match self {
            Self::BootMd | Self::BootstrapExtraFiles | Self::SessionMemory => vec!["workspace.dir".to_owned()],
            Self::CommandLogger => Vec::new(),
        };
        // Not a real path, but identifies the hook wherever a path is shown.
        let dir = PathBuf::from(format!("bundled/{}", self.name()));
        InternalHook {
            name: self.name().to_owned(),
            description: description.to_owned(),
            homepage: None,
            key: self.name().to_owned(),
            emoji: Some(emoji.to_owned()),
            events: self.events(),
            os: Vec::new(),
            always: false,
            requires: SkillRequirements { config: needs_workspace, ..SkillRequirements::default() },
            install: Vec::new(),
            is_disabled_by_default: false,
            deadline: None,
            file: dir.join(super::hook_md::FILE),
            dir,
            source: HookSource::Bundled,
            handler: HookHandler::Bundled(self),
        }
    }

    /// Creates the listener.
    pub(super) fn listener(
        self,
        settings: &Settings,
        entry: &HookEntry,
        services: &BundledServices,
    ) -> Arc<dyn Listener> {
        let (state, workspace, events) = (settings.state.clone(), settings.workspace.clone(), self.events());
        match self {
            Self::BootMd => Arc::new(BootMd { events, workspace, run: services.run.clone() }),
            Self::BootstrapExtraFiles => Arc::new(ExtraFiles::new(events, workspace, &entry.config)),
            Self::CommandLogger => Arc::new(CommandLogger::new(events, &state)),
            Self::SessionMemory => Arc::new(SessionMemory::new(events, state, workspace, &entry.config, services)),
        }
    }
}

/// Returns the workspace of an event, or the default one.
fn workspace(event: &InternalEvent, default: &Path) -> PathBuf {
    event.context.get("workspaceDir").and_then(Value::as_str).map_or_else(|| default.to_owned(), PathBuf::from)
}
