//! The filters in their order, and the lists that hold when nobody wrote any. Each filter can only take tools away.

use std::collections::BTreeSet;

use super::{
    Policy, Profile, Rule, Scope, Scopes, Sender, Subagent,
    names::{List, Names, Owner, Tool, canonical},
};

/// What nobody but the owner may use, whatever a config says: what changes the gateway, other devices and secrets.
const OWNER_ONLY: &[&str] = &[
    "group:automation",
    "group:nodes",
    "computer",
    "mobile_ui",
    "openclaw",
    "plugins",
    "secrets",
    "skill_workshop",
    "terminal",
    "whatsapp_login",
];

/// What others than the owner may use by themselves. No commands, no writing of files, no browser of the owner's, and
/// nothing of plugins, which can do anything.
const FOR_GUESTS: &[&str] = &[
    "read",
    "ls",
    "find",
    "grep",
    "group:web",
    "group:memory",
    "group:messaging",
    "group:agents",
    "group:media",
    "session_status",
    "sessions_list",
    "sessions_history",
    "sessions_send",
    "sessions_spawn",
    "sessions_yield",
    "subagents",
    "agents_wait",
    "ask_user",
    "create_goal",
    "get_goal",
    "update_goal",
    "progress_card",
];

const SANDBOX_ALLOW: &[&str] = &[
    "exec",
    "process",
    "read",
    "write",
    "edit",
    "apply_patch",
    "ls",
    "find",
    "grep",
    "image",
    "sessions_list",
    "sessions_history",
    "sessions_send",
    "sessions_spawn",
    "session_status",
    "sessions_yield",
    "subagents",
];

/// Besides tools, the names of channels: a plugin may offer a tool of that name.
const SANDBOX_DENY: &[&str] = &[
    "browser",
    "canvas",
    "nodes",
    "cron",
    "gateway",
    "telegram",
    "whatsapp",
    "discord",
    "irc",
    "googlechat",
    "slack",
    "signal",
    "imessage",
];

/// What no sub-agent may use: it has one task, and whoever started it tells it what it must know.
const NO_SUBAGENT: &[&str] = &[
    "gateway",
    "cron",
    "agents_list",
    "whatsapp_login",
    "session_status",
    "sessions",
    "sessions_send",
    "conversations_send",
    "conversations_turn",
    "memory_search",
    "memory_get",
];

/// What a sub-agent needs only to look after others.
const NO_LEAF: &[&str] = &["sessions_list", "sessions_history", "sessions_search", "sessions_spawn", "subagents"];

impl Profile {
    /// What it has; `None` for everything.
    fn tools(self) -> Option<&'static [&'static str]> {
        match self {
            Self::Minimal => Some(&["session_status"]),
            Self::Coding => Some(&["group:fs", "group:runtime", "group:sessions", "group:memory", "image"]),
            Self::Messaging => {
                Some(&["group:messaging", "sessions_list", "sessions_history", "sessions_send", "session_status"])
            }
            Self::Full => None,
        }
    }
}

enum Filter {
    /// Takes away what is on the list, for this reason.
    Without(Rule, List),
    /// Takes away what is on the list of a scope, which is told with the entry.
    Denied(Scope, List),
    /// Takes away what is not on the list.
    Only(Rule, List),
    /// Takes away what the spawner of a sub-agent does not have. No list: what `exec` lets pass there has passed.
    Spawner(BTreeSet<String>),
}

impl Filter {
    fn refuses(&self, tool: &Tool) -> Option<Rule> {
        match self {
            Self::Without(rule, list) => list.find(tool).map(|_| rule.clone()),
            Self::Denied(scope, list) => list.find(tool).map(|entry| Rule::Denied(*scope, entry.written.clone())),
            Self::Only(rule, list) => (!list.admits(tool)).then(|| rule.clone()),
            Self::Spawner(tools) => (!tools.contains(&tool.canonical)).then_some(Rule::Spawner),
        }
    }
}

/// All filters of a run, in order.
pub(super) struct Chain {
    names: Names,
    filters: Vec<Filter>,
}

