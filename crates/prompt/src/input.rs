//! Inputs of a system prompt: plain values, gathered by the caller.
//!
//! They are split because providers cache the beginning of a request: [`StableInput`] is equal in every run of a
//! session, [`TurnInput`] need not be. The prefix of a prompt is rendered from the stable half alone, so that nothing
//! else can leak into it.

use std::path::Path;

use homard_model::ToolSpec;
use homard_proto::SessionKey;
use homard_store::PromptMode;
use homard_workspace::PromptPage;

/// All inputs of a prompt.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PromptContext<'a> {
    /// Which sections are included.
    pub mode: PromptMode,
    /// Length of the text.
    pub wording: Wording,
    /// Stable inputs.
    pub stable: StableInput<'a>,
    /// Inputs that may change.
    pub turn: TurnInput<'a>,
}

/// Returns the default prompt mode of a session.
pub fn mode_of(key: &SessionKey) -> PromptMode {
    if key.is_subagent() { PromptMode::Minimal } else { PromptMode::Full }
}

/// Length of a prompt's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wording {
    /// Everything useful.
    Rich,
    /// The minimum, for small models and small context windows.
    Lean,
}

/// Inputs that are equal in every run of a session, as long as files and settings are unchanged.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StableInput<'a> {
    /// Identity of the agent.
    pub identity: PromptIdentity<'a>,
    /// Tools of the agent.
    pub tools: &'a [ToolSpec],
    /// Skills, as text with an `<available_skills>` list; empty without any.
    pub skills: &'a str,
    /// Model aliases with their `provider/model`.
    pub aliases: &'a [(String, String)],
    /// Working directory of tools.
    pub workspace: &'a Path,
    /// Sandbox of the tools.
    pub sandbox: Option<PromptSandbox<'a>>,
    /// Name of the user's time zone.
    pub zone: Option<&'a str>,
    /// Workspace files.
    pub files: &'a [PromptPage],
    /// True if reasoning and answer must be separated with tags.
    pub needs_tags: bool,
    /// The heartbeat prompt, if known.
    pub heartbeat: Option<&'a str>,
}

/// Identity of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PromptIdentity<'a> {
    /// Name in the configuration, used if `name` is empty.
    pub display_name: Option<&'a str>,
    /// The agent's own name.
    pub name: Option<&'a str>,
    /// Emoji.
    pub emoji: Option<&'a str>,
    /// Personality, in a few words.
    pub theme: Option<&'a str>,
}

/// Sandbox of an agent's tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PromptSandbox<'a> {
    /// Working directory inside the sandbox.
    pub dir: &'a Path,
    /// Access to the agent's own workspace.
    pub access: SandboxAccess,
    /// Path of the workspace inside the sandbox, if it is not the working directory.
    pub mount: Option<&'a Path>,
}

/// Access of sandboxed tools to the agent's workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SandboxAccess {
    /// No access: they see a copy.
    None,
    /// Read-only.
    Read,
    /// Read and write.
    Write,
}

/// Inputs that may differ from run to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TurnInput<'a> {
    /// The caller's addition: about a group, or a sub-agent's task.
    pub extra: Option<&'a str>,
    /// Channel of the message.
    pub channel: Option<&'a str>,
    /// Agent, machine and model.
    pub runtime: RuntimeInfo<'a>,
    /// Thinking level.
    pub thinking: &'a str,
    /// Visibility of reasoning: `off`, `on` or `stream`.
    pub reasoning: &'a str,
}

/// Agent, machine and model for the last lines of a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RuntimeInfo<'a> {
    /// Id of the agent.
    pub agent: &'a str,
    /// Host name.
    pub host: Option<&'a str>,
    /// Repository that contains the workspace.
    pub repo: Option<&'a str>,
    /// Operating system.
    pub os: Option<&'a str>,
    /// Processor architecture.
    pub arch: Option<&'a str>,
    /// Current model, as `provider/model`.
    pub model: Option<&'a str>,
    /// Default model.
    pub default_model: Option<&'a str>,
    /// Shell of commands.
    pub shell: Option<&'a str>,
}

#[cfg(test)]
mod tests {
    use homard_proto::AgentId;

    use super::*;

    #[test]
    fn a_sub_agent_is_told_less() {
        let mode = |key| mode_of(&SessionKey::parse(key, &AgentId::main()).unwrap());
        assert_eq!(mode("agent:main:subagent:u1"), PromptMode::Minimal);
        assert_eq!(mode("agent:main:main"), PromptMode::Full);
        assert_eq!(mode("agent:main:telegram:group:subagent"), PromptMode::Full);
    }
}
