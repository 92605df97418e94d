//! Built-in model catalogue: capabilities, prices and endpoints, available offline.
//!
//! The data is in `data/catalog.txt`, one line per model; `cargo xtask catalogue` generates it from a public package.
//! Lines are parsed lazily, only those that are needed. Start with [`resolve`], which also applies what a config adds
//! ([`extend`]).

mod extend;

use crate::{ModelSpec, Prices, ReasoningLevel};

pub use extend::{CatalogMode, CatalogModel, CatalogProvider, extend, idle_timeout, resolve};

const CATALOG: &str = include_str!("../data/catalog.txt");

/// Aliases of providers.
const PROVIDERS: &[(&str, &str)] =
    &[("z.ai", "zai"), ("z-ai", "zai"), ("opencode-zen", "opencode"), ("kimi-code", "kimi-coding")];

/// Aliases of models whose provider uses another name.
const MODELS: &[(&str, &str, &str)] = &[
    ("google", "gemini-3-pro", "gemini-3-pro-preview"),
    ("google", "gemini-3-flash", "gemini-3-flash-preview"),
    ("google", "gemini-3.1-pro", "gemini-3.1-pro-preview"),
];

/// A model and its endpoint.
#[derive(Debug, Clone, PartialEq)]
pub struct CatalogEntry {
    /// Capabilities, limits and prices of the model.
    pub spec: ModelSpec,
    /// Base URL, to which the path of the wire protocol is appended; empty if unknown.
    pub base_url: String,
}

/// Returns the source package of the data, with its version and date.
pub fn source() -> &'static str {
    CATALOG.lines().next().unwrap_or_default().trim_start_matches("# ")
}

/// Returns the names of all providers with known models, the best known first.
pub fn providers() -> impl Iterator<Item = &'static str> {
    let mut last = "";
    let is_new = move |name: &&'static str| std::mem::replace(&mut last, *name) != *name;
    sections().map(|section| section.provider).filter(is_new)
}

/// Returns the models of a provider; empty if it is unknown. Models that are not listed use the API of the first one.
pub fn provider(provider: &str) -> impl Iterator<Item = CatalogEntry> + use<> {
    let provider = provider_name(provider);
    let matching = sections().filter(move |section| section.provider == provider);
    matching.flat_map(|section| section.models().filter_map(move |line| section.entry(line)))
}

/// Finds a known model by its own name or an alias.
pub fn find(provider: &str, model: &str) -> Option<CatalogEntry> {
    let provider = provider_name(provider);
    let model = model_name(&provider, model);
    let matching = sections().filter(|section| section.provider == provider);
    matching.into_iter().find_map(|section| {
        let line = section.models().find(|line| line.split(' ').next() == Some(model))?;
        section.entry(line)
    })
}

/// Returns the catalogue's name for a provider; any other name is returned in lower case.
pub fn provider_name(name: &str) -> String {
    let name = name.trim().to_lowercase();
    PROVIDERS.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, canonical)| (*canonical).to_owned())
}

/// Returns the provider's own name for a model.
pub fn model_name<'a>(provider: &str, model: &'a str) -> &'a str {
    let found = MODELS.iter().find(|(owner, alias, _)| *owner == provider && *alias == model);
    found.map_or(model, |(_, _, canonical)| canonical)
}

/// Models of a provider that share an endpoint.
#[derive(Debug, Clone, Copy)]
struct CatalogSection {
    provider: &'static str,
    api: &'static str,
    base_url: &'static str,
    lines: &'static str,
}

/// Returns the sections of the catalogue. The text before the first one is for people.
fn sections() -> impl Iterator<Item = CatalogSection> {
    CATALOG.split("\n[").skip(1).filter_map(|section| {
        let (head, lines) = section.split_once('\n')?;
        let (provider, endpoint) = head.split_once("] ")?;
        let (api, base_url) = endpoint.split_once(' ')?;
        Some(CatalogSection { provider, api, base_url, lines })
    })
}

