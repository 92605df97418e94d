//! `sessions.create`, `patch`, `reset` and `delete`: modifications of sessions.
//!
//! Every change is a job of the session's lane, so it never interleaves with a run.

use homard_agent::{ChangeError, Patch};
use homard_proto::{
    AgentId, ErrorShape, Extra, SessionKey,
    method::{
        Params,
        sessions::{CreateParams, DeleteParams, PatchParams, ResetParams},
    },
    session,
};
use serde_json::{Value, json};

use super::{levels, path};
use crate::{
    router::{RpcCall, RpcResult},
    server::ServerState,
    session_changes::SessionChange,
};
use homard_agent::row::session_row;

/// Changes the settings of a session.
pub(crate) async fn patch(mut call: RpcCall) -> Result<RpcResult, ErrorShape> {
    let PatchParams { key, agent_id, expected_session_id, changes } = call.params()?;
    let server = &call.server;
    let key = resolve_session::<PatchParams>(server, &key, agent_id.as_deref())?;
    let patch = Patch { expected: expected_session_id, changes: settings(changes)? };
    let entry = server.hub.sessions().patch(&key, patch).await.map_err(|error| error_response(&error))?;
    server.projector.session_changed(SessionChange { key: key.clone(), reason: "patch" });
    let agents = server.hub.agents();
    let agent = key.agent().unwrap_or(agents.default_id());
    let answer = json!({
        "ok": true, "path": path(server, agent), "key": key, "entry": entry, "resolved": model(server, &key, &entry),
    });
    Ok(answer.into())
}

/// Creates a session, or finds the one that the same request created.
pub(crate) async fn create(mut call: RpcCall) -> Result<RpcResult, ErrorShape> {
    let CreateParams {
        key,
        idempotency_key,
        agent_id,
        parent_session_key,
        label,
        display_name,
        category,
        model: model_override,
        thinking_level,
        emit_command_hooks,
    } = call.params()?;
    let (server, ambient) = (&call.server, call.server.hub.ambient());
    let name = match (key, idempotency_key) {
        (Some(key), _) => key,
        (None, Some(name)) => format!("dashboard:{name}"),
        (None, None) => format!("dashboard:{}", ambient.session_id()),
    };
    let key = resolve_session::<CreateParams>(server, &name, agent_id.as_deref())?;
    let parent = parent_session_key.map(|key| resolve_session::<CreateParams>(server, &key, None)).transpose()?;
    // Before the new session is created: hooks store the conversation of its parent.
    if let Some(parent) = parent.as_ref().filter(|_| emit_command_hooks == Some(true)) {
        server.hub.sessions().succeeded(parent).await.map_err(|error| error_response(&error))?;
    }
    let mut changes = Extra::new();
    for (name, value) in [
        ("label", json!(label)),
        ("displayName", json!(display_name)),
        ("category", json!(category)),
        ("model", json!(model_override)),
        ("thinkingLevel", json!(thinking_level)),
        ("parentSessionKey", json!(parent)),
    ] {
        // Omitted settings are left unchanged.
        if !value.is_null() {
            changes.insert(name.to_owned(), value);
        }
    }
    let patch = Patch { expected: None, changes: settings(changes)? };
    let entry = server.hub.sessions().patch(&key, patch).await.map_err(|error| error_response(&error))?;
    server.projector.session_changed(SessionChange { key: key.clone(), reason: "create" });
    let row = session_row(&key, &entry, call.client.generation);
    let answer = json!({
        "ok": true, "key": key, "sessionId": entry.session_id, "entry": row, "resolved": model(server, &key, &entry),
    });
    Ok(answer.into())
}

/// Starts a new transcript for a session.
pub(crate) async fn reset(mut call: RpcCall) -> Result<RpcResult, ErrorShape> {
    let ResetParams { key, agent_id, reason } = call.params()?;
    let key = resolve_session::<ResetParams>(&call.server, &key, agent_id.as_deref())?;
    let reason = if reason.as_deref() == Some("new") { "new" } else { "reset" };
    let entry = call.server.hub.sessions().reset(&key, reason).await.map_err(|error| error_response(&error))?;
    call.server.projector.session_changed(SessionChange { key: key.clone(), reason: "reset" });
    Ok(json!({"ok": true, "key": key, "entry": entry}).into())
}

