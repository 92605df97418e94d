//! Checks of providers that cannot be used, and of unknown model names.

use homard_config::{PartFault, path::Path};
use homard_model::catalog::{self, provider_name};

use super::{FoundProblems, key};
use crate::{Config, ModelNames, NamedModel, Text, agents::Choice, model_names};

/// Returns providers without a base URL or with an unsupported API.
pub(super) fn provider_faults(config: &Config) -> Vec<PartFault> {
    let mut found = Vec::new();
    for (id, provider) in &config.models.providers {
        let part = key("models").key("providers").key(id);
        let mut add_fault = |path: Path, message| found.push(PartFault { part: part.clone(), path, what: message });
        if let Some(message) = provider.api.as_deref().and_then(model_names::api_error) {
            add_fault(part.key("api"), message);
        }
        for (at, api) in provider.model_apis() {
            if let Some(message) = model_names::api_error(api) {
                add_fault(part.key("models").index(at).key("api"), message);
            }
        }
        if let Some(oauth) = &provider.oauth
            && let Some(message) = oauth.fault()
        {
            add_fault(part.key("oauth"), message.to_owned());
        }
        if provider.base_url.is_none() && provider.fault.is_none() && !model_names::has_known_address(id) {
            add_fault(
                part.key("baseUrl"),
                "is missing; set it, for example to \"http://127.0.0.1:11434/v1\"".to_owned(),
            );
        }
    }
    found
}

/// Returns references to models that cannot be used.
pub(super) fn model_faults(config: &Config) -> Vec<PartFault> {
    let names = ModelNames::of(config);
    let fault = |(path, name): (Path, &str)| {
        let error = names.entry(name).err()?;
        Some(PartFault { part: path.clone(), path, what: format!("is {name:?}: {error:#}") })
    };
    model_references(config).into_iter().filter_map(fault).collect()
}

/// Returns warnings about usable models that the catalogue does not list, and about selectable models that cannot
/// be used.
pub(super) fn model_warnings(config: &Config) -> FoundProblems {
    let names = ModelNames::of(config);
    let mut found: FoundProblems = model_references(config)
        .into_iter()
        .filter_map(|(path, name)| Some((path, unlisted_warning(&names, name)?)))
        .collect();
    for name in config.agents.defaults.models.keys() {
        if let Err(error) = names.entry(name) {
            let path = key("agents").key("defaults").key("models").key(name);
            found.push((path, format!("cannot be chosen: {error:#}")));
        }
    }
    found
}

/// Returns all references to models: path and name. Defaults that are filled in later are not included.
fn model_references(config: &Config) -> Vec<(Path, &str)> {
    let defaults = key("agents").key("defaults");
    let defaults_section = &config.agents.defaults;
    let shared =
        [(defaults.key("model"), &defaults_section.model), (defaults.key("imageModel"), &defaults_section.image_model)];
    let agent_models = config.all_agents().map(|(path, _, agent)| (path.key("model"), &agent.model));
    let choices = shared
        .into_iter()
        .chain(agent_models)
        .filter_map(|(path, defaults_section)| Some((path, defaults_section.as_ref()?)));
    let mut all: Vec<(Path, &str)> =
        choices.flat_map(|(path, defaults_section)| chosen(&path, defaults_section)).collect();
    let hooks = key("hooks");
    let mappings = config.hooks.mappings.iter().enumerate();
    let plain = [
        (defaults.key("subagents").key("model"), &defaults_section.subagents.model),
        (defaults.key("compaction").key("model"), &defaults_section.compaction.model),
        (hooks.key("gmail").key("model"), &config.hooks.gmail.model),
    ];
    let mapped = mappings.map(|(at, mapping)| (hooks.key("mappings").index(at).key("model"), &mapping.model));
    let named = plain
        .into_iter()
        .chain(mapped)
        .filter_map(|(path, defaults_section)| Some((path, defaults_section.as_ref()?.as_str())));
    all.extend(named.filter(|(_, name)| !name.contains("{{")));
    all.retain(|(_, name)| !name.trim().is_empty());
    all
}

/// Returns the names of a model choice, each with its path.
fn chosen<'a>(path: &Path, choice: &'a Choice) -> Vec<(Path, &'a str)> {
    let primary = if choice.fallbacks.is_some() { path.key("primary") } else { path.clone() };
    let primary = choice.primary.iter().map(|name| (primary.clone(), Text::as_str(name)));
    let fallbacks = choice.fallbacks.iter().flatten().enumerate();
    let fallbacks = fallbacks.map(|(at, name)| (path.key("fallbacks").index(at), Text::as_str(name)));
    primary.chain(fallbacks).collect()
}

/// Returns a warning if a model of a catalogue provider is neither in the catalogue nor described in the config.
fn unlisted_warning(names: &ModelNames, name: &str) -> Option<String> {
    let Ok(NamedModel::Entry(entry)) = names.entry(name) else { return None };
    let (provider, model) = (&entry.spec.provider, &entry.spec.model);
    let id = provider_name(provider);
    let is_described = |configured: &catalog::CatalogProvider| {
        provider_name(&configured.id) == id
            && (configured.base_url.is_some() || configured.models.iter().any(|listed| listed.id == *model))
    };
    let is_known = catalog::find(provider, model).is_some() || names.configured.iter().any(is_described);
    if is_known || catalog::provider(&id).next().is_none() {
        return None;
    }
    let known: Vec<_> = catalog::provider(&id).map(|entry| entry.spec.model).collect();
    let similar = homard_config::nearest(model, known.iter().map(String::as_str));
    let help = similar.map(|similar| format!("; did you mean \"{provider}/{similar}\"?")).unwrap_or_default();
    let source = catalog::source();
    Some(format!(
        "is {name:?}, which is not in the catalogue ({source}); it is used with default limits and no prices{help}"
    ))
}

