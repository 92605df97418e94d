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

pub use self::names::{known, knows};

/// A predefined set of tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Profile {
    /// Status only.
    Minimal,
    /// Files and commands.
    Coding,
    /// Messages and sessions.
    Messaging,
    /// Everything.
    Full,
}

impl Profile {
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
pub struct Policy {
    /// Base set.
    pub profile: Option<Profile>,
    /// The only tools that may be used; all if empty. A list with only unknown names allows nothing.
    pub allow: Vec<String>,
    /// Tools that may be used besides those of the profile.
    pub also_allow: Vec<String>,
    /// Tools that may not be used.
    pub deny: Vec<String>,
}

impl Policy {
    /// Checks the policy on its own; `path` is its location in the config, such as `tools`.
    pub fn check(&self, path: &str) -> Option<Problem> {
        (!self.allow.is_empty() && !self.also_allow.is_empty()).then(|| Problem {
            path: format!("{path}.alsoAllow"),
            what: "cannot stand beside allow; put its tools into allow, or use a profile with alsoAllow".to_owned(),
        })
    }
}

/// A likely mistake in a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Config key, such as `tools.allow`.
    pub path: String,
    /// The predicate: `names "exce", which …`.
    pub what: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.path, self.what)
    }
}

/// Returns the policy for a model: the one for `provider/model`, else the one for the provider.
pub fn by_model<'a>(policies: &'a BTreeMap<String, Policy>, provider: &str, model: &str) -> Option<&'a Policy> {
    let clean = |text: &str| text.trim().to_lowercase();
    let (provider, model) = (clean(provider), clean(model));
    let find = |name: &str| policies.iter().find(|(key, _)| clean(key) == name).map(|(_, policy)| policy);
    // A model served by a third party may be listed under its maker's name.
    let by_maker = || model.contains('/').then(|| find(&model)).flatten();
    find(&format!("{provider}/{model}")).or_else(by_maker).or_else(|| find(&provider))
}

/// Sender of the message that a run answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sender {
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
pub struct Subagent {
    /// Depth; the first sub-agent has 1.
    pub depth: u32,
    /// Depth from which on sub-agents start no others; at least 1.
    pub max_depth: u32,
    /// `tools.subagents.tools`.
    pub policy: Policy,
    /// Tools of the parent: the sub-agent gets no others.
    pub spawner: BTreeSet<String>,
}

/// All inputs of a tool policy.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Scopes {
    /// Sender of the message.
    pub sender: Sender,
    /// `nonOwnerAllow` of the agent: tools that non-owners may use besides their default tools, except owner-only
    /// tools.
    pub non_owner_allow: Vec<String>,
    /// `tools`.
    pub global: Policy,
    /// The entry of `tools.byProvider` that matches the model; see [`by_model`].
    pub by_provider: Policy,
    /// `tools` of the agent.
    pub agent: Policy,
    /// The entry of the agent's `tools.byProvider` that matches the model.
    pub agent_by_provider: Policy,
    /// `tools` of the group, or of the sender in it. Its `also_allow` grants non-owners additional tools, except
    /// owner-only tools.
    pub group: Policy,
    /// `tools.sandbox.tools`, if the whole session is sandboxed. Empty lists there have a meaning.
    pub sandbox: Option<Policy>,
    /// Rules for a sub-agent, if this is one.
    pub subagent: Option<Subagent>,
    /// Tools of plugins, by plugin id.
    pub plugins: BTreeMap<String, Vec<String>>,
}

/// Location of a list or profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// For all agents.
    Global,
    /// For all agents, by provider.
    ByProvider,
    /// For an agent.
    Agent,
    /// For an agent, by provider.
    AgentByProvider,
    /// For a group or a sender in it.
    Group,
    /// For sandboxed sessions.
    Sandbox,
    /// For sub-agents.
    Subagent,
}

impl Scope {
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
pub enum Rule {
    /// It is owner-only, and the sender is not the owner.
    OwnerOnly,
    /// It needs `operator.admin`, and the run was requested without that scope.
    AdminScope,
    /// The sender is not the owner, and the agent does not grant it to non-owners.
    NonOwner,
    /// The profile in this scope does not contain it.
    Profile(Scope, Profile),
    /// An entry of `deny` in this scope matches it.
    Denied(Scope, String),
    /// The `allow` in this scope does not contain it.
    NotAllowed(Scope),
    /// Not available to sub-agents.
    Subagent,
    /// Not available to sub-agents that cannot start others.
    Leaf,
    /// The parent of this sub-agent does not have it.
    Spawner,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OwnerOnly => f.write_str("only the owner may use it"),
            Self::AdminScope => f.write_str("the connection that asked for the run is without operator.admin"),
            Self::NonOwner => {
                write!(f, "only the owner may use it, unless {}.nonOwnerAllow names it", Scope::Agent.path())
            }
            Self::Profile(scope, profile) => write!(
                f,
                "{}.profile is {}, which is without it; an alsoAllow beside it adds tools",
                scope.path(),
                profile.name()
            ),
            Self::Denied(Scope::Sandbox, _) | Self::NotAllowed(Scope::Sandbox) => {
                write!(f, "the sandbox is without it; {} says what it has", Scope::Sandbox.path())
            }
            Self::Denied(scope, entry) => write!(f, "{}.deny names {entry}", scope.path()),
            Self::NotAllowed(scope) => write!(f, "{}.allow does not name it", scope.path()),
            Self::Subagent => f.write_str("sub-agents are without it"),
            Self::Leaf => f.write_str(
                "sub-agents that start no others are without it; agents.defaults.subagents.maxSpawnDepth says which do",
            ),
            Self::Spawner => f.write_str("whoever started this sub-agent may not use it either"),
        }
    }
}

/// Result of a tool policy.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Resolved {
    /// Allowed tools.
    pub allowed: BTreeSet<String>,
    /// For each other tool, the rule that removed it.
    pub because: BTreeMap<String, Rule>,
}

/// Decides which of these tools may be used. Every tool is in the result, under the name it was given.
pub fn resolve(scopes: &Scopes, tools: &[&str]) -> Resolved {
    let chain = chain::Chain::new(scopes, tools);
    let mut resolved = Resolved::default();
    for tool in tools {
        match chain.refuses(tool) {
            None => {
                resolved.allowed.insert((*tool).to_owned());
            }
            Some(rule) => {
                resolved.because.insert((*tool).to_owned(), rule);
            }
        }
    }
    resolved
}

#[cfg(test)]
mod tests;
