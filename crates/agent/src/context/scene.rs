//! What a system prompt is made of: plain values, gathered by whoever starts a run.
//!
//! They come in two halves, because providers remember the beginning of a request: [`Stable`] is the same in every run of
//! a session, [`Turn`] need not be. What a prompt begins with is written from the first half alone, so nothing that
//! changes can slip into it.

use std::path::Path;

use homard_model::ToolSpec;
use homard_proto::SessionKey;
use homard_store::PromptMode;
use homard_workspace::Page;

/// All that a prompt is made of.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Scene<'a> {
    /// How much is told.
    pub(crate) mode: PromptMode,
    /// In how many words.
    pub(crate) wording: Wording,
    /// What stays.
    pub(crate) stable: Stable<'a>,
    /// What may change.
    pub(crate) turn: Turn<'a>,
}

/// How much is told in a session, unless a run says otherwise.
pub(crate) fn mode_of(key: &SessionKey) -> PromptMode {
    if key.is_subagent() { PromptMode::Minimal } else { PromptMode::Full }
}

/// In how many words a model is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wording {
    /// As many as are useful.
    Rich,
    /// As few as will do, for small models and small windows.
    Lean,
}

/// What is the same in every run of a session, as long as nobody edits files or settings.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Stable<'a> {
    /// Who the agent is.
    pub(crate) identity: Identity<'a>,
    /// What it may call.
    pub(crate) tools: &'a [ToolSpec],
    /// Its skills, as text with an `<available_skills>` list; empty without any.
    pub(crate) skills: &'a str,
    /// Short names of models, each with the `provider/model` that it means.
    pub(crate) aliases: &'a [(String, String)],
    /// Where its tools work.
    pub(crate) workspace: &'a Path,
    /// Where Homard's documentation is.
    pub(crate) docs: Option<&'a Path>,
    /// What confines its tools.
    pub(crate) sandbox: Option<Sandbox<'a>>,
    /// The numbers or names by which channels know its owner.
    pub(crate) owners: &'a [String],
    /// The name of the person's time zone.
    pub(crate) zone: Option<&'a str>,
    /// The files of its workspace.
    pub(crate) pages: &'a [Page],
    /// How to write for a voice, if replies are spoken.
    pub(crate) voice: Option<&'a str>,
    /// Whether thoughts and answers must be told apart with tags; see [`needs_tags`].
    pub(crate) is_tagged: bool,
    /// What a heartbeat says, where that is known.
    pub(crate) heartbeat: Option<&'a str>,
}

/// Who an agent is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Identity<'a> {
    /// What the configuration calls it, if `name` says nothing.
    pub(crate) display_name: Option<&'a str>,
    /// What it calls itself.
    pub(crate) name: Option<&'a str>,
    /// Its sign.
    pub(crate) emoji: Option<&'a str>,
    /// Its manner, in a few words.
    pub(crate) theme: Option<&'a str>,
}

/// What confines an agent's tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sandbox<'a> {
    /// The working directory inside.
    pub(crate) dir: &'a Path,
    /// What may be done with the agent's own workspace.
    pub(crate) access: Access,
    /// Where that is to be found inside, if it is not the working directory.
    pub(crate) mount: Option<&'a Path>,
    /// The browsers that there are.
    pub(crate) browser: Browser,
    /// How commands run outside when they are asked to; `None` where they may not.
    pub(crate) elevated: Option<&'a str>,
}

/// What tools in a sandbox may do with the agent's workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Nothing: they see a copy.
    None,
    /// Read it.
    Read,
    /// Read and change it.
    Write,
}

/// The browsers that a sandboxed agent can use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(test), expect(dead_code, reason = "there is no browser yet"))]
pub(crate) enum Browser {
    /// None.
    None,
    /// One inside.
    Inside,
    /// One inside, and the machine's own.
    InsideAndHost,
}

/// What may differ from one run of a session to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Turn<'a> {
    /// What the caller adds: about a group, or about a sub-agent's task.
    pub(crate) extra: Option<&'a str>,
    /// Where the message came from.
    pub(crate) channel: Option<&'a str>,
    /// What that channel can do.
    pub(crate) capabilities: &'a [String],
    /// What to know about the message tool there, a line each.
    pub(crate) hints: &'a [String],
    /// How freely to react to messages there.
    pub(crate) reactions: Option<Reactions>,
    /// The machine and the model.
    pub(crate) runtime: Runtime<'a>,
    /// How hard the model thinks.
    pub(crate) thinking: &'a str,
    /// Whether its reasoning is shown: `off`, `on` or `stream`.
    pub(crate) reasoning: &'a str,
}

/// How freely an agent reacts to messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(test), expect(dead_code, reason = "there are no channels yet"))]
pub(crate) enum Reactions {
    /// Rarely.
    Minimal,
    /// Whenever it feels natural.
    Extensive,
}

/// The agent, the machine and the model, as the last lines of a prompt name them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Runtime<'a> {
    /// The agent's id.
    pub(crate) agent: &'a str,
    /// The machine's name.
    pub(crate) host: Option<&'a str>,
    /// The repository around the workspace.
    pub(crate) repo: Option<&'a str>,
    /// The operating system.
    pub(crate) os: Option<&'a str>,
    /// The processor.
    pub(crate) arch: Option<&'a str>,
    /// Who answers, as `provider/model`.
    pub(crate) model: Option<&'a str>,
    /// Who answers when nobody chose.
    pub(crate) default_model: Option<&'a str>,
    /// The shell that commands run in.
    pub(crate) shell: Option<&'a str>,
}

/// Whether a provider's models are known to mix thoughts into their answers unless they are asked to tag both. It is for
/// the caller to decide: a wire that gets the reasoning apart, as our own for ollama does, needs no tags.
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
