//! Merges the models of a config into the catalogue.

use std::time::Duration;

use super::{CatalogEntry, model_name, provider, provider_name};
use crate::{ModelSpec, Prices, thinking};

/// Default maximum of output tokens for a model listed in the config.
const MAX_OUTPUT: u64 = 8_192;

/// Treatment of known models that a config does not list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CatalogMode {
    /// They are kept.
    #[default]
    Merge,
    /// They are removed: only configured models exist.
    Replace,
}

/// A configured provider (`models.providers.<id>`).
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CatalogProvider {
    /// Provider name.
    pub id: String,
    /// Endpoint; defaults to the one in the catalogue.
    pub base_url: Option<String>,
    /// Wire API of all its models; defaults to the one in the catalogue.
    pub api: Option<String>,
    /// Idle timeout of its models' streams.
    pub timeout: Option<Duration>,
    /// Listed models.
    pub models: Vec<CatalogModel>,
}

/// A configured model. Absent values come from the catalogue.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CatalogModel {
    /// Model name.
    pub id: String,
    /// Wire API; overrides the provider's.
    pub api: Option<String>,
    /// Context window in tokens.
    pub context_window: Option<u64>,
    /// Maximum output tokens.
    pub max_output: Option<u64>,
    /// True if it supports reasoning.
    pub reasoning: Option<bool>,
    /// True if it accepts images.
    pub accepts_images: Option<bool>,
    /// Prices.
    pub prices: Option<Prices>,
    /// Idle timeout of its stream; overrides the provider's.
    pub timeout: Option<Duration>,
}

/// Returns all models: for each configured provider the listed ones first, in their order, then its known ones; then
/// the known ones of all other providers. Config values override the catalogue.
pub fn extend(known: Vec<CatalogEntry>, configured: &[CatalogProvider], mode: CatalogMode) -> Vec<CatalogEntry> {
    let mut all: Vec<CatalogEntry> = Vec::new();
    let mut remaining = known;
    for provider_config in configured {
        let name = provider_name(&provider_config.id);
        let (mut known_entries, others) =
            remaining.into_iter().partition::<Vec<_>, _>(|entry| entry.spec.provider == name);
        remaining = others;
        known_entries.iter_mut().for_each(|entry| provider_config.override_entry(entry));
        for model_config in &provider_config.models {
            let model = model_name(&name, &model_config.id);
            let known = known_entries.iter().find(|entry| entry.spec.model == model).cloned();
            all.push(model_config.apply(known.unwrap_or_else(|| provider_config.assume(known_entries.first(), model))));
        }
        let is_listed = |entry: &CatalogEntry| {
            provider_config.models.iter().any(|model_config| model_name(&name, &model_config.id) == entry.spec.model)
        };
        all.extend(known_entries.into_iter().filter(|entry| mode == CatalogMode::Merge && !is_listed(entry)));
    }
    all.extend(remaining.into_iter().filter(|_| mode == CatalogMode::Merge));
    all
}

/// Finds a model by provider and name, as [`extend`] would return it. [`ModelSpec::api`] is empty if its API is unknown.
///
/// An unlisted model is assumed to be like the others of its provider, with the default context window. Returns `None`
/// if the provider is neither configured nor known.
pub fn resolve(
    configured: &[CatalogProvider],
    mode: CatalogMode,
    provider_id: &str,
    model: &str,
) -> Option<CatalogEntry> {
    let name = provider_name(provider_id);
    let provider_config = configured.iter().find(|provider_config| provider_name(&provider_config.id) == name);
    if provider_config.is_none() && mode == CatalogMode::Replace {
        return None;
    }
    let model = model_name(&name, model);
    let all = extend(provider(&name).collect(), provider_config.map(std::slice::from_ref).unwrap_or_default(), mode);
    if let Some(found) = all.into_iter().find(|entry| entry.spec.model == model) {
        return Some(found);
    }
    let mut template = provider(&name).next();
    let Some(provider_config) = provider_config else { return template.map(|template| assume(&template, model)) };
    template.iter_mut().for_each(|template| provider_config.override_entry(template));
    Some(provider_config.assume(template.as_ref(), model))
}

/// Returns the configured idle timeout of a model: its own or its provider's.
pub fn idle_timeout(configured: &[CatalogProvider], provider: &str, model: &str) -> Option<Duration> {
    let name = provider_name(provider);
    let provider_config = configured.iter().find(|provider_config| provider_name(&provider_config.id) == name)?;
    let model = model_name(&name, model);
    let model_config = provider_config.models.iter().find(|model_config| model_name(&name, &model_config.id) == model);
    model_config.and_then(|model_config| model_config.timeout).or(provider_config.timeout)
}

