//! `skills.status` and `skills.update`: what an agent can read how to do, and how that is switched.

use homard_config::{
    edit,
    path::{Path, get},
    redact,
};
use homard_gateway::{Asked, Method, Scope};
use homard_proto::{
    ErrorShape,
    method::skills::{StatusParams, UpdateParams},
};
use homard_skills::report;
use serde_json::{Value, json};

use super::{config::refused, on_blocking_thread};
use crate::{
    assemble::{office::workspace, skills::Library},
    config::change::{By, change},
    live::Live,
    paths::Paths,
};

/// The methods, answered by the config at work.
pub(super) fn methods(live: &Live, paths: &Paths) -> [Method; 2] {
    let (looking, writing) = ((live.clone(), paths.clone()), (live.clone(), paths.clone()));
    [
        Method::new("skills.status", Scope::Read, move |asked| on_blocking_thread(asked, looking.clone(), status)),
        Method::new("skills.update", Scope::Admin, move |asked| on_blocking_thread(asked, writing.clone(), update)),
    ]
}

/// The skills of an agent as they are on disk now.
fn status(mut asked: Asked, live: &Live, paths: &Paths) -> Result<Value, ErrorShape> {
    let StatusParams { agent_id } = asked.params()?;
    let used = live.used();
    let unknown = || ErrorShape::invalid(format!("unknown agent id \"{}\"", agent_id.as_deref().unwrap_or_default()));
    let agent = used.config.agents.member(agent_id.as_deref()).ok_or_else(unknown)?;
    let workspace = workspace(&used.config, paths, &agent);
    let library = Library::of(&used, paths, &agent, &workspace);
    Ok(report(&library.book(), &workspace, &library.roots.managed))
}

/// Writes what the config says of a skill, and has it at work.
fn update(mut asked: Asked, live: &Live, paths: &Paths) -> Result<Value, ErrorShape> {
    let params: UpdateParams = asked.params()?;
    let key = params.skill_key.trim().to_owned();
    if key.is_empty() {
        return Err(ErrorShape::invalid("invalid skills.update params: skillKey must not be blank"));
    }
    let place = Path::root().key("skills").key("entries").key(&key);
    // It says nothing of what it has read, so it means the file as it is now.
    let done = change(paths, By::Person, |text| Ok(edited(text, &place, &params)?));
    let after = done.map_err(|refusal| refused(&refusal))?.after;
    live.look();
    let entry = get(&after.source, &place).map_or_else(|| json!({}), redact::redact);
    Ok(json!({"ok": true, "skillKey": key, "config": entry}))
}

/// The text with what was asked for. An empty value removes one.
fn edited(text: &str, place: &Path, params: &UpdateParams) -> Result<String, edit::EditError> {
    let UpdateParams { skill_key: _, enabled, api_key, env } = params;
    let named = env.iter().map(|(name, value)| (name.trim(), value)).filter(|(name, _)| !name.is_empty());
    let values = named.map(|(name, value)| (place.key("env").key(name), value));
    let values = api_key.iter().map(|value| (place.key("apiKey"), value)).chain(values);
    let mut text = match enabled {
        Some(enabled) => edit::set(text, &place.key("enabled"), &json!(enabled))?,
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
    fn an_entry_is_changed_in_its_place_and_all_else_stays() {
        let text = "{\n  // mine\n  skills: {entries: {maps: {apiKey: 'old', env: {A: '1', B: '2'}}}}, // ours\n}\n";
        let place = Path::root().key("skills").key("entries").key("maps");
        let changed = |params: Value| edited(text, &place, &update_of(params)).unwrap();
        let params = json!({"skillKey": "maps", "apiKey": " new ", "env": {"A": "", "B": "3"}});
        assert_eq!(changed(params), text.replace("'old'", "\"new\"").replace("{A: '1', B: '2'}", "{B: \"3\"}"));
        assert_eq!(changed(json!({"skillKey": "maps", "apiKey": ""})), text.replace("{apiKey: 'old', env", "{env"));
    }

    #[test]
    fn an_entry_is_made_where_there_is_none() {
        let place = Path::root().key("skills").key("entries").key("a b");
        let params = update_of(json!({"skillKey": "a b", "enabled": false}));
        assert_eq!(
            edited("{skills: {}}", &place, &params),
            Ok("{skills: {\"entries\": {\"a b\": {\"enabled\": false}}}}".to_owned())
        );
    }
}
