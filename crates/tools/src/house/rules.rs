//! What the owner allows runs to do with sessions.

use std::{collections::BTreeMap, time::Duration};

use homard_proto::AgentId;

/// What the owner allows runs to do with sessions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HouseRules {
    /// `tools.sessions.visibility`.
    pub visibility: Visibility,
    /// `tools.agentToAgent`.
    pub agent_to_agent: AgentToAgent,
    /// `agents.defaults.subagents`.
    pub spawn: SpawnRules,
    /// The same for agents that have their own: `agents.list[].subagents` over the defaults.
    pub spawn_of: BTreeMap<AgentId, SpawnRules>,
}

impl HouseRules {
    /// How the runs of an agent may start others.
    pub(super) fn spawns(&self, agent: &AgentId) -> &SpawnRules {
        self.spawn_of.get(agent).unwrap_or(&self.spawn)
    }
}

/// Which sessions a run sees. For anybody but the owner it is never more than the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Visibility {
    /// Its own.
    Own,
    /// Its own, and those that it started, and those that these started.
    #[default]
    Tree,
    /// All of its agent.
    Agent,
    /// All, as far as agents may talk to one another.
    All,
}

impl Visibility {
    /// Reads it as configs say it.
    pub fn parse(text: &str) -> Option<Self> {
        match text.trim() {
            "self" => Some(Self::Own),
            "tree" => Some(Self::Tree),
            "agent" => Some(Self::Agent),
            "all" => Some(Self::All),
            _ => None,
        }
    }

    /// Its word in configs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Own => "self",
            Self::Tree => "tree",
            Self::Agent => "agent",
            Self::All => "all",
        }
    }
}

/// Whether agents may look at the sessions of others and write to them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentToAgent {
    /// Whether any may.
    pub is_enabled: bool,
    /// Which: ids, or patterns with `*`; both sides must be among them. All if it is empty.
    pub allow: Vec<String>,
}

impl AgentToAgent {
    pub(super) fn allows(&self, one: &AgentId, other: &AgentId) -> bool {
        let is_named =
            |agent: &AgentId| self.allow.is_empty() || self.allow.iter().any(|pattern| fits(pattern, agent.as_str()));
        self.is_enabled && is_named(one) && is_named(other)
    }
}

/// How runs may start others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpawnRules {
    /// For which other agents: ids, or `*` for any.
    pub allow_agents: Vec<String>,
    /// How many starts away from a conversation a run may be at most; with 1 a child starts no others.
    pub max_depth: usize,
    /// How many children of one session are at work at once.
    pub max_children: usize,
    /// The model that answers, as `provider/model`; the agent's own if nothing is said.
    pub model: Option<String>,
    /// How hard it thinks.
    pub thinking: Option<String>,
    /// How long a child may take; the agent's own limit if nothing is said.
    pub timeout: Option<Duration>,
}

impl Default for SpawnRules {
    fn default() -> Self {
        Self { allow_agents: Vec::new(), max_depth: 1, max_children: 5, model: None, thinking: None, timeout: None }
    }
}

impl SpawnRules {
    /// Whether a run of one agent may start one of another.
    pub(super) fn allows(&self, one: &AgentId, other: &AgentId) -> bool {
        one == other || self.allows_any() || self.allow_agents.iter().any(|id| AgentId::normalize(id) == *other)
    }

    pub(super) fn allows_any(&self) -> bool {
        self.allow_agents.iter().any(|id| id.trim() == "*")
    }
}

/// Whether a text fits a pattern in which `*` stands for anything, in any case.
fn fits(pattern: &str, text: &str) -> bool {
    let pattern = pattern.trim().to_lowercase();
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| text.strip_prefix(first)) else { return false };
    let mut parts: Vec<_> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        match rest.split_once(part) {
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_stand_for_agents() {
        for (pattern, fitting, unfitting) in [
            ("*", ["", "ops", "x"].as_slice(), [].as_slice()),
            ("ops", &["ops"], &["op", "opsy", ""]),
            ("Team-*", &["team-", "team-a"], &["team", "a-team-"]),
            ("a*b*c", &["abc", "a-b-b-c"], &["ab", "acb", "bac"]),
        ] {
            assert!(fitting.iter().all(|text| fits(pattern, text)), "{pattern}");
            assert!(!unfitting.iter().any(|text| fits(pattern, text)), "{pattern}");
        }
    }

    #[test]
    fn both_sides_must_be_allowed_to_talk() {
        let (main, ops, x) = (AgentId::main(), AgentId::normalize("ops"), AgentId::normalize("x"));
        let rules = AgentToAgent { is_enabled: true, allow: vec!["main".to_owned(), "ops".to_owned()] };
        assert!(rules.allows(&main, &ops) && rules.allows(&ops, &main));
        assert!(!rules.allows(&main, &x) && !rules.allows(&x, &main));
        assert!(!AgentToAgent { is_enabled: false, ..rules }.allows(&main, &ops));
        assert!(AgentToAgent { is_enabled: true, allow: Vec::new() }.allows(&main, &x));
    }

    #[test]
    fn an_agent_starts_its_own_and_those_that_are_named() {
        let (main, ops) = (AgentId::main(), AgentId::normalize("ops"));
        let with = |allow: &[&str]| SpawnRules {
            allow_agents: allow.iter().map(|&id| id.to_owned()).collect(),
            ..SpawnRules::default()
        };
        assert!(with(&[]).allows(&main, &main) && !with(&[]).allows(&main, &ops));
        assert!(with(&["Ops"]).allows(&main, &ops) && with(&["*"]).allows(&main, &ops));
    }
}