/// Builds the entry of an unlisted model, with the API and endpoint of another model of its provider.
fn assume(template: &CatalogEntry, model: &str) -> CatalogEntry {
    let ModelSpec { provider, api, .. } = template.spec.clone();
    CatalogEntry {
        spec: ModelSpec { provider, api, model: model.to_owned(), ..ModelSpec::default() },
        base_url: template.base_url.clone(),
    }
}

impl CatalogProvider {
    /// Applies the config's provider name, endpoint and API to a known model.
    fn override_entry(&self, entry: &mut CatalogEntry) {
        entry.spec.provider.clone_from(&self.id);
        if let Some(base_url) = &self.base_url {
            entry.base_url.clone_from(base_url);
        }
        if let Some(api) = &self.api {
            entry.spec.api.clone_from(api);
        }
    }

    fn assume(&self, template: Option<&CatalogEntry>, model: &str) -> CatalogEntry {
        template.map(|template| assume(template, model)).unwrap_or_else(|| {
            let (provider, api) = (self.id.clone(), self.api.clone().unwrap_or_default());
            let base_url = self.base_url.clone().unwrap_or_default();
            CatalogEntry {
                spec: ModelSpec { provider, api, model: model.to_owned(), ..ModelSpec::default() },
                base_url,
            }
        })
    }
}

