//! Tool policy: which tools a run may use, and for each other tool the reason. Pure: equal scopes give equal results.
//!
//! Every scope is a filter, and the filters are chained: the sender, the profile, the provider's profile, then the
//! lists of the config from the most general to the most specific, the sandbox, and the rules for sub-agents. A filter
//! can only remove tools, so what is denied anywhere is denied. `alsoAllow` extends a profile, not the `allow` of
//! another scope.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

mod chain;
mod names;

pub use self::names::{is_known, known};

/// A predefined set of tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ToolProfile {
    /// Status only.
    Minimal,
    /// Files and commands.
    Coding,
    /// Messages and sessions.
    Messaging,
    /// Everything.
    Full,
}

impl ToolProfile {
    /// Parses a profile name of the config.
    pub fn parse(text: &str) -> Option<Self> {
        match text.trim() {
            "minimal" => Some(Self::Minimal),
            "coding" => Some(Self::Coding),
            "messaging" => Some(Self::Messaging),
            "full" => Some(Self::Full),
            _ => None,
        }
    }

    /// Returns the name in the config.
    pub fn name(self) -> &'static str {
        match self {
            Self::Minimal => "minimal",
            Self::Coding => "coding",
            Self::Messaging => "messaging",
            Self::Full => "full",
        }
    }
}

/// Rules of one scope. Entries are tool names, groups such as `group:fs`, plugin ids, or patterns with `*`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ToolPolicy {
    /// Base set.
    pub profile: Option<ToolProfile>,
    /// The only tools that may be used; all if empty. A list with only unknown names allows nothing.
    pub allow: Vec<String>,
    /// Tools that may be used besides those of the profile.
    pub also_allow: Vec<String>,
    /// Tools that may not be used.
    pub deny: Vec<String>,
}

impl ToolPolicy {
    /// Checks the policy on its own; `path` is its location in the config, such as `tools`.
    pub fn check(&self, path: &str) -> Option<PolicyProblem> {
        (!self.allow.is_empty() && !self.also_allow.is_empty()).then(|| PolicyProblem {
            path: format!("{path}.alsoAllow"),
            what: "cannot be combined with allow; add its tools to allow, or use a profile with alsoAllow".to_owned(),
        })
    }
}

/// A likely mistake in a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyProblem {
    /// Config key, such as `tools.allow`.
    pub path: String,
    /// Message that continues the path: `names "exce", which …`.
    pub what: String,
}

impl fmt::Display for PolicyProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.path, self.what)
    }
}

/// Returns the policy for a model: the one for `provider/model`, else the one for the provider.
pub fn by_model<'a>(policies: &'a BTreeMap<String, ToolPolicy>, provider: &str, model: &str) -> Option<&'a ToolPolicy> {
    let normalize = |text: &str| text.trim().to_lowercase();
    let (provider, model) = (normalize(provider), normalize(model));
    let find = |name: &str| policies.iter().find(|(key, _)| normalize(key) == name).map(|(_, policy)| policy);
    // A model served by a third party may be listed under its maker's name.
    let by_maker = || model.contains('/').then(|| find(&model)).flatten();
    find(&format!("{provider}/{model}")).or_else(by_maker).or_else(|| find(&provider))
}

/// Sender of the message that a run answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SenderRole {
    /// The owner.
    Owner,
    /// The owner, through a connection without `operator.admin`.
    Operator,
    /// Another or an unknown sender.
    #[default]
    Other,
}

/// Tool rules of a sub-agent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SubagentPolicy {
    /// Depth; the first sub-agent has 1.
    pub depth: u32,
    /// Depth from which on sub-agents start no others; at least 1.
    pub max_depth: u32,
    /// `tools.subagents.tools`.
    pub policy: ToolPolicy,
    /// Tools of the parent: the sub-agent gets no others.
    pub spawner: BTreeSet<String>,
}

/// All inputs of a tool policy.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PolicyScopes {
    /// Sender of the message.
    pub sender: SenderRole,
    /// `nonOwnerAllow` of the agent: tools that non-owners may use besides their default tools, except owner-only
    /// tools.
    pub non_owner_allow: Vec<String>,
    /// `tools`.
    pub global: ToolPolicy,
    /// The entry of `tools.byProvider` that matches the model; see [`by_model`].
    pub by_provider: ToolPolicy,
    /// `tools` of the agent.
    pub agent: ToolPolicy,
    /// The entry of the agent's `tools.byProvider` that matches the model.
    pub agent_by_provider: ToolPolicy,
    /// `tools` of the group, or of the sender in it. Its `also_allow` grants non-owners additional tools, except
    /// owner-only tools.
    pub group: ToolPolicy,
    /// `tools.sandbox.tools`, if the whole session is sandboxed. An empty list there stands for the default list.
    pub sandbox: Option<ToolPolicy>,
    /// Rules for a sub-agent, if this is one.
    pub subagent: Option<SubagentPolicy>,
    /// Tools of plugins, by plugin id.
    pub plugins: BTreeMap<String, Vec<String>>,
}

