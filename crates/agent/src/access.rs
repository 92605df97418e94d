//! Tool access of a run: by sender, by model, and by the parents of a sub-agent.

use std::collections::{BTreeMap, BTreeSet};

use homard_model::ModelSpec;
use homard_policy::tools::{PolicyScopes, SubagentPolicy, ToolPolicy, by_model, resolve};
use homard_proto::{AgentId, SessionKey, session::Record};

use crate::{
    profile::Agents,
    tool::{RunOrigin, Toolbox},
};

/// Tool policies of an agent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolRules {
    /// For all agents.
    pub global: ToolPolicy,
    /// For all agents, by provider or model.
    pub by_provider: BTreeMap<String, ToolPolicy>,
    /// For this agent.
    pub agent: ToolPolicy,
    /// For this agent, by provider or model.
    pub agent_by_provider: BTreeMap<String, ToolPolicy>,
    /// Tools of this agent that non-owners may use besides their default tools.
    pub non_owner_allow: Vec<String>,
    /// For sandboxed sessions.
    pub sandbox: ToolPolicy,
    /// For sub-agents.
    pub subagent: ToolPolicy,
    /// Maximum depth of sub-agents: `agents.defaults.subagents.maxSpawnDepth`. At least 1, which means that sub-agents
    /// start no others.
    pub max_depth: u32,
}

/// Where a run works.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Placement {
    /// Depth below a session that a person or a program started; 0 for such a session.
    pub(crate) depth: u32,
    /// True if its session is sandboxed.
    pub(crate) is_sandboxed: bool,
}

/// Field of a session's record with the ancestors of its parent session, nearest first.
pub(crate) const STARTERS: &str = "spawnedVia";

/// Returns the ancestors of a session, nearest first: its parent, the parent's parent, and so on.
pub fn lineage(key: &SessionKey, record: &Record) -> Vec<SessionKey> {
    let agent = key.agent().cloned().unwrap_or_else(AgentId::main);
    let grandparents = record.extra.get(STARTERS).and_then(|keys| keys.as_array()).into_iter().flatten();
    let ancestors = record.spawned_by.as_deref().into_iter().chain(grandparents.filter_map(|name| name.as_str()));
    ancestors.filter_map(|name| SessionKey::parse(name, &agent).ok()).collect()
}

/// Returns the tools that its ancestors leave to a session: only tools that all of them have, and at the maximum depth
/// no tools that start sub-agents. `None` for a session without a parent.
pub fn ceiling(agents: &Agents, key: &SessionKey, record: &Record, origin: &RunOrigin) -> Option<BTreeSet<String>> {
    let ancestors = lineage(key, record);
    let depth = u32::try_from(ancestors.len()).unwrap_or(u32::MAX);
    let tools = |key: &SessionKey, depth: u32| {
        let profile = agents.of(key.agent());
        profile.tools_at(origin, key, depth, profile.spec()).names()
    };
    let ancestor_tools = ancestors.iter().zip((0..depth).rev()).map(|(ancestor, depth)| tools(ancestor, depth));
    let common = ancestor_tools.reduce(|common, tools| &common & &tools)?;
    // The session's own rules apply when the model is known; here only its depth matters.
    let denied_by_depth = &tools(key, 1) - &tools(key, depth);
    Some(&common - &denied_by_depth)
}

impl ToolRules {
    /// Returns the allowed part of a toolbox.
    pub(crate) fn apply(&self, all: &Toolbox, origin: &RunOrigin, placement: Placement, spec: &ModelSpec) -> Toolbox {
        let specs = all.specs();
        let names: Vec<_> = specs.iter().map(|spec| spec.name.as_str()).collect();
        let allowed = self.allowed(&names, origin, placement, spec);
        all.only(|name| allowed.contains(name))
    }

