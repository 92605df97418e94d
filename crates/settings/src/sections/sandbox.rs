//! `agents.defaults.sandbox` and `agents.list[].sandbox`: sessions that work outside of the agent's workspace.

use homard_agent::sandboxing::{SandboxMode, SandboxScope, WorkspaceAccess};
use schemars::JsonSchema;
use serde::Deserialize;

use super::word::Word;
use crate::Text;

/// Which sessions are sandboxed, and their workspaces.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Sandbox {
    /// Which sessions are sandboxed: off for none, non-main for all but the agent's main session, all. Default: off.
    pub mode: Option<Word<SandboxMode>>,
    /// Which sandboxed sessions share a workspace: session for none, agent for those of one agent, shared for all. Default: agent.
    pub scope: Option<Word<SandboxScope>>,
    /// OpenClaw's older key for `scope`: true is session, false is shared.
    pub per_session: Option<bool>,
    /// Access of sandboxed sessions to the agent's own workspace: none, ro to read it, rw to work in it. Default: none.
    pub workspace_access: Option<Word<WorkspaceAccess>>,
    /// Directory of the workspaces of sandboxed sessions. Default: `sandboxes` in the state directory.
    pub workspace_root: Option<Text>,
    /// Sessions that the tools of a sandboxed session can see: spawned for itself and the sessions that it started, all for the same as in other sessions. Default: spawned.
    pub session_tools_visibility: Option<Word<SessionToolsVisibility>>,
}

/// Which sessions the tools of a sandboxed session can see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionToolsVisibility {
    Spawned,
    All,
}

super::word::words! {
    SandboxMode: "off" => Self::Off, "non-main" => Self::NonMain, "all" => Self::All;
    SandboxScope: "session" => Self::Session, "agent" => Self::Agent, "shared" => Self::Shared;
    WorkspaceAccess: "none" => Self::None, "ro" => Self::Ro, "rw" => Self::Rw;
    SessionToolsVisibility: "spawned" => Self::Spawned, "all" => Self::All;
}

impl Sandbox {
    /// Returns which sessions share a sandbox workspace, if set.
    pub fn scope(&self) -> Option<SandboxScope> {
        let older = || {
            self.per_session
                .map(|is_per_session| if is_per_session { SandboxScope::Session } else { SandboxScope::Shared })
        };
        self.scope.map(|word| word.0).or_else(older)
    }
}
