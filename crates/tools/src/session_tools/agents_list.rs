//! The `agents_list` tool: lists the agents for which a run may start runs.

use std::sync::Arc;

use async_trait::async_trait;
use homard_agent::tool::{Tool, ToolClass, ToolCx, ToolResult, ToolSpec};
use homard_proto::AgentId;
use serde_json::{Value, json};

use super::{SessionToolError, SessionToolRules, hub, into_result};

/// Lists the agents that `sessions_spawn` accepts.
#[derive(Debug, Clone)]
pub struct AgentsList {
    rules: Arc<SessionToolRules>,
}

impl AgentsList {
    /// Creates the tool with these rules.
    pub fn new(rules: Arc<SessionToolRules>) -> Self {
        Self { rules }
    }

    fn list(&self, cx: &ToolCx) -> Result<Value, SessionToolError> {
        let agents = hub(cx)?.agents();
        let own_id = cx.session.agent().cloned().unwrap_or_else(|| agents.default_id().clone());
        let rules = self.rules.spawn_rules(&own_id);
        let name = |id: &AgentId| agents.get(id).and_then(|agent| agent.name.clone().or(agent.identity.name.clone()));
        let row = |id: &AgentId| json!({"id": id, "name": name(id), "configured": agents.get(id).is_some()});
        // The run's own agent first, then by id. Allowed but unknown agents are included, so that the misconfiguration
        // is visible.
        let known = agents.iter().map(|agent| agent.id.clone());
        let allowed = rules.allow_agents.iter().filter(|id| id.trim() != "*").map(|id| AgentId::normalize(id));
        let mut others: Vec<_> = known.chain(allowed).filter(|id| *id != own_id && rules.allows(&own_id, id)).collect();
        others.sort();
        others.dedup();
        let rows: Vec<_> = [own_id.clone()].iter().chain(&others).map(row).collect();
        Ok(json!({"requester": own_id, "allowAny": rules.allows_any(), "agents": rows}))
    }
}

#[async_trait]
impl Tool for AgentsList {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "agents_list".to_owned(),
            description: "List the agents that sessions_spawn can start a sub-agent for.".to_owned(),
            parameters: json!({"type": "object", "properties": {}}),
        }
    }

    fn class(&self) -> ToolClass {
        ToolClass::Read
    }

    async fn call(&self, cx: ToolCx, _arguments: Value) -> ToolResult {
        into_result("agents_list", self.list(&cx))
    }
}
