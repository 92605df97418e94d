//! The model of an agent, or of all agents, in the config.

use homard_app::keys::ProviderKey;
use homard_config::{
    edit::{self, EditError},
    path::{self, Path},
};
use homard_model::catalog::{CatalogProvider, provider_name};
use homard_proto::AgentId;
use homard_settings::{Config, NamedModel};
use serde_json::{Value, json};

use crate::{Error, ModelsContext};

/// Sets the primary model and, if there are any, the fallbacks.
pub fn choice_edit(text: &str, section: &Path, model: &str, fallbacks: &[String]) -> Result<String, EditError> {
    let text = primary_edit(text, section, model)?;
    if fallbacks.is_empty() {
        return Ok(text);
    }
    let choice = json!({"primary": model, "fallbacks": fallbacks});
    let text = edit::set(&text, &section.key("model"), &choice)?;
    fallbacks.iter().try_fold(text, |text, name| allow(&text, name))
}

/// Sets the primary model of a section and keeps its fallbacks.
pub fn primary_edit(text: &str, section: &Path, model: &str) -> Result<String, EditError> {
    let choice = section.key("model");
    let has_object = path::get(&edit::value(text)?, &choice).is_some_and(Value::is_object);
    let choice = if has_object { choice.key("primary") } else { choice };
    allow(&edit::set(text, &choice, &json!(model))?, model)
}

/// Adds a model to the selectable ones, if the config restricts them.
fn allow(text: &str, model: &str) -> Result<String, EditError> {
    let listed = Path::root().key("agents").key("defaults").key("models");
    let value = edit::value(text)?;
    let names = path::get(&value, &listed).and_then(Value::as_object);
    let is_restricted = names.is_some_and(|names| !names.is_empty() && !names.contains_key(model));
    // An alias is no name of its own.
    if is_restricted && model.contains('/') {
        edit::set(text, &listed.key(model), &json!({}))
    } else {
        Ok(text.to_owned())
    }
}

/// Returns the section of an agent in the config.
pub fn agent_section(setup: &ModelsContext, id: &str) -> Result<Path, Error> {
    setup.agent(Some(id))?;
    let agents = Path::root().key("agents");
    let wanted = AgentId::normalize(id);
    let source = Config::read_file(&setup.paths.config).source;
    let listed = path::get(&source, &agents.key("list")).and_then(Value::as_array);
    let is_wanted = |agent: &Value| agent["id"].as_str().is_some_and(|id| AgentId::normalize(id) == wanted);
    if let Some(at) = listed.and_then(|list| list.iter().position(is_wanted)) {
        return Ok(agents.key("list").index(at));
    }
    let entries = path::get(&source, &agents.key("entries")).and_then(Value::as_object);
    if let Some(name) = entries.and_then(|entries| entries.keys().find(|name| AgentId::normalize(name) == wanted)) {
        return Ok(agents.key("entries").key(name));
    }
    Err(Error::Usage(format!("agent \"{id}\" is not in agents.list; leave --agent out to set the model of all agents")))
}

/// Checks that a model can be named like this. The error proposes a configured model with this id.
pub fn check_model(setup: &ModelsContext, name: &str) -> Result<(), Error> {
    let Err(error) = setup.models.entry(name) else { return Ok(()) };
    let providers = setup.models.names.configured.iter();
    let full = |provider: &CatalogProvider| {
        let model = provider.models.iter().find(|model| model.id == name.trim())?;
        Some(format!("{}/{}", provider.id, model.id))
    };
    let help = providers.filter_map(full).next().map(|full| format!("; did you mean \"{full}\"?")).unwrap_or_default();
    Err(Error::Config(format!("model \"{name}\": {error}{help}")))
}

/// Returns a warning if the config lists models of this provider, and not this one but a similar one.
pub fn similar_model(setup: &ModelsContext, name: &str) -> Option<String> {
    let Ok(NamedModel::Entry(entry)) = setup.models.entry(name) else { return None };
    let (provider, model) = (&entry.spec.provider, &entry.spec.model);
    let mut configured = setup.models.names.configured.iter();
    let configured = configured.find(|other| provider_name(&other.id) == provider_name(provider))?;
    let ids = || configured.models.iter().map(|model| model.id.as_str());
    let similar = homard_config::nearest(model, ids().filter(|_| !ids().any(|id| id == model)))?;
    Some(format!(
        "{provider}/{model} is not among the configured models of {provider}; did you mean {provider}/{similar}?"
    ))
}

/// Returns why the model has no usable credential, if so.
pub fn missing_key(setup: &ModelsContext, model: &str) -> Result<Option<String>, Error> {
    let Ok(NamedModel::Entry(entry)) = setup.models.entry(model) else { return Ok(None) };
    let keyring = setup.keyring(&setup.agent(None)?)?;
    let keys: Vec<ProviderKey> = setup
        .models
        .keys(&keyring, &provider_name(&entry.spec.provider))
        .into_iter()
        .flat_map(|(_, keys)| keys)
        .collect();
    let is_usable = keys.iter().any(|key| key.unusable_reason().is_empty());
    Ok(keys.first().filter(|_| !is_usable).map(|key| key.unusable_reason().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fallbacks_and_comments_are_kept() {
        let section = Path::root().key("agents").key("defaults");
        for (text, expected) in [
            (
                "{agents: {defaults: {model: {primary: 'a/b', /* mine */ fallbacks: ['c/d']}}}}",
                "{agents: {defaults: {model: {primary: \"x/y\", /* mine */ fallbacks: ['c/d']}}}}",
            ),
            ("{agents: {defaults: {model: 'a/b'}}} // end", "{agents: {defaults: {model: \"x/y\"}}} // end"),
            (
                "{agents: {defaults: {model: 'a/b', models: {'a/b': {}}}}}",
                "{agents: {defaults: {model: \"x/y\", models: {'a/b': {}, \"x/y\": {}}}}}",
            ),
        ] {
            assert_eq!(primary_edit(text, &section, "x/y").unwrap(), expected);
        }
    }
}