    /// Returns which of these tools a run may use.
    pub(crate) fn allowed(
        &self,
        names: &[&str],
        origin: &RunOrigin,
        placement: Placement,
        spec: &ModelSpec,
    ) -> BTreeSet<String> {
        let Placement { depth, is_sandboxed } = placement;
        let policy_for = |policies| by_model(policies, &spec.provider, &spec.model).cloned().unwrap_or_default();
        let mut scopes = PolicyScopes {
            sender: origin.sender(),
            non_owner_allow: self.non_owner_allow.clone(),
            global: self.global.clone(),
            by_provider: policy_for(&self.by_provider),
            agent: self.agent.clone(),
            agent_by_provider: policy_for(&self.agent_by_provider),
            sandbox: is_sandboxed.then(|| self.sandbox.clone()),
            ..PolicyScopes::default()
        };
        if depth > 0 {
            // A sub-agent has at most the tools of its parent, whose rules are these without the sub-agent rules.
            let spawner = resolve(&scopes, names).allowed;
            scopes.subagent =
                Some(SubagentPolicy { depth, max_depth: self.max_depth, policy: self.subagent.clone(), spawner });
        }
        resolve(&scopes, names).allowed
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use async_trait::async_trait;
    use homard_proto::SessionId;
    use serde_json::{Value, json};

    use homard_model::{candidates::Candidates, demo::Demo};

    use super::*;
    use crate::{
        profile::Profile,
        tool::{Tool, ToolClass, ToolCx, ToolResult, ToolSpec},
    };

    struct NamedTool(&'static str);

    #[async_trait]
    impl Tool for NamedTool {
        fn spec(&self) -> ToolSpec {
            ToolSpec { name: self.0.to_owned(), description: String::new(), parameters: json!({"type": "object"}) }
        }

        fn class(&self) -> ToolClass {
            ToolClass::Read
        }

        async fn call(&self, _: ToolCx, _: Value) -> ToolResult {
            ToolResult::text("")
        }
    }

    fn toolbox() -> Toolbox {
        let names = ["read", "write", "exec", "cron", "sessions_spawn"];
        Toolbox::new(names.map(|name| Arc::new(NamedTool(name)) as Arc<dyn Tool>))
    }

    fn allowed_tools(rules: &ToolRules, principal: &str, key: &str, provider: &str) -> Vec<String> {
        let origin = RunOrigin { principal: principal.to_owned(), ..RunOrigin::default() };
        let key = SessionKey::parse(key, &AgentId::main()).unwrap();
        let spec = ModelSpec { provider: provider.to_owned(), model: "m".to_owned(), ..ModelSpec::default() };
        let depth = u32::from(key.is_subagent());
        rules
            .apply(&toolbox(), &origin, Placement { depth, is_sandboxed: false }, &spec)
            .specs()
            .iter()
            .map(|spec| spec.name.clone())
            .collect()
    }

    #[test]
    fn the_owner_has_all_tools_that_no_rule_denies() {
        let mut rules = ToolRules::default();
        assert_eq!(allowed_tools(&rules, "owner", "main", "p"), ["cron", "exec", "read", "sessions_spawn", "write"]);
        rules.agent.deny = vec!["exec".to_owned()];
        rules
            .by_provider
            .insert("small".to_owned(), ToolPolicy { allow: vec!["read".to_owned()], ..ToolPolicy::default() });
        assert_eq!(allowed_tools(&rules, "owner", "main", "p"), ["cron", "read", "sessions_spawn", "write"]);
        assert_eq!(allowed_tools(&rules, "owner", "main", "small"), ["read"]);
    }

    #[test]
    fn non_owners_and_sub_agents_have_fewer_tools() {
        let rules = ToolRules::default();
        let non_owner_tools = allowed_tools(&rules, "telegram:42", "main", "p");
        assert!(
            !non_owner_tools.iter().any(|name| ["write", "exec", "cron"].contains(&name.as_str())),
            "{non_owner_tools:?}"
        );
        let child_tools = allowed_tools(&rules, "owner", "agent:main:subagent:u", "p");
        assert!(child_tools.contains(&"exec".to_owned()), "{child_tools:?}");
        assert!(!child_tools.iter().any(|name| ["cron", "sessions_spawn"].contains(&name.as_str())), "{child_tools:?}");
    }

    fn key(text: &str) -> SessionKey {
        SessionKey::parse(text, &AgentId::main()).unwrap()
    }

    fn record(ancestors: &[&str]) -> Record {
        let (parent, further_ancestors) = ancestors.split_first().unwrap();
        serde_json::from_value(
            json!({"sessionId": "s", "updatedAt": 0, "spawnedBy": parent, STARTERS: further_ancestors}),
        )
        .unwrap()
    }

    #[test]
    fn a_sub_agent_has_no_tool_that_an_ancestor_lacks() {
        let agent_without = |id: &str, tool: &str| Profile {
            toolbox: toolbox(),
            rules: Some(ToolRules {
                agent: ToolPolicy { deny: vec![tool.to_owned()], ..ToolPolicy::default() },
                max_depth: 3,
                ..ToolRules::default()
            }),
            ..Profile::new(AgentId::normalize(id), Candidates::single(Arc::new(Demo::default())))
        };
        let agents = Agents::new(agent_without("main", "exec"), [agent_without("b", "write"), agent_without("c", "-")]);
        let owner = RunOrigin { principal: "owner".to_owned(), ..RunOrigin::default() };
        let tools_of = |name: &str, ancestors: &[&str]| -> Vec<String> {
            let tools = ceiling(&agents, &key(name), &record(ancestors), &owner).unwrap();
            tools.into_iter().collect()
        };
        let (b, c) = ("agent:b:subagent:1", "agent:c:subagent:2");
        assert_eq!(tools_of(b, &["agent:main:main"]), ["cron", "read", "sessions_spawn", "write"]);
        assert_eq!(tools_of(c, &[b, "agent:main:main"]), ["read", "sessions_spawn"]);
        assert_eq!(tools_of("agent:c:subagent:3", &[c, b, "agent:main:main"]), ["read"], "the third starts no others");
        assert_eq!(ceiling(&agents, &key("main"), &Record::new(SessionId::parse("s").unwrap(), 0), &owner), None);
    }

    #[test]
    fn a_sub_agent_spawns_others_up_to_the_maximum_depth() {
        let can_spawn = |max_depth| {
            let rules = ToolRules { max_depth, ..ToolRules::default() };
            allowed_tools(&rules, "owner", "agent:main:subagent:u", "p").contains(&"sessions_spawn".to_owned())
        };
        assert_eq!([0, 1, 2].map(can_spawn), [false, false, true]);
    }

    /// Case 107: the loop continues after that result as after that for any missing tool.
    #[test]
    fn a_denied_tool_is_neither_listed_nor_found() {
        let toolbox = toolbox().only(|name| ["exec", "read", "write"].contains(&name));
        let deny = ["group:runtime", "write"].map(str::to_owned).to_vec();
        let scopes = PolicyScopes {
            sender: homard_policy::tools::SenderRole::Owner,
            global: ToolPolicy { deny, ..ToolPolicy::default() },
            ..PolicyScopes::default()
        };
        let resolved = resolve(&scopes, &["exec", "read", "write"]);
        let filtered = toolbox.only(|name| resolved.allowed.contains(name));
        let names: Vec<_> = filtered.specs().iter().map(|spec| spec.name.clone()).collect();
        let prepared = |name| filtered.prepare(name, &json!({})).map(|(tool, _)| tool.spec().name);
        assert_eq!(names, ["read"]);
        assert_eq!(prepared("read"), Ok("read".to_owned()));
        assert_eq!(prepared("exec"), Err(ToolResult::error("Tool exec not found")));
        assert_eq!(toolbox.specs().len(), 3);
    }

    #[test]
    fn the_specs_of_a_selection_are_shared() {
        let toolbox = toolbox().only(|name| ["exec", "read", "write"].contains(&name));
        let names = |selection: &Toolbox| selection.specs().iter().map(|spec| spec.name.clone()).collect::<Vec<_>>();
        let all = toolbox.only(|_| true);
        let (first, again) = (toolbox.only(|name| name != "exec"), toolbox.only(|name| name != "exec"));
        let other = toolbox.only(|name| name != "read");
        assert_eq!(
            (names(&first), names(&other)),
            (vec!["read".into(), "write".into()], vec!["exec".into(), "write".into()])
        );
        assert!(Arc::ptr_eq(&all.specs(), &toolbox.specs()));
        assert!(
            Arc::ptr_eq(&first.specs(), &again.specs()) && Arc::ptr_eq(&first.compact_specs(), &again.compact_specs())
        );
        assert!(!Arc::ptr_eq(&first.specs(), &other.specs()));
    }
}
