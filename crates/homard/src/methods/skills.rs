//! `skills.status` and `skills.update`: what an agent can read how to do, and how that is switched.

use homard_config::{edit, path::Path, redact, write};
use homard_gateway::{Asked, Method, Scope};
use homard_proto::{
    ErrorShape,
    method::skills::{StatusParams, UpdateParams},
};
use homard_skills::report;
use serde_json::{Value, json};

use crate::{
    assemble::{office::workspace, skills::Library},
    config::Config,
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

/// Has a method answered where it may wait for the disk.
async fn on_blocking_thread(
    asked: Asked,
    (live, paths): (Live, Paths),
    answer: fn(Asked, &Live, &Paths) -> Result<Value, ErrorShape>,
) -> Result<Value, ErrorShape> {
    let answering = tokio::task::spawn_blocking(move || answer(asked, &live, &paths)).await;
    answering.unwrap_or_else(|error| Err(ErrorShape::unavailable(format!("skills could not be looked at: {error}"))))
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
    // The file as it is now, whatever is at work: an edit must not undo what somebody else wrote.
    let before = Config::choose(paths).loaded;
    let text = before.text.unwrap_or_default();
    let place = Path::root().key("skills").key("entries").key(&key);
    let after = edited(&text, &place, &params).map_err(|error| ErrorShape::invalid(error.to_string()))?;
    let is_valid = |text: &str| match Config::read(&paths.config, text).problems.first() {
        None => Ok(()),
        Some(problem) => Err(problem.to_string()),
    };
    write::write(&paths.config, Some(&before.hash), &after, is_valid).map_err(|error| refused(&error))?;
    live.look();
    let said = Config::read(&paths.config, &after).source;
    let entry = homard_config::path::get(&said, &place).map(redact::redact).unwrap_or_else(|| json!({}));
    Ok(json!({"ok": true, "skillKey": key, "config": entry}))
}

/// The text with what was asked for. An empty value removes one, and what stands for a secret that was not shown leaves it.
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
            redact::REDACTED => text,
            "" => edit::unset(&text, &path)?.0,
            value => edit::set(&text, &path, &json!(value))?,
        };
    }
    Ok(text)
}

fn refused(error: &write::WriteError) -> ErrorShape {
    match error {
        write::WriteError::Conflict | write::WriteError::Refused(_) => ErrorShape::invalid(error.to_string()),
        write::WriteError::Disk { source, .. } => ErrorShape::unavailable(format!("{error}: {source}")),
    }
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
        let shown = json!({"skillKey": "maps", "apiKey": redact::REDACTED, "env": {"A": redact::REDACTED}});
        assert_eq!(changed(shown), text);
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
