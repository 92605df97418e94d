//! Sandboxed sessions: which sessions of an agent use a sandbox workspace, and its location. Commands are confined by
//! the tools, with the [`SandboxView`] of the run.

use std::{
    fs::{self, DirBuilder, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use homard_proto::{AgentId, SessionKey};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Files that a new sandbox workspace gets from the agent's workspace. Its memory is not among them.
const SEED_FILES: [&str; 7] =
    ["AGENTS.md", "SOUL.md", "TOOLS.md", "IDENTITY.md", "USER.md", "HEARTBEAT.md", "BOOTSTRAP.md"];

/// Maximum size of such a file.
const MAX_SEED_BYTES: u64 = 2 * 1024 * 1024;

/// Characters of a key in its directory name. A digest distinguishes keys with equal prefixes.
const KEY_PREFIX_CHARS: usize = 32;

/// Which sessions are sandboxed: `agents.defaults.sandbox.mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SandboxMode {
    /// None.
    #[default]
    Off,
    /// All except the agent's main session.
    NonMain,
    /// All.
    All,
}

impl SandboxMode {
    /// Returns the name in the config.
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::NonMain => "non-main",
            Self::All => "all",
        }
    }
}

/// Which sessions share a sandbox workspace: `agents.defaults.sandbox.scope`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SandboxScope {
    /// One per session.
    Session,
    /// One per agent.
    #[default]
    Agent,
    /// One for all.
    Shared,
}

/// Access of sandboxed runs to the agent's own workspace: `agents.defaults.sandbox.workspaceAccess`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WorkspaceAccess {
    /// No access.
    #[default]
    None,
    /// Read-only.
    Ro,
    /// Read and write; there is no sandbox workspace then.
    Rw,
}

/// Sandbox settings of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sandboxing {
    /// Which sessions are sandboxed.
    pub mode: SandboxMode,
    /// Which of them share a directory.
    pub scope: SandboxScope,
    /// Access to the agent's workspace.
    pub access: WorkspaceAccess,
    /// Parent directory of the sandbox workspaces.
    pub root: PathBuf,
    /// True if their tools see the same sessions as others do; else only their own and those that they started.
    pub sees_all_sessions: bool,
}

/// Access of a sandboxed run to the agent's workspace. Tools always sandbox its commands, whatever else is configured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxView {
    /// The agent's own workspace.
    pub workspace: PathBuf,
    /// Access to it.
    pub access: WorkspaceAccess,
}

impl SandboxView {
    /// Returns the directory outside the working directory that may be read.
    pub fn readable(&self) -> Option<&Path> {
        match self.access {
            WorkspaceAccess::Ro => Some(&self.workspace),
            WorkspaceAccess::None | WorkspaceAccess::Rw => None,
        }
    }
}

impl Sandboxing {
    /// True if a session is sandboxed.
    pub fn is_sandboxed(&self, key: &SessionKey) -> bool {
        match self.mode {
            SandboxMode::Off => false,
            SandboxMode::NonMain => !key.is_main(),
            SandboxMode::All => true,
        }
    }

    /// True if the sub-agents of this agent are sandboxed.
    pub fn sandboxes_subagents(&self) -> bool {
        self.mode != SandboxMode::Off
    }

    /// Returns the working directory of a session's sandboxed runs; `workspace` is the agent's own.
    pub(crate) fn directory(&self, agent: &AgentId, key: &SessionKey, workspace: &Path) -> PathBuf {
        match (self.access, self.scope) {
            (WorkspaceAccess::Rw, _) => workspace.to_owned(),
            (_, SandboxScope::Shared) => self.root.join("shared"),
            (_, SandboxScope::Agent) => self.root.join(name_of(&format!("agent:{agent}"))),
            (_, SandboxScope::Session) => self.root.join(name_of(key.as_str())),
        }
    }
}

/// Returns the directory name of a key: readable and unique.
fn name_of(key: &str) -> String {
    let to_name_char = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let readable: String = key.chars().map(to_name_char).take(KEY_PREFIX_CHARS).collect();
    let digest: String = Sha256::digest(key).iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("{}-{digest}", readable.trim_matches('-'))
}

/// Creates a sandbox workspace and copies the initial files from the agent's workspace. Existing files are kept.
/// Blocks.
pub(crate) fn prepare(directory: &Path, workspace: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    if directory == workspace {
        return Ok(());
    }
    for name in SEED_FILES {
        let (from, to) = (workspace.join(name), directory.join(name));
        // A symbolic link could lead anywhere: only regular files are copied.
        let is_plain =
            from.symlink_metadata().is_ok_and(|metadata| metadata.is_file() && metadata.len() <= MAX_SEED_BYTES);
        if !is_plain || to.symlink_metadata().is_ok() {
            continue;
        }
        let text = fs::read(&from)?;
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&to) {
            Ok(mut file) => file.write_all(&text)?,
            // Another run created it first.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> SessionKey {
        SessionKey::parse(text, &AgentId::main()).unwrap()
    }

    #[test]
    fn the_mode_selects_the_sandboxed_sessions() {
        let is_sandboxed_in = |mode, text: &str| Sandboxing { mode, ..Sandboxing::default() }.is_sandboxed(&key(text));
        let all = ["main", "agent:main:telegram:direct:7", "agent:ops:main", "agent:main:subagent:u", "global"];
        assert_eq!(all.map(|text| is_sandboxed_in(SandboxMode::Off, text)), [false; 5]);
        assert_eq!(all.map(|text| is_sandboxed_in(SandboxMode::NonMain, text)), [false, true, false, true, true]);
        assert_eq!(all.map(|text| is_sandboxed_in(SandboxMode::All, text)), [true; 5]);
    }

    #[test]
    fn the_scope_selects_which_sessions_share_a_directory() {
        let directory = |scope, access, text: &str| {
            let sandboxing =
                Sandboxing { mode: SandboxMode::All, scope, access, root: "/boxes".into(), sees_all_sessions: false };
            let key = key(text);
            let agent = key.agent().cloned().unwrap_or_else(AgentId::main);
            sandboxing.directory(&agent, &key, Path::new("/ws"))
        };
        let none = WorkspaceAccess::None;
        assert_eq!(directory(SandboxScope::Shared, none, "main"), Path::new("/boxes/shared"));
        let (one, other) = ("agent:main:telegram:direct:7", "agent:main:telegram:direct:8");
        assert_eq!(directory(SandboxScope::Agent, none, one), directory(SandboxScope::Agent, none, other));
        assert_ne!(directory(SandboxScope::Agent, none, one), directory(SandboxScope::Agent, none, "agent:ops:main"));
        assert_ne!(directory(SandboxScope::Session, none, one), directory(SandboxScope::Session, none, other));
        assert_eq!(directory(SandboxScope::Session, WorkspaceAccess::Rw, one), Path::new("/ws"));
        let name = directory(SandboxScope::Session, none, "agent:main:x/../../y");
        assert!(name.parent() == Some(Path::new("/boxes")) && name.components().count() == 3, "{name:?}");
        assert_ne!(name_of("agent:a:b"), name_of("agent:a-b"));
    }
}
