//! `models.list` and `models.authStatus`: the models of an agent.

use std::collections::BTreeSet;

use homard_agent::{Agents, Profile};
use homard_proto::{
    AgentId, ErrorShape, Generation,
    method::{models::ListParams, queries::AgentQueryParams},
};
use serde_json::{Value, json};

use crate::router::{RpcCall, RpcResult};

/// Lists the models of an agent.
pub(crate) async fn list(mut call: RpcCall) -> Result<RpcResult, ErrorShape> {
    let ListParams { agent_id, provider } = call.params()?;
    let agents = call.server.hub.agents();
    let now = call.server.hub.ambient().now_ms();
    let profile = profile(&agents, agent_id.as_deref(), "models.list")?;
    let mut models = choices(profile, now, call.client.generation);
    models.retain(|model| provider.as_ref().is_none_or(|provider| model["provider"] == **provider));
    Ok(json!({"models": models}).into())
}

/// Returns the credential status of an agent's providers. All listed models are usable: each has credentials or needs
/// none.
pub(crate) async fn auth_status(mut call: RpcCall) -> Result<RpcResult, ErrorShape> {
    let AgentQueryParams { agent_id } = call.params()?;
    let agents = call.server.hub.agents();
    let now = call.server.hub.ambient().now_ms();
    let profile = profile(&agents, agent_id.as_deref(), "models.authStatus")?;
    let models = choices(profile, now, Generation::Four);
    let providers: BTreeSet<&str> = models.iter().filter_map(|model| model["provider"].as_str()).collect();
    let rows = providers.into_iter().map(|provider| {
        json!({
            "provider": provider, "authProvider": provider, "displayName": provider, "status": "static", "profiles": [],
        })
    });
    Ok(json!({"ts": now, "providers": rows.collect::<Vec<_>>()}).into())
}

/// Resolves the agent of a request: by its id, or the default one.
pub(crate) fn profile<'a>(agents: &'a Agents, id: Option<&str>, method: &str) -> Result<&'a Profile, ErrorShape> {
    let id = id.map_or_else(|| agents.default_id().clone(), AgentId::normalize);
    let unknown = || ErrorShape::invalid(format!("invalid {method} params: unknown agent id \"{id}\""));
    agents.get(&id).map(|profile| &**profile).ok_or_else(unknown)
}

/// Returns the primary model, the fallbacks and the other selectable models, each once.
pub(crate) fn choices(profile: &Profile, now: u64, generation: Generation) -> Vec<Value> {
    let mut models: Vec<_> =
        profile.candidates.order(now, &Default::default()).into_iter().map(|candidate| candidate.model).collect();
    // Models that cannot be used at present are omitted.
    models.extend(
        profile
            .selectable_models
            .iter()
            .filter_map(|name| (profile.resolve_model)(name).ok())
            .map(|candidate| candidate.first().clone()),
    );
    let mut choices: Vec<Value> = Vec::new();
    for model in models {
        let spec = model.spec();
        if choices.iter().any(|choice| choice["id"] == spec.model && choice["provider"] == spec.provider) {
            continue;
        }
        let input: &[&str] = if spec.accepts_images { &["text", "image"] } else { &["text"] };
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