/// Section of the config that contains a tool policy: a profile and lists of tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PolicyScope {
    /// Policy of all agents.
    Global,
    /// Policy of all agents while they use a certain provider or model.
    ByProvider,
    /// Policy of one agent.
    Agent,
    /// Policy of one agent while it uses a certain provider or model.
    AgentByProvider,
    /// Policy of a group chat, or of one sender in it.
    Group,
    /// Policy of sandboxed sessions.
    Sandbox,
    /// Policy of sub-agents.
    Subagent,
}

impl PolicyScope {
    /// Returns the config key.
    pub fn path(self) -> &'static str {
        match self {
            Self::Global => "tools",
            Self::ByProvider => "tools.byProvider.*",
            Self::Agent => "agents.list[].tools",
            Self::AgentByProvider => "agents.list[].tools.byProvider.*",
            Self::Group => "channels.*.groups.*.tools",
            Self::Sandbox => "tools.sandbox.tools",
            Self::Subagent => "tools.subagents.tools",
        }
    }
}

/// Why a tool may not be used: the first rule that removes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DenyRule {
    /// The tool is owner-only, and the sender is not the owner.
    OwnerOnly,
    /// The tool needs `operator.admin`, and the run was requested without that scope.
    AdminScope,
    /// The sender is not the owner, and the agent does not grant the tool to non-owners.
    NonOwner,
    /// The profile in this scope does not contain the tool.
    Profile(PolicyScope, ToolProfile),
    /// This entry of `deny` in this scope matches the tool.
    Denied(PolicyScope, String),
    /// The `allow` list in this scope does not contain the tool.
    NotAllowed(PolicyScope),
    /// No sub-agent may use the tool.
    Subagent,
    /// A sub-agent that cannot start others may not use the tool.
    Leaf,
    /// The run that started this sub-agent may not use the tool.
    Spawner,
}

impl fmt::Display for DenyRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OwnerOnly => f.write_str("only the owner may use it"),
            Self::AdminScope => f.write_str("the connection that requested the run lacks the scope operator.admin"),
            Self::NonOwner => {
                write!(f, "only the owner may use it, unless {}.nonOwnerAllow names it", PolicyScope::Agent.path())
            }
            Self::Profile(scope, profile) => write!(
                f,
                "{}.profile is {}, which does not include it; add it to alsoAllow next to the profile",
                scope.path(),
                profile.name()
            ),
            Self::Denied(PolicyScope::Sandbox, _) | Self::NotAllowed(PolicyScope::Sandbox) => {
                write!(f, "it is not allowed in the sandbox; see {}", PolicyScope::Sandbox.path())
            }
            Self::Denied(scope, entry) => write!(f, "{}.deny names {entry}", scope.path()),
            Self::NotAllowed(scope) => write!(f, "{}.allow does not name it", scope.path()),
            Self::Subagent => f.write_str("sub-agents may not use it"),
            Self::Leaf => f.write_str(
                "only sub-agents that can start others may use it; see agents.defaults.subagents.maxSpawnDepth",
            ),
            Self::Spawner => f.write_str("the session that started this sub-agent may not use it"),
        }
    }
}

/// Result of a tool policy.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ResolvedTools {
    /// Allowed tools.
    pub allowed: BTreeSet<String>,
    /// For each other tool, the rule that removed it.
    pub denied: BTreeMap<String, DenyRule>,
}

/// Decides which of these tools may be used. Every tool is in the result, under the name it was given.
pub fn resolve(scopes: &PolicyScopes, tools: &[&str]) -> ResolvedTools {
    let chain = chain::FilterChain::new(scopes, tools);
    let mut resolved = ResolvedTools::default();
    for tool in tools {
        match chain.refuses(tool) {
            None => {
                resolved.allowed.insert((*tool).to_owned());
            }
            Some(rule) => {
                resolved.denied.insert((*tool).to_owned(), rule);
            }
        }
    }
    resolved
}

#[cfg(test)]
mod tests;