impl CatalogModel {
    /// Overrides an entry with the configured values.
    fn apply(&self, mut entry: CatalogEntry) -> CatalogEntry {
        let spec = &mut entry.spec;
        spec.api = self.api.clone().unwrap_or_else(|| std::mem::take(&mut spec.api));
        // Some configs write zero for "unknown".
        spec.context_window = self.context_window.filter(|window| *window > 0).unwrap_or(spec.context_window);
        let default_output = if spec.max_output == 0 { MAX_OUTPUT } else { spec.max_output };
        spec.max_output = self.max_output.unwrap_or_else(|| default_output.min(spec.context_window));
        match self.reasoning {
            Some(true) if spec.thinking.is_empty() => spec.thinking = thinking::DEFAULT_LEVELS.to_vec(),
            Some(false) => spec.thinking.clear(),
            Some(true) | None => {}
        }
        spec.accepts_images = self.accepts_images.unwrap_or(spec.accepts_images);
        spec.prices = self.prices.unwrap_or(spec.prices);
        entry
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timeout_of_a_model_wins_over_that_of_its_provider() {
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        let slow = CatalogModel { timeout: seconds(600), ..model_config("slow") };
        let config = [CatalogProvider { timeout: seconds(20), ..configured("mine", vec![slow, model_config("m")]) }];
        assert_eq!(idle_timeout(&config, "mine", "slow"), seconds(600));
        assert_eq!(idle_timeout(&config, "Mine", "m"), seconds(20));
        assert_eq!(idle_timeout(&config, "mine", "not listed"), seconds(20));
        assert_eq!(idle_timeout(&config, "other", "m"), None);
    }
    use crate::{ReasoningLevel, spec::DEFAULT_CONTEXT_WINDOW};

    fn known(provider: &str, model: &str) -> CatalogEntry {
        let spec = ModelSpec {
            provider: provider.to_owned(),
            model: model.to_owned(),
            api: "anthropic-messages".to_owned(),
            context_window: 1_000,
            max_output: 100,
            thinking: vec![ReasoningLevel::High],
            ..ModelSpec::default()
        };
        CatalogEntry { spec, base_url: "https://known".to_owned() }
    }

    fn configured(id: &str, models: Vec<CatalogModel>) -> CatalogProvider {
        CatalogProvider { id: id.to_owned(), models, ..CatalogProvider::default() }
    }

    fn model_config(id: &str) -> CatalogModel {
        CatalogModel { id: id.to_owned(), ..CatalogModel::default() }
    }

    fn names(entries: &[CatalogEntry]) -> Vec<String> {
        entries.iter().map(|entry| format!("{}/{}", entry.spec.provider, entry.spec.model)).collect()
    }

    #[test]
    fn listed_models_come_first_and_unlisted_ones_stay_only_in_a_merge() {
        let all = || vec![known("a", "1"), known("b", "1"), known("b", "2")];
        let config =
            [configured("b", vec![model_config("new"), model_config("2")]), configured("c", vec![model_config("x")])];
        assert_eq!(names(&extend(all(), &config, CatalogMode::Merge)), ["b/new", "b/2", "b/1", "c/x", "a/1"]);
        assert_eq!(names(&extend(all(), &config, CatalogMode::Replace)), ["b/new", "b/2", "c/x"]);
        assert_eq!(extend(all(), &[], CatalogMode::Merge), all());
    }

    #[test]
    fn config_values_override_the_catalogue() {
        let prices = Prices { input: 1.0, ..Prices::default() };
        let overrides = CatalogModel {
            api: Some("openai-completions".to_owned()),
            context_window: Some(50),
            reasoning: Some(false),
            accepts_images: Some(false),
            prices: Some(prices),
            ..model_config("1")
        };
        let mut expected = known("a", "1");
        expected.spec.api = "openai-completions".to_owned();
        (expected.spec.context_window, expected.spec.max_output) = (50, 50);
        (expected.spec.thinking, expected.spec.accepts_images, expected.spec.prices) = (Vec::new(), false, prices);
        assert_eq!(extend(vec![known("a", "1")], &[configured("a", vec![overrides])], CatalogMode::Merge), [expected]);
        let no_overrides = [configured("a", vec![model_config("1")])];
        assert_eq!(extend(vec![known("a", "1")], &no_overrides, CatalogMode::Replace), [known("a", "1")]);
    }

    #[test]
    fn a_configured_endpoint_applies_to_all_models_of_the_provider() {
        let endpoint = (Some("http://proxy/v1".to_owned()), Some("openai-completions".to_owned()));
        let config =
            CatalogProvider { base_url: endpoint.0, api: endpoint.1, ..configured("A", vec![model_config("new")]) };
        let all = extend(vec![known("a", "1"), known("b", "1")], &[config], CatalogMode::Merge);
        let endpoints: Vec<_> = all.iter().map(|entry| (entry.spec.api.as_str(), entry.base_url.as_str())).collect();
        let proxied = ("openai-completions", "http://proxy/v1");
        assert_eq!(endpoints, [proxied, proxied, ("anthropic-messages", "https://known")]);
        assert_eq!(names(&all), ["A/new", "A/1", "b/1"]);
    }

    #[test]
    fn a_model_known_only_from_the_config_gets_defaults() {
        let config = [configured("mine", vec![CatalogModel { reasoning: Some(true), ..model_config("m") }])];
        let spec = ModelSpec {
            provider: "mine".to_owned(),
            model: "m".to_owned(),
            context_window: DEFAULT_CONTEXT_WINDOW,
            max_output: 8_192,
            thinking: thinking::DEFAULT_LEVELS.to_vec(),
            ..ModelSpec::default()
        };
        assert_eq!(extend(Vec::new(), &config, CatalogMode::Merge), [CatalogEntry { spec, base_url: String::new() }]);
        let unknown = [configured("mine", vec![CatalogModel { context_window: Some(0), ..model_config("m") }])];
        let spec = &extend(Vec::new(), &unknown, CatalogMode::Merge)[0].spec;
        assert_eq!((spec.context_window, spec.max_output), (DEFAULT_CONTEXT_WINDOW, 8_192));
    }

    #[test]
    fn an_unlisted_model_of_a_known_provider_is_assumed() {
        let resolved = |configured: &[CatalogProvider], mode, provider, model| {
            let entry = resolve(configured, mode, provider, model)?;
            Some((format!("{} {}", entry.spec.api, entry.base_url), entry.spec.context_window, entry.spec.max_output))
        };
        let endpoint = |endpoint: &str, window, output| Some((endpoint.to_owned(), window, output));
        let anthropic = "anthropic-messages https://api.anthropic.com";
        assert_eq!(resolved(&[], CatalogMode::Merge, "anthropic", "claude-next"), endpoint(anthropic, 200_000, 0));
        assert_eq!(
            resolved(&[], CatalogMode::Merge, "anthropic", "claude-opus-4-5"),
            endpoint(anthropic, 200_000, 64_000)
        );
        assert_eq!(resolved(&[], CatalogMode::Replace, "anthropic", "claude-opus-4-5"), None);
        assert_eq!(resolved(&[], CatalogMode::Merge, "nobody", "m"), None);

        let proxy = Some("http://proxy".to_owned());
        let config =
            [CatalogProvider { base_url: proxy, ..configured("anthropic", vec![model_config("claude-opus-4-5")]) }];
        let proxied = "anthropic-messages http://proxy";
        assert_eq!(
            resolved(&config, CatalogMode::Merge, "anthropic", "claude-opus-4-5"),
            endpoint(proxied, 200_000, 64_000)
        );
        assert_eq!(resolved(&config, CatalogMode::Replace, "anthropic", "claude-next"), endpoint(proxied, 200_000, 0));
        let mine = [configured("mine", Vec::new())];
        assert_eq!(resolved(&mine, CatalogMode::Replace, "mine", "m"), endpoint(" ", 200_000, 0));
    }

    #[test]
    fn aliases_resolve_to_listed_and_unlisted_models() {
        let listed = CatalogModel { context_window: Some(7), ..model_config("gemini-3-flash") };
        let config = [configured("google", vec![listed])];
        let entry = resolve(&config, CatalogMode::Merge, "google", "gemini-3-flash-preview").unwrap();
        assert_eq!((entry.spec.model.as_str(), entry.spec.context_window), ("gemini-3-flash-preview", 7));
        let unlisted = resolve(&[], CatalogMode::Merge, "google", "gemini-3-pro").unwrap();
        assert_eq!(unlisted.spec.model, "gemini-3-pro-preview");
    }
}
