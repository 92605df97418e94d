//! Owner's settings for session tools.

use std::{collections::BTreeMap, time::Duration};

use homard_proto::AgentId;

/// Owner's settings for session tools.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionToolRules {
    /// `tools.sessions.visibility`.
    pub visibility: Visibility,
    /// `tools.agentToAgent`.
    pub agent_to_agent: AgentToAgent,
    /// `agents.defaults.subagents`.
    pub spawn: SpawnRules,
    /// Per-agent overrides: `agents.list[].subagents` over the defaults.
    pub spawn_by_agent: BTreeMap<AgentId, SpawnRules>,
}

impl SessionToolRules {
    /// Returns the rules for runs started by an agent.
    pub(super) fn spawn_rules(&self, agent: &AgentId) -> &SpawnRules {
        self.spawn_by_agent.get(agent).unwrap_or(&self.spawn)
    }
}

/// Which sessions a run can see. For runs of non-owners it is never more than the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Visibility {
    /// Only its own.
    Own,
    /// Its own and its descendants.
    #[default]
    Tree,
    /// All sessions of its agent.
    Agent,
    /// All sessions, as far as `tools.agentToAgent` permits.
    All,
}

impl Visibility {
    /// Parses the config value.
    pub fn parse(text: &str) -> Option<Self> {
        match text.trim() {
            "self" => Some(Self::Own),
            "tree" => Some(Self::Tree),
            "agent" => Some(Self::Agent),
            "all" => Some(Self::All),
            _ => None,
        }
    }

    /// Returns the config value.
    pub fn name(self) -> &'static str {
        match self {
            Self::Own => "self",
            Self::Tree => "tree",
            Self::Agent => "agent",
            Self::All => "all",
        }
    }
}

/// Whether agents may read and write sessions of other agents.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentToAgent {
    /// True if enabled.
    pub is_enabled: bool,
    /// Agent ids, or patterns with `*`; both sides must match. Empty allows all.
    pub allow: Vec<String>,
}

impl AgentToAgent {
    pub(super) fn allows(&self, from: &AgentId, to: &AgentId) -> bool {
        let is_named = |agent: &AgentId| {
            self.allow.is_empty() || self.allow.iter().any(|pattern| matches_pattern(pattern, agent.as_str()))
        };
        self.is_enabled && is_named(from) && is_named(to)
    }
}

/// Limits of subagents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpawnRules {
    /// Other agents for which a run may start runs: ids, or `*` for any.
    pub allow_agents: Vec<String>,
    /// Maximum depth below the conversation; with 1, a child starts no children.
    pub max_depth: usize,
    /// Maximum number of active children per session.
    pub max_children: usize,
    /// Model, as `provider/model`; `None` means the agent's own.
    pub model: Option<String>,
    /// Thinking level.
    pub thinking: Option<String>,
    /// Time limit of a child; `None` means the agent's own.
    pub timeout: Option<Duration>,
}

impl Default for SpawnRules {
    fn default() -> Self {
        Self { allow_agents: Vec::new(), max_depth: 1, max_children: 5, model: None, thinking: None, timeout: None }
    }
}

impl SpawnRules {
    /// True if a run of one agent may start a run of another.
    pub(super) fn allows(&self, agent: &AgentId, other: &AgentId) -> bool {
        agent == other || self.allows_any() || self.allow_agents.iter().any(|id| AgentId::normalize(id) == *other)
    }

    pub(super) fn allows_any(&self) -> bool {
        self.allow_agents.iter().any(|id| id.trim() == "*")
    }
}

/// True if a text matches a pattern with `*` wildcards, ignoring the pattern's case.
fn matches_pattern(pattern: &str, text: &str) -> bool {
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
    fn patterns_match_agents() {
        for (pattern, matching, other) in [
            ("*", ["", "ops", "x"].as_slice(), [].as_slice()),
            ("ops", &["ops"], &["op", "opsy", ""]),
            ("Team-*", &["team-", "team-a"], &["team", "a-team-"]),
            ("a*b*c", &["abc", "a-b-b-c"], &["ab", "acb", "bac"]),
        ] {
            assert!(matching.iter().all(|text| matches_pattern(pattern, text)), "{pattern}");
            assert!(!other.iter().any(|text| matches_pattern(pattern, text)), "{pattern}");
        }
    }

    #[test]
    fn both_agents_must_be_allowed() {
        let (main, ops, x) = (AgentId::main(), AgentId::normalize("ops"), AgentId::normalize("x"));
        let rules = AgentToAgent { is_enabled: true, allow: vec!["main".to_owned(), "ops".to_owned()] };
        assert!(rules.allows(&main, &ops) && rules.allows(&ops, &main));
        assert!(!rules.allows(&main, &x) && !rules.allows(&x, &main));
        assert!(!AgentToAgent { is_enabled: false, ..rules }.allows(&main, &ops));
        assert!(AgentToAgent { is_enabled: true, allow: Vec::new() }.allows(&main, &x));
    }

    #[test]
    fn an_agent_may_start_itself_and_listed_agents() {
        let (main, ops) = (AgentId::main(), AgentId::normalize("ops"));
        let rules_allowing = |allow: &[&str]| SpawnRules {
            allow_agents: allow.iter().map(|&id| id.to_owned()).collect(),
            ..SpawnRules::default()
        };
        assert!(rules_allowing(&[]).allows(&main, &main) && !rules_allowing(&[]).allows(&main, &ops));
        assert!(rules_allowing(&["Ops"]).allows(&main, &ops) && rules_allowing(&["*"]).allows(&main, &ops));
    }
}
