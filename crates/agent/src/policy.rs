//! Which tools a run may use, and for each that it may not, why. Pure: the same scopes give the same answer.
//!
//! Every scope that has a say is a filter, and the filters stand in a row: who writes, the profile, the provider's
//! profile, then the lists of the config from the widest to the nearest, the sandbox, and what holds for sub-agents.
//! A filter can only take tools away, so what is denied anywhere is denied. `alsoAllow` adds to a profile, not to the
//! `allow` of another scope.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

mod chain;
mod names;

pub use self::names::{known, knows};

/// A set of tools to begin with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Profile {
    /// To say how things are.
    Minimal,
    /// To work on files, with commands.
    Coding,
    /// To talk.
    Messaging,
    /// Everything.
    Full,
}

impl Profile {
    /// Reads a profile as configs say it.
    pub fn parse(text: &str) -> Option<Self> {
        match text.trim() {
            "minimal" => Some(Self::Minimal),
            "coding" => Some(Self::Coding),
            "messaging" => Some(Self::Messaging),
            "full" => Some(Self::Full),
            _ => None,
        }
    }

    /// Its word in configs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Minimal => "minimal",
            Self::Coding => "coding",
            Self::Messaging => "messaging",
            Self::Full => "full",
        }
    }
}

/// What one scope says. Entries are names of tools, groups such as `group:fs`, ids of plugins, or patterns with `*`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Policy {
    /// A set to begin with.
    pub profile: Option<Profile>,
    /// The only tools that may be used; all if it is empty. A list whose names nobody knows allows nothing.
    pub allow: Vec<String>,
    /// Tools that may be used besides those of the profile.
    pub also_allow: Vec<String>,
    /// Tools that may not be used.
    pub deny: Vec<String>,
}

impl Policy {
    /// What is wrong with it by itself; `path` is where it stands in the config, such as `tools`.
    pub fn check(&self, path: &str) -> Option<Problem> {
        (!self.allow.is_empty() && !self.also_allow.is_empty()).then(|| Problem {
            path: format!("{path}.alsoAllow"),
            what: "cannot stand beside allow; put its tools into allow, or use a profile with alsoAllow".to_owned(),
        })
    }
}

/// Something in a policy that was hardly meant so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The key, as in `tools.allow`.
    pub path: String,
    /// The predicate: `names "exce", which …`.
    pub what: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.path, self.what)
    }
}

/// The policy for a model among those by provider: that of `provider/model`, else that of the provider.
pub fn by_model<'a>(policies: &'a BTreeMap<String, Policy>, provider: &str, model: &str) -> Option<&'a Policy> {
    let clean = |text: &str| text.trim().to_lowercase();
    let (provider, model) = (clean(provider), clean(model));
    let find = |name: &str| policies.iter().find(|(key, _)| clean(key) == name).map(|(_, policy)| policy);
    // A model may be known by the name of its maker where a third party serves it.
    let by_maker = || model.contains('/').then(|| find(&model)).flatten();
    find(&format!("{provider}/{model}")).or_else(by_maker).or_else(|| find(&provider))
}

/// Who wrote the message that a run answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sender {
    /// The owner.
    Owner,
    /// The owner, through a connection without `operator.admin`.
    Operator,
    /// Somebody else, or nobody knows who.
    #[default]
    Other,
}

/// A sub-agent, as far as its tools go.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Subagent {
    /// How many starts it is away from a conversation; the first sub-agent has 1.
    pub depth: u32,
    /// From which depth on sub-agents start no others; at least 1.
    pub max_depth: u32,
    /// `tools.subagents.tools`.
    pub policy: Policy,
    /// What the one who started it may use: it gets no more than that.
    pub spawner: BTreeSet<String>,
}

/// Everything that has a say in what a run may use.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Scopes {
    /// Who wrote.
    pub sender: Sender,
    /// `tools`.
    pub global: Policy,
    /// The one of `tools.byProvider` that fits the model; see [`by_model`].
    pub by_provider: Policy,
    /// `tools` of the agent.
    pub agent: Policy,
    /// The one of `tools.byProvider` of the agent that fits the model.
    pub agent_by_provider: Policy,
    /// `tools` of the group that was written in, or of the sender there. Its `also_allow` lends others than the owner
    /// what they do not have by themselves, except what is the owner's alone.
    pub group: Policy,
    /// `tools.sandbox.tools`, if the whole session is in a sandbox. Lists that are empty there are not without effect.
    pub sandbox: Option<Policy>,
    /// What holds for a sub-agent, if this is one.
    pub subagent: Option<Subagent>,
    /// The tools of plugins, by the plugin's id.
    pub plugins: BTreeMap<String, Vec<String>>,
}

/// Where a list or a profile stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// For all.
    Global,
    /// For all, by provider.
    ByProvider,
    /// For an agent.
    Agent,
    /// For an agent, by provider.
    AgentByProvider,
    /// For a group or a sender there.
    Group,
    /// For what is in a sandbox.
    Sandbox,
    /// For sub-agents.
    Subagent,
}

impl Scope {
    /// Its key in the config.
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

/// Why a tool may not be used: the first rule that takes it away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rule {
    /// It is the owner's alone, and somebody else wrote.
    OwnerOnly,
    /// It does what needs `operator.admin`, and the run was asked for without that scope.
    AdminScope,
    /// Somebody else than the owner wrote, and nobody lent it to them.
    Guest,
    /// The profile that is set there does not have it.
    Profile(Scope, Profile),
    /// An entry of `deny` there names it.
    Denied(Scope, String),
    /// The `allow` there does not name it.
    NotAllowed(Scope),
    /// No sub-agent has it.
    Subagent,
    /// No sub-agent has it that cannot start others.
    Leaf,
    /// The one who started this sub-agent does not have it.
    Spawner,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OwnerOnly => f.write_str("only the owner may use it"),
            Self::AdminScope => f.write_str("the connection that asked for the run is without operator.admin"),
            Self::Guest => write!(
                f,
                "only the owner may use it, unless {}.alsoAllow names it where the message was written",
                Scope::Group.path()
            ),
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

/// Which tools may be used, and why the others may not.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Resolved {
    /// Those that may be used.
    pub allowed: BTreeSet<String>,
    /// For each of the others, what took it away.
    pub because: BTreeMap<String, Rule>,
}

/// Decides which of these tools may be used. Every tool is in the answer, under the name that it was given.
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
