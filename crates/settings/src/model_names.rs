//! Resolves `"provider/model"`, an alias or a bare name to a model.

use std::collections::BTreeMap;

use homard_config::nearest;
use homard_model::{
    Model as _,
    catalog::{self, CatalogEntry, CatalogMode, CatalogProvider, provider_name},
    demo::Demo,
    spec::ModelSpec,
};
use homard_providers::{Wire, idle_timeout, quirks};

use crate::{Config, Error};

/// The model of a setup that names none and has no key.
pub const DEMO: &str = "homard/demo";
/// The provider of a model that is named without one, as in OpenClaw.
const DEFAULT_PROVIDER: &str = "anthropic";

/// A model that was found.
#[derive(Debug, Clone)]
pub enum NamedModel {
    Demo,
    Entry(Box<CatalogEntry>),
}

impl NamedModel {
    /// Returns the model's properties.
    pub fn spec(&self) -> ModelSpec {
        match self {
            Self::Demo => Demo::default().spec().clone(),
            Self::Entry(entry) => entry.spec.clone(),
        }
    }

    /// Returns the full name.
    pub fn name(&self) -> String {
        match self {
            Self::Demo => DEMO.to_owned(),
            Self::Entry(entry) => format!("{}/{}", entry.spec.provider, entry.spec.model),
        }
    }
}

/// All models that a config can name.
#[derive(Debug)]
pub struct ModelNames {
    pub configured: Vec<CatalogProvider>,
    pub mode: CatalogMode,
    /// Aliases, in lower case.
    aliases: BTreeMap<String, String>,
    /// Why providers cannot be used, by provider name.
    faults: BTreeMap<String, String>,
    /// Upper bound of the context window in tokens, for all models.
    max_context: Option<u64>,
}

impl ModelNames {
    /// Builds the names of a config.
    pub fn of(config: &Config) -> Self {
        let mode = config.models.mode();
        let mut configured = config.models.configured();
        configured.iter_mut().for_each(fill_defaults);
        // Local providers work without an entry in the config.
        let local = quirks::PROVIDERS.iter().filter(|known| known.is_local && mode == CatalogMode::Merge);
        for known in local {
            if !configured.iter().any(|configured_provider| quirks::provider(&configured_provider.id) == Some(known)) {
                let mut configured_provider = CatalogProvider { id: known.id.to_owned(), ..CatalogProvider::default() };
                fill_defaults(&mut configured_provider);
                configured.push(configured_provider);
            }
        }
        let alias = |(name, listed): (&String, &super::agents::SelectableModel)| {
            Some((listed.alias.as_ref()?.trim().to_lowercase(), name.clone()))
        };
        let fault =
            |(id, provider): (&String, &super::models::Provider)| Some((provider_name(id), provider.fault.clone()?));
        Self {
            configured,
            mode,
            aliases: config.agents.defaults.models.iter().filter_map(alias).collect(),
            faults: config.models.providers.iter().filter_map(fault).collect(),
            max_context: config.agents.defaults.context_tokens,
        }
    }

    /// Returns the aliases, each with its model.
    pub fn aliases(&self) -> Vec<(String, String)> {
        self.aliases.iter().map(|(alias, name)| (alias.clone(), name.clone())).collect()
    }

