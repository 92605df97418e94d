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
pub(crate) struct PromptContext<'a> {
    /// Which sections are included.
    pub(crate) mode: PromptMode,
    /// Length of the text.
    pub(crate) wording: Wording,
    /// Stable inputs.
    pub(crate) stable: StableInput<'a>,
    /// Inputs that may change.
    pub(crate) turn: TurnInput<'a>,
}

/// Returns the default prompt mode of a session.
pub(crate) fn mode_of(key: &SessionKey) -> PromptMode {
    if key.is_subagent() { PromptMode::Minimal } else { PromptMode::Full }
}

/// Length of a prompt's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wording {
    /// Everything useful.
    Rich,
    /// The minimum, for small models and small context windows.
    Lean,
}

/// Inputs that are equal in every run of a session, as long as files and settings are unchanged.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct StableInput<'a> {
    /// Identity of the agent.
    pub(crate) identity: PromptIdentity<'a>,
    /// Tools of the agent.
    pub(crate) tools: &'a [ToolSpec],
    /// Skills, as text with an `<available_skills>` list; empty without any.
    pub(crate) skills: &'a str,
    /// Model aliases with their `provider/model`.
    pub(crate) aliases: &'a [(String, String)],
    /// Working directory of tools.
    pub(crate) workspace: &'a Path,
    /// Path of Homard's documentation.
    pub(crate) docs: Option<&'a Path>,
    /// Sandbox of the tools.
    pub(crate) sandbox: Option<PromptSandbox<'a>>,
    /// Numbers or names by which channels know the owner.
    pub(crate) owners: &'a [String],
    /// Name of the user's time zone.
    pub(crate) zone: Option<&'a str>,
    /// Workspace files.
    pub(crate) files: &'a [PromptPage],
    /// Instructions for spoken replies, if enabled.
    pub(crate) voice: Option<&'a str>,
    /// True if reasoning and answer must be separated with tags; see [`needs_tags`].
    pub(crate) needs_tags: bool,
    /// The heartbeat prompt, if known.
    pub(crate) heartbeat: Option<&'a str>,
}

/// Identity of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct PromptIdentity<'a> {
    /// Name in the configuration, used if `name` is empty.
    pub(crate) display_name: Option<&'a str>,
    /// The agent's own name.
    pub(crate) name: Option<&'a str>,
    /// Emoji.
    pub(crate) emoji: Option<&'a str>,
    /// Personality, in a few words.
    pub(crate) theme: Option<&'a str>,
}

/// Sandbox of an agent's tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PromptSandbox<'a> {
    /// Working directory inside the sandbox.
    pub(crate) dir: &'a Path,
    /// Access to the agent's own workspace.
    pub(crate) access: SandboxAccess,
    /// Path of the workspace inside the sandbox, if it is not the working directory.
    pub(crate) mount: Option<&'a Path>,
    /// Available browsers.
    pub(crate) browser: Browser,
    /// How elevated commands run outside; `None` if they may not.
    pub(crate) elevated: Option<&'a str>,
}

/// Access of sandboxed tools to the agent's workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SandboxAccess {
    /// No access: they see a copy.
    None,
    /// Read-only.
    Read,
    /// Read and write.
    Write,
}

/// Browsers available to a sandboxed agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(test), expect(dead_code, reason = "there is no browser yet"))]
pub(crate) enum Browser {
    /// No browser.
    None,
    /// A browser inside the sandbox.
    Inside,
    /// A browser inside the sandbox, and the host's own one.
    InsideAndHost,
}

/// Inputs that may differ from run to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct TurnInput<'a> {
    /// The caller's addition: about a group, or a sub-agent's task.
    pub(crate) extra: Option<&'a str>,
    /// Channel of the message.
    pub(crate) channel: Option<&'a str>,
    /// Capabilities of the channel.
    pub(crate) capabilities: &'a [String],
    /// Hints about the message tool on the channel, one per line.
    pub(crate) hints: &'a [String],
    /// How often to react to messages on the channel.
    pub(crate) reactions: Option<ReactionLevel>,
    /// Agent, machine and model.
    pub(crate) runtime: RuntimeInfo<'a>,
    /// Thinking level.
    pub(crate) thinking: &'a str,
    /// Visibility of reasoning: `off`, `on` or `stream`.
    pub(crate) reasoning: &'a str,
}

/// How often an agent reacts to messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(test), expect(dead_code, reason = "there are no channels yet"))]
pub(crate) enum ReactionLevel {
    /// Rarely.
    Minimal,
    /// Whenever it is natural.
    Extensive,
}

/// Agent, machine and model for the last lines of a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct RuntimeInfo<'a> {
    /// Id of the agent.
    pub(crate) agent: &'a str,
    /// Host name.
    pub(crate) host: Option<&'a str>,
    /// Repository that contains the workspace.
    pub(crate) repo: Option<&'a str>,
    /// Operating system.
    pub(crate) os: Option<&'a str>,
    /// Processor architecture.
    pub(crate) arch: Option<&'a str>,
    /// Current model, as `provider/model`.
    pub(crate) model: Option<&'a str>,
    /// Default model.
    pub(crate) default_model: Option<&'a str>,
    /// Shell of commands.
    pub(crate) shell: Option<&'a str>,
}

/// True if a provider's models mix reasoning into their answers unless they are asked to tag both. The caller decides:
/// an API that returns reasoning separately, as ours for ollama does, needs no tags.
#[cfg_attr(not(test), expect(dead_code, reason = "every wire gets the reasoning apart so far"))]
pub(crate) fn needs_tags(provider: &str) -> bool {
    let provider = provider.trim().to_lowercase();
    matches!(provider.as_str(), "ollama" | "google-gemini-cli" | "google-generative-ai")
        || ["google-antigravity", "minimax"].iter().any(|part| provider.contains(part))
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

    #[test]
    fn providers_that_need_tags_are_known_by_name() {
        for provider in
            ["ollama", " Ollama ", "google-gemini-cli", "google-generative-ai", "x-google-antigravity", "minimax-cn"]
        {
            assert!(needs_tags(provider), "{provider}");
        }
        for provider in ["", "google", "openai", "anthropic", "ollama2", "google-vertex"] {
            assert!(!needs_tags(provider), "{provider}");
        }
    }
}
