//! `models`: providers and their models, added to the built-in catalogue or replacing it.

use std::{collections::BTreeMap, time::Duration};

use homard_model::{
    Prices,
    catalog::{CatalogMode, CatalogModel as Known, CatalogProvider, provider_name},
};
use homard_providers::quirks;
use schemars::JsonSchema;
use serde::Deserialize;

use super::word::Word;
use crate::Text;

/// Providers whose base URL the environment may set, with the variable.
const BASE_URL_VARIABLES: [(&str, &str); 3] =
    [("openai", "OPENAI_BASE_URL"), ("anthropic", "ANTHROPIC_BASE_URL"), ("ollama", "OLLAMA_HOST")];

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
    /// Sign-in at the provider instead of an API key, with `homard models auth login`.
    #[serde(deserialize_with = "super::maybe_object")]
    pub oauth: Option<OauthClient>,
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

/// How to sign in at a provider: OAuth with a device code (RFC 8628).
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct OauthClient {
    /// Client id of Homard at the issuer.
    pub client_id: String,
    /// URL of the issuer, whose metadata names the endpoints.
    pub issuer: Option<String>,
    /// Device authorization endpoint, for an issuer without metadata.
    pub device_authorization_endpoint: Option<String>,
    /// Token endpoint, for an issuer without metadata.
    pub token_endpoint: Option<String>,
    /// Scopes to request.
    pub scopes: Vec<String>,
}

impl OauthClient {
    /// Returns what is missing to sign in, if anything.
    pub fn fault(&self) -> Option<&'static str> {
        let has_endpoints = self.device_authorization_endpoint.is_some() && self.token_endpoint.is_some();
        if self.client_id.trim().is_empty() {
            Some("has no clientId; register a client at the issuer, and set its id")
        } else if self.issuer.is_none() && !has_endpoints {
            Some("has neither an issuer, nor both deviceAuthorizationEndpoint and tokenEndpoint")
        } else {
            None
        }
    }
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

    /// Uses the base URLs that the environment sets for providers whose URL the config does not set. Whether another
    /// server at `OPENAI_BASE_URL` speaks the responses API is unknown, so its API is probed.
    pub(crate) fn use_environment(&mut self, variable: impl Fn(&str) -> Option<String>) {
        for (name, key) in BASE_URL_VARIABLES {
            let Some(url) = variable(key).map(|url| url.trim().to_owned()).filter(|url| !url.is_empty()) else {
                continue;
            };
            let configured = self.providers.keys().find(|id| provider_name(id) == name).cloned();
            let provider = self.providers.entry(configured.unwrap_or_else(|| name.to_owned())).or_default();
            if provider.base_url.is_some() {
                continue;
            }
            if name == "openai" && !quirks::is_host_of(name, &url) {
                provider.api.get_or_insert_default();
            }
            provider.base_url = Some(Text::from(if name == "ollama" { ollama_url(&url) } else { url }));
        }
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

/// Returns the base URL of Ollama's server from its own variable: an address to listen on or a URL, without a path.
fn ollama_url(host: &str) -> String {
    let (scheme, address) = host.split_once("://").unwrap_or(("http", host));
    let address = address.trim_end_matches('/');
    // The address of a server that listens everywhere is no address to connect to.
    let address = address.strip_prefix("0.0.0.0").map_or_else(|| address.to_owned(), |port| format!("127.0.0.1{port}"));
    let has_port = address.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let port = if has_port || scheme == "https" { "" } else { ":11434" };
    format!("{scheme}://{address}{port}/v1")
}

fn timeout(seconds: Option<u64>) -> Option<Duration> {
    seconds.filter(|&seconds| seconds > 0).map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_sets_base_urls_that_the_config_does_not_set() {
        let urls = |text: &str, set: &[(&str, &str)]| {
            let mut config = crate::Config::parse(text).unwrap();
            config.models.use_environment(|name| {
                set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
            });
            let url = |(id, provider): (&String, &Provider)| {
                (id.clone(), provider.base_url.clone().map(|url| url.as_str().to_owned()), provider.api.clone())
            };
            config.models.providers.iter().map(url).collect::<Vec<_>>()
        };
        let provider =
            |id: &str, url: &str, api: Option<&str>| (id.to_owned(), Some(url.to_owned()), api.map(str::to_owned));
        let mine = "http://127.0.0.1:9/v1";
        assert_eq!(urls("{}", &[("OPENAI_BASE_URL", mine)]), [provider("openai", mine, Some(""))]);
        let own = "https://api.openai.com/v1";
        assert_eq!(urls("{}", &[("OPENAI_BASE_URL", own)]), [provider("openai", own, None)]);
        assert_eq!(urls("{}", &[("ANTHROPIC_BASE_URL", mine)]), [provider("anthropic", mine, None)]);
        assert_eq!(urls("{}", &[("OPENAI_BASE_URL", " ")]), []);
        for (host, url) in [
            ("127.0.0.1:9", "http://127.0.0.1:9/v1"),
            ("0.0.0.0", "http://127.0.0.1:11434/v1"),
            ("http://box:1/", "http://box:1/v1"),
            ("https://box", "https://box/v1"),
        ] {
            assert_eq!(urls("{}", &[("OLLAMA_HOST", host)]), [provider("ollama", url, None)]);
        }
        let configured = "{models: {providers: {openai: {baseUrl: 'http://127.0.0.1:8/v1'}}}}";
        assert_eq!(urls(configured, &[("OPENAI_BASE_URL", mine)]), [provider("openai", "http://127.0.0.1:8/v1", None)]);
        let with_api = "{models: {providers: {OpenAI: {api: 'openai-responses'}}}}";
        assert_eq!(urls(with_api, &[("OPENAI_BASE_URL", mine)]), [provider("OpenAI", mine, Some("openai-responses"))]);
    }
}
