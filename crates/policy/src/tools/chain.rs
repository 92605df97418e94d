//! The filters in order, and the default lists. Each filter can only remove tools.

use std::collections::BTreeSet;

use super::{
    DenyRule, PolicyScope, PolicyScopes, SenderRole, SubagentPolicy, ToolPolicy, ToolProfile,
    names::{EntryOwner, ToolList, ToolName, ToolNames, canonical},
};

/// Owner-only tools, regardless of the config: those that change the gateway, other devices and secrets.
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

/// Tools of non-owners. None of them opens files of the workspace or the memory, which are the owner's; none runs
/// commands or controls the owner's browser; and none belongs to a plugin, which can do anything.
const NON_OWNER: &[&str] = &[
    "group:web",
    "group:messaging",
    "group:agents",
    "talk_voice",
    "tts",
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

/// Default `allow` list of sandboxed sessions.
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

/// Default `deny` list of sandboxed sessions. It contains names of channels because a plugin may offer a tool under the
/// name of its channel.
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

/// Tools that no sub-agent may use: it has one task, and its parent gives it the necessary information.
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

/// Tools that a sub-agent needs only to manage others.
const NO_LEAF: &[&str] = &["sessions_list", "sessions_history", "sessions_search", "sessions_spawn", "subagents"];

impl ToolProfile {
    /// Returns the tools of the profile; `None` for all.
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

enum PolicyFilter {
    /// Removes the tools on the list, for this reason.
    Without(DenyRule, ToolList),
    /// Removes the tools on a scope's list; the matching entry is reported.
    Denied(PolicyScope, ToolList),
    /// Removes the tools that are not on the list.
    Only(DenyRule, ToolList),
    /// Removes the tools that the parent of a sub-agent does not have. A set of tools and not a [`ToolList`], because
    /// the parent's policy has already added what a list implies, such as `apply_patch` with `exec`.
    Spawner(BTreeSet<String>),
}

impl PolicyFilter {
    fn refuses(&self, tool: &ToolName) -> Option<DenyRule> {
        match self {
            Self::Without(rule, list) => list.find(tool).map(|_| rule.clone()),
            Self::Denied(scope, list) => list.find(tool).map(|entry| DenyRule::Denied(*scope, entry.written.clone())),
            Self::Only(rule, list) => (!list.admits(tool)).then(|| rule.clone()),
            Self::Spawner(tools) => (!tools.contains(&tool.canonical)).then_some(DenyRule::Spawner),
        }
    }
}

/// All filters of a run, in order.
pub(super) struct FilterChain {
    names: ToolNames,
    filters: Vec<PolicyFilter>,
}

/// The policy of a scope.
#[derive(Clone, Copy)]
struct ScopedPolicy<'a> {
    scope: PolicyScope,
    policy: &'a ToolPolicy,
}

impl FilterChain {
    pub(super) fn new(scopes: &PolicyScopes, tools: &[&str]) -> Self {
        let names = ToolNames::new(tools, &scopes.plugins);
        let mut chain = Self { names, filters: Vec::new() };
        chain.sender(scopes);
        chain.profile(
            ScopedPolicy { scope: PolicyScope::Agent, policy: &scopes.agent },
            ScopedPolicy { scope: PolicyScope::Global, policy: &scopes.global },
        );
        chain.profile(
            ScopedPolicy { scope: PolicyScope::AgentByProvider, policy: &scopes.agent_by_provider },
            ScopedPolicy { scope: PolicyScope::ByProvider, policy: &scopes.by_provider },
        );
        chain.lists(PolicyScope::Global, &scopes.global);
        chain.lists(PolicyScope::ByProvider, &scopes.by_provider);
        chain.lists(PolicyScope::Agent, &scopes.agent);
        chain.lists(PolicyScope::AgentByProvider, &scopes.agent_by_provider);
        chain.scope(PolicyScope::Group, &scopes.group);
        if let Some(policy) = &scopes.sandbox {
            chain.scope(PolicyScope::Sandbox, &sandbox(policy));
        }
        if let Some(subagent) = &scopes.subagent {
            chain.subagent(subagent);
        }
        chain
    }

    /// Returns why a tool may not be used; `None` if it may.
    pub(super) fn refuses(&self, tool: &str) -> Option<DenyRule> {
        let tool = ToolName::new(tool);
        self.filters.iter().find_map(|filter| filter.refuses(&tool))
    }

    fn sender(&mut self, scopes: &PolicyScopes) {
        match scopes.sender {
            SenderRole::Owner => {}
            SenderRole::Operator => {
                self.filters.push(PolicyFilter::Without(DenyRule::AdminScope, self.names.list(OWNER_ONLY)));
            }
            SenderRole::Other => {
                let granted = scopes.non_owner_allow.iter().chain(&scopes.group.also_allow).map(String::as_str);
                let allowed = self.names.list(NON_OWNER.iter().copied().chain(granted));
                self.filters.push(PolicyFilter::Without(DenyRule::OwnerOnly, self.names.list(OWNER_ONLY)));
                self.filters.push(PolicyFilter::Only(DenyRule::NonOwner, allowed));
            }
        }
    }

    /// Applies the profile of the more specific scope, else of the more general one; `alsoAllow` in the same way.
    fn profile(&mut self, specific: ScopedPolicy<'_>, general: ScopedPolicy<'_>) {
        let also_allow = match specific.policy.also_allow.is_empty() {
            true => &general.policy.also_allow,
            false => &specific.policy.also_allow,
        };
        let chosen =
            [specific, general].into_iter().find_map(|ScopedPolicy { scope, policy }| Some((scope, policy.profile?)));
        let Some((scope, profile)) = chosen else { return };
        if let Some(tools) = profile.tools() {
            let list = self.names.list(tools.iter().copied().chain(also_allow.iter().map(String::as_str)));
            self.filters.push(PolicyFilter::Only(DenyRule::Profile(scope, profile), list));
        }
    }

    /// Applies the profile and then the lists of a scope that inherits no profile from a more general scope. It is
    /// therefore passed as both the specific and the general one.
    fn scope(&mut self, scope: PolicyScope, policy: &ToolPolicy) {
        let scoped = ScopedPolicy { scope, policy };
        self.profile(scoped, scoped);
        self.lists(scope, policy);
    }

    fn lists(&mut self, scope: PolicyScope, policy: &ToolPolicy) {
        self.filters.push(PolicyFilter::Denied(scope, self.names.list(&policy.deny)));
        if policy.allow.is_empty() {
            // Without `allow` everything is allowed, so there is nothing to add.
            return;
        }
        let ToolList(allow) = self.names.list(policy.allow.iter().chain(&policy.also_allow));
        if is_broad(scope) && allow.iter().all(|entry| entry.owner == EntryOwner::Plugin) {
            return;
        }
        self.filters.push(PolicyFilter::Only(DenyRule::NotAllowed(scope), ToolList(allow)));
    }

    fn subagent(&mut self, subagent: &SubagentPolicy) {
        self.filters.push(PolicyFilter::Without(DenyRule::Subagent, self.names.list(NO_SUBAGENT)));
        if subagent.depth >= subagent.max_depth.max(1) {
            self.filters.push(PolicyFilter::Without(DenyRule::Leaf, self.names.list(NO_LEAF)));
        }
        self.scope(PolicyScope::Subagent, &subagent.policy);
        self.filters.push(PolicyFilter::Spawner(subagent.spawner.iter().map(|tool| canonical(tool)).collect()));
    }
}

/// True if an `allow` list of this scope is ignored when it names only plugin tools: it is meant to add them to the
/// other tools, as in OpenClaw. In scopes for other senders or for isolation, such a list is applied.
fn is_broad(scope: PolicyScope) -> bool {
    match scope {
        PolicyScope::Global | PolicyScope::ByProvider | PolicyScope::Agent | PolicyScope::AgentByProvider => true,
        PolicyScope::Group | PolicyScope::Sandbox | PolicyScope::Subagent => false,
    }
}

/// Returns the lists of a sandbox, with defaults for empty ones.
fn sandbox(policy: &ToolPolicy) -> ToolPolicy {
    let or_default = |written: &Vec<String>, defaults: &[&str]| match written.as_slice() {
        [] => defaults.iter().copied().map(str::to_owned).collect(),
        written => written.to_vec(),
    };
    ToolPolicy {
        allow: or_default(&policy.allow, SANDBOX_ALLOW),
        deny: or_default(&policy.deny, SANDBOX_DENY),
        ..policy.clone()
    }
}