    /// Returns a model by its name or alias.
    pub fn entry(&self, name: &str) -> Result<NamedModel, Error> {
        let name = name.trim();
        let target = self.aliases.get(&name.to_lowercase()).map_or(name, String::as_str);
        if target == DEMO {
            return Ok(NamedModel::Demo);
        }
        let (provider, model) = match target.split_once('/') {
            Some((provider, model)) if !provider.trim().is_empty() && !model.trim().is_empty() => (provider, model),
            None if catalog::find(DEFAULT_PROVIDER, target).is_some() => (DEFAULT_PROVIDER, target),
            Some(_) | None => {
                let help = match self.with_provider(target) {
                    Some(name) => format!("; did you mean {name:?}?"),
                    None => format!(", such as {DEMO}"),
                };
                return unusable(format!("a model name has the form provider/model{help}"));
            }
        };
        // A session stores the provider and then what was typed, which may be an alias.
        if let Some(target) = self.aliases.get(&model.to_lowercase())
            && !target.eq_ignore_ascii_case(name)
            && catalog::find(provider, model).is_none()
        {
            return self.entry(target);
        }
        if let Some(fault) = self.faults.get(&provider_name(provider)) {
            return unusable(fault.clone());
        }
        let Some(mut entry) = catalog::resolve(&self.configured, self.mode, provider, model.trim()) else {
            let listed: Vec<&str> = catalog::providers().filter(|_| self.mode == CatalogMode::Merge).collect();
            let known = self.configured.iter().map(|configured| configured.id.as_str()).chain(listed);
            let help = match nearest(provider, known) {
                Some(similar) => format!("did you mean {similar:?}?"),
                None => "see: homard docs models".to_owned(),
            };
            return unusable(format!(
                "unknown provider \"{provider}\": it is neither in models.providers nor in the catalogue; {help}"
            ));
        };
        if let Some(problem) = Some(entry.spec.api.as_str()).filter(|api| !api.is_empty()).and_then(api_error) {
            return unusable(format!("the api of models.providers.{provider} {problem}"));
        }
        if entry.base_url.is_empty() {
            return unusable(format!(
                "models.providers.{provider}.baseUrl is missing; set it, for example to \"http://127.0.0.1:11434/v1\""
            ));
        }
        let timeout = catalog::idle_timeout(&self.configured, provider, model.trim());
        entry.spec.idle_timeout = timeout.unwrap_or_else(|| idle_timeout(&entry.base_url));
        if let Some(max_context) = self.max_context {
            entry.spec.context_window =
                if entry.spec.context_window == 0 { max_context } else { entry.spec.context_window.min(max_context) };
        }
        Ok(NamedModel::Entry(Box::new(entry)))
    }

    /// Returns the full name of the model that was probably meant by a name without a provider: one of the config, or else
    /// one of the catalogue.
    fn with_provider(&self, typed: &str) -> Option<String> {
        let configured: Vec<(String, String)> = self
            .configured
            .iter()
            .flat_map(|provider| provider.models.iter().map(|model| (provider.id.clone(), model.id.clone())))
            .collect();
        let listed = catalog::providers().filter(|_| self.mode == CatalogMode::Merge).flat_map(catalog::provider);
        let listed: Vec<(String, String)> = listed.map(|entry| (entry.spec.provider, entry.spec.model)).collect();
        let matching = |names: &[(String, String)]| {
            let model = nearest(typed, names.iter().map(|(_, model)| model.as_str()))?;
            names.iter().find(|(_, known)| known == model).map(|(provider, model)| format!("{provider}/{model}"))
        };
        matching(&configured).or_else(|| matching(&listed))
    }
}

fn unusable(why: String) -> Result<NamedModel, Error> {
    Err(Error::Model(why))
}

/// APIs that OpenClaw has and Homard does not support.
const UNSUPPORTED: [&str; 5] =
    ["bedrock-converse-stream", "github-copilot", "google-vertex", "ollama", "openai-chatgpt-responses"];

/// Returns what is wrong with the name of an API, if it is unsupported.
pub(crate) fn api_error(api: &str) -> Option<String> {
    if Wire::from_api(api).is_some() {
        return None;
    }
    let supported = Wire::ALL.map(Wire::api);
    let problem = if UNSUPPORTED.contains(&api) { "not supported" } else { "not a known API" };
    let help = match nearest(api, supported.into_iter()).filter(|_| !UNSUPPORTED.contains(&api)) {
        Some(similar) => format!("did you mean {similar:?}?"),
        None => format!("supported: {}", supported.join(", ")),
    };
    Some(format!("is {api:?}, which is {problem}; {help}"))
}

/// Returns true if the base URL of a provider is known by its name.
pub(crate) fn has_known_address(id: &str) -> bool {
    quirks::provider(id).is_some() || catalog::provider(id).next().is_some()
}

/// Fills in the base URL and the API of a known provider that is not in the catalogue.
fn fill_defaults(provider: &mut CatalogProvider) {
    let is_known = catalog::provider(&provider.id).next().is_some();
    if let Some(known) = quirks::provider(&provider.id).filter(|_| !is_known) {
        provider.base_url.get_or_insert_with(|| known.base_url.to_owned());
        provider.api.get_or_insert_with(|| known.api.to_owned());
    }
}