impl Chain {
    pub(super) fn new(scopes: &Scopes, tools: &[&str]) -> Self {
        let names = Names::new(tools, &scopes.plugins);
        let mut chain = Self { names, filters: Vec::new() };
        chain.sender(scopes);
        chain.profile((Scope::Agent, &scopes.agent), (Scope::Global, &scopes.global));
        chain.profile((Scope::AgentByProvider, &scopes.agent_by_provider), (Scope::ByProvider, &scopes.by_provider));
        chain.lists(Scope::Global, &scopes.global);
        chain.lists(Scope::ByProvider, &scopes.by_provider);
        chain.lists(Scope::Agent, &scopes.agent);
        chain.lists(Scope::AgentByProvider, &scopes.agent_by_provider);
        chain.scope(Scope::Group, &scopes.group);
        if let Some(policy) = &scopes.sandbox {
            chain.scope(Scope::Sandbox, &sandbox(policy));
        }
        if let Some(subagent) = &scopes.subagent {
            chain.subagent(subagent);
        }
        chain
    }

    /// Why a tool may not be used; `None` if it may.
    pub(super) fn refuses(&self, tool: &str) -> Option<Rule> {
        let tool = Tool::new(tool);
        self.filters.iter().find_map(|filter| filter.refuses(&tool))
    }

    fn sender(&mut self, scopes: &Scopes) {
        match scopes.sender {
            Sender::Owner => {}
            Sender::Operator => {
                self.filters.push(Filter::Without(Rule::AdminScope, self.names.list(OWNER_ONLY)));
            }
            Sender::Other => {
                let lent = scopes.group.also_allow.iter().map(String::as_str);
                let guests = self.names.list(FOR_GUESTS.iter().copied().chain(lent));
                self.filters.push(Filter::Without(Rule::OwnerOnly, self.names.list(OWNER_ONLY)));
                self.filters.push(Filter::Only(Rule::Guest, guests));
            }
        }
    }

    /// The profile of the nearer scope, else that of the wider one, and so with what is allowed besides.
    fn profile(&mut self, near: (Scope, &Policy), wide: (Scope, &Policy)) {
        let also = if near.1.also_allow.is_empty() { &wide.1.also_allow } else { &near.1.also_allow };
        let chosen = [near, wide].into_iter().find_map(|(scope, policy)| Some((scope, policy.profile?)));
        let Some((scope, profile)) = chosen else { return };
        if let Some(tools) = profile.tools() {
            let list = self.names.list(tools.iter().copied().chain(also.iter().map(String::as_str)));
            self.filters.push(Filter::Only(Rule::Profile(scope, profile), list));
        }
    }

    /// A scope whose profile is its own affair.
    fn scope(&mut self, scope: Scope, policy: &Policy) {
        self.profile((scope, policy), (scope, policy));
        self.lists(scope, policy);
    }

    fn lists(&mut self, scope: Scope, policy: &Policy) {
        self.filters.push(Filter::Denied(scope, self.names.list(&policy.deny)));
        if policy.allow.is_empty() {
            // Besides everything, there is nothing to add.
            return;
        }
        let List(allow) = self.names.list(policy.allow.iter().chain(&policy.also_allow));
        if is_broad(scope) && allow.iter().all(|entry| entry.owner == Owner::Plugin) {
            return;
        }
        self.filters.push(Filter::Only(Rule::NotAllowed(scope), List(allow)));
    }

    fn subagent(&mut self, subagent: &Subagent) {
        self.filters.push(Filter::Without(Rule::Subagent, self.names.list(NO_SUBAGENT)));
        if subagent.depth >= subagent.max_depth.max(1) {
            self.filters.push(Filter::Without(Rule::Leaf, self.names.list(NO_LEAF)));
        }
        self.scope(Scope::Subagent, &subagent.policy);
        self.filters.push(Filter::Spawner(subagent.spawner.iter().map(|tool| canonical(tool)).collect()));
    }
}

/// Whether a list of this scope that names only tools of plugins was meant to add them: so OpenClaw reads it. Where
/// strangers write or things are locked up, a list means what it says.
fn is_broad(scope: Scope) -> bool {
    match scope {
        Scope::Global | Scope::ByProvider | Scope::Agent | Scope::AgentByProvider => true,
        Scope::Group | Scope::Sandbox | Scope::Subagent => false,
    }
}

/// The lists of a sandbox; those that nobody wrote are ours.
fn sandbox(policy: &Policy) -> Policy {
    let or = |written: &Vec<String>, ours: &[&str]| match written.as_slice() {
        [] => ours.iter().copied().map(str::to_owned).collect(),
        written => written.to_vec(),
    };
    Policy { allow: or(&policy.allow, SANDBOX_ALLOW), deny: or(&policy.deny, SANDBOX_DENY), ..policy.clone() }
}