/// Deletes a session; its transcript is archived.
pub(crate) async fn delete(mut call: RpcCall) -> Result<RpcResult, ErrorShape> {
    let DeleteParams { key, agent_id, delete_transcript, expected_session_id, emit_lifecycle_hooks } = call.params()?;
    if emit_lifecycle_hooks == Some(false) {
        return Err(ErrorShape::invalid(
            "invalid sessions.delete params: emitLifecycleHooks: false is not supported: hooks are notified whenever \
             a session ends",
        ));
    }
    if delete_transcript == Some(false) {
        return Err(ErrorShape::invalid(
            "invalid sessions.delete params: deleteTranscript: false is not supported yet; the transcript is never \
             destroyed, but archived with its session",
        ));
    }
    let key = resolve_session::<DeleteParams>(&call.server, &key, agent_id.as_deref())?;
    let deleted =
        call.server.hub.sessions().delete(&key, expected_session_id).await.map_err(|error| error_response(&error))?;
    call.server.projector.session_changed(SessionChange { key: key.clone(), reason: "delete" });
    let archived: Vec<_> = deleted.iter().filter_map(|deleted| deleted.archive.as_ref()).collect();
    Ok(json!({"ok": true, "key": key, "deleted": deleted.is_some(), "archived": archived}).into())
}

/// Resolves the session of a request. A key without an agent belongs to the agent that the request names.
pub(in crate::methods) fn resolve_session<P: Params>(
    server: &ServerState,
    text: &str,
    agent: Option<&str>,
) -> Result<SessionKey, ErrorShape> {
    let invalid = |why: String| ErrorShape::invalid(format!("invalid {} params: {why}", P::METHOD));
    let named = agent.map(AgentId::normalize);
    let agents = server.hub.agents();
    let default = named.as_ref().unwrap_or(agents.default_id());
    let key = SessionKey::parse(text, default).map_err(|error| invalid(format!("key: {error}")))?;
    match (&named, key.agent()) {
        (Some(named), Some(owner)) if named != owner => {
            Err(invalid(format!("agent \"{named}\" does not match session key agent \"{owner}\"")))
        }
        _ => Ok(key),
    }
}

/// Converts requested changes to the form that is stored in the record.
fn settings(mut changes: Extra) -> Result<Extra, ErrorShape> {
    levels::check(&mut changes)?;
    if let Some(label) = changes.get_mut("label")
        && let Some(text) = label.as_str()
    {
        *label = Some(text.trim()).filter(|text| !text.is_empty()).into();
    }
    if let Some(model) = changes.shift_remove("model") {
        let (provider, model) = match model.as_str().map(|model| (model, model.split_once('/'))) {
            Some((_, Some((provider, model)))) => (provider.trim().into(), model.trim().into()),
            Some((model, None)) => (Value::Null, model.trim().into()),
            None => (Value::Null, Value::Null),
        };
        changes.insert("providerOverride".to_owned(), provider);
        changes.insert("modelOverride".to_owned(), model);
    }
    Ok(changes)
}

/// Model of a session.
fn model(server: &ServerState, key: &SessionKey, record: &session::Record) -> Value {
    let agents = server.hub.agents();
    let profile = key.agent().and_then(|agent| agents.get(agent)).or_else(|| agents.get(agents.default_id()));
    let spec = profile.map(|profile| profile.spec());
    let chosen = |name: &str| record.extra.get(name).and_then(Value::as_str);
    let (provider, model) = (spec.map(|spec| spec.provider.as_str()), spec.map(|spec| spec.model.as_str()));
    match chosen("modelOverride") {
        Some(model) => json!({"modelProvider": chosen("providerOverride").or(provider), "model": model}),
        None => json!({"modelProvider": provider, "model": model}),
    }
}

/// Converts a failed change to an error response.
pub(crate) fn error_response(error: &ChangeError) -> ErrorShape {
    let why = error.to_string();
    match error {
        ChangeError::Invalid(_)
        | ChangeError::UnknownAgent(_)
        | ChangeError::Main(_)
        | ChangeError::Refused(_)
        | ChangeError::Changed
        | ChangeError::NoSession => ErrorShape::invalid(why),
        ChangeError::Store(_) => ErrorShape::unavailable(why),
        ChangeError::Busy | ChangeError::Stopping => {
            ErrorShape { retryable: Some(true), ..ErrorShape::unavailable(why) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_stored_as_an_override() {
        let stored = |changes: Value| json!(settings(serde_json::from_value(changes).unwrap()).unwrap());
        assert_eq!(
            stored(json!({"model": "openai/gpt/x", "label": " mine "})),
            json!({"label": "mine", "providerOverride": "openai", "modelOverride": "gpt/x"})
        );
        assert_eq!(stored(json!({"model": "big"})), json!({"providerOverride": null, "modelOverride": "big"}));
        assert_eq!(
            stored(json!({"model": null, "label": "  "})),
            json!({"label": null, "providerOverride": null, "modelOverride": null})
        );
    }
}
