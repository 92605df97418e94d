//! `homard models set`: chooses the model of an agent, or of all agents.

use anyhow::Result;
use homard_app::keys::ProviderKey;
use homard_config::{
    edit::{self, EditError},
    path::{self, Path},
};
use homard_model::catalog::provider_name;
use homard_proto::AgentId;
use homard_settings::{Config, NamedModel};
use serde_json::{Value, json};

use super::ModelsContext;
use crate::{cli_error::CliError, cmd::channels::edit_config, render};

/// A choice of a model.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  homard models set openai/gpt-6.1-sol
  homard models set ollama/qwen3 --fallback openai/gpt-6.1-sol
  homard models set mine/large --agent work")]
pub(super) struct Args {
    /// Model as PROVIDER/MODEL, or an alias
    model: String,
    /// Agent that uses it [default: all agents without a model of their own]
    #[arg(long, value_name = "ID")]
    agent: Option<String>,
    /// Model to use if it fails; may be repeated, and replaces the existing fallbacks
    #[arg(long, value_name = "MODEL")]
    fallback: Vec<String>,
}

/// Writes the choice into the config.
pub(super) fn run(setup: &ModelsContext, set: &Args, wants_json: bool) -> Result<()> {
    for name in [&set.model].into_iter().chain(&set.fallback) {
        setup.models.entry(name).map_err(|error| CliError::new("config", format!("model \"{name}\": {error}")))?;
    }
    let section = match set.agent.as_deref() {
        None => Path::root().key("agents").key("defaults"),
        Some(id) => agent_section(setup, id)?,
    };
    let model = set.model.trim();
    let change = edit_config(&setup.paths, |text| {
        let text = primary_edit(text, &section, model)?;
        if set.fallback.is_empty() {
            return Ok(text);
        }
        let choice = json!({"primary": model, "fallbacks": set.fallback});
        let text = edit::set(&text, &section.key("model"), &choice)?;
        set.fallback.iter().try_fold(text, |text, name| allow(&text, name))
    })?;
    let missing = missing_key(setup, model)?;
    if wants_json {
        return Ok(render::print_json(&json!({
            "ok": true, "model": model, "path": setup.paths.config, "changed": change.changed, "missing": missing,
        }))?);
    }
    let path = section.key("model");
    match change.changed.is_empty() {
        true => render::print(&format!("{path} is already {model}; nothing changed"))?,
        false => render::print(&format!("set {path} to {model} in {}", setup.paths.config.display()))?,
    }
    match missing {
        Some(why) => render::remark(&why),
        None => render::print("check that it answers with: homard models test")?,
    }
    Ok(())
}

/// Sets the primary model of a section and keeps its fallbacks.
pub(in crate::cmd) fn primary_edit(text: &str, section: &Path, model: &str) -> Result<String, EditError> {
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
pub(in crate::cmd) fn agent_section(setup: &ModelsContext, id: &str) -> Result<Path, CliError> {
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
    Err(CliError::usage(format!(
        "agent \"{id}\" is not in agents.list; leave --agent out to set the model of all agents"
    )))
}

/// Returns why the model has no usable credential, if so.
fn missing_key(setup: &ModelsContext, model: &str) -> Result<Option<String>> {
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