impl CatalogSection {
    fn models(self) -> impl Iterator<Item = &'static str> {
        self.lines.lines()
    }

    /// Parses the model of a line. A test makes sure that every line can be parsed.
    fn entry(self, line: &str) -> Option<CatalogEntry> {
        let mut fields = line.split(' ');
        let model = fields.next()?.to_owned();
        let context_window = fields.next()?.parse().ok()?;
        let max_output = fields.next()?.parse().ok()?;
        let thinking = match fields.next()? {
            "-" => Vec::new(),
            levels => levels.split(',').map(ReasoningLevel::parse).collect::<Option<_>>()?,
        };
        let accepts_images = fields.next()? == "images";
        let mut price = || fields.next()?.parse().ok();
        let prices = Prices { input: price()?, output: price()?, cache_read: price()?, cache_write: price()? };
        let (provider, api) = (self.provider.to_owned(), self.api.to_owned());
        let spec = ModelSpec {
            provider,
            model,
            api,
            context_window,
            max_output,
            thinking,
            accepts_images,
            prices,
            ..ModelSpec::default()
        };
        fields.next().is_none().then(|| CatalogEntry { spec, base_url: self.base_url.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_line_is_a_model_with_sane_numbers() {
        let lines: usize = sections().map(|section| section.models().count()).sum();
        let entries: Vec<_> = providers().flat_map(provider).collect();
        assert_eq!((entries.len(), entries.len() > 500), (lines, true));
        for CatalogEntry { spec, base_url } in &entries {
            assert!(spec.context_window > 0 && spec.max_output > 0, "{spec:?}");
            assert!(spec.max_output <= spec.context_window, "{spec:?}");
            let Prices { input, output, cache_read, cache_write } = spec.prices;
            assert!([input, output, cache_read, cache_write].iter().all(|price| (0.0..10_000.0).contains(price)));
            assert!(spec.thinking.is_sorted_by(|a, b| a < b), "{spec:?}");
            assert!(base_url.starts_with("https://") && !base_url.ends_with('/'), "{base_url}");
        }
        let names: HashSet<_> = entries.iter().map(|entry| (&entry.spec.provider, &entry.spec.model)).collect();
        assert_eq!(names.len(), entries.len(), "a model is there twice");
    }

    #[test]
    fn the_large_providers_are_listed_once() {
        let all: Vec<_> = providers().collect();
        let unique: HashSet<_> = all.iter().collect();
        assert_eq!(unique.len(), all.len());
        for wanted in ["anthropic", "openai", "google", "openrouter", "mistral", "xai", "deepseek", "groq"] {
            assert!(all.contains(&wanted) && provider(wanted).count() > 1, "{wanted}");
        }
        assert_eq!(provider("nobody").next(), None);
    }

    #[test]
    fn a_known_model_has_all_its_fields() {
        let expected = CatalogEntry {
            spec: ModelSpec {
                provider: "anthropic".to_owned(),
                model: "claude-opus-4-5".to_owned(),
                api: "anthropic-messages".to_owned(),
                context_window: 200_000,
                max_output: 64_000,
                thinking: crate::thinking::DEFAULT_LEVELS.to_vec(),
                accepts_images: true,
                prices: Prices { input: 5.0, output: 25.0, cache_read: 0.5, cache_write: 6.25 },
                ..ModelSpec::default()
            },
            base_url: "https://api.anthropic.com".to_owned(),
        };
        assert_eq!(find("Anthropic", "claude-opus-4-5"), Some(expected));
        assert_eq!(find("anthropic", "claude-opus"), None);
    }

    #[test]
    fn a_model_is_found_at_any_endpoint_of_its_provider() {
        for section in sections() {
            let line = section.models().last().unwrap();
            let found = find(section.provider, line.split(' ').next().unwrap()).unwrap();
            assert_eq!((found.spec.api.as_str(), found.base_url.as_str()), (section.api, section.base_url));
        }
    }

    #[test]
    fn aliases_are_resolved() {
        let found =
            |provider, model| find(provider, model).map(|CatalogEntry { spec, .. }| (spec.provider, spec.model));
        let name = |provider: &str, model: &str| Some((provider.to_owned(), model.to_owned()));
        assert_eq!(found("google", "gemini-3-flash"), name("google", "gemini-3-flash-preview"));
        assert_eq!(found("Z.AI", "glm-4.7"), name("zai", "glm-4.7"));
        assert_eq!(model_name("google", "gemini-3-pro"), "gemini-3-pro-preview");
        assert_eq!(model_name("opencode", "gemini-3-flash"), "gemini-3-flash");
        for (_, own) in PROVIDERS {
            assert!(provider(own).next().is_some(), "{own}");
        }
    }

    #[test]
    fn the_source_has_a_version_and_a_date() {
        let fields: Vec<_> = source().split(' ').collect();
        let [package, version, date] = fields[..] else { panic!("{fields:?}") };
        assert!(package.starts_with('@') && version.split('.').count() == 3, "{fields:?}");
        assert!(date.parse::<jiff::civil::Date>().is_ok(), "{date}");
    }
}
