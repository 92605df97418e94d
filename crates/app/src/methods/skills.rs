//! `skills.status` and `skills.update`: the skills of an agent, and their settings.

use homard_config::{
    edit,
    path::{Path, get},
    redact,
};
use homard_gateway::{Method, MethodRequest, Scope};
use homard_proto::{
    ErrorShape,
    method::skills::{StatusParams, UpdateParams},
};
use homard_settings::{
    agent_directories::workspace,
    change::{ChangeAuthor, change},
    paths::Paths,
};
use homard_workspace::skills::report;
use serde_json::{Value, json};

use super::{config::change_error, on_blocking_thread};
use crate::{reload::ConfigReloader, skills::SkillLibrary};

/// Returns the methods for skills.
pub(crate) fn methods(live: &ConfigReloader, paths: &Paths) -> [Method; 2] {
    let method =
        |name, scope: Scope, answer: fn(MethodRequest, &ConfigReloader, &Paths) -> Result<Value, ErrorShape>| {
            let (live, paths) = (live.clone(), paths.clone());
            Method::new(name, scope, move |request| on_blocking_thread(request, live.clone(), paths.clone(), answer))
        };
    [method("skills.status", Scope::Read, status), method("skills.update", Scope::Admin, update)]
}

/// Returns the skills of an agent as they are on disk.
fn status(mut request: MethodRequest, live: &ConfigReloader, paths: &Paths) -> Result<Value, ErrorShape> {
    let StatusParams { agent_id } = request.params()?;
    let current = live.current();
    let unknown = || ErrorShape::invalid(format!("unknown agent id \"{}\"", agent_id.as_deref().unwrap_or_default()));
    let agent = current.config.agents.member(agent_id.as_deref()).ok_or_else(unknown)?;
    let workspace = workspace(&current.config, paths, &agent);
    let library = SkillLibrary::of(&current, paths, &agent, &workspace);
    Ok(report(&library.discover(), &workspace, &library.roots.managed))
}

/// Changes the settings of a skill and applies them.
fn update(mut request: MethodRequest, live: &ConfigReloader, paths: &Paths) -> Result<Value, ErrorShape> {
    let params: UpdateParams = request.params()?;
    let key = params.skill_key.trim().to_owned();
    if key.is_empty() {
        return Err(ErrorShape::invalid("invalid skills.update params: skillKey must not be blank"));
    }
    let entry_path = Path::root().key("skills").key("entries").key(&key);
    // Without a base hash the change applies to the current file.
    let outcome = change(paths, ChangeAuthor::User, |text| Ok(edited(text, &entry_path, &params)?));
    let after = outcome.map_err(|error| change_error(&error))?.after;
    live.reload();
    let entry = get(&after.source, &entry_path).map_or_else(|| json!({}), redact::redact);
    Ok(json!({"ok": true, "skillKey": key, "config": entry}))
}

/// Returns the text with the requested changes. An empty value removes a key.
fn edited(text: &str, entry_path: &Path, params: &UpdateParams) -> Result<String, edit::EditError> {
    let UpdateParams { skill_key: _, enabled, api_key, env } = params;
    let named = env.iter().map(|(name, value)| (name.trim(), value)).filter(|(name, _)| !name.is_empty());
    let values = named.map(|(name, value)| (entry_path.key("env").key(name), value));
    let values = api_key.iter().map(|value| (entry_path.key("apiKey"), value)).chain(values);
    let mut text = match enabled {
        Some(enabled) => edit::set(text, &entry_path.key("enabled"), &json!(enabled))?,
        None => text.to_owned(),
    };
    for (path, value) in values {
        text = match value.trim() {
            "" => edit::unset(&text, &path)?.0,
            value => edit::set(&text, &path, &json!(value))?,
        };
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn update_of(params: Value) -> UpdateParams {
        serde_json::from_value(params).unwrap()
    }

    #[test]
    fn an_entry_is_edited_and_everything_else_is_unchanged() {
        let text = "{\n  // mine\n  skills: {entries: {maps: {apiKey: 'old', env: {A: '1', B: '2'}}}}, // ours\n}\n";
        let entry_path = Path::root().key("skills").key("entries").key("maps");
        let changed = |params: Value| edited(text, &entry_path, &update_of(params)).unwrap();
        let params = json!({"skillKey": "maps", "apiKey": " new ", "env": {"A": "", "B": "3"}});
        assert_eq!(changed(params), text.replace("'old'", "\"new\"").replace("{A: '1', B: '2'}", "{B: \"3\"}"));
        assert_eq!(changed(json!({"skillKey": "maps", "apiKey": ""})), text.replace("{apiKey: 'old', env", "{env"));
    }

    #[test]
    fn a_missing_entry_is_created() {
        let entry_path = Path::root().key("skills").key("entries").key("a b");
        let params = update_of(json!({"skillKey": "a b", "enabled": false}));
        assert_eq!(
            edited("{skills: {}}", &entry_path, &params),
            Ok("{skills: {\"entries\": {\"a b\": {\"enabled\": false}}}}".to_owned())
        );
    }
}
