//! `models`: providers and their models, added to the built-in catalogue or replacing it.

use std::{collections::BTreeMap, time::Duration};

use homard_model::{
    Prices,
    catalog::{CatalogMode, CatalogModel as Known, CatalogProvider},
};
use schemars::JsonSchema;
use serde::Deserialize;

use super::word::Word;
use crate::Text;

/// Model providers and their models.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Models {
    /// `merge`: in addition to the built-in catalogue; `replace`: instead of it. Default: merge.
    mode: Option<Word<CatalogMode>>,
    /// Providers by name.
    #[serde(deserialize_with = "super::named_objects")]
    pub providers: BTreeMap<String, Provider>,
}

super::word::words! {
    CatalogMode: "merge" => Self::Merge, "replace" => Self::Replace;
}

/// Settings of a model provider.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Provider {
    /// Base URL of the API.
    pub base_url: Option<Text>,
    /// API key; better as `"${NAME}"`, with the key in the environment.
    pub api_key: Option<Text>,
    /// Kind of the key: `token` and `oauth` are sent as a bearer token.
    pub auth: Option<String>,
    /// Also send the key as a bearer token, for APIs that use another header for it.
    pub auth_header: bool,
    /// Wire API: openai-completions, openai-responses, anthropic-messages, google-generative-ai. Default: that of a known provider, or what a probe finds at the first request.
    pub api: Option<String>,
    /// Additional HTTP headers of every request.
    pub headers: BTreeMap<String, Text>,
    /// Idle timeout of a request in seconds: how long a model may send nothing. Default: 120, more for a server on a private network.
    #[schemars(range(min = 1))]
    pub timeout_seconds: Option<u64>,
    /// Models of the provider.
    #[serde(deserialize_with = "super::objects")]
    pub models: Vec<Offer>,
    /// Error that makes the key unusable, if it references an environment variable which is not set.
    #[serde(skip)]
    pub key_fault: Option<String>,
    /// Error that makes the provider unusable, if it references an environment variable which is not set.
    #[serde(skip)]
    pub fault: Option<String>,
}

/// A model of a provider.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Offer {
    /// Id of the model at the provider.
    id: Text,
    /// Display name.
    #[serde(default)]
    #[allow(dead_code, reason = "read by people and by OpenClaw")]
    name: Option<String>,
    /// Wire API, if it differs from the provider's.
    #[serde(default)]
    api: Option<String>,
    /// Context window in tokens.
    #[serde(default)]
    context_window: Option<u64>,
    /// Maximum number of output tokens.
    #[serde(default)]
    max_tokens: Option<u64>,
    /// True if the model supports reasoning.
    #[serde(default)]
    reasoning: Option<bool>,
    /// Input types: `text`, `image`.
    #[serde(default)]
    input: Option<Vec<String>>,
    /// Prices of the model.
    #[serde(default, deserialize_with = "super::maybe_object")]
    cost: Option<Cost>,
    /// Idle timeout of a request in seconds. Default: that of the provider.
    #[serde(default)]
    #[schemars(range(min = 1))]
    timeout_seconds: Option<u64>,
}

/// Prices in US dollars per million tokens.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
struct Cost {
    /// Price of input tokens, in US dollars per million.
    input: f64,
    /// Price of output tokens, in US dollars per million.
    output: f64,
    /// Price of input tokens read from the provider's cache, in US dollars per million.
    cache_read: f64,
    /// Price of input tokens written to the provider's cache, in US dollars per million.
    cache_write: f64,
}

impl Provider {
    /// Returns the APIs that its models set for themselves, by index in the list.
    pub fn model_apis(&self) -> impl Iterator<Item = (usize, &str)> {
        self.models.iter().enumerate().filter_map(|(at, model)| Some((at, model.api.as_deref()?)))
    }
}

impl Models {
    /// Returns whether the built-in catalogue is merged or replaced.
    pub fn mode(&self) -> CatalogMode {
        self.mode.map_or(CatalogMode::Merge, |word| word.0)
    }

    /// Returns the providers in the form that the catalogue needs.
    pub fn configured(&self) -> Vec<CatalogProvider> {
        let text = |text: &Option<Text>| text.as_ref().map(|text| text.as_str().to_owned());
        let catalog_provider = |(id, provider): (&String, &Provider)| CatalogProvider {
            id: id.clone(),
            base_url: text(&provider.base_url),
            api: provider.api.clone(),
            timeout: timeout(provider.timeout_seconds),
            models: provider.models.iter().map(Offer::known).collect(),
        };
        self.providers.iter().map(catalog_provider).collect()
    }
}

impl Offer {
    fn known(&self) -> Known {
        let prices = |cost: &Cost| Prices {
            input: cost.input,
            output: cost.output,
            cache_read: cost.cache_read,
            cache_write: cost.cache_write,
        };
        Known {
            id: self.id.as_str().to_owned(),
            api: self.api.clone(),
            context_window: self.context_window,
            max_output: self.max_tokens,
            reasoning: self.reasoning,
            accepts_images: self.input.as_ref().map(|input| input.iter().any(|kind| kind == "image")),
            prices: self.cost.as_ref().map(prices),
            timeout: timeout(self.timeout_seconds),
        }
    }
}

fn timeout(seconds: Option<u64>) -> Option<Duration> {
    seconds.filter(|&seconds| seconds > 0).map(Duration::from_secs)
}
