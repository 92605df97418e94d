//! Which of its tools an agent has in a run: by who asked, through which model, and whether another agent asked.

use std::collections::BTreeMap;

use homard_model::Spec;
use homard_proto::SessionKey;

use crate::{
    policy::{Policy, Scopes, Sender, Subagent, by_model, resolve},
    tool::{Origin, Toolbox},
};

/// The rules of an agent's tools.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolRules {
    /// For all agents.
    pub global: Policy,
    /// For all agents, by the model's provider or name.
    pub by_provider: BTreeMap<String, Policy>,
    /// For this agent.
    pub agent: Policy,
    /// For this agent, by the model's provider or name.
    pub agent_by_provider: BTreeMap<String, Policy>,
    /// For agents that work for others.
    pub subagent: Policy,
}

impl ToolRules {
    /// What is left of a toolbox.
    pub(crate) fn apply(&self, all: &Toolbox, (origin, key): (&Origin, &SessionKey), spec: &Spec) -> Toolbox {
        let by = |policies| by_model(policies, &spec.provider, &spec.model).cloned().unwrap_or_default();
        let mut scopes = Scopes {
            sender: if origin.is_owner() { Sender::Owner } else { Sender::Other },
            global: self.global.clone(),
            by_provider: by(&self.by_provider),
            agent: self.agent.clone(),
            agent_by_provider: by(&self.agent_by_provider),
            ..Scopes::default()
        };
        let specs = all.specs();
        let names: Vec<_> = specs.iter().map(|spec| spec.name.as_str()).collect();
        if key.is_subagent() {
            // It has no more than whoever started it, whose rules are these without it.
            let spawner = resolve(&scopes, &names).allowed;
            scopes.subagent = Some(Subagent { depth: 1, max_depth: 1, policy: self.subagent.clone(), spawner });
        }
        let allowed = resolve(&scopes, &names).allowed;
        all.only(|name| allowed.contains(name))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use async_trait::async_trait;
    use homard_proto::AgentId;
    use serde_json::{Value, json};

    use super::*;
    use crate::tool::{Tool, ToolClass, ToolCx, ToolResult, ToolSpec};

    struct Named(&'static str);

    #[async_trait]
    impl Tool for Named {
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

    fn left(rules: &ToolRules, principal: &str, key: &str, provider: &str) -> Vec<String> {
        let names = ["read", "write", "exec", "cron", "sessions_spawn"];
        let all = Toolbox::new(names.map(|name| Arc::new(Named(name)) as Arc<dyn Tool>));
        let origin = Origin { principal: principal.to_owned(), ..Origin::default() };
        let key = SessionKey::parse(key, &AgentId::main()).unwrap();
        let spec = Spec { provider: provider.to_owned(), model: "m".to_owned(), ..Spec::default() };
        rules.apply(&all, (&origin, &key), &spec).specs().iter().map(|spec| spec.name.clone()).collect()
    }

    #[test]
    fn the_owner_has_all_that_no_rule_takes() {
        let mut rules = ToolRules::default();
        assert_eq!(left(&rules, "owner", "main", "p"), ["cron", "exec", "read", "sessions_spawn", "write"]);
        rules.agent.deny = vec!["exec".to_owned()];
        rules.by_provider.insert("small".to_owned(), Policy { allow: vec!["read".to_owned()], ..Policy::default() });
        assert_eq!(left(&rules, "owner", "main", "p"), ["cron", "read", "sessions_spawn", "write"]);
        assert_eq!(left(&rules, "owner", "main", "small"), ["read"]);
    }

    #[test]
    fn others_and_sub_agents_have_less() {
        let rules = ToolRules::default();
        let of_others = left(&rules, "telegram:42", "main", "p");
        assert!(!of_others.iter().any(|name| ["write", "exec", "cron"].contains(&name.as_str())), "{of_others:?}");
        let of_child = left(&rules, "owner", "agent:main:subagent:u", "p");
        assert!(of_child.contains(&"exec".to_owned()), "{of_child:?}");
        assert!(!of_child.iter().any(|name| ["cron", "sessions_spawn"].contains(&name.as_str())), "{of_child:?}");
    }
}
