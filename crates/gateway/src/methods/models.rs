//! `models.list`: who can answer.

use homard_agent::{Agents, Profile};
use homard_proto::{AgentId, ErrorShape, Generation, method::models::ListParams};
use serde_json::{Value, json};

use crate::router::{Answer, Call};

/// The models of an agent.
pub(crate) async fn list(mut call: Call) -> Result<Answer, ErrorShape> {
    let params: ListParams = call.params()?;
    let agents = call.server.hub.agents();
    let now = call.server.hub.ambient().now_ms();
    let profile = profile(&agents, params.agent_id.as_deref(), "models.list")?;
    Ok(json!({"models": choices(profile, now, call.client.generation)}).into())
}

/// The agent that a request means: by its id, or the default one.
pub(crate) fn profile<'a>(agents: &'a Agents, id: Option<&str>, method: &str) -> Result<&'a Profile, ErrorShape> {
    let id = id.map_or_else(|| agents.default_id().clone(), AgentId::normalize);
    let unknown = || ErrorShape::invalid(format!("invalid {method} params: unknown agent id \"{id}\""));
    agents.get(&id).map(|profile| &**profile).ok_or_else(unknown)
}

/// Who answers, who is asked next, and who else may be chosen; each once.
pub(crate) fn choices(profile: &Profile, now: u64, generation: Generation) -> Vec<Value> {
    let mut models: Vec<_> = profile.roster.order(now, &Default::default()).into_iter().map(|one| one.model).collect();
    // One that cannot be asked now is no choice.
    models.extend(profile.offers.iter().filter_map(|name| (profile.choose)(name).ok()).map(|one| one.first().clone()));
    let mut choices: Vec<Value> = Vec::new();
    for model in models {
        let spec = model.spec();
        if choices.iter().any(|choice| choice["id"] == spec.model && choice["provider"] == spec.provider) {
            continue;
        }
        let input: &[&str] = if spec.sees { &["text", "image"] } else { &["text"] };
        let mut choice = json!({
            "id": spec.model, "name": spec.model, "provider": spec.provider, "contextWindow": spec.context_window,
            "reasoning": !spec.thinking.is_empty(), "input": input,
        });
        if generation == Generation::Four {
            let levels = spec.thinking.iter().map(|level| json!({"id": level.as_str(), "label": level.as_str()}));
            choice["available"] = true.into();
            choice["thinkingLevels"] = levels.collect();
        }
        choices.push(choice);
    }
    choices
}