#[cfg(test)]
mod tests {
    use std::path::Path as File;

    use super::*;

    fn messages(text: &str) -> (Vec<String>, Vec<String>) {
        let loaded = Config::read(File::new("homard.json"), text);
        let line = |problem: &homard_config::ConfigProblem| problem.to_string().split_once(": ").unwrap().1.to_owned();
        (loaded.all_problems().iter().map(line).collect(), loaded.warnings.iter().map(line).collect())
    }

    #[test]
    fn providers_need_an_address_and_a_known_api() {
        let (problems, warnings) = messages(
            "{models: {providers: {
                a: {baseUrl: 'http://a/v1', api: 'openai-complitions'},
                b: {baseUrl: 'http://b/v1', api: 'google-vertex', models: [{id: 'm', api: 'anthropic'}]},
                c: {apiKey: 'k'}, d: {baseUrl: 'http://d/v1'}, openai: {apiKey: 'k'}, ollama: {}}}}",
        );
        let supported = "anthropic-messages, openai-completions, openai-responses, google-generative-ai";
        assert_eq!(
            problems,
            [
                "models.providers.a.api is \"openai-complitions\", which is not a known API; did you mean \
                 \"openai-completions\"?"
                    .to_owned(),
                format!("models.providers.b.api is \"google-vertex\", which is not supported; supported: {supported}"),
                format!(
                    "models.providers.b.models[0].api is \"anthropic\", which is not a known API; supported: {supported}"
                ),
                "models.providers.c.baseUrl is missing; set it, for example to \"http://127.0.0.1:11434/v1\""
                    .to_owned(),
            ]
        );
        assert_eq!(warnings, [""; 0]);
    }

    #[test]
    fn every_model_reference_is_checked() {
        let no_such =
            |name: &str| format!("unknown provider \"{name}\": it is neither in models.providers nor in the catalogue");
        let (problems, warnings) = messages(
            "{agents: {
                defaults: {model: {primary: 'x/a', fallbacks: ['homard/demo', 'y/b']}, imageModel: 'gogle/c',
                           subagents: {model: 'plain'}, compaction: {model: 'z/d'},
                           models: {'ollama/any': {alias: 'small'}, 'codex/gpt': {}}},
                list: [{id: 'a', model: 'small'}, {id: 'b', model: 'x/e'}], entries: {c: {model: 'claude-opus-4-5'}}},
              hooks: {gmail: {model: 'x/f'}, mappings: [{model: '{{model}}', messageTemplate: 'm'}, {model: 'x/g', messageTemplate: 'm'}]}}",
        );
        assert_eq!(
            problems,
            [
                format!("agents.defaults.model.primary is \"x/a\": {}; see: homard docs models", no_such("x")),
                format!("agents.defaults.model.fallbacks[1] is \"y/b\": {}; see: homard docs models", no_such("y")),
                format!("agents.defaults.imageModel is \"gogle/c\": {}; did you mean \"google\"?", no_such("gogle")),
                "agents.defaults.subagents.model is \"plain\": a model name has the form provider/model, such as homard/demo"
                    .to_owned(),
                format!("agents.defaults.compaction.model is \"z/d\": {}; see: homard docs models", no_such("z")),
                format!("agents.list[1].model is \"x/e\": {}; see: homard docs models", no_such("x")),
                format!("hooks.gmail.model is \"x/f\": {}; see: homard docs models", no_such("x")),
                format!("hooks.mappings[1].model is \"x/g\": {}; see: homard docs models", no_such("x")),
            ]
        );
        let [codex] = &warnings[..] else { panic!("{warnings:?}") };
        assert!(
            codex.starts_with("agents.defaults.models[\"codex/gpt\"] cannot be chosen: unknown provider"),
            "{codex}"
        );
    }

    #[test]
    fn a_model_missing_from_the_catalogue_is_a_warning() {
        let check = |model: &str, providers: &str| {
            let text =
                format!("{{agents: {{defaults: {{model: '{model}'}}}}, models: {{providers: {{{providers}}}}}}}");
            messages(&text)
        };
        let (problems, warnings) = check("anthropic/claude-opus-5-55", "");
        assert_eq!(problems, [""; 0]);
        let [warning] = &warnings[..] else { panic!("{warnings:?}") };
        assert!(
            warning.contains("which is not in the catalogue (@")
                && warning.ends_with("did you mean \"anthropic/claude-opus-5-5\"?")
        );
        let none = (vec![], vec![]);
        assert_eq!(check("anthropic/claude-opus-5-55", "anthropic: {models: [{id: 'claude-opus-5-55'}]}"), none);
        assert_eq!(check("anthropic/mine", "anthropic: {baseUrl: 'http://proxy/v1'}"), none);
        assert_eq!((check("ollama/any", ""), check("anthropic/claude-opus-5-5", "")), (none.clone(), none));
    }
}
